"""Findings as a board: a column for each label, a card for each claim with its evidence and its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.pages.facts import MARKS
from onrecord.pages.panel import Line, finding_small, hidden, readable
from onrecord.pages.text import at_minute, counted, link, short, shown, terminal
from onrecord.views.claims import steps_of
from onrecord.views.findings import CAPTURED, anchor_key
from onrecord.views.note_lines import evidence_text

if TYPE_CHECKING:
    from onrecord.views.findings import Findings
    from onrecord.views.fold import Whole
    from onrecord.views.values import Finding

COLUMNS = ("verified", "settled", "rejected", "stale", "open", "blocked")
_WIDTH = 1_000


def findings_board(whole: Whole) -> str:
    """The board as it is now."""
    return draw_board(board_cards(whole))


def draw_board(cards: list[Line]) -> str:
    """Cards in their columns; a column without a card is left out."""
    columns = []
    for label in COLUMNS:
        found = sorted((card for card in cards if card.section == label), key=lambda card: card.order)
        if found:
            css, mark = MARKS[label]
            head = f'<h3><span class="m {css}">{mark}</span> {label}</h3>'
            columns.append(f'<div class="col"{hidden(found)}>{head}{"".join(card.html for card in found)}</div>')
    if not columns:
        return '<p class="empty">No findings yet. An agent states one with <code>onrecord finding state</code>.</p>'
    return f'<div class="board">{"".join(columns)}</div>'


def board_cards(whole: Whole) -> list[Line]:
    """A card for each finding, in the section of its label."""
    return [card for name in whole.findings.findings for card in finding_card(whole, name)]


def finding_card(whole: Whole, name: str) -> list[Line]:
    """The card of one finding; nothing if its label has no column."""
    return readable(lambda: _labelled(whole.findings, whole.findings.findings[name]), "open")


def _labelled(findings: Findings, finding: Finding) -> list[Line]:
    label = findings.label_of(finding)
    return [Line(label, int(finding["id"][1:]), _card(findings, finding, label))] if label in COLUMNS else []


def _card(findings: Findings, finding: Finding, label: str) -> str:
    css = MARKS[label][0]
    small = " · ".join(finding_small(findings, finding, label))
    anchors = ", ".join(anchor_key(anchor) for anchor in finding["anchors"])
    rests = f'<div class="ev">rests on <code>{short(anchors, _WIDTH)}</code></div>' if anchors else ""
    return (
        f'<div class="card {css}"><p>{short(finding["claim"], _WIDTH)}</p><div class="ev">{small}</div>{rests}'
        f"{_evidence(findings, finding)}{_history(findings, finding)}</div>"
    )


def _evidence(findings: Findings, finding: Finding) -> str:
    rows = []
    for name in finding["evidence"]:
        known = findings.evidence.get(name)
        position = findings.recorded_at(name)
        how = "✓ captured" if findings.how(name) == CAPTURED else findings.how(name)
        text = short(evidence_text(known), _WIDTH) if known else ""
        output = (known.get("output") or known.get("excerpt")) if known else None
        fold = (
            f'<details class="more"><summary>output</summary><pre class="out">{terminal(output)}</pre></details>'
            if output
            else ""
        )
        where = link(position, name) if position else shown(name)
        rows.append(f'<li>{where} <span class="ev">{how}</span> {text}{fold}</li>')
    return f'<ul class="proofs">{"".join(rows)}</ul>' if rows else ""


def _history(findings: Findings, finding: Finding) -> str:
    steps = steps_of(findings, finding)
    rows = []
    for step in steps:
        why = f": {short(step['why'], _WIDTH)}" if step["why"] else ""
        small = f"{shown(step['by'])} · {at_minute(step['at'])} · {link(step['position'])}"
        rows.append(f'<li>{shown(step["what"])}{why} <span class="ev">{small}</span></li>')
    title = f"history, {counted(len(steps), 'step')}"
    return f'<details class="more"><summary>{title}</summary><ol>{"".join(rows)}</ol></details>'
