"""The head of a log: the few facts that a store keeps beside it to extend, guard and list it.

A head is a fold like any other view, but a store updates it inside the append transaction, so that two processes can
never both make the same step. `after` is that fold: it refuses what the lifecycle does not allow, before anything is
written.

    open ──> active ──> paused ──> resumed ──> active ...        any of these ──> closed ──> archived
    closed or archived ──> resumed, only by an explicit reopening
"""

from __future__ import annotations

from onrecord.errors import IllegalTransition, SessionClosed, SessionErased, SessionPaused
from onrecord.lean_typing import Any, NamedTuple
from onrecord.log.events import KINDS, TRANSCRIPT_KINDS, Draft, Event

OPEN, ACTIVE, PAUSED, RESUMED, CLOSED, ARCHIVED, ERASED = (
    "open", "active", "paused", "resumed", "closed", "archived", "erased",
)  # fmt: skip
STATUSES = (OPEN, ACTIVE, PAUSED, RESUMED, CLOSED, ARCHIVED, ERASED)
LIVE = (OPEN, ACTIVE, PAUSED, RESUMED)

TITLE_LIMIT = 120
"""The longest title in a list of sessions, in characters."""

TITLE_KINDS = ("session.opened", "objective.set", "session.titled")
"""The kinds that a session's title in lists comes from."""
_WORK = frozenset({"turn.begun", "turn.recorded", "effect.started", "item.added", "turn.committed"})
"""The kinds that a paused session refuses. It accepts the abort of a turn: a stopped agent must be able to end
cleanly."""
STEPS = frozenset({*TRANSCRIPT_KINDS, "turn.begun", "turn.committed", "turn.aborted"})
"""The parts of turns. In an active session they change only position, hash, run and time of the head."""
_TRANSITIONS = {
    "session.paused": ((OPEN, ACTIVE, RESUMED), PAUSED),
    "session.resumed": ((PAUSED,), RESUMED),
    "session.closed": ((OPEN, ACTIVE, PAUSED, RESUMED), CLOSED),
    "session.archived": ((CLOSED,), ARCHIVED),
    "session.forked": (STATUSES, OPEN),
}
_AFTER_THE_END = frozenset(
    {"session.held", "session.released", "session.renamed",
     "session.forked", "payload.erased", "agent.left"}
)  # fmt: skip
_CHANGING = frozenset(
    {*(kind for kind in KINDS if kind.startswith("session.")), "objective.set", "payload.erased"}
)  # fmt: skip
"""Kinds that may change more of a head than position, hash, run and time."""
_QUIET = frozenset(KINDS) - _CHANGING
QUIET = dict.fromkeys(STATUSES, frozenset[str]()) | dict.fromkeys(LIVE, _QUIET - _WORK) | {ACTIVE: _QUIET}
"""For each status, the kinds that change only position, hash, run and time of a head, and are never refused."""
_AFTER_ERASURE = frozenset({"agent.left", "payload.erased"})


class Head(NamedTuple):
    """Where a log is, and what lists show of it."""

    session: str
    project: str
    name: str
    position: int
    hash: bytes
    run: int
    status: str
    title: str
    opened_at: int
    at: int
    held: bool
    parent: str | None
    forked_at: int
    """The position up to which the history is the parent's; 0 when the session is no fork."""


def after(head: Head, draft: Draft | Event, run: int, digest: bytes) -> Head:
    """The head after one more event, which belongs to this run and has this hash."""
    kind, status = draft.kind, head.status
    if kind in _WORK:
        if status not in (OPEN, ACTIVE, RESUMED):
            refuse_work(head)
        status = ACTIVE
    elif kind in _CHANGING or status not in LIVE:
        return _after_change(head, draft, run, digest)
    # By far the most frequent case, so it makes no second call.
    session, project, name, position, _hash, last, _status, title, opened_at, at, held, parent, forked_at = head
    return Head(
        session, project, name, position + 1, digest, max(last, run), status, title, opened_at,
        max(at, draft.at), held, parent, forked_at,
    )  # fmt: skip


