"""A picture of the session over time: a lane for each agent, turns as bars, and marks for what happened between them.

Idle times are shortened, so that a session of several days fits. Bars closer than a pixel become one, so that the
picture stays small however long the log is. Every bar and mark links to its event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.pages.text import attribute, clock, day, short
from onrecord.views.transcript import ABORTED, COMMITTED, INTERRUPTED, RUNNING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onrecord.log.events import Event

LANES_LIMIT = 12
"""How many lanes are drawn: those with the most turns; the events of the others are in the last lane."""
MARKS_LIMIT = 400
"""How many marks are drawn: the newest, of which neighbours are one."""
IDLE = 20 * 60 * 1_000_000
"""A time without any event longer than this, in microseconds, is shortened."""
RECORDED = 3 * 60 * 1_000_000
"""How long a turn was at the most of which only the end is on record, in microseconds."""
_LEFT, _RIGHT, _ROW, _TOP, _BREAK = 96, 16, 34, 10, 18
_TURNS = frozenset({"turn.begun", "turn.recorded", "turn.committed", "turn.aborted", "payload.kept"})
_QUIET = frozenset({"item.added", "tokens.recorded", "usage.recorded", "agent.located", "effect.finished", "tool.used"})
_SLOT = 11
"""How much room a mark has, in pixels."""
_BELOW = "●○◆■"
"""The shapes that are drawn below the bars of their lane."""
_SAID = "✕‖⎇"
"""The shapes that say what they mean: why work stopped, and forks."""
_WEIGHT = "rsvon"
"""The colours of marks, the most important first."""
_MINUTE = 60_000_000
_STEPS = tuple(_MINUTE * count for count in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440))
"""The times between two labels, in microseconds: the first that leaves enough room is taken."""
_APART = 110
"""How far apart labels are at the least, in pixels."""
_LETTER = 6
"""How wide a letter is, in pixels."""
_STOPS = {"crash": ("✕", "r"), "killed": ("✕", "r")}


LEGEND = (
    ("▬", "", "a turn; dashed: it does not count, or its agent died"),
    ("●", "v", "an attempt that succeeded"), ("●", "r", "an attempt that failed"),
    ("○", "s", "an attempt without an outcome"), ("◆", "v", "a finding: verified, rejected or open, by its colour"),
    ("■", "", "another fact, such as a decision"), ("✕", "r", "the agent crashed or was killed"),
    ("‖", "s", "the agent was stopped, for instance by a limit"), ("⎇", "o", "a fork"),
    ("┄", "s", "work went to another agent"),
)  # fmt: skip
"""The signs of the picture: shape, colour and meaning."""


class Bar(NamedTuple):
    """A turn in its lane."""

    start: int
    end: int
    position: int
    state: str


class Mark(NamedTuple):
    """Something that happened at one moment."""

    at: int
    position: int
    lane: str
    shape: str
    css: str
    text: str


class Picture:
    """What lanes show, folded from a log. Of turns it reads the headers only."""

    def __init__(self) -> None:
        self.bars: dict[str, list[Bar]] = {}
        self.marks: list[Mark] = []
        self.hands: list[tuple[str, str, int]] = []
        """From which agent to which one work was handed, and at which position."""
        self.times: list[int] = []
        self._open: dict[str, tuple[int, int]] = {}
        self._last: dict[str, int] = {}
        self._stopped: dict[str, int] = {}
        self._attempts = 0
        self.running: dict[int, tuple[str, Mark]] = {}
        """Attempts without an outcome, by number: the command, and the mark."""
        self._working = ""

    def fold(self, events: Iterable[Event]) -> Picture:
        """Fold events in, in order."""
        for event in events:
            self.apply(event)
        return self

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        by, at = event.by, event.at
        if self.times and at < self.times[-1]:
            at = self.times[-1]  # clocks of several machines differ; the order of the log counts
        self.times.append(at)
        if event.kind in _TURNS:
            data = event.data if isinstance(event.data, dict) else {}
            self._turn(event, str(data.get("agent") or by) if event.kind == "payload.kept" else by, at)
        elif event.kind not in _QUIET:
            self._fact(event, at)
        self._last[by] = at

    def _turn(self, event: Event, by: str, at: int) -> None:
        bars = self.bars.setdefault(by, [])
        if by != self._working and self._working in self._stopped and not bars:
            self.hands.append((self._working, by, event.position))
        self._working = by
        self._stopped.pop(by, None)
        if event.kind == "turn.begun":
            self._end(by, at, INTERRUPTED)
            self._open[by] = (at, event.position)
        elif event.kind == "turn.committed":
            self._end(by, at, COMMITTED)
        elif event.kind == "turn.aborted":
            self._end(by, at, ABORTED)
        else:
            start = max(self._last.get(by, at), at - RECORDED)
            bars.append(Bar(start, at, event.position, COMMITTED))

    def _end(self, by: str, at: int, state: str) -> None:
        if by in self._open:
            start, position = self._open.pop(by)
            self.bars[by].append(Bar(start, at, position, state))

    def _fact(self, event: Event, at: int) -> None:
        data = event.data if isinstance(event.data, dict) else {}
        kind, by = event.kind, event.by
        shape, css, text = "■", "n", kind.replace(".", " ")
        if kind in ("agent.joined", "agent.left"):
            self._end(by, at, INTERRUPTED)
            if kind == "agent.left":
                self._stopped[by] = at
            return
        if kind == "attempt.started":
            self._attempts += 1
            command = str(data.get("command") or "")
            text = f"attempt {self._attempts} without an outcome {command}"
            self.running[self._attempts] = command, Mark(at, event.position, by, "○", "s", text)
            return
        if kind == "attempt.settled":
            outcome = str(data.get("outcome"))
            shape, css = "●", {"succeeded": "v", "failed": "r"}.get(outcome, "s")
            number = data.get("attempt")
            command, _mark = self.running.pop(number, ("", None)) if isinstance(number, int) else ("", None)
            text = f"attempt {number} {outcome} {command}"
        elif kind == "interruption.recorded":
            cause = str(data.get("cause") or "interrupted")
            shape, css = _STOPS.get(cause, ("‖", "s"))
            text = cause.replace("_", " ")
            self._stopped[by] = at
        elif kind == "session.forked":
            shape, css, text = "⎇", "o", f"forked as {data.get('name')}"
        elif kind.startswith("finding."):
            shape, css = "◆", {"verified": "v", "rejected": "r"}.get(str(data.get("label")), "o")
            text = f"{data.get('label') or kind.partition('.')[2]}: {data.get('claim') or data.get('finding') or ''}"
        elif kind in ("gate.decided", "attention.given", "scratch.set"):
            return
        self.marks.append(Mark(at, event.position, by, shape, css, text))


class _Scale:
    """Moments as places on the x axis; idle times are shortened to a gap."""

    def __init__(self, times: Sequence[int], width: float) -> None:
        starts, lengths = [times[0]], [0]
        before = times[0]
        for at in times:
            if at - before > IDLE:
                starts.append(at)
                lengths.append(0)
            lengths[-1] = at - starts[-1]
            before = at
        breaks = (len(starts) - 1) * _BREAK
        if breaks > width / 2:  # more pauses than fit: time as it is
            starts, lengths, breaks = [times[0]], [times[-1] - times[0]], 0
        total = sum(lengths) or 1
        self.parts: list[tuple[int, int, float, float]] = []
        x = float(_LEFT)
        for start, length in zip(starts, lengths, strict=True):
            wide = (width - breaks) * (length / total)
            self.parts.append((start, start + length, x, x + wide))
            x += wide + _BREAK

    def x(self, at: int) -> float:
        before = self.parts[0]
        for part in self.parts:
            if at < part[0]:
                break
            before = part
        start, end, left, right = before
        share = (min(at, end) - start) / ((end - start) or 1)
        return left + max(0.0, share) * (right - left)


def draw_lanes(picture: Picture, *, now: int | None = None, width: int = 1200) -> str:
    """The picture as SVG; `now` ends turns that still run."""
    if not picture.times:
        return ""
    end = max(now or 0, picture.times[-1])
    bars = {lane: list(found) for lane, found in picture.bars.items()}
    for lane, (start, position) in picture._open.items():  # noqa: SLF001  # a picture is drawn by its own module
        bars.setdefault(lane, []).append(Bar(start, end, position, RUNNING))
    marks = [*picture.marks, *(mark for _command, mark in picture.running.values())]
    scale = _Scale([*picture.times, end], width - _LEFT - _RIGHT)
    busiest = sorted(bars, key=lambda lane: -len(bars[lane]))[: LANES_LIMIT - 1]
    lanes = [lane for lane in bars if lane in busiest]
    others = list(dict.fromkeys(mark.lane for mark in marks if mark.lane not in lanes))
    rows = {lane: number for number, lane in enumerate(lanes)}
    named = others if len(lanes) + len(others) <= LANES_LIMIT else ["others"]
    rows |= {lane: len(lanes) + (number if named is others else 0) for number, lane in enumerate(others)}
    rows |= {lane: len(lanes) for lane in bars if lane not in rows}
    names = [*lanes, *named]
    height = _TOP + len(names) * _ROW + 22
    made = [_row(name, number, width) for number, name in enumerate(names)]
    made += [_hand(picture, hand, rows, scale) for hand in picture.hands]
    made += [_bars(found, rows[lane], scale) for lane, found in bars.items()]
    taken = {row: [scale.x(bar.start) for lane, found in bars.items() if rows[lane] == row for bar in found]
             for row in range(len(names))}  # fmt: skip
    made.append(_marks(marks, rows, scale, taken, width))
    made.append(_ticks(scale, height))
    about = f"{len(names)} lanes, {sum(map(len, bars.values()))} turns"
    return (
        f'<svg class="lanes-svg" viewBox="0 0 {width} {height}" role="group" aria-label="{about}">{"".join(made)}</svg>'
    )


def legend() -> str:
    """What the signs mean."""
    rows = "".join(f'<dt class="m {css}" aria-hidden="true">{shape}</dt><dd>{what}</dd>' for shape, css, what in LEGEND)
    return f'<dl class="legend">{rows}</dl>'


def _row(name: str, number: int, width: int) -> str:
    y = _TOP + number * _ROW + 12
    return (
        f'<line class="axis" x1="{_LEFT - 8}" y1="{y}" x2="{width}" y2="{y}"/>'
        f'<text class="name" x="0" y="{y + 4}">{short(name, 12)}<title>{attribute(name)}</title></text>'
    )


def _bars(bars: list[Bar], row: int, scale: _Scale) -> str:
    """Bars; those of one state that touch each other are one."""
    made: list[tuple[float, float, int, str, int]] = []
    for bar in bars:
        left, right = scale.x(bar.start), scale.x(bar.end)
        right = max(right, left + 2)
        if made and made[-1][3] == bar.state and left - made[-1][1] < 1 and right - made[-1][0] < 40:  # noqa: PLR2004  # a bar stays clickable
            before = made.pop()
            made.append((before[0], max(right, before[1]), before[2], bar.state, before[4] + 1))
        else:
            made.append((max(left, made[-1][1] + 0.5) if made else left, right, bar.position, bar.state, 1))
    return "".join(_bar(one, row) for one in made)


def _bar(one: tuple[float, float, int, str, int], row: int) -> str:
    left, right, position, state, count = one
    css = f"lane-{row % 6}" if state == COMMITTED else "prov" if state != RUNNING else f"lane-{row % 6} live"
    y = _TOP + row * _ROW + 3
    about = f"{count} turns" if count > 1 else state
    return (
        f'<a href="#e{position}"><rect class="bar {css}" data-p="{position}" x="{left:.1f}" y="{y}" '
        f'width="{max(1.5, right - left - 1):.1f}" height="18" rx="3"><title>{position}: {about}</title></rect></a>'
    )


def _marks(marks: list[Mark], rows: dict[str, int], scale: _Scale, taken: dict[int, list[float]], width: float) -> str:
    slots: dict[tuple[int, int, bool], tuple[float, Mark]] = {}
    for mark in marks:
        x, row = scale.x(mark.at), rows[mark.lane]
        key = (int(x / _SLOT), row, mark.shape in _BELOW)
        # Where several marks meet, the one that matters most is drawn: a failure before a plain fact.
        if key not in slots or _WEIGHT.index(mark.css) < _WEIGHT.index(slots[key][1].css):
            slots[key] = x, mark
    made = []
    for (slot, row, below), (_x, mark) in list(slots.items())[-MARKS_LIMIT:]:
        x = (slot + 0.5) * _SLOT
        y = _TOP + row * _ROW + (31 if below else 16)
        made.append(
            f'<a href="#e{mark.position}"><text class="mark {mark.css}" data-p="{mark.position}" x="{x:.1f}" y="{y}">'
            f"{mark.shape}<title>{mark.position}: {short(mark.text, 160)}</title></text></a>"
        )
        if mark.shape in _SAID:
            others = [(one + 0.5) * _SLOT for one, at, under in slots if at == row and under is below]
            under = [(one + 0.5) * _SLOT for one, at, below in slots if at == row and below]
            made.append(_said(mark, x, y, [*taken[row], *others, width], under))
    return "".join(made)


def _said(mark: Mark, x: float, y: int, beside: list[float], under: list[float]) -> str:
    """The words of a mark, where there is room: beside it, or below and to its left."""
    wide = _LETTER * len(mark.text) + 8
    words, at = short(mark.text, 30), f'data-p="{mark.position}" x="{x:.1f}"'
    if min(one for one in beside if one > x + 1) > x + wide:
        return f'<text class="say" {at} dx="8" y="{y}">{words}</text>'
    if x - wide > _LEFT and not any(x - wide < one < x + _SLOT for one in under):
        return f'<text class="say end" {at} dx="5" y="{y + 15}">{words}</text>'
    return ""


def _hand(picture: Picture, hand: tuple[str, str, int], rows: dict[str, int], scale: _Scale) -> str:
    """A line from the last turn of one agent to the first turn of the next."""
    giver, taker, position = hand
    first = next((bar for bar in picture.bars.get(taker, ()) if bar.position >= position), None)
    before = [bar for bar in picture.bars.get(giver, ()) if bar.position < position]
    if first is None or not before:
        return ""
    x1, x2 = scale.x(before[-1].end), scale.x(first.start)
    y1, y2 = (_TOP + rows[name] * _ROW + 12 for name in (giver, taker))
    line = f"M{x1:.1f} {y1} C{x1 + 20:.1f} {y1},{x2 - 20:.1f} {y2},{x2:.1f} {y2}"
    return f'<path class="hand" data-p="{position}" d="{line}"><title>handed over</title></path>'


def _ticks(scale: _Scale, height: int) -> str:
    """The time at the beginning of each part, and full minutes or hours inside it; the day where it changes."""
    made, last_x, last_day, last = [], -100.0, "", ""
    for start, end, left, right in scale.parts:
        if left > _LEFT:
            made.append(f'<text class="gap" x="{left - _BREAK / 2 - 2:.1f}" y="{height - 6}">//</text>')
        wide = (right - left) / ((end - start) or 1)
        step = next((one for one in _STEPS if one * wide >= _APART), _STEPS[-1])
        for at in (start, *range((start // step + 1) * step, end, step)):
            x = left + (at - start) * wide
            today = day(at)
            label = clock(at) if today == last_day else f"{today[5:]} {clock(at)}"
            room = x + _LETTER * len(label) <= scale.parts[-1][3] + _RIGHT
            if room and label != last and x - last_x >= _LETTER * len(label) + 12:
                made.append(f'<text x="{x:.1f}" y="{height - 6}" data-at="{at // 1_000}">{label}</text>')
                last_x, last_day, last = x, today, clock(at)
    return "".join(made)
