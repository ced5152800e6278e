"""One tool call, from arguments to answer: checked, done once, and every failure turned into a tool error.

It knows nothing of the protocol's library: a call goes in, an `Answer` comes out.
"""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.agents.fencing import fence
from onrecord.errors import InvalidInput, OnrecordError
from onrecord.surfaces.mcp import reading, writing
from onrecord.surfaces.mcp.checking import check
from onrecord.surfaces.mcp.finding import Caller, Sessions
from onrecord.surfaces.mcp.schemas import TOOLS
from onrecord.surfaces.mcp.writing import GIVEN, SEEN
from onrecord.views.render import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ERROR_WIDTH = 600
CONNECTIONS_LIMIT = 1_000
"""Of how many connections the chosen session is remembered; the oldest are forgotten first."""
KEY_LENGTH = 32
HINTS = {
    "give_evidence": "pass `evidence`: ids on record, `last`, path:10-20 or a URL; `onrecord run -- COMMAND` makes one",
    "capture_evidence": "pass new `evidence`: `onrecord run -- COMMAND` makes some",
    "recheck_finding": "run what showed it again with `onrecord run -- COMMAND`, then pass `evidence`: last",
    "same_finding": "judge it again: `record` with `finding` and `label`",
    "await_attempt": "wait until it ends, then call `attempt` again",
    "settle_attempt": "settle it first: `attempt` with action settle, number {number} and its outcome",
    "fail_attempt": "settle it as failed: `attempt` with outcome failed and its error",
    "list_findings": "`resume` with full lists the findings",
    "list_attempts": "`resume` with full lists the attempts; give `number`",
    "list_evidence": "`search` for it; ids look like run-2026-05-18-a",
    "correct_attempt": "`onrecord attempt correct {number}` in the shell adds to it",
}
"""What to do next, in the words of the tools; other errors keep their own hint."""
CODES = {
    "session_not_found": "`resume` without arguments says which sessions there are; `search` with scope all finds more",
    "ambiguous_name": "call `resume` with the full name of the session that you work in",
    "event_not_found": "`read` without `first` shows the newest positions",
    "id_reused": "use a new `id` for new content",
    "session_closed": "ask the user: `onrecord resume {name} --reopen` reopens it",
    "session_paused": "ask the user: `onrecord resume {name}` resumes it",
    "budget_exhausted": "ask the user to raise the budget",
}
_TOOLS: dict[str, Callable[..., dict[str, Any]]] = {
    "resume": reading.resume, "search": reading.search, "read": reading.read,
    "record": writing.record, "attempt": writing.attempt, "gate": writing.gate,
}  # fmt: skip
_KEYED = ("record", "attempt")


class Answer(NamedTuple):
    """What a tool answers: text for the model, the same as data, or an error with its code."""

    text: str
    data: dict[str, Any]
    error: dict[str, Any] | None = None


class Calls:
    """Tool calls on the sessions of one store, one after the other: the SDK may run them in several threads."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.chosen: dict[str, str] = {}
        """The session that each connection chose with `resume`, by the connection."""
        self._lock = threading.Lock()

    def call(
        self, name: str, given: Mapping[str, Any] | None, caller: Caller, *, connection: str = "", request: str = ""
    ) -> Answer:
        """Do one call. `connection` and `request` identify it, so that a repetition is known; either may be unknown."""
        try:
            if name not in TOOLS:
                raise InvalidInput(f"there is no tool {name!r:.60}", hint=f"the tools are {', '.join(TOOLS)}")
            wanted = check(name, given, TOOLS[name]["inputSchema"])
            with self._lock:
                data = self._done(name, wanted, caller, connection, request)
        except Exception as problem:  # noqa: BLE001  # a tool call never ends the server
            return failed(problem)
        return Answer(data["text"], data)

    def _done(self, name: str, wanted: dict[str, Any], caller: Caller, connection: str, request: str) -> dict[str, Any]:
        caller = caller._replace(chosen=self.chosen.get(connection, ""))
        if name in _KEYED:
            return _TOOLS[name](self.sessions, caller, wanted, _key(wanted, connection, request))
        data = _TOOLS[name](self.sessions, caller, wanted)
        if name == "resume" and wanted.get("session") and "session" in data:
            if not connection:
                data["text"] = f"Pass session={data['session']} with every call.\n{data['text']}"
                return data
            self.chosen.pop(connection, None)
            self.chosen[connection] = self.sessions.records().find(wanted["session"]).session
            while len(self.chosen) > CONNECTIONS_LIMIT:
                del self.chosen[next(iter(self.chosen))]
        return data


def _key(wanted: dict[str, Any], connection: str, request: str) -> str:
    """The idempotency key: the caller's own, else the request's within its connection; "" if it has neither."""
    own = wanted.get("id")
    made = own or (f"{connection}\0{request}" if connection and request else "")
    return f"{GIVEN if own else SEEN}{sha256(made.encode()).hexdigest()[:KEY_LENGTH]}" if made else ""


def failed(problem: Exception) -> Answer:
    """An error as a tool error: what happened (fenced, for it may quote the record), its code, and what to do next."""
    if isinstance(problem, OnrecordError):
        code, message, retryable = problem.code, problem.message, problem.retryable
        hint = hint_of(problem)
    elif isinstance(problem, OSError) and problem.strerror:
        code, message, hint, retryable = "system", problem.strerror, "", False
    else:
        code, message, retryable = "internal", f"{type(problem).__name__}: {problem}", False
        hint = "this is a bug in onrecord; `onrecord doctor` checks the store"
    message, hint = one_line(message, ERROR_WIDTH), one_line(hint, ERROR_WIDTH)
    error = {"code": code, "message": message, "hint": hint, "retryable": retryable}
    about = f"error {code}" + (f"; {hint}" if hint else "") + ("; trying again may help" if retryable else "")
    return Answer(fence(message, about=about), {}, error)


def hint_of(problem: OnrecordError) -> str:
    """What to do about an error, in the words of the tools where there are some."""
    text = HINTS.get(problem.step) or ("" if type(problem).hint != problem.hint else CODES.get(problem.code, ""))
    try:
        return text.format(**problem.details) if text else problem.hint
    except KeyError:
        return problem.hint
