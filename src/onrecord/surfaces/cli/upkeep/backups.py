"""Backups: an online copy of the whole store, and a verified copy put in its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.errors import StoreError
from onrecord.machine.files import sync_directory
from onrecord.machine.keys import is_configured
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.files import file_to_read, refuse_missing_directory
from onrecord.surfaces.cli.shared.output import counted as plural
from onrecord.surfaces.cli.upkeep.prove import verify_every

if TYPE_CHECKING:
    from onrecord.log.store import Store
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call


def backup(call: Call) -> int:
    """Copy the store to a file, or put a copy in its place."""
    target, source = call.positional.get("FILE"), call.get("restore")
    if bool(target) == bool(source):
        raise UsageError(
            "name a file to write, or --restore and a file to read", hint=f"for example: `{call.verb.example}`"
        )
    return _restore(call, str(source)) if source else _back_up(call, str(target))


def _back_up(call: Call, target: str) -> int:
    store = call.records(make=False).store
    copy = getattr(store, "backup", None)
    if copy is None:
        raise StoreError(
            f"{store.url} cannot be backed up by onrecord", hint="`onrecord export` writes single sessions"
        )
    path = Path(target).expanduser()
    refuse_missing_directory(path)
    replaced = "force" in call and path.is_file()
    if replaced:
        # Made first and then renamed over the old one: at no moment is there no backup.
        part = Path(copy(f"{path}.new"))
        for companion in ("-wal", "-shm", "-journal"):
            # Of the old backup, if someone opened it: SQLite would replay it onto the new one.
            path.with_name(path.name + companion).unlink(missing_ok=True)
        part.replace(path)
        sync_directory(path.parent)
    else:
        path = Path(copy(str(path)))
    size = path.stat().st_size
    if keys := _keys_of(store):
        call.output.note(f"the keys of its sessions are in {keys}, and not in the backup, which needs them to be read")
    data = {"file": str(path), "bytes": size, "store": store.url, "replaced": replaced, "keys": keys}
    instead = ", in place of the file that was there" if replaced else ""
    return call.output.done("backup", data, f"backed up {store.url} to {path} ({size:,} bytes){instead}")


def _keys_of(store: Store) -> str | None:
    """Where the keys of sessions are; None if no session has a key of its own."""
    keyed: Any = store
    return keyed.session_keys.directory if keyed.keyed_sessions() else None


def _restore(call: Call, source: str) -> int:
    """Every session of the backup is verified before anything is touched."""
    from onrecord.connection import restore, settings, store_file

    path = file_to_read(source)
    place = store_file(call.get("store"))
    if place is not None and Path(place).exists():
        call.confirm(f"Replace {place} with {path}? The present store is kept under another name.")
    counted = {"sessions": 0, "events": 0}

    def check(records: SessionStore) -> None:
        verify_every(call, records, counted, str(path), "nothing was changed; try an older backup")

    aside = restore(str(path), call.get("store"), check=check)
    records = call.records(make=False)
    erased = records.erase_again()
    if erased:
        call.output.note(f"erased after this backup was made, and therefore erased in it, too: {', '.join(erased)}")
    if is_configured(settings().get("encryption", {})) and _begins(path) == b"SQLite format 3":
        call.output.note("a key is configured, and this backup is not encrypted; `onrecord store encrypt` encrypts it")
    data = {"state": "restored", "store": str(place), "from": str(path), "aside": aside, "erased": erased} | counted
    moved = f"; the previous store is now {aside}" if aside else ""
    return call.output.done(
        "restore", data, f"restored and verified {plural(counted['sessions'], 'session')} from {path}{moved}"
    )


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(15)
