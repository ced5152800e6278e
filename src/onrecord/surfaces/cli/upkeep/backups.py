"""Backups: an online copy of the whole store, and a verified copy put in its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.errors import DamagedLog, StoreError
from onrecord.machine.files import sync_directory
from onrecord.session.handle import Session
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import counted as plural
from onrecord.surfaces.cli.upkeep.prove import Progress, all_heads

if TYPE_CHECKING:
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
    replaced = "force" in call and path.is_file()
    if replaced:
        # Made first and then renamed over the old one: at no moment is there no backup.
        part = Path(copy(f"{path}.new"))
        part.replace(path)
        sync_directory(path.parent)
    else:
        path = Path(copy(str(path)))
    size = path.stat().st_size
    data = {"file": str(path), "bytes": size, "store": store.url, "replaced": replaced}
    instead = ", in place of the file that was there" if replaced else ""
    return call.output.done("backup", data, f"backed up {store.url} to {path} ({size:,} bytes){instead}")


def _restore(call: Call, source: str) -> int:
    """Every session of the backup is verified before anything is touched."""
    from onrecord.connection import restore, store_file

    path = Path(source).expanduser()
    if not path.is_file():
        raise UsageError(f"the file {path} does not exist")
    place = store_file(call.get("store"))
    if place is not None and Path(place).exists():
        call.confirm(f"Replace {place} with {path}? The present store is kept under another name.")
    counted = {"sessions": 0, "events": 0}

    def check(records: SessionStore) -> None:
        heads = list(all_heads(records))
        progress, total = Progress(call, "events verified"), sum(head.position for head in heads)
        for head in heads:
            report = Session(records.store, head.session).verify()
            if not report.ok:
                first = report.problems[0]
                where = f"session {head.name!r}, position {first.position}"
                raise DamagedLog(
                    f"{path} is damaged: {where}, {first.cause}: {first.detail}",
                    hint="nothing was changed; try an older backup",
                )
            counted["sessions"] += 1
            counted["events"] += report.events
            progress(counted["events"], total)
        progress.finish()

    aside = restore(str(path), call.get("store"), check=check)
    data = {"state": "restored", "store": str(place), "from": str(path), "aside": aside} | counted
    moved = f"; the previous store is now {aside}" if aside else ""
    return call.output.done(
        "restore", data, f"restored and verified {plural(counted['sessions'], 'session')} from {path}{moved}"
    )
