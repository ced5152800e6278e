"""A scripted session of turns and the model of what a reader must find after any of its steps.

The model is written from the design's words and knows nothing of the views: committed turns in order, a provisional tail of
aborted and interrupted turns, superseded by the next commit and never part of committed state.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onrecord.log.items import text_of
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.session.turns import Turn

LONG = "a turn too large for one event " * 1_200
Contents = list[str]


@dataclass
class Expected:
    """What a reader must find in the lane."""

    committed: list[Contents] = field(default_factory=list)
    tail: list[tuple[str, Contents]] = field(default_factory=list)
    superseded: int = 0
    open: Contents | None = None
    discards: int = 0

    def commit(self, contents: Contents) -> None:
        for _ in range(self.discards):
            self.committed.pop()
            self.superseded += 1
        self.committed.append(contents)
        self.superseded += len(self.tail)
        self.tail, self.open, self.discards = [], None, 0

    def end(self, how: str, partial: Contents) -> None:
        if self.open is not None:
            self.tail.append((how, self.open + partial))
        self.open, self.discards = None, 0


STEPS: list[tuple[str, Any]] = [
    ("open", None),
    ("record", "a whole turn"),
    ("begin", 0), ("item", "first question"), ("item", "first answer"), ("commit", None),
    ("begin", 0), ("item", "second question"), ("abort", "half an answer"),
    ("begin", 0), ("abort", None),
    ("begin", 0), ("item", "second question again"), ("item", "second answer"), ("commit", None),
    ("begin", 0), ("item", "a question nobody answers"), ("leave", None),
    ("open", None),
    ("record", LONG),
    ("begin", 0), ("item", "third question"), ("abort", "interrupted by its user"),
    ("record", "a short turn after it"),
    ("begin", 1), ("item", "the last turn differently"), ("commit", None),
    ("begin", 1), ("item", "and not at all"), ("abort", None),
    ("begin", 0), ("item", "what the end leaves open"),
]  # fmt: skip


def expected_after(steps: int) -> Expected:
    """What is there after so many steps, once the next process has opened the session."""
    model = Expected()
    for what, value in STEPS[:steps]:
        if what == "record":
            model.commit([value])
        elif what == "begin":
            model.open, model.discards = [], value
        elif what == "item":
            assert model.open is not None
            model.open.append(value)
        elif what == "commit":
            model.commit(model.open or [])
        elif what == "abort":
            model.end("aborted", [value] if value else [])
        elif what == "leave":
            model.end("interrupted", [])
    model.end("interrupted", [])
    return model


def found_in(session: Session) -> Expected:
    """What a reader finds."""
    transcript = session.transcript(session.agent)
    lane = session.agents.lane()
    assert lane["committed"] == len(transcript.committed)
    assert len(lane["provisional"]) == len(transcript.provisional)
    return Expected(
        [[text_of(item) for item in turn.items] for turn in transcript.committed],
        [(turn.status, [text_of(item) for item in turn.items]) for turn in transcript.provisional],
        len(transcript.superseded),
    )


class Player:
    """Plays the script on a store, step by step."""

    def __init__(self, records: SessionStore) -> None:
        self._records = records
        self._session: Session | None = None
        self._turn: Turn | None = None

    def play(self, done: Callable[[int], None]) -> None:
        """All steps; `done` is called with the number of each that was acknowledged."""
        for number, (what, value) in enumerate(STEPS, 1):
            getattr(self, what)(value)
            done(number)

    @property
    def session(self) -> Session:
        assert self._session is not None
        return self._session

    @property
    def turn(self) -> Turn:
        assert self._turn is not None
        return self._turn

    def open(self, _value: None) -> None:
        self._session = self._records.open("scripted")

    def record(self, text: str) -> None:
        self.session.record_turn([{"role": "user", "content": text}])

    def begin(self, discards: int) -> None:
        commits = self.session.agents.lane()["commits"]
        base = commits[-discards]["base"] if discards else None
        self._turn = self.session.turn(base=base, rollback=discards)

    def item(self, text: str) -> None:
        self.turn.user(text)

    def commit(self, _value: None) -> None:
        self.turn.commit()

    def abort(self, partial: str | None) -> None:
        self.turn.abort("as the script says", partial=[{"role": "assistant", "content": partial}] if partial else [])

    def leave(self, _value: None) -> None:
        self.session.leave()


class Forgetful(Player):
    """Wrong on purpose: keeps the items of a turn in memory until it is committed, and acknowledges them before."""

    def __init__(self, records: SessionStore) -> None:
        super().__init__(records)
        self._items: list[str] = []

    def item(self, text: str) -> None:
        self._items.append(text)

    def commit(self, _value: None) -> None:
        self._flush()
        self.turn.commit()

    def abort(self, partial: str | None) -> None:
        self._flush()
        super().abort(partial)

    def leave(self, _value: None) -> None:
        self._flush()
        super().leave(None)

    def _flush(self) -> None:
        for text in self._items:
            self.turn.user(text)
        self._items = []
