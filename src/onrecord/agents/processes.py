"""Which processes belong to an agent, and which one has a conversation open. Read from /proc, never guessed from age.

Everything an agent starts inherits the token of its start (`ONRECORD_SPAWN`), also processes in sessions and groups of
their own: that is how the remains of a killed agent are found.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.environment import SPAWN_VARIABLE
from onrecord.machine import started
from onrecord.machine.ending import GRACE_SECONDS, KILL_SECONDS, end_processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onrecord.vendors.port import Vendor

_LEADING_WORDS = 3
"""The program is among the first words of a command line: the first, or after an interpreter and its option."""


def processes() -> Iterator[int]:
    """The processes of this user, without this one; none on a system without /proc."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all it needs
    except OSError:
        return
    own, user = os.getpid(), os.getuid()
    for name in names:
        with suppress(OSError):
            if int(name) != own and os.stat(f"/proc/{name}").st_uid == user:  # noqa: PTH116 - as above
                yield int(name)


def words_of(pid: int) -> list[str]:
    """The command line of a process; empty when the process is gone or not readable."""
    return [word.decode(errors="replace") for word in _read(pid, "cmdline").split(b"\0") if word]


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty when the process is gone or not readable."""
    pairs = (entry.decode(errors="surrogateescape").partition("=") for entry in _read(pid, "environ").split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def spawned(token: str) -> list[int]:
    """Everything alive that came from one start of an agent."""
    wanted = f"{SPAWN_VARIABLE}={token}".encode()
    return [pid for pid in processes() if wanted in _read(pid, "environ").split(b"\0") and started(pid) is not None]


def end_spawned(token: str) -> list[int]:
    """End every process of one start: ask first, then kill what is left. Returns the processes found."""
    found = spawned(token)
    killed = end_processes(found, lambda: spawned(token), grace=GRACE_SECONDS if found else 0, patience=KILL_SECONDS)
    return [*found, *(pid for pid in killed if pid not in found)]


def is_program_of(of: Vendor, words: list[str]) -> bool:
    """Whether a command line runs a vendor's program, directly or by an interpreter."""
    return any(os.path.basename(word) in of.programs for word in words[:_LEADING_WORDS])  # noqa: PTH119 - hundreds of them


def writers(of: Vendor, vendor_id: str, env: Mapping[str, str]) -> list[int]:
    """The living processes that have a conversation open, by their lock and pid files or by their command line."""
    found = []
    for pid in processes():
        words = words_of(pid)
        if not is_program_of(of, words) or started(pid) is None:
            continue
        named = any(word == vendor_id or word.endswith(f"={vendor_id}") for word in words)
        if named or of.locate(pid, {**env, **environment_of(pid)}) == vendor_id:
            found.append(pid)
    return found


def running(of: Vendor) -> Iterator[int]:
    """The living processes of a vendor's program."""
    return (pid for pid in processes() if is_program_of(of, words_of(pid)) and started(pid) is not None)


def directory_of(pid: int) -> str:
    """The working directory of a process; empty when it cannot be read."""
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _read(pid: int, what: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:  # noqa: PTH123 - hundreds of them
            return file.read()
    except OSError:
        return b""
