"""Facts on the timeline: findings in their colours, decisions, attempts, interruptions; one line for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log.events import TRANSCRIPT, tier_of
from onrecord.log.shapes import UNREADABLE
from onrecord.pages.markdown import to_html
from onrecord.pages.text import at_clock, at_second, attribute, counted, link, seconds, short, shown, terminal
from onrecord.pages.tools import draw_used
from onrecord.views.code import SHORT_REVISION
from onrecord.views.findings import CAPTURED
from onrecord.views.render import iso

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.pages.entries import Entry

MARKS = {
    "verified": ("v", "✓"), "settled": ("v", "✓"), "rejected": ("r", "✕"), "open": ("o", "?"), "blocked": ("s", "■"),
    "stale": ("s", "!"),
}  # fmt: skip
"""The class and the mark of each label."""
_SAY_WHO = ("agent.joined", "agent.left", "attention.needed", "tool.used")
_OUTCOMES = {"succeeded": ("v", "✓"), "failed": ("r", "✕")}
_LINE = 600
_SECTION = 160


class Fact(NamedTuple):
    """How one fact reads."""

    css: str
    """Its colour: v verified, r rejected, o open, s stale, i interruption, d decision, a attempt, q quiet."""
    mark: str
    text: str
    """HTML."""
    small: str = ""
    """HTML: where it comes from."""
    more: str = ""
    """HTML: what is folded below it."""


def fact_of(entry: Entry) -> Fact:
    """How an event reads that says something by itself."""
    data = entry.event.data
    if data is None:
        return Fact("q", "", f"{_kind(entry)}: the payload was erased")
    if not isinstance(data, dict):
        return Fact("q", "", f"{_kind(entry)}: {short(data, _LINE)}")
    try:
        return _MAKERS.get(entry.kind, _generic)(data, entry)
    except UNREADABLE:
        return _generic(data, entry)  # a log from elsewhere may have an invalid payload under a known kind


def draw_fact(entry: Entry) -> str:
    """A fact in one line, with a link to its event."""
    fact = fact_of(entry)
    by = "" if entry.kind in _SAY_WHO else shown(entry.by)
    small = " · ".join(part for part in (fact.small, by, at_clock(entry.at), link(entry.position)) if part)
    more = f'<details class="more"><summary>more</summary>{fact.more}</details>' if fact.more else ""
    # Every other event is in the list of events, with its payload.
    header = header_of(entry) if tier_of(entry.kind) == TRANSCRIPT else ""
    mark = f'<span class="m {fact.css}">{fact.mark}</span>' if fact.mark else ""
    return (
        f'<div class="fact {fact.css}" id="{entry.anchor}" data-p="{entry.position}"{header}>{mark}'
        f"<div>{fact.text} <small>{small}</small>{more}</div></div>\n"
    )


def header_of(entry: Entry) -> str:
    """The header of an entry's event as an attribute: kind, run, the beginning of its hash, time, actor."""
    event = entry.event
    return f' data-e="{attribute(f"{event.kind} {event.run} {event.hash.hex()[:12]} {iso(event.at)} {entry.by}")}"'


def _kind(entry: Entry) -> str:
    return shown(entry.kind.replace(".", " ").replace("_", " "))


def _said(data: dict[str, Any], name: str, width: int = _LINE) -> str:
    return short(data.get(name) or "", width)


def proof(entry_proof: list[tuple[str, str, int]]) -> str:
    """Evidence with the mark of what onrecord captured itself, each linked to its event."""
    made = []
    for name, how, position in entry_proof:
        label = f"{name} ✓ captured" if how == CAPTURED else name
        made.append(link(position, label) if position else shown(label))
    return ", ".join(made)


def _finding(data: dict[str, Any], entry: Entry) -> Fact:
    label = str(data.get("label"))
    css, mark = MARKS.get(label, ("q", ""))
    name = shown(entry.about.get("id") or "")
    evidence = proof(entry.about.get("proof") or [])
    text = f"<b>{shown(label)}</b> {_said(data, 'claim')}"
    return Fact(css, mark, text, " · ".join(filter(None, (name, evidence, _because(entry)))))


def _relabelled(data: dict[str, Any], entry: Entry) -> Fact:
    label = str(data.get("label"))
    css, mark = MARKS.get(label, ("q", ""))
    why = f": {_said(data, 'why')}" if data.get("why") else ""
    return Fact(
        css, mark, f"<b>now {shown(label)}</b> {_named(data, entry)}{why}", proof(entry.about.get("proof") or [])
    )


def _named(data: dict[str, Any], entry: Entry) -> str:
    """The finding that an event is about: its claim, linked to where it was stated."""
    name, stated = str(data.get("finding") or ""), entry.about.get("stated")
    claim = short(entry.about.get("claim") or "", _LINE)
    return f"{link(stated, name) if stated else shown(name)} {claim}".strip()


def _challenged(data: dict[str, Any], entry: Entry) -> Fact:
    text = f"<b>challenged</b> {_named(data, entry)}: {_said(data, 'argument')}"
    return Fact("s", "!", text, proof(entry.about.get("proof") or []))


