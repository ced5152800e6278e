"""Recording which session a conversation belongs to: found by id or process, or a new one if the user set that."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.environment import AGENT_VARIABLE, AUTO_VARIABLE, SESSION_VARIABLE
from onrecord.errors import NameTaken
from onrecord.log.head import LIVE
from onrecord.log.names import NAME_LIMIT, check_name
from onrecord.surfaces.hook.whose import Owned, opened, owner
from onrecord.vendors.hooks import START, STARTUP

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.vendors.hooks import HookCall

SESSIONS_LOOKED_AT = 20
"""In how many live sessions of the project an agent is searched by its process."""
NAMES_TRIED = 100
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"})
SHELLS_PASSED = 4
"""How many shells may be between an agent and its hook."""
_SAME = ("host", "boot", "space", "pid", "started")


def process_of(call: HookCall) -> dict[str, Any] | None:
    """The agent's process: as its payload says, else the nearest ancestor of the hook that is no shell."""
    pid = call.pid
    if pid is None:
        pid = os.getppid()
        for _shell in range(SHELLS_PASSED):
            name, parent = machine.program_of(pid)
            if name not in SHELLS or parent <= 1:
                break
            pid = parent
    identity = machine.identity_of(pid)
    return identity if pid > 1 and identity["started"] else None


def registered(call: HookCall, process: dict[str, Any] | None) -> Owned | None:
    """The session of a conversation that starts or continues; None if it belongs to none and none is created."""
    owned = owner(call)
    if owned is not None or os.environ.get(SESSION_VARIABLE):
        return owned
    from onrecord.connection import connect, settings, store_file

    file = store_file()
    auto = os.environ.get(AUTO_VARIABLE, "") not in ("", "0") or bool(settings().get("auto_register"))
    there = file is None or os.access(file, os.F_OK)
    if not there and not auto:
        return None
    records = connect()
    rotated = call.moment == START and call.reason != STARTUP
    found = _by_process(records, call, process) if there and rotated else None
    if found is None and auto:
        found = _automatic(records, call)
    if found is None:
        records.close()
        return None
    return Owned(records, found)


def _by_process(records: SessionStore, call: HookCall, process: dict[str, Any] | None) -> Session | None:
    """After a rotation the process is the same and the id is new: the agent continues under the new id."""
    if process is None:
        return None
    for head in records.sessions(status=LIVE, limit=SESSIONS_LOOKED_AT):
        session = records.get(head.session)
        for agent, about in session.views.roster.agents.items():
            last = about["links"][-1] if about["links"] else None
            if last and last["vendor"] == call.vendor and is_same(last["last"].get("process"), process):
                return records.get(head.session, agent=agent)
    return None


def is_same(one: Any, other: dict[str, Any] | None) -> bool:
    """Whether two identities are the same process."""
    return isinstance(one, dict) and other is not None and all(one.get(name) == other.get(name) for name in _SAME)


def is_another(session: Session, call: HookCall, process: dict[str, Any] | None) -> bool:
    """Whether this conversation runs beside the agent's own, in another process: then it does not replace it.

    A tool of an agent may start another agent, which inherits the environment.
    """
    agent = session.views.roster.agents.get(session.agent)
    last = agent["links"][-1] if agent and agent["links"] else None
    if last is None or (last["vendor"], last["id"]) == (call.vendor, call.vendor_id):
        return False
    there = last["last"].get("process")
    return (
        isinstance(there, dict) and process is not None and not is_same(there, process) and not machine.is_gone(there)
    )


def _automatic(records: SessionStore, call: HookCall) -> Session | None:
    """A session named after the project's directory and the day; if that has ended, the next one."""
    from datetime import UTC, datetime

    folder = os.path.basename((records.place or records.project).rstrip("/")) or "work"
    day = datetime.fromtimestamp(records.clock(), UTC).strftime("%Y-%m-%d")
    stem = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in folder).strip("-") or "work"
    for number in range(1, NAMES_TRIED):
        ending = f"-{day}" + (f"-{number}" if number > 1 else "")
        name = check_name(stem[: NAME_LIMIT - len(ending)] + ending)
        agent = _free_name(records, name, call)
        try:
            return records.create(name, agent=agent)
        except NameTaken:
            head = records.find(name)  # of an earlier agent, or of one that starts at the same time
            if head.status in LIVE:
                return records.get(head.session, agent=agent)
    return None


def _free_name(records: SessionStore, name: str, call: HookCall) -> str:
    """The vendor's name, with a number if an agent of that name is at work."""
    known = records.named(name)
    if known is None:
        return os.environ.get(AGENT_VARIABLE) or call.vendor
    agents = opened(records, known.session, call).views.roster.agents
    for number in range(1, NAMES_TRIED):
        agent = call.vendor + (f"-{number}" if number > 1 else "")
        known_as = agents.get(agent)
        process = known_as["process"] if known_as else None
        busy = known_as and known_as["here"] and not (process and machine.is_gone(process))
        if not busy:
            return agent
    return call.vendor
