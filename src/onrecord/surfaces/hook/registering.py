"""Which session a conversation belongs to: found by id, process or origin; where the user wants it, a new one."""

from __future__ import annotations

import os

from onrecord import machine
from onrecord.environment import AGENT_VARIABLE, SESSION_VARIABLE
from onrecord.log.head import LIVE
from onrecord.surfaces.hook.whose import Owned, opened, owner
from onrecord.vendors.hooks import CLEARED, FORKED, PROMPT, START, STARTUP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import Vendor
    from onrecord.views.values import Link

SESSIONS_LOOKED_AT = 20
"""In how many live sessions of the project an agent is searched by its process."""
ANCESTORS_LOOKED_AT = 12
"""How many processes above an agent are searched for the agent that started it."""
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


def registered(vendor: Vendor, call: HookCall, process: dict[str, Any] | None) -> Owned | None:
    """The session of a conversation that starts or continues; None if it belongs to none and none is created.

    Nothing is created before the first prompt: a conversation in which nothing was said leaves nothing.
    """
    owned = owner(call)
    if owned is not None or os.environ.get(SESSION_VARIABLE):
        return owned
    from onrecord.connection import connect, is_automatic, store_file

    file = store_file()
    there = file is None or os.access(file, os.F_OK)
    speaks = call.moment == PROMPT and is_automatic()
    rotated = call.moment == START and call.reason != STARTUP
    if not speaks and not (there and rotated):
        return None
    records = connect()
    found = _kin(records, vendor, call, process) if there else None
    if found is None and speaks:
        found = _created(records, vendor, call)
    if found is None:
        records.close()
        return None
    return Owned(records, found)


def _kin(records: SessionStore, vendor: Vendor, call: HookCall, process: dict[str, Any] | None) -> Session | None:
    """The session of the conversation that this one comes from: a fork's parent, or one in the same process.

    After /clear the process is the same and the id is new: the agent continues under the new id. An agent that another
    agent runs as a tool is in that one's session, under a name that shows whose it is.
    """
    pid = process["pid"] if process is not None and not vendor.shares_process(process["pid"]) else None
    above = {one: number for number, one in enumerate(_ancestors(pid))} if pid is not None else {}
    nearest: tuple[int, str, str] | None = None
    for session, link in _running(records) if pid is not None else ():
        there = link["last"].get("process")
        if is_same(there, process) and link["vendor"] == call.vendor:
            call.reason = call.reason or CLEARED
            return records.get(session.id, agent=link["agent"])
        distance = above.get(there["pid"]) if isinstance(there, dict) and not machine.is_gone(there) else None
        if distance is not None and (nearest is None or distance < nearest[0]):
            nearest = (distance, session.id, link["agent"])
    if forked := _forked(records, vendor, call, process):
        return forked
    if nearest is None or call.moment == START:
        return None
    call.reason = STARTUP
    _distance, id_, agent = nearest
    return records.get(id_, agent=_free_name(records.get(id_), f"{agent}.{call.vendor}"))


def _forked(records: SessionStore, vendor: Vendor, call: HookCall, process: dict[str, Any] | None) -> Session | None:
    """The session of the conversation that this one was forked from; a second agent if that one is at work."""
    parent = vendor.forked_from(call, process["pid"] if process is not None else None)
    for id_ in records.linked(call.vendor, parent) if parent else ():
        session = opened(records, id_, call)
        link = session.views.roster.link(call.vendor, parent)
        if link is not None and session.head.status in LIVE:
            call.reason = FORKED
            busy = _is_busy(link, process)
            return records.get(session.id, agent=_free_name(session, link["agent"]) if busy else link["agent"])
    return None


def _running(records: SessionStore) -> Iterator[tuple[Session, Link]]:
    """The present conversation of every agent, in the live sessions of the project."""
    for head in records.sessions(status=LIVE, limit=SESSIONS_LOOKED_AT):
        session = records.get(head.session)
        for about in session.views.roster.agents.values():
            if about["links"]:
                yield session, about["links"][-1]


def _ancestors(pid: int) -> Iterator[int]:
    for _step in range(ANCESTORS_LOOKED_AT):
        _name, pid = machine.program_of(pid)
        if pid <= 1:
            return
        yield pid


def _is_busy(link: Link, process: dict[str, Any] | None) -> bool:
    """Whether another process has this conversation open."""
    there = link["last"].get("process")
    return isinstance(there, dict) and not is_same(there, process) and not machine.is_gone(there)


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


def _created(records: SessionStore, vendor: Vendor, call: HookCall) -> Session:
    """A session of its own, named and titled by the first prompt of the conversation."""
    from onrecord.agents.importing import first_prompt
    from onrecord.agents.naming import create_for_prompt

    said, call.reason = call.prompt, STARTUP
    if call.transcript and os.access(call.transcript, os.F_OK):
        from onrecord.vendors.transcripts import Location

        # It may be older than the hooks.
        said = first_prompt(vendor, Location(call.vendor_id, call.transcript, "", call.cwd)) or said
    agent = os.environ.get(AGENT_VARIABLE) or call.vendor
    return create_for_prompt(records, said, agent=agent, spare=call.vendor, vendor_id=call.vendor_id)


def _free_name(session: Session, wanted: str) -> str:
    """The wanted name, with a number if an agent of that name is at work."""
    from onrecord.log.names import NAME_LIMIT

    agents = session.views.roster.agents
    for number in range(1, NAMES_TRIED):
        ending = f"-{number}" if number > 1 else ""
        name = wanted[: NAME_LIMIT - len(ending)] + ending
        known = agents.get(name)
        if known is None or not known["here"] or (known["process"] and machine.is_gone(known["process"])):
            return name
    return wanted