def _upheld(data: dict[str, Any], entry: Entry) -> Fact:
    why = f": {_said(data, 'why')}" if data.get("why") else ""
    return Fact("v", "✓", f"<b>upheld</b> {_named(data, entry)}{why}", proof(entry.about.get("proof") or []))


def _because(entry: Entry) -> str:
    return f"because of {link(entry.event.because)}" if entry.event.because else ""


def _decision(data: dict[str, Any], entry: Entry) -> Fact:
    why = f" because {_said(data, 'why')}" if data.get("why") else ""
    return Fact("d", "◆", f"<b>decided</b> {_said(data, 'text')}{why}", _because(entry))


def _started(data: dict[str, Any], entry: Entry) -> Fact:
    number = f"attempt {entry.number}" if entry.number else "an attempt"
    return Fact("a", "▷", f"{number} started <code>$ {_said(data, 'command')}</code>")


def _settled(data: dict[str, Any], entry: Entry) -> Fact:
    outcome = str(data.get("outcome"))
    css, mark = _OUTCOMES.get(outcome, ("s", "!"))
    code, took = data.get("exit_code"), data.get("seconds")
    parts = [f"exit {shown(code)}"] if code is not None else []
    parts += [seconds(took)] if isinstance(took, int | float) else []
    metrics = data.get("metrics")
    if isinstance(metrics, dict):
        parts += [f"{short(name, 60)} {short(value, 40)}" for name, value in metrics.items()]
    parts += [_said(data, name) for name in ("error", "reason") if data.get(name)]
    parts += [f"fix: {_said(data, 'fix')}"] if data.get("fix") else []
    started = entry.about.get("started")
    number = link(started, f"attempt {data.get('attempt')}") if started else f"attempt {shown(data.get('attempt'))}"
    command = entry.about.get("command")
    shown_command = f" <code>$ {short(command, _LINE)}</code>" if command else ""
    return Fact(css, mark, f"<b>{number} {shown(outcome)}</b>{shown_command}", " · ".join(parts))


def _corrected(data: dict[str, Any], entry: Entry) -> Fact:
    started = entry.about.get("started")
    number = link(started, f"attempt {data.get('attempt')}") if started else f"attempt {shown(data.get('attempt'))}"
    return Fact("a", "+", f"{number}: {_said(data, 'fix') or _said(data, 'remark')}")


def _interrupted(data: dict[str, Any], entry: Entry) -> Fact:
    del entry
    resets, until = data.get("resets_at"), data.get("until")
    ends = at_second(int(resets * 1e6)) if isinstance(resets, int | float) else shown(until) if until else ""
    message = f": {_said(data, 'message')}" if data.get("message") else ""
    cause = shown(str(data.get("cause") or "unknown").replace("_", " "))
    return Fact("i", "‖", f"<b>interrupted</b> {cause}{message}", f"resets {ends}" if ends else "")


def _compacted(data: dict[str, Any], entry: Entry) -> Fact:
    del entry
    summary = f'<div class="md">{to_html(str(data.get("summary") or ""))}</div>'
    return Fact(
        "q",
        "⇥",
        f"<b>compacted</b> a summary replaces the turns up to {shown(data.get('upto'))} in contexts",
        "",
        summary,
    )


def _forked(data: dict[str, Any], entry: Entry) -> Fact:
    parent = data["parent"] if isinstance(data.get("parent"), dict) else {}
    position = parent.get("position")
    source = f" from position {link(position)}" if isinstance(position, int) else ""
    del entry
    return Fact("q", "⎇", f"<b>forked</b> as {_said(data, 'name')}{source}; what is above is the parent's history")


def _joined(data: dict[str, Any], entry: Entry) -> Fact:
    vendor = f" ({short(data['vendor'], 40)})" if data.get("vendor") else ""
    return Fact("q", "→", f"{shown(entry.by)}{vendor} joined, run {entry.run}")


def _left(data: dict[str, Any], entry: Entry) -> Fact:
    del data
    return Fact("q", "←", f"{shown(entry.by)} left")


def _located(data: dict[str, Any], entry: Entry) -> Fact:
    reason = f", {_said(data, 'reason', 80)}" if data.get("reason") else ""
    del entry
    return Fact("q", "", f"conversation {_said(data, 'vendor', 40)} {_said(data, 'vendor_id', 80)}{reason}")


def _evidence(data: dict[str, Any], entry: Entry) -> Fact:
    del entry
    how = "captured" if data.get("captured") else "asserted"
    anchor = data["anchor"] if isinstance(data.get("anchor"), dict) else {}
    what = (
        data.get("command") or data.get("reference") or anchor.get("path") or data.get("url") or data.get("path") or ""
    )
    code = f", exit {shown(data['exit_code'])}" if data.get("exit_code") is not None else ""
    text = f"evidence <b>{_said(data, 'id', 60)}</b> {_said(data, 'kind', 40)} <code>{short(what, _LINE)}</code>{code}"
    output = data.get("output") or data.get("excerpt") or data.get("text")
    more = f'<pre class="out">{terminal(output)}</pre>' if output else ""
    return Fact("q", "✓" if data.get("captured") else "", text, how, more)