def _after_change(head: Head, draft: Draft | Event, run: int, digest: bytes) -> Head:
    """The same for an event that may change more than position, hash, run and time, or be refused."""
    kind, status = draft.kind, head.status
    data = draft.data if isinstance(draft.data, dict) else {}
    if head.position:
        status = _next_status(head, kind, data, erased=draft.data is None)
    changes = _changes(head, kind, data)
    if kind == "session.forked":
        changes["opened_at"] = draft.at
    return head._replace(
        position=head.position + 1,
        hash=digest,
        run=max(run, head.run),
        at=max(draft.at, head.at),
        status=status,
        **changes,
    )


def refuse_work(head: Head) -> None:
    """Refuse turns and effects where the lifecycle does not allow them."""
    if head.status == PAUSED:
        raise SessionPaused(f"session {head.name!r} is paused", name=head.name)
    refuse_ended(head)


def refuse_erased(head: Head) -> None:
    """Refuse anything on a session whose content was erased."""
    if head.status == ERASED:
        raise SessionErased(f"session {head.name!r} was erased; its name and its id {head.session} stay reserved")


def refuse_ended(head: Head) -> None:
    """Refuse work on a session that has ended; the error says how to reopen it."""
    refuse_erased(head)
    if head.status not in LIVE:
        raise SessionClosed(
            f"session {head.name!r} is {head.status}",
            name=head.name,
        )


def _next_status(head: Head, kind: str, data: Any, *, erased: bool) -> str:
    status = head.status
    if status == ERASED and kind not in _AFTER_ERASURE:
        refuse_ended(head)
    if kind not in _AFTER_THE_END and kind not in _TRANSITIONS:
        refuse_ended(head)
    if kind == "session.opened":
        raise IllegalTransition(f"session {head.name!r} is already open")
    if kind == "payload.erased":
        return ERASED if status == ERASED or data.get("scope") == "all" else status
    if kind not in _TRANSITIONS:
        return status
    allowed, result = _TRANSITIONS[kind]
    if kind == "session.resumed" and data.get("reopen"):
        allowed = (CLOSED, ARCHIVED)
    elif kind == "session.resumed" and erased:
        allowed = (PAUSED, CLOSED, ARCHIVED)  # the erased payload said whether it was a reopening
    if status not in allowed:
        verb = result if kind != "session.resumed" else "resumed"
        raise IllegalTransition(
            f"session {head.name!r} is {status}; it cannot be {verb}",
            hint=f"only a session that is {' or '.join(allowed)} can be {verb}",
        )
    return result


def _changes(head: Head, kind: str, data: Any) -> dict[str, Any]:
    if kind == "session.opened":
        return {"title": _short(str(data.get("objective") or ""))}
    if kind == "session.renamed":
        return {"name": _text(data, "name", head.name), "project": _text(data, "project", head.project)}
    if kind == "session.forked":
        return {"name": _text(data, "name", head.name), "held": False}
    if kind in ("objective.set", "session.titled") and data.get("text"):
        return {"title": _short(str(data["text"]))}
    if kind in ("session.held", "session.released"):
        return {"held": kind == "session.held"}
    if kind == "payload.erased" and (data.get("scope") == "all" or data.get("untitled")):
        return {"title": ""}
    return {}


def _text(data: Any, field: str, known: str) -> str:
    """A field that must be text; what is known stays if a log has another value there."""
    said = data.get(field, known)
    return said if isinstance(said, str) else known


def _short(text: str) -> str:
    first = text.strip().split("\n", 1)[0]
    return first if len(first) <= TITLE_LIMIT else first[: TITLE_LIMIT - 1] + "…"


def forked(parent: Head, session: str, name: str) -> Head:
    """The head a fork starts from, given the parent's head at that position."""
    return parent._replace(
        session=session, name=name, status=OPEN, held=False, parent=parent.session, forked_at=parent.position
    )


def fresh(session: str, opening: Draft) -> Head:
    """The head a new session starts from, before its opening is placed."""
    data = opening.data
    return Head(
        session=session, project=data["project"], name=data["name"], position=0, hash=bytes(32), run=0, status=OPEN,
        title="", opened_at=opening.at, at=opening.at, held=False, parent=None, forked_at=0,
    )  # fmt: skip
