"""Processes of this machine: descendants, lock holders, and running a vendor's program within a deadline."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from onrecord.errors import NotFound
from onrecord.machine import boot_id, started
from onrecord.machine.ending import end_group, end_processes
from onrecord.vendors.base import settings_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

GRACE_SECONDS = 3.0
"""How long a helper program may take to end after it was asked to."""


def family(pid: int) -> list[int]:
    """A process and its descendants: some agents restart themselves, and the child uses the conversation."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:  # grows while it is walked
        found += [child for child in children.get(one, ()) if child not in found]
    return found


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: object, start: object = None) -> bool:
    """Whether a process is alive and started at `start` (the value in /proc, perhaps with a boot id before it)."""
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return False
    began = started(pid)
    if began is None or not isinstance(start, str) or not start:
        return began is not None
    boot, colon, ticks = start.rpartition(":")
    return ticks == began and (not colon or boot == boot_id())


def began_at(pid: int) -> float | None:
    """When a process started, in seconds since 1970."""
    ticks = started(pid)
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        boot = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
        return boot + int(ticks or "") / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, StopIteration):
        return None


def lock_holders(path: Path) -> list[int]:
    """The processes that hold an flock on a file."""
    try:
        about = path.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    wanted = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    holders = []
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == wanted and words[4].isdigit():  # noqa: PLR2004 - columns of /proc/locks
            holders.append(int(words[4]))
    return holders


def conversation_of(pid: int, folder: Path) -> str | None:
    """The conversation named in `<pid>.json` of a process or a descendant; stale files do not count."""
    for one in family(pid):
        about = settings_at(folder / f"{one}.json")
        found = about.get("sessionId")
        if about.get("pid") == one and is_alive(one, about.get("procStart")) and isinstance(found, str):
            return found
    return None


def holders_of(vendor_id: str, folder: Path) -> Iterator[int]:
    """The running processes with files that name a conversation."""
    for path in sorted(folder.glob("*.json")):
        about = settings_at(path)
        if about.get("sessionId") == vendor_id and is_alive(about.get("pid"), about.get("procStart")):
            yield int(about["pid"])


@contextmanager
def helper(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, *, stderr: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a vendor's program for a moment; whatever happens, it and its children are ended afterwards."""
    # Searched here: if a directory of PATH is not readable, the system would report that and not a missing program.
    program = shutil.which(argv[0], path=env.get("PATH"))
    if program is None:
        raise NotFound(f"{argv[0]} is not on PATH", hint="install it, or give the path of the program")
    process = subprocess.Popen(
        [program, *argv[1:]], env=dict(env), cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            _close(pipe)
        _end(process)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with suppress(OSError):
            pipe.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    relatives = {pid: started(pid) for pid in family(process.pid)[1:]}
    end_group(process.pid, lambda: process.poll() is not None, grace=GRACE_SECONDS)
    process.wait()
    # Descendants that left the group.
    end_processes((), lambda: [pid for pid, began in relatives.items() if is_alive(pid, began)], patience=GRACE_SECONDS)


def read_line(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """One line of a program's output; empty at its end, `TimeoutError` at the deadline (of the monotonic clock)."""
    if process.stdout is None:
        return b""
    line = bytearray()
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise TimeoutError
        piece = os.read(process.stdout.fileno(), 1)
        if not piece:
            break
        line += piece
    return bytes(line)
