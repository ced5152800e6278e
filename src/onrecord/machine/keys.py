"""Where the key of encrypted stores is kept: the environment, a file, what a command prints, the system's keyring.

A key is 32 random bytes, written as 64 hexadecimal digits. It is never an argument of a command: other users of a
machine can read those.
"""

from __future__ import annotations

import os
import stat
from importlib import import_module

from onrecord.environment import KEY_VARIABLE
from onrecord.errors import InvalidInput, StoreLocked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any

KEY_BYTES = 32
COMMAND_SECONDS = 60.0
"""How long a command may take to print the key: it may ask a person for a passphrase."""
READ_BYTES = 4096
"""How much of a file or an output is read as a key."""
KEYRING_SERVICE = "onrecord"
WAYS = ("file", "command", "keyring")
"""What `[encryption]` in the settings can name; one of them."""

_OTHERS_MAY_ANYTHING = 0o077
_OPENED = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")


def configured_key(chosen: Mapping[str, Any], section: str = "encryption") -> bytes | None:
    """The key that the environment has, or that the settings name; None where neither does."""
    text = os.environ.get(KEY_VARIABLE)
    if text:
        return parsed(text, KEY_VARIABLE)
    way = chosen_way(chosen, section)
    if way is None:
        return None
    if way == "file":
        return read_key(chosen[way])
    return _printed(chosen[way]) if way == "command" else keyring_key(chosen[way])


def is_configured(chosen: Mapping[str, Any]) -> bool:
    """Whether the environment has a key, or the settings name one; it is not read."""
    return bool(os.environ.get(KEY_VARIABLE) or chosen)


def chosen_way(chosen: Mapping[str, Any], section: str = "encryption") -> str | None:
    """Which way a section of the settings names, checked; None if it is empty."""
    for name, value in chosen.items():
        words = isinstance(value, list) and bool(value) and all(isinstance(one, str) and one for one in value)
        if name not in WAYS or not (words if name == "command" else isinstance(value, str) and value):
            raise InvalidInput(
                f"{section}: {name!r} is not a setting, or has the wrong type",
                hint="file and keyring are text, command is a list of words; name one of them",
            )
    if len(chosen) > 1:
        raise InvalidInput(
            f"{section}: only one key can be configured, and {' and '.join(chosen)} each name one",
            hint="remove all but one",
        )
    return next(iter(chosen), None)


def parsed(text: str, source: str) -> bytes:
    """A key from its text; what is wrong with it is said without showing it."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise StoreLocked(
            f"{source} has no key: a key is {2 * KEY_BYTES} hexadecimal digits",
            hint="a passphrase is not a key; make a random one",
            step="new_key",
        )
    return key


def read_key(path: str) -> bytes:
    """The key in a file that only its owner can read. A pipe that a shell opened (`<(command)`) is fine too."""
    place = os.path.expanduser(path)
    try:
        file = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise StoreLocked(
            f"the key file {place} does not exist", hint="restore it from a copy", step="lost_key"
        ) from None
    except OSError as problem:
        raise StoreLocked(f"the key file {place} cannot be read: {problem.strerror}") from None
    try:
        facts = os.fstat(file)
        if not place.startswith(_OPENED):
            _refuse_open_to_others(place, facts)
        os.set_blocking(file, True)
        text = os.read(file, READ_BYTES)
    except OSError as problem:
        raise StoreLocked(f"the key file {place} cannot be read: {problem.strerror}") from None
    finally:
        os.close(file)
    return parsed(text.decode(errors="replace"), place)


def _refuse_open_to_others(path: str, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise StoreLocked(f"the key file {path} is not a regular file")
    if facts.st_uid not in (os.geteuid(), 0):
        raise StoreLocked(f"the key file {path} belongs to another user")
    if facts.st_mode & _OTHERS_MAY_ANYTHING:
        from onrecord.shell.splitting import quote

        raise StoreLocked(
            f"other users may read the key file {path} (mode {stat.S_IMODE(facts.st_mode):04o})",
            hint=f"close it to them: chmod 600 {quote(str(path))}; if they may have read it, change the key",
        )


def write_new_key(path: str) -> str:
    """Write a new random key to a file that does not exist yet, for its owner alone; returns the file's path."""
    from pathlib import Path

    from onrecord.machine.files import write_file

    place = Path(path).expanduser()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        write_file(place, [f"{os.urandom(KEY_BYTES).hex()}\n".encode()], exact_mode=0o600, replace=False)
    except FileExistsError:
        raise InvalidInput(f"{place} exists; a key is never replaced", hint="choose another name") from None
    return str(place)


def _printed(command: list[str]) -> bytes:
    """The key that a command prints. No shell runs it, and what it prints is not shown."""
    import subprocess

    environment = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
    try:
        done = subprocess.run(
            [os.path.expanduser(command[0]), *command[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=COMMAND_SECONDS, check=False, env=environment,
        )  # fmt: skip
    except OSError as problem:
        raise StoreLocked(f"the command for the key, {command[0]}, cannot be run: {problem.strerror}") from None
    except subprocess.TimeoutExpired:
        raise StoreLocked(
            f"the command for the key, {command[0]}, did not end within {COMMAND_SECONDS:g} seconds"
        ) from None
    if done.returncode:
        raise StoreLocked(
            f"the command for the key, {command[0]}, failed with status {done.returncode}",
            hint="run it yourself to see why",
        )
    return parsed(done.stdout[:READ_BYTES].decode(errors="replace"), f"the output of {command[0]}")


def keyring_key(name: str) -> bytes:
    """The key of this name in the system's keyring."""
    keyring = _keyring()
    try:
        text = keyring.get_password(KEYRING_SERVICE, name)
    except Exception as problem:  # noqa: BLE001 - each backend of the library raises errors of its own
        raise _no_keyring(problem) from None
    if text is None:
        raise StoreLocked(f"the keyring has no key {name!r:.80}", hint="restore it from a copy", step="lost_key")
    return parsed(text, f"the entry {name!r:.80} of the keyring")


def keep_new_key(name: str) -> str:
    """Put a new random key into the system's keyring, under a name that is free there; returns the name."""
    keyring = _keyring()
    try:
        if keyring.get_password(KEYRING_SERVICE, name) is not None:
            raise InvalidInput(f"the keyring has a key {name!r:.80}; a key is never replaced", hint="choose a new name")
        keyring.set_password(KEYRING_SERVICE, name, os.urandom(KEY_BYTES).hex())
    except InvalidInput:
        raise
    except Exception as problem:  # noqa: BLE001 - as above
        raise _no_keyring(problem) from None
    return name


def _keyring() -> ModuleType:
    try:
        found = import_module("keyring")
    except ImportError:
        raise StoreLocked(
            "a key in the system's keyring needs a library that is not installed",
            hint='pip install "onrecord[keyring]"',
        ) from None
    return found


def _no_keyring(problem: Exception) -> StoreLocked:
    said = str(problem).partition("\n")[0].partition(". ")[0] or type(problem).__name__
    return StoreLocked(
        f"the system's keyring cannot be used here: {said:.200}", hint="keep the key in a file or a command instead"
    )
