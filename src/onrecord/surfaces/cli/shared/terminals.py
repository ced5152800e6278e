"""The session that a person chose for one terminal with `onrecord use`.

A terminal is known by its device and by the process that leads its session, so a new window on the same device starts
with nothing chosen. Only a command that is itself on that terminal counts: what an agent runs there has pipes, and must
not write into the session that a person chose.
"""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.connection import state_directory
from onrecord.errors import NotFound
from onrecord.machine.files import write_file

if TYPE_CHECKING:
    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore

KEPT_SECONDS = 30 * 86_400
"""How long an unused choice is kept: its terminal is long gone."""
_STREAMS = (0, 1, 2)


def terminal() -> str | None:
    """What identifies the terminal of this command; None if it is on none."""
    for stream in _STREAMS:
        try:
            device = os.ttyname(stream)
        except OSError:
            continue
        leader = os.getsid(0)
        about = [machine.boot_id(), device, leader, machine.started(leader)]
        return sha256(json.dumps(about).encode()).hexdigest()[:32]
    return None


def used(records: SessionStore) -> Head | None:
    """The session that was chosen for this terminal, if it is of this store and project; it may have ended."""
    file = _file()
    if file is None:
        return None
    try:
        chosen: Any = json.loads(file.read_text(encoding="utf-8"))
        if chosen["store"] != records.url:
            return None
        head = records.find(chosen["session"])
    except (OSError, ValueError, TypeError, KeyError, NotFound):
        return None
    return head if head.project in (records.project, *records.also) else None


def remember(records: SessionStore, head: Head) -> None:
    """Choose a session for this terminal. Choices of terminals that are long gone are removed."""
    file = _file()
    if file is None:
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in file.parent.glob("*.json"):
        if old.stat().st_mtime < time.time() - KEPT_SECONDS:
            old.unlink(missing_ok=True)
    write_file(file, [json.dumps({"session": head.session, "store": records.url}).encode()], durable=False)


def forget() -> bool:
    """Clear the choice of this terminal; False if there was none."""
    file = _file()
    if file is None or not file.exists():
        return False
    file.unlink(missing_ok=True)
    return True


def _file() -> Path | None:
    here = terminal()
    return None if here is None else Path(state_directory()) / "terminals" / f"{here}.json"
