"""What the next agent reads, beside the timeline: the note with a link from each line to the event that proves it.

A panel is a list of lines, each in its section. So it can be drawn as it is now, and a report can keep every line with
the positions between which it held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.log.shapes import UNREADABLE
from onrecord.pages.facts import MARKS, proof
from onrecord.pages.text import at_minute, at_second, link, short, shown
from onrecord.views.attempts import status_of
from onrecord.views.claims import shown_action
from onrecord.views.code import code_lines
from onrecord.views.findings import PROOFS_SHOWN, SETTLED, STALE, speaking_for
from onrecord.views.note import feature_lines, status_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onrecord.views.findings import Findings
    from onrecord.views.fold import Whole
    from onrecord.views.happenings import Recent
    from onrecord.views.values import Decision, Finding, Process

    Gone = Callable[[Process], bool]

SECTIONS = (
    "", "Next", "Status", "Reproduction", "Findings", "Unresolved", "Not settled", "Features left", "Decisions", "Code",
    "What happened",
)  # fmt: skip
"""The sections in their order; the first one has no heading: the objective."""
_WIDTH = 1_000
_LONG = 320
"""Of a longer objective or next action, half as many characters are shown until a reader unfolds it."""


class Line(NamedTuple):
    """One line of a panel."""

    section: str
    order: int
    """Where it is in its section."""
    html: str
    """One element."""
    is_past: bool = False
    """Whether it no longer holds: it is hidden until a reader goes back."""


def panel(whole: Whole, gone: Gone | None = None, recent: Recent | None = None) -> str:
    """The panel as it is now."""
    return draw_lines(panel_lines(whole, gone, recent)) or '<p class="ev">Nothing was written down yet.</p>'


def draw_lines(lines: Iterable[Line], sections: Iterable[str] = SECTIONS) -> str:
    """Lines under the headings of their sections."""
    by_section: dict[str, list[Line]] = {}
    for line in lines:
        by_section.setdefault(line.section, []).append(line)
    made = []
    for section in sections:
        found = sorted(by_section.get(section, ()), key=lambda line: line.order)
        if found:
            heading = f"<h2>{shown(section)}</h2>" if section else ""
            made.append(f'<div class="sect"{hidden(found)}>{heading}{"".join(line.html for line in found)}</div>')
    return "".join(made)


def hidden(lines: Iterable[Line]) -> str:
    """The attribute of an element around lines: it is hidden if all of them are."""
    return " hidden" if all(line.is_past for line in lines) else ""


def panel_lines(whole: Whole, gone: Gone | None = None, recent: Recent | None = None) -> list[Line]:
    """What the panel says, line by line."""
    findings = [line for name in whole.findings.findings for line in finding_lines(whole, name)]
    return [*state_lines(whole, gone, recent), *findings, *decision_lines(whole)]


def state_lines(whole: Whole, gone: Gone | None = None, recent: Recent | None = None) -> list[Line]:
    """Everything but findings and decisions: few lines, however long a session is."""
    parts: list[Callable[[], Iterable[Line]]] = [
        lambda: _goal(whole), lambda: _open_ends(whole, gone), lambda: _features(whole), lambda: _code(whole),
        lambda: _happened(recent),
    ]  # fmt: skip
    return [line for part in parts for line in readable(part)]


def decision_lines(whole: Whole, first: int = 0) -> list[Line]:
    """The decisions, from the one with this index on."""
    return readable(lambda: _decisions(whole.facts.decisions[first:]), "Decisions")


def finding_lines(whole: Whole, name: str) -> list[Line]:
    """The line of one finding."""
    return readable(lambda: [_finding(whole.findings, whole.findings.findings[name])], "Findings")


def readable(draw: Callable[[], Iterable[Line]], section: str = "") -> list[Line]:
    """Lines; or one that says that they cannot be drawn: a log from elsewhere may have an invalid payload."""
    try:
        return list(draw())
    except UNREADABLE:
        return [
            Line(section, 0, '<p class="ev">A part cannot be shown: an event on record has an invalid payload.</p>')
        ]


def _features(whole: Whole) -> Iterator[Line]:
    for number, text in enumerate(feature_lines(whole)):
        yield Line("Features left", number, _row("o", "○", shown(text)))


def _decisions(decisions: Iterable[Decision]) -> Iterator[Line]:
    for decision in decisions:
        why = f" because {short(decision['why'], _WIDTH)}" if decision["why"] else ""
        because = f"because of {link(decision['because'])}" if decision["because"] else ""
        source = " · ".join(filter(None, (because, shown(decision["by"]), link(decision["position"]))))
        html = f"<p>{short(decision['text'], _WIDTH)}{why} {_small(source)}</p>"
        yield Line("Decisions", decision["position"], html)


def _code(whole: Whole) -> Iterator[Line]:
    seen = whole.code.seen
    for number, text in enumerate(code_lines(whole.code)):
        line = short(text, _WIDTH)
        if seen and not number:
            line = line.replace(f"(position {seen['position']})", _small(link(seen["position"])), 1)
        yield Line("Code", number, f"<p>{line}</p>")


def _happened(recent: Recent | None) -> Iterator[Line]:
    if recent is not None:
        from onrecord.views.happenings import lines_of

        for number, text in enumerate(lines_of(recent)):
            yield Line("What happened", number, f"<p>{short(text, _WIDTH)}</p>")
        if recent.turns:
            since = link(min(turn.begun for turn in recent.turns))
            yield Line("What happened", 1 << 40, f'<p class="ev">from the turns since {since}</p>')


def _goal(whole: Whole) -> Iterator[Line]:
    facts = whole.facts
    if facts.objective:
        goal = facts.objective
        yield Line("", goal["position"], _folded(goal["text"], f" {_small(link(goal['position']))}", "b"))
    if phase := _phase(whole):
        yield Line("", 1 << 40, f'<p class="ev">{phase}</p>')
    if action := shown_action(whole):
        command = f"<p><code>$ {short(action['command'], _WIDTH)}</code></p>" if action["command"] else ""
        text = _folded(action["text"], f" {_small(link(action['position']))}")
        yield Line("Next", action["position"], f"<div>{text}{command}</div>")
    for number, text in enumerate(status_lines(whole)):
        yield Line("Status", number, f"<p>{short(text, _WIDTH)}</p>")
    if how := facts.reproduction:
        rate = f" <b>{short(how['rate'], 80)}</b>" if how.get("rate") else ""
        scenario = f" {_small(short(how['scenario'], 200))}" if how.get("scenario") else ""
        steps = short(how.get("steps") or "", _WIDTH)
        yield Line("Reproduction", how["position"], f"<p>{steps}{rate}{scenario} {_small(link(how['position']))}</p>")


def _phase(whole: Whole) -> str:
    phases = whole.phases
    if not phases.names:
        return ""
    name = shown(phases.profile["name"]) if phases.profile else "phases"
    current = phases.current()
    if current is None:
        return f"{name} · every phase is done"
    return f"{name} · phase {phases.number(current)} of {len(phases.names)}, {shown(current.replace('_', ' '))}"


def _finding(findings: Findings, finding: Finding) -> Line:
    label = findings.label_of(finding)
    css, mark = MARKS.get(label, ("o", "?"))
    small = " · ".join(finding_small(findings, finding, label))
    text = f'{short(finding["claim"], _WIDTH)}<div class="ev">{small}</div>'
    return Line("Findings", int(finding["id"][1:]), _row(css, mark, text))


def finding_small(findings: Findings, finding: Finding, label: str) -> list[str]:
    """The line below a claim: its number and label, why it is stale, challenges, evidence, its event."""
    small = [f"{shown(finding['id'])} {shown(label)}"]
    if label == STALE:
        what = findings.what_changed(finding)
        small.append(f"was {shown(finding['label'])}; {shown(what)} changed since" if what else "older than the code")
    elif label == SETTLED:
        small.append(shown(findings.settled_by(finding)))
    elif label == "rejected":
        small.append("do not reopen without new evidence")
    if any(one["outcome"] is None for one in finding["challenges"]):
        small.append("challenged")
    if against := findings.contradicting(finding):
        small.append(f"contradicts {shown(', '.join(against))}")
    evidence = [(one, findings.how(one), findings.recorded_at(one)) for one in speaking_for(finding)[-PROOFS_SHOWN:]]
    return [*small, *([proof(evidence)] if evidence else []), link(finding["history"][-1]["position"])]


def _open_ends(whole: Whole, gone: Gone | None) -> Iterator[Line]:
    for attempt in whole.attempts.unresolved():
        status = status_of(attempt, gone) if gone else attempt["status"]
        text = f"attempt {attempt['number']} is {status} since {at_minute(attempt['at'])}"
        small = f"<code>$ {short(attempt['command'], 200)}</code> · {link(attempt['position'])}"
        yield Line("Unresolved", attempt["number"], _row("s", "●", f'{text}<div class="ev">{small}</div>'))
    for agent, lane in whole.lanes.lanes.items():
        for turn in lane["provisional"]:
            why = f": {short(turn['reason'], 200)}" if turn["reason"] else ""
            text = (
                f"turn {turn['turn']} of {shown(agent)} was {shown(turn['how'])}{why} {_small(link(turn['position']))}"
            )
            yield Line("Not settled", turn["position"], _row("s", "!", text))
        if lane["open"]:
            position = lane["open"]["position"]
            text = f"turn {lane['open']['turn']} of {shown(agent)} was begun {_small(link(position))}"
            yield Line("Not settled", position, _row("s", "…", text))
    for key, effect in whole.effects.unfinished.items():
        text = f"effect {short(key, 200)} has no result: check whether it happened {_small(link(effect['position']))}"
        yield Line("Not settled", effect["position"], _row("s", "?", text))
    if stop := whole.interruption():
        resets = stop.get("resets_at")
        until = at_second(int(resets * 1e6)) if isinstance(resets, int | float) else shown(stop.get("until") or "")
        cause = shown(str(stop.get("cause", "unknown")).replace("_", " "))
        text = f"interrupted: {cause}{f', until {until}' if until else ''} {_small(link(stop['position']))}"
        yield Line("Not settled", stop["position"], _row("s", "‖", text))


def _folded(text: str, html: str, tag: str = "span") -> str:
    """A text with its link; of a long one the beginning, so that what comes after it is in sight."""
    if len(text) <= _LONG:
        return f"<p><{tag}>{short(text, _LONG)}</{tag}>{html}</p>"
    return (
        f'<details class="more long"><summary><{tag}>{short(text, _LONG // 2)}</{tag}>{html}</summary>'
        f"<p>{short(text, _WIDTH)}</p></details>"
    )


def _row(css: str, mark: str, html: str) -> str:
    return f'<div class="f"><span class="m {css}">{mark}</span><div>{html}</div></div>'


def _small(html: str) -> str:
    return f'<span class="ev">{html}</span>'


def note_text(note: str) -> str:
    """The note word for word."""
    return f'<pre class="note-text">{shown(note)}</pre>'
