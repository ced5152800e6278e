"""The timeline of a session as data: its turns and facts in the order in which they began.

What only serves another entry is joined to it: the usage of a turn, the exit code that a hook recorded for a tool call,
the command of an attempt that is settled, the claim of a finding that is relabelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log.shapes import UNREADABLE, misfit
from onrecord.views.happenings import calls_of, paired
from onrecord.views.transcript import COMMITTED, TURN_KINDS, Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onrecord.log.events import Event
    from onrecord.log.item_values import Item
    from onrecord.views.fold import Whole
    from onrecord.views.transcript import Turn

TURN = "turn"
ROLLED_BACK = "rolled back"
_BEGINNINGS = frozenset({"turn.begun", "turn.recorded", "payload.kept"})
_JOINED = frozenset(
    {*TURN_KINDS, "tokens.recorded", "usage.recorded", "attention.given", "effect.started", "effect.finished",
     "tool.used", "agent.located", "gate.decided", "scratch.set"}
) - {"agent.joined", "agent.left"}  # fmt: skip
"""Kinds that are part of other entries, or are shown only in some cases."""


class Entry(NamedTuple):
    """One thing on the timeline: a turn, or an event that says something by itself."""

    position: int
    """The event it begins with; its anchor on a page is `#e` and this number."""
    upto: int
    """The last event that it covers."""
    at: int
    by: str
    run: int
    kind: str
    """`turn`, or the kind of its event."""
    event: Event
    """Its event; of a turn the first one."""
    turn: Turn | None = None
    number: int = 0
    """The number of a turn in its lane, or of an attempt; 0 if it is not known."""
    state: str = ""
    """Of a turn: committed, aborted, interrupted, running, abandoned or rolled back."""
    superseded_by: int = 0
    """The position of the turn that supersedes this one."""
    copy: int = 1
    """2, 3 and so on for further turns of one event; then the anchor ends with `-2`, `-3`."""
    part: int = 0
    """1, 2 and so on for further rows of a long turn."""
    about: Mapping[str, Any] = {}
    """Of a turn `usage` and `tools`; of a fact what it refers to: `command`, `claim`, `proof`."""

    @property
    def anchor(self) -> str:
        """The id of its element on a page."""
        return f"e{self.position}" + (f"-{self.copy}" if self.copy > 1 else "")

    @property
    def is_provisional(self) -> bool:
        """Whether it is a turn that does not count, at least not yet."""
        return bool(self.state) and self.state != COMMITTED


def entries_of(
    events: Iterable[Event], whole: Whole | None = None, turns_before: Mapping[str, int] | None = None
) -> list[Entry]:
    """The entries of a log, or of a part of it. A turn that began before the first event is left out.

    `whole` says what facts refer to. `turns_before` is how many turns each agent had before the first event; without
    it, turns have no numbers. An event whose payload has an unexpected form counts without it.
    """
    known = list(events)
    try:
        return _entries(known, whole, turns_before)
    except UNREADABLE:
        sound = [event._replace(data=None) if _is_odd(event) else event for event in known]
        return _entries(sound, whole, turns_before)


def _is_odd(event: Event) -> bool:
    """Whether a payload has a form that this version would refuse, or items that are none."""
    data = event.data if isinstance(event.data, dict) else {}
    items = data.get("items") if event.kind == "turn.recorded" else [data["item"]] if "item" in data else []
    odd = not isinstance(items, list) or not all(isinstance(item, dict) and "role" in item for item in items)
    return odd or bool(misfit(event.kind, event.data))


def _entries(known: list[Event], whole: Whole | None, turns_before: Mapping[str, int] | None) -> list[Entry]:
    reader = _Reader(whole, turns_before)
    reader.read(known)
    found = [*reader.turns(known), *reader.facts(known)]
    found.sort(key=lambda entry: (entry.position, entry.kind != TURN, entry.copy))
    return found


class _Reader:
    def __init__(self, whole: Whole | None, turns_before: Mapping[str, int] | None) -> None:
        self._whole = whole
        self._counts = None if turns_before is None else dict(turns_before)
        self._first: dict[int, Event] = {}
        self._usage: dict[int, dict[str, Any]] = {}
        self._tools: dict[str, dict[str, Any]] = {}
        self._finished: set[str] = set()
        self._mirrored: set[str] = set()
        self._hooked: dict[str, str] = {}
        """The key of the hook's record of each call that a turn shows."""
        self._joined: set[str] = set()
        self._links: set[tuple[str, str]] = set()

    def read(self, events: Sequence[Event]) -> None:
        """Note what belongs to other entries."""
        current: dict[str, int] = {}
        for event in events:
            kind = event.kind
            if kind in _BEGINNINGS:
                self._first[event.position] = event
                if kind != "payload.kept":
                    current[event.by] = event.position
                elif isinstance(event.data, dict) and event.data.get("reading"):
                    self._mirrored.add(str(event.data.get("agent") or event.by))
            elif kind == "usage.recorded" and event.by in current and isinstance(event.data, dict):
                self._use(current[event.by], event.data)
            elif kind == "tool.used" and isinstance(event.data, dict):
                self._tools[event.id.rpartition("/")[2]] = {**event.data, "agent": event.by}
            elif kind == "effect.finished" and isinstance(event.data, dict):
                self._finished.add(str(event.data.get("key")))

    def _number(self, agent: str) -> int:
        """The number of the next turn of a lane, whether it was recorded as a turn or mirrored."""
        if self._counts is None:
            return 0
        self._counts[agent] = self._counts.get(agent, 0) + 1
        return self._counts[agent]

    def _use(self, position: int, data: dict[str, Any]) -> None:
        if "counted" in data:
            return  # of many calls; no turn is named
        used = self._usage.setdefault(position, {"tokens": 0, "cost": None, "model": data.get("model")})
        used["tokens"] += (data.get("input_tokens") or 0) + (data.get("output_tokens") or 0)
        if data.get("cost") is not None:
            used["cost"] = (used["cost"] or 0) + data["cost"]

    def turns(self, events: Sequence[Event]) -> list[Entry]:
        """Every turn, also those that do not count."""
        told = Transcript().fold(event for event in events if event.kind in TURN_KINDS)
        committed, superseded = told.committed, told.superseded
        after = _superseding(committed)
        rows = [(turn, turn.status, 0) for turn in (*committed, *told.provisional)]
        rows += [(turn, ROLLED_BACK if turn.status == COMMITTED else turn.status, after(turn)) for turn in superseded]
        rows = [(turn._replace(items=_sound(turn.items)), state, by) for turn, state, by in rows]
        rows.sort(key=lambda row: row[0].begun)
        self._hooked = paired((turn for turn, _state, _by in rows if turn.begun in self._first), self._tools)
        self._joined = set(self._hooked.values())
        copies: dict[int, int] = {}
        return [entry for turn, state, by in rows if (entry := self._turn(turn, state, by, copies))]

    def _turn(self, turn: Turn, state: str, superseded_by: int, copies: dict[int, int]) -> Entry | None:
        first = self._first.get(turn.begun)
        if first is None:
            return None
        copies[turn.begun] = copy = copies.get(turn.begun, 0) + 1
        calls = [str(call.get("id")) for call in calls_of(turn.items)]
        tools = {one: self._tools[self._hooked[one]] for one in calls if one in self._hooked}
        about = {"usage": self._usage.get(turn.begun), "tools": tools}
        return Entry(
            turn.begun, turn.ended or turn.begun, first.at, turn.agent, first.run, TURN, first, turn,
            self._number(turn.agent), state, superseded_by, copy, about=about,
        )  # fmt: skip

    def facts(self, events: Sequence[Event]) -> list[Entry]:
        """Every event that says something by itself. Call it after `turns`."""
        return [
            Entry(event.position, event.position, event.at, event.by, event.run, event.kind, event,
                  about=self._about(event), number=self._attempt(event))
            for event in events if event.kind not in _JOINED or self._stands_alone(event)
        ]  # fmt: skip

    def _stands_alone(self, event: Event) -> bool:
        data = event.data if isinstance(event.data, dict) else {}
        match event.kind:
            case "tool.used":
                return event.id.rpartition("/")[2] not in self._joined
            case "effect.started":
                return str(data.get("key")) not in self._finished
            case "effect.finished" | "scratch.set":
                return True
            case "gate.decided":
                return data.get("decision") not in (None, "allow")
            case "payload.kept":
                return "prompt" in data and event.by not in self._mirrored
            case "agent.located":
                link = (str(data.get("vendor")), str(data.get("vendor_id")))
                new = link not in self._links
                self._links.add(link)
                return new
        return False

    def _attempt(self, event: Event) -> int:
        if self._whole is None or event.kind != "attempt.started":
            return 0
        found = self._whole.attempts.started_at(event.position)
        return found["number"] if found else 0

    def _about(self, event: Event) -> dict[str, Any]:
        """What an event refers to, from the views."""
        data = event.data if isinstance(event.data, dict) else {}
        if self._whole is None:
            return {}
        about: dict[str, Any] = {}
        findings, attempts = self._whole.findings, self._whole.attempts
        if event.kind.startswith("attempt.") and isinstance(data.get("attempt"), int):
            found = attempts.get(data["attempt"])
            if found:
                about |= {"command": found["command"], "started": found["position"]}
        if event.kind == "finding.stated":
            about["id"] = next(
                (name for name, one in findings.findings.items() if one["position"] == event.position), ""
            )
        named = findings.findings.get(str(data.get("finding")))
        if named:
            about |= {"claim": named["claim"], "stated": named["position"]}
        if isinstance(data.get("evidence"), list):
            about["proof"] = [
                (str(one), findings.how(str(one)), findings.recorded_at(str(one))) for one in data["evidence"]
            ]
        return about


def _sound(items: Any) -> list[Item]:
    """Items as a page can draw them: a log from elsewhere may have others."""
    found: list[Any] = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return [item if _is_sound(item) else _mended(item) for item in found]


def _is_sound(item: Item) -> bool:
    calls = item.get("tool_calls")
    return not calls or (isinstance(calls, list) and all(isinstance(call, dict) for call in calls))


def _mended(item: Item) -> Item:
    calls = item["tool_calls"] if isinstance(item["tool_calls"], list) else []
    mended = item.copy()
    mended["tool_calls"] = [call for call in calls if isinstance(call, dict)]
    return mended


def _superseding(committed: list[Turn]) -> Any:
    """For a turn, the position of the next committed turn of its agent; 0 if there is none."""
    from bisect import bisect_right

    ends: dict[str, list[tuple[int, int]]] = {}
    for turn in committed:
        ends.setdefault(turn.agent, []).append((turn.ended, turn.begun))

    def after(turn: Turn) -> int:
        rows = ends.get(turn.agent, [])
        place = bisect_right(rows, (turn.ended, turn.ended))
        return rows[place][1] if place < len(rows) else 0

    return after
