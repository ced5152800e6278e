"""Which session and which agent a call means: as hooks find them, and where that is ambiguous, as the agent chose.

In this order: the session that the call names, the one that the agent chose with `resume`, ONRECORD_SESSION, the
session that has the client's conversation on record, the session of the process that runs this server, the only live
session of the project.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.agents.sessions import at_work
from onrecord.connection import connect, store_file
from onrecord.environment import AGENT_VARIABLE, SESSION_VARIABLE
from onrecord.errors import AmbiguousName, InvalidInput, SessionNotFound
from onrecord.log.head import LIVE
from onrecord.log.names import check_name
from onrecord.vendors.mcp_servers import vendor_of_client

if TYPE_CHECKING:
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

SESSIONS_LISTED = 20
"""How many sessions an ambiguous `resume` names, and in how many live ones a process is searched."""
ANCESTORS_LOOKED_AT = 12
HANDLES_KEPT = 16
"""How many sessions stay open between calls."""
PROCESS_SECONDS = 2.0
"""How long a search for the process that runs this server is not repeated if it found nothing."""
DEFAULT_AGENT = "mcp"
START_ONE = "start one: `record` with kind objective, `text` (what the work is for) and a new name as `session`"


class Caller(NamedTuple):
    """Who calls, as far as the protocol and the environment say."""

    client: str = ""
    """The client's name for itself."""
    vendor: str = ""
    vendor_id: str = ""
    """The conversation that the call comes from, if something names it."""
    local: bool = True
    """The client started this process (stdio), so environment and process are about it."""
    chosen: str = ""
    """The id of the session that the agent chose with `resume`."""


class Sessions:
    """The sessions of the store, opened once and kept open between calls."""

    def __init__(self, url: str | None = None, project: str | None = None) -> None:
        self.url = url
        self.project = project
        self._lock = threading.RLock()
        """Tools, resources and subscriptions are answered in threads."""
        self._records: SessionStore | None = None
        self._file: tuple[int, int] | None = None
        self._handles: OrderedDict[tuple[str, str], Session] = OrderedDict()
        self._settled: dict[Caller, tuple[str, str]] = {}
        """Where callers that named no session work: it does not change while that session lives."""
        self._brief: tuple[Any, str] = (None, "")
        self._above: tuple[float, tuple[str, str] | None] = (0.0, None)

    def records(self, *, make: bool = False) -> SessionStore:
        """The store; opened again if its file was replaced, for instance by a backup that was restored."""
        with self._lock:
            return self._opened(make=make)

    def _opened(self, *, make: bool) -> SessionStore:
        there = self._identity()
        if self._records is not None and there != self._file:
            self.close()
        if self._records is None:
            if there is None and not make:
                raise SessionNotFound("no session is on record yet", hint=START_ONE)
            self._records = connect(self.url, project=self.project)
            self._file = self._identity()
        return self._records

    def _identity(self) -> tuple[int, int] | None:
        file = store_file(self.url)
        try:
            facts = Path(file).stat() if file is not None else None
        except FileNotFoundError:
            return None
        return (facts.st_dev, facts.st_ino) if facts is not None else (0, 0)

    def close(self) -> None:
        """Close the store and forget the handles."""
        self._handles.clear()
        self._settled.clear()
        if self._records is not None:
            self._records.close()
            self._records = None

    def find(self, caller: Caller, wanted: str = "") -> Session:
        """The session that a call means, opened as the agent that calls."""
        with self._lock:
            return self._found(caller, wanted)

    def _found(self, caller: Caller, wanted: str) -> Session:
        records = self.records()
        named = wanted or caller.chosen or os.environ.get(SESSION_VARIABLE, "")
        if named:
            id_ = records.find(named).session
            return self.opened(id_, self._agent_in(id_, caller))
        known = self._settled.get(caller)
        if known is not None:
            session = self.opened(*known)
            if session.refresh().status in LIVE:
                return session
            del self._settled[caller]
        where = self._by_conversation(caller) or self._by_process(caller)
        where = where or (_only_live(records).session, own_name(caller))
        if caller.local or caller.vendor_id:
            self._settled[caller] = where
        return self.opened(*where)

    def opened(self, id_: str, agent: str) -> Session:
        """One session as one agent; the handle is kept, so the next call folds only what is new."""
        key = (id_, agent)
        with self._lock:
            session = self._handles.pop(key, None) or self.records().get(id_, agent=agent)
            self._handles[key] = session
            while len(self._handles) > HANDLES_KEPT:
                self._handles.popitem(last=False)
        return session

    def brief(self, session: Session) -> str:
        """The brief of a session. It is kept until the log moves, unless it depends on which processes are alive."""
        key = (session.id, session.agent, session.views.position)
        kept, text = self._brief
        if kept != key or session.views.attempts.unresolved():
            text = session.brief()
            self._brief = (key, text)
        return text

    def _by_conversation(self, caller: Caller) -> tuple[str, str] | None:
        """The session that has the caller's conversation on record, a live one first."""
        if not caller.vendor_id:
            return None
        records = self.records()
        try:
            found = records.linked(caller.vendor, caller.vendor_id)
        except InvalidInput:
            return None
        live = (one for one in found if records.head(one).status in LIVE)
        id_ = next(live, found[0] if found else None)
        return (id_, self._agent_in(id_, caller)) if id_ else None

    def _agent_in(self, id_: str, caller: Caller) -> str:
        """The caller's name in a session: the environment's, the agent that has its conversation, or its own name."""
        if caller.local and os.environ.get(AGENT_VARIABLE):
            return os.environ[AGENT_VARIABLE]
        if caller.vendor_id:
            link = self.opened(id_, own_name(caller)).views.roster.link(caller.vendor, caller.vendor_id)
            if link is not None:
                return str(link["agent"])
        above = self._by_process(caller)
        return above[1] if above and above[0] == id_ else own_name(caller)

    def _by_process(self, caller: Caller) -> tuple[str, str] | None:
        """The session and agent of the nearest process above this one that has a conversation on record."""
        if not caller.local:
            return None
        asked, found = self._above
        if found is None and (not asked or time.monotonic() - asked > PROCESS_SECONDS):
            found = _nearest(self.records())
            self._above = (time.monotonic(), found)
        return found


