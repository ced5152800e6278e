"""Replay: run new code against a recorded run and report where it differs.

The code gets a session on a separate store that answers `once` from the recording, so no side effect happens again.
What it appends is compared, event by event, with what was recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.session.effects import recorded_try, result_of, tries
from onrecord.session.handle import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Event
    from onrecord.session.session_store import SessionStore
    from onrecord.views.values import Json

_COMPARED = frozenset(
    {"turn.begun", "turn.committed", "turn.aborted", "turn.recorded", "item.added", "effect.started", "effect.finished",
     "decision.made", "finding.stated", "finding.relabelled", "objective.set", "next_action.set", "scratch.set",
     "reproduction.recorded"}
)  # fmt: skip
"""What an agent's code decides. Joins, usage and lifecycle depend on the circumstances of a run."""


class Divergence(NamedTuple):
    """The first event where both runs differ."""

    position: int
    recorded: dict[str, Json] | None
    replayed: dict[str, Json] | None


class Replay(NamedTuple):
    """How a replay went."""

    matched: int
    recorded: int
    replayed: int
    divergence: Divergence | None
    error: str | None
    """What the code raised, if it did."""
    unrecorded: list[str]
    """Effects that the code requested and the recording has no result for; they were not run."""

    @property
    def same(self) -> bool:
        """Whether the new code did exactly what was recorded."""
        return self.divergence is None and self.error is None


class UnrecordedEffect(BaseException):
    """The replayed code requested a side effect that was never recorded. Its `except Exception` must not catch this."""


class RecordedFailure(Exception):
    """The effect that the replayed code requested failed when it was recorded, with this text."""


class ReplaySession(Session):
    """A session that answers `once` from a recording."""

    recording: Session
    unrecorded: list[str]

    def once(self, key: str, fn: Callable[[], Json], *, rerun_unknown: bool = False, arguments: Json = None) -> Json:
        """The recorded result; without one the replay ends here."""
        del rerun_unknown  # nothing is run in a replay
        tried = tries(self, key)
        mine = recorded_try(self, key, tried) if tried else None
        if mine is not None and mine.data["ok"]:
            return result_of(mine, key)
        ended = recorded_try(self.recording, key, tried + 1)
        if ended is None:
            self.unrecorded.append(key)
            raise UnrecordedEffect(key)
        self.effects.start(key, getattr(fn, "__name__", ""), arguments)
        if ended.data is not None and not ended.data["ok"]:
            self.effects.settle(key, error=ended.data["error"])
            raise RecordedFailure(ended.data["error"])
        result = result_of(ended, key)
        self.effects.settle(key, result=result)
        return result


def replay(
    recording: Session, worker: Callable[[Session], object], scratch: SessionStore, *, run: int | None = None
) -> Replay:
    """Run `worker` on an empty session in `scratch` (a store that may be thrown away) and compare."""
    origin = scratch.create(recording.name, agent=recording.agent)
    session = ReplaySession(scratch.store, origin.id, agent=recording.agent, clock=recording.clock)
    session.recording, session.unrecorded = recording, []
    error = None
    try:
        worker(session)
    except UnrecordedEffect as effect:
        error = f"effect {effect} has no recorded result"
    except Exception as problem:  # noqa: BLE001 - whatever the code under replay raises is a result of the replay
        error = f"{type(problem).__name__}: {problem}"
    before = [event for event in recording.events() if _counts(event, recording.agent, run)]
    after = [event for event in session.events() if _counts(event, recording.agent, None)]
    matched = 0
    while matched < min(len(before), len(after)) and _essence(before[matched]) == _essence(after[matched]):
        matched += 1
    divergence = None
    if matched < max(len(before), len(after)):
        old, new = (events[matched] if matched < len(events) else None for events in (before, after))
        divergence = Divergence(
            old.position if old else recording.head.position, old and _essence(old), new and _essence(new)
        )
    return Replay(matched, len(before), len(after), divergence, error, session.unrecorded)


def _counts(event: Event, agent: str, run: int | None) -> bool:
    return event.kind in _COMPARED and event.by == agent and (run is None or event.run == run)


def _essence(event: Event) -> dict[str, Json]:
    """The content of an event without what differs between any two runs: ids, times and absolute positions."""
    data = event.data
    if event.kind == "turn.begun" and data:
        data = {"fingerprint": data.get("fingerprint")}
    return {"kind": event.kind, "data": data}
