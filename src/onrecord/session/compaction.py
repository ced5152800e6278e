"""Compaction: a summary replaces a range of the transcript in contexts. Facts and events stay; failure is harmless."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import CompactionFailed, OnrecordError
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.transcript import COMMITTED, well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.log.events import Event
    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session
    from onrecord.views.fold import Whole
    from onrecord.views.values import Decision, Finding, Lane

SUMMARY_LIMIT = 64 * 1024
"""The longest summary, in characters."""


class Coverage(NamedTuple):
    """What a compaction covers, and what stays readable: the report in its event."""

    event: Event
    upto: int
    turns: int
    items: int
    facts: int
    """Durable facts that came from the covered range; they stay readable as they are."""
    unanswered: int
    """Tool calls in the range without a result on record."""
    extracted: int


def compact(
    session: Session,
    summarise: str | Callable[[list[Item]], str],
    *,
    upto: int | None = None,
    extract: Callable[[list[Item]], Iterable[str]] | None = None,
    afresh: bool = False,
) -> Coverage:
    """Cover this agent's committed turns up to a position by a summary.

    `summarise` gets the last summary, as a system item, and the turns after it, so that a long session is not
    summarized from its beginning each time; with `afresh` it gets all turns. `extract` may return decisions from these
    turns that are worth keeping as facts; they are recorded in the same durable step as the summary.
    """
    session.acquire()
    views = session.views
    lane = views.lanes.lane(session.agent)
    committed = session.transcript(session.agent).committed
    last = max((turn.ended for turn in committed), default=lane["last_commit"])  # a mirrored turn counts too
    end = min(upto or last, last)
    turns = [turn for turn in committed if turn.status == COMMITTED and turn.ended <= end]
    if not turns:
        raise CompactionFailed(
            f"{session.agent!r} has no committed turn up to position {end}; there is nothing to summarize"
        )
    items = [item for turn in turns for item in turn.items]
    end = max(turn.ended for turn in turns)
    known = None if afresh or not lane["covered"] < end else _last_summary(session, lane)
    fresh = items if known is None else [item for turn in turns if turn.ended > lane["covered"] for item in turn.items]
    summary, decisions = _sum_up(summarise, extract, known or [], well_formed(fresh))
    facts = sum(1 for fact in _facts(views) if fact["position"] <= end)
    unanswered = sum(item.get("synthesised", False) for item in well_formed(items))
    data = {
        "summary": summary, "from": turns[0].begun, "upto": end, "turns": len(turns), "items": len(items),
        "facts": facts, "unanswered": unanswered,
    }  # fmt: skip
    drafts = [session._draft("decision.made", {"text": text, "why": None}, because=end) for text in decisions]
    drafts.append(session._draft("transcript.compacted", data, because=end))
    event = session._append_drafts(*drafts, fenced=True)[-1]
    return Coverage(event, end, len(turns), len(items), facts, unanswered, len(decisions))


def _last_summary(session: Session, lane: Lane) -> list[Item] | None:
    """The summary of the turns that are covered already; None if there is none, or it was erased."""
    last = session.log.event(lane["compacted"]).data if lane["compacted"] else None
    return [{"role": "system", "content": f"Summary of what came before:\n{last['summary']}"}] if last else None


def _sum_up(
    summarise: str | Callable[[list[Item]], str],
    extract: Callable[[list[Item]], Iterable[str]] | None,
    known: list[Item],
    items: list[Item],
) -> tuple[str, list[str]]:
    try:
        summary = summarise if isinstance(summarise, str) else summarise([*known, *items])
        decisions = list(extract(items)) if extract else []
    except OnrecordError:
        raise
    except Exception as problem:
        raise CompactionFailed(
            f"the summary could not be made: {type(problem).__name__}: {problem}",
            hint="transcript and facts are unchanged; try again, or pass the summary as text",
        ) from problem
    _require_text(summary, "a summary", SUMMARY_LIMIT)
    for decision in decisions:
        _require_text(decision, "a decision worth keeping", TEXT_LIMIT)
    return summary, decisions


def _require_text(text: object, what: str, limit: int) -> None:
    if not isinstance(text, str) or not text.strip() or len(text) > limit:
        raise CompactionFailed(f"{what} must be text of 1 to {limit:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CompactionFailed(f"{what} contains a lone surrogate, which is not valid Unicode") from None


def _facts(views: Whole) -> list[Decision | Finding]:
    return [*views.facts.decisions, *views.findings.findings.values()]