def _nearest(records: SessionStore) -> tuple[str, str] | None:
    above = {pid: number for number, pid in enumerate(_ancestors(os.getpid()))}
    nearest: tuple[int, str, str] | None = None
    for head in records.sessions(status=LIVE, limit=SESSIONS_LISTED):
        for name, about in records.get(head.session).views.roster.agents.items():
            process: Any = about["links"][-1]["last"].get("process") if about["links"] else about["process"]
            distance = above.get(process["pid"]) if isinstance(process, dict) else None
            if distance is None or machine.is_gone(process):
                continue
            if nearest is None or distance < nearest[0]:
                nearest = (distance, head.session, name)
    return nearest[1:] if nearest else None


def _ancestors(pid: int) -> list[int]:
    found: list[int] = []
    while len(found) < ANCESTORS_LOOKED_AT:
        _name, pid = machine.program_of(pid)
        if pid <= 1:
            break
        found.append(pid)
    return found


def own_name(caller: Caller) -> str:
    """What an agent is called that is not in the roster: its vendor, or its client's name as far as it is a name."""
    named = (caller.local and os.environ.get(AGENT_VARIABLE)) or caller.vendor or vendor_of_client(caller.client)
    if named:
        return check_name(named, "agent")
    letters = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in caller.client)
    return letters.strip("._-").replace("..", ".")[:60].rstrip(".") or DEFAULT_AGENT


def _only_live(records: SessionStore) -> Head:
    live = at_work(records, SESSIONS_LISTED)
    if len(live) == 1:
        return live[0]
    if not live:
        ended = records.sessions(limit=SESSIONS_LISTED)
        raise SessionNotFound(
            "this project has no live session",
            hint=START_ONE + ("; `resume` with its name reads one that has ended" if ended else ""),
            sessions=[head.name for head in ended],
        )
    raise AmbiguousName(
        f"this project has {len(live)} live sessions",
        hint="`resume` without arguments lists them; then call it with the one that you work in",
        sessions=[head.name for head in live],
    )