def _gate(data: dict[str, Any], entry: Entry) -> Fact:
    del entry
    what = _said(data, "tool", 60) or "a tool call"
    return Fact("i", "⊘", f"<b>the gate answered {_said(data, 'decision', 20)}</b> to {what}: {_said(data, 'reason')}")


def _effect(data: dict[str, Any], entry: Entry) -> Fact:
    if entry.kind == "effect.started":
        return Fact("i", "?", f"<b>effect {_said(data, 'key', 80)}</b> has no result: it may have happened")
    outcome = f"failed: {_said(data, 'error')}" if data.get("error") else "done"
    return Fact("q", "", f"effect {_said(data, 'key', 80)} {outcome}")


def _used(data: dict[str, Any], entry: Entry) -> Fact:
    return Fact("q", "", draw_used(data), shown(entry.by))


def _step(data: dict[str, Any], entry: Entry) -> Fact:
    reason = f": {_said(data, 'reason')}" if data.get("reason") else ""
    name = f" {_said(data, 'name')}" if entry.kind in ("session.opened", "session.renamed") else ""
    goal = f": {_said(data, 'objective')}" if data.get("objective") else ""
    return Fact("q", "·", f"session {shown(entry.kind.partition('.')[2])}{name}{goal}{reason}")


def _next(data: dict[str, Any], entry: Entry) -> Fact:
    del entry
    command = f" <code>$ {_said(data, 'command')}</code>" if data.get("command") else ""
    return Fact("d", "→", f"<b>next</b> {_said(data, 'text')}{command}")


def _code(data: dict[str, Any], entry: Entry) -> Fact:
    del entry
    anchors = ", ".join(str(key).partition("@")[0] for key in data.get("anchors") or ())
    commits = data.get("commits") or ()
    seen = data["revision"] if isinstance(data.get("revision"), dict) else {}
    place = f"{_said(seen, 'branch', 80) or 'no branch'} at {shown(str(seen.get('revision'))[:SHORT_REVISION])}"
    text = f"code: {counted(len(commits), 'new commit')}" if commits or not seen else f"code: {place}"
    text = f"code changed: {short(anchors, _LINE)}" if anchors else text
    return Fact("s" if anchors else "q", "!" if anchors else "", text)


def _attention(data: dict[str, Any], entry: Entry) -> Fact:
    return Fact("i", "●", f"<b>{shown(entry.by)} waits</b> for a person: {_said(data, 'message')}")


def _erased(data: dict[str, Any], entry: Entry) -> Fact:
    del entry
    count = data.get("count")
    number = counted(count, "payload") if isinstance(count, int) else "payloads"
    return Fact("i", "∅", f"<b>erased</b> {number}: {_said(data, 'reason')}")


def _secret(data: dict[str, Any], entry: Entry) -> Fact:
    del entry
    rules = ", ".join(dict.fromkeys(str(one["rule"]) for one in data["found"]))
    done = "found and kept" if data.get("policy") == "keep" else "replaced"
    return Fact("q", "", f"secret {done}: {short(rules, _LINE)} in {_said(data, 'kind')}")


def _section(data: dict[str, Any], entry: Entry) -> Fact:
    del entry
    text = str(data.get("text") or "")
    return Fact(
        "q",
        "",
        f"section <b>{_said(data, 'section', 80)}</b> {short(text, _SECTION)}",
        "",
        f'<div class="md">{to_html(text)}</div>' if len(text) > _SECTION else "",
    )


def _generic(data: dict[str, Any], entry: Entry) -> Fact:
    names = (
        "text",
        "message",
        "reason",
        "cause",
        "steps",
        "name",
        "key",
        "what",
        "phase",
        "prompt",
        "feature",
        "agent",
    )
    said = next((_said(data, name) for name in names if isinstance(data.get(name), str) and data[name]), "")
    return Fact("q", "", f'<span title="{attribute(entry.kind)}">{_kind(entry)}</span>{": " if said else ""}{said}')


_MAKERS: dict[str, Callable[[dict[str, Any], Entry], Fact]] = {
    "finding.stated": _finding, "finding.relabelled": _relabelled, "finding.challenged": _challenged,
    "finding.upheld": _upheld, "decision.made": _decision, "attempt.started": _started, "attempt.settled": _settled,
    "attempt.corrected": _corrected, "interruption.recorded": _interrupted, "transcript.compacted": _compacted,
    "session.forked": _forked, "agent.joined": _joined, "agent.left": _left, "agent.located": _located,
    "evidence.recorded": _evidence, "gate.decided": _gate, "effect.started": _effect, "effect.finished": _effect,
    "tool.used": _used, "session.opened": _step, "session.renamed": _step, "session.paused": _step,
    "session.resumed": _step, "session.closed": _step, "session.archived": _step, "session.held": _step,
    "session.released": _step, "next_action.set": _next, "code.changed": _code, "attention.needed": _attention,
    "payload.erased": _erased, "secret.found": _secret, "section.written": _section,
}  # fmt: skip
