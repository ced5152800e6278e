"""Encryption of a store in a file: encrypt, another key, decrypt, and making a key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.connection import config_path, open_store, settings, shown_url, store_file, store_key
from onrecord.environment import KEY_VARIABLE
from onrecord.errors import InvalidInput, StoreLocked
from onrecord.machine import keys
from onrecord.session.session_store import SessionStore
from onrecord.surfaces.cli.shared.exits import NotInitialised, UsageError
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.upkeep.prove import verify_every

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.store import Store
    from onrecord.surfaces.cli.shared.call import Call

DEFAULT_KEY = "store.key"
"""The name of a new key's file, beside the settings, where nothing else is said."""
_DONE = {"encrypt": "encrypted", "rekey": "rekeyed", "decrypt": "decrypted"}
_SAID = {"encrypt": "encrypted {0}", "rekey": "{0} has a new key", "decrypt": "{0} is no longer encrypted"}


def change(call: Call, url: str, action: str) -> int:
    """Encrypt, rekey or decrypt a store that no process uses; every session is verified first."""
    file = store_file(url)
    if file is None:
        raise InvalidInput(
            f"{shown_url(url)} is not a file", hint="the disk of a database server is encrypted by its administrator"
        )
    if not Path(file).expanduser().exists():
        raise NotInitialised(f"there is no store at {file}")
    new, where = _new_key(call, action)
    store: Any = open_store(url)
    data = {"store": store.url, "encrypted": action != "decrypt"}
    if store.encrypted == data["encrypted"] and action != "rekey":
        store.close()
        data["state"] = f"already_{_DONE[action]}"
        said = "is already encrypted" if store.encrypted else "is not encrypted"
        return call.output.done("store", data, f"{file} {said}")
    if action == "rekey" and not store.encrypted:
        store.close()
        raise UsageError(f"{file} is not encrypted, so it has no key to change", hint="`onrecord store encrypt`")
    count = {"sessions": 0, "events": 0}
    store.reencrypt(new, _verified(call, count))
    data |= {"state": _DONE[action]} | count
    if where:
        call.output.note(f"before the next command, write {where}")
        if os.environ.get(KEY_VARIABLE):
            call.output.note(f"{KEY_VARIABLE} is set and comes first: change it, or remove it")
    if action == "rekey":
        call.output.note("backups that were made before still need the old key")
    elif action == "encrypt":
        call.output.note("keep a copy of the key elsewhere: without it, nothing can read this store or its backups")
        call.output.note("backups and exports that were made before are not encrypted")
    return call.output.done(
        "store", data, f"{_SAID[action].format(file)}; verified {counted(count['sessions'], 'session')}"
    )


def _new_key(call: Call, action: str) -> tuple[bytes | None, str]:
    """The key that the store will have, and how the settings name it."""
    if action == "decrypt":
        if any(name in call for name in ("key-file", "keyring")):
            raise UsageError("decrypt uses the configured key and takes no other")
        return None, ""
    chosen = _named(call)
    if chosen is not None:
        name, value = chosen
        key = keys.read_key(value) if name == "file" else keys.keyring_key(value)
        return key, "" if store_key() == key else _setting(name, value)
    if action == "rekey":
        raise UsageError("name the new key", hint="`onrecord store new-key --key-file FILE` makes one")
    known = store_key()
    if known is None:
        raise StoreLocked("no key is configured", hint=StoreLocked.hint, step="name_key")
    return known, ""


def _setting(name: str, value: str) -> str:
    """A key as the settings name it."""
    path = str(Path(value).expanduser().absolute()) if name == "file" else value
    return f'{name} = "{path}" under [encryption] in {config_path()}'


def _named(call: Call) -> tuple[str, str] | None:
    """The file or the entry of the keyring that the options name."""
    file, entry = call.get("key-file"), call.get("keyring")
    if file and entry:
        raise UsageError("name one key: --key-file or --keyring, not both")
    if file:
        return "file", str(file)
    return ("keyring", str(entry)) if entry else None


def _verified(call: Call, count: dict[str, int]) -> Callable[[Store], None]:
    def check(store: Store) -> None:
        hint = "nothing was changed; restore a backup first"
        verify_every(call, SessionStore(store), count, "the store", hint)

    return check


def new_key(call: Call, words: list[str]) -> int:
    """Make a random key where the options or the settings say; an existing one is never replaced."""
    if words:
        raise UsageError("new-key takes no URL: one key opens all stores that were encrypted with it")
    chosen = _named(call)
    known = settings().get("encryption", {})
    if chosen is None:
        way = keys.chosen_way(known)
        if way == "command":
            raise UsageError(
                "the settings name a command for the key, so onrecord cannot write it",
                hint="`openssl rand -hex 32` prints a key",
            )
        beside = str(Path(config_path()).parent / DEFAULT_KEY)
        chosen = (way, known[way]) if way else ("file", beside)
    name, value = chosen
    kept = keys.write_new_key(value) if name == "file" else keys.keep_new_key(value)
    if known.get(name) != value:
        call.output.note(f"to use it, write {_setting(name, kept)}")
    where = f"to {kept}" if name == "file" else f"into the keyring, as {kept!r}"
    return call.output.done("key", {"state": "made", name: kept}, f"wrote a new key {where}")
