"""This process and this machine: randomness, whether a lease holder still runs, who else may write to a directory."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def entropy(size: int) -> bytes:
    """Random bytes for ids and salts."""
    return os.urandom(size)


PORTION = 23
"""The random bytes one event needs: 16 for its salt and 7 for its id."""
_PORTIONS_DRAWN = 64
_portions: list[bytes] = []
os.register_at_fork(after_in_child=_portions.clear)


def portion() -> bytes:
    """The random bytes for one event. Many are drawn at a time: a system call for each event would be measurable."""
    try:
        return _portions.pop()
    except IndexError:
        drawn = os.urandom(PORTION * _PORTIONS_DRAWN)
        _portions.extend(drawn[start : start + PORTION] for start in range(PORTION, len(drawn), PORTION))
        return drawn[:PORTION]


def after_fork(renew: Callable[[], None]) -> None:
    """Call `renew` in every child this process forks: threads and locks do not survive there."""
    os.register_at_fork(after_in_child=renew)


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_KNOWN: dict[str, str] = {}
"""What does not change while this process runs."""


def boot_id() -> str:
    """Differs after every boot, so that an old process id is not taken for a present one."""
    if "boot" not in _KNOWN:
        _KNOWN["boot"] = _boot_id()
    return _KNOWN["boot"]


def _boot_id() -> str:
    for place in ("/proc/sys/kernel/random/boot_id",):
        try:
            return _read(place).decode().strip()
        except OSError:
            continue
    return _ask("sysctl", "-n", "kern.boottime") or "unknown"


def steady() -> float:
    """Seconds since the machine was booted, sleep included where the system counts it. No one can set this clock."""
    return time.clock_gettime(_STEADY)


def uptime() -> float:
    """The same from the kernel itself where it can be read: a program that pretends another time does not change it."""
    try:
        return float(_read("/proc/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return steady()


def started(pid: int) -> str | None:
    """When a process started, as the system writes it; None if there is no such process (a zombie does not count)."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except FileNotFoundError:
        there = os.access("/proc/self/stat", os.F_OK)
        return None if there else _ask("ps", "-o", "lstart=", "-p", str(pid)) or None
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


_IDENTITIES: dict[int, dict[str, Any]] = {}
"""This process by its id: a child that it forks has another one."""


def _identity(pid: int) -> dict[str, Any]:
    return {"host": os.uname().nodename, "boot": boot_id(), "space": _pid_space(), "pid": pid, "started": started(pid)}


def own_program(module: str = "onrecord") -> list[str]:
    """The words that run a module of ours with this Python.

    Without the option, Python would look for modules in the present directory first: a project's `json.py` would run.
    """
    return [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", module]


def identity() -> dict[str, Any]:
    """Who this process is, in a form another process can check."""
    pid = os.getpid()
    if pid not in _IDENTITIES:
        _IDENTITIES.clear()
        _IDENTITIES[pid] = _identity(pid)
    return dict(_IDENTITIES[pid])


def is_mine(holder: Mapping[str, Any]) -> bool:
    """Whether a holder is this very process; a child that was forked from it is another one."""
    return bool(holder.get("pid") == os.getpid())


def identity_of(pid: int) -> dict[str, Any]:
    """Who another process of this machine is, in the same form."""
    return identity() | {"pid": pid, "started": started(pid)}


def program_of(pid: int) -> tuple[str, int]:
    """What a process runs (the short name of its program) and its parent; ("", 0) if unknown."""
    try:
        name, _, rest = _read(f"/proc/{pid}/stat").partition(b"(")[2].rpartition(b")")
        return name.decode(errors="replace"), int(rest.split()[1])
    except (OSError, IndexError, ValueError):
        if os.access("/proc/self/stat", os.F_OK):
            return "", 0
    parent, _, path = _ask("ps", "-o", "ppid=,comm=", "-p", str(pid)).strip().partition(" ")
    return (os.path.basename(path.strip()), int(parent)) if parent.isdigit() else ("", 0)


def words_of(pid: int) -> list[str]:
    """The command line of a process; empty if it cannot be read."""
    try:
        return _read(f"/proc/{pid}/cmdline").decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def terminal_of(pid: int) -> str:
    """The terminal that a process reads from; "" if it reads from none, or that cannot be seen."""
    try:
        found = os.readlink(f"/proc/{pid}/fd/0")
    except OSError:
        return ""
    return found if found.startswith(("/dev/pts/", "/dev/tty")) else ""


def is_gone(holder: Mapping[str, Any]) -> bool:
    """Whether a holder is certainly gone: it ran on this machine and its process does not exist any more."""
    if holder.get("host") != os.uname().nodename:
        return False
    if holder.get("boot") == boot_id() and holder.get("space") != _pid_space():
        return False  # another container on this machine: its processes cannot be seen from here
    if holder.get("boot") != boot_id():
        return True
    pid = holder.get("pid")
    now = started(pid) if isinstance(pid, int) else None
    return now is None or now != holder.get("started")


def others_may_write(facts: os.stat_result) -> bool:
    """Whether users other than its owner and root may write to a file or directory.

    Where every user has a group of their own, folders are writable by that group (umask 002) and have no other member.
    """
    import stat

    if facts.st_mode & stat.S_IWOTH:
        return True
    return bool(facts.st_mode & stat.S_IWGRP) and not _is_own_group(facts.st_gid)


def _is_own_group(group: int) -> bool:
    """Whether a group is this user's alone: their first one, named like them, with no other member."""
    import grp
    import pwd

    try:
        me, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == me.pw_gid and found.gr_name == me.pw_name and set(found.gr_mem) <= {me.pw_name}


def _pid_space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read(place: str) -> bytes:
    with open(place, "rb") as file:
        return file.read()


def _ask(*command: str) -> str:
    import subprocess

    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
        return answer.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
