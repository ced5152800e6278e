"""The report: a session in one HTML file that needs no network, no server and no JavaScript.

What needs JavaScript is hidden until the report's own script runs: search, the slider over positions, tabs and the
inspector. The file allows only that script and its own stylesheet, both by their hashes.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from onrecord.log.digest import sha256
from onrecord.log.events import TRANSCRIPT, tier_of
from onrecord.pages.attempts import attempt_row, draw_attempts, metric_plots
from onrecord.pages.board import draw_board, finding_card
from onrecord.pages.costs import usage_table
from onrecord.pages.entries import TURN, entries_of
from onrecord.pages.files import FILE_KINDS, Files, draw_files, edits_of
from onrecord.pages.frame import STYLE, header, script, sign_button, skip_link, tabs
from onrecord.pages.highlight import uncoloured
from onrecord.pages.inspector import payload, short_hash
from onrecord.pages.lanes import Picture, draw_lanes, legend
from onrecord.pages.options import Options
from onrecord.pages.panel import SECTIONS, decision_lines, draw_lines, finding_lines, note_text, state_lines
from onrecord.pages.spans import Chapter, marked, spans_of
from onrecord.pages.text import at_second, attribute, clock, day, shown
from onrecord.pages.timeline import draw_timeline, heights_style, in_parts
from onrecord.views.attempt_table import METRIC_COLUMNS, metric_names
from onrecord.views.note import changed_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onrecord.log.events import Event
    from onrecord.pages.costs import UsageRow
    from onrecord.pages.entries import Entry
    from onrecord.pages.panel import Gone, Line
    from onrecord.views.fold import Whole
    from onrecord.views.happenings import Recent

PAYLOAD_SHOWN = 2_000
"""How many characters of a payload the list of events shows; the log has all of it."""
COLOURED_ENTRIES = 2_000
"""In a longer report, code has no colours: it opens sooner without their elements."""
_UNLISTED = frozenset({"usage.recorded", "attention.given"})
_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'"
)
_HELP = (
    '<p class="ev js" hidden>Select an entry to see its event: kind, actor, time, hash and payload.</p>'
    '<p class="ev js" hidden><kbd>/</kbd> search <kbd>j</kbd> <kbd>k</kbd> next, previous '
    "<kbd>+</kbd> <kbd>-</kbd> zoom the lanes</p>"
)
_SIGNS = f'<details class="more"><summary>what the signs mean</summary>{legend()}</details>'
_CLAIMS = ("finding.", "hypothesis.", "evidence.", "code.", "milestone.")
_FACTS = ("session.", "objective.", "next_action.", "reproduction.", "phase.", "profile.", "section.", "milestone.",
          "feature.", "decision.", "code.", "attempt.", "finding.", "hypothesis.", "evidence.", "effect.",
          "interruption.", "agent.joined", "agent.left", "turn.aborted")  # fmt: skip


class Contents(NamedTuple):
    """What a report is made of. Everything is given: a report reads nothing."""

    whole: Whole
    """The views at the last event."""
    events: Sequence[Event]
    """The log up to there, in order, with payloads."""
    note: str
    made_at: int
    first: int = 1
    """The position that the timeline begins at."""
    recent: Recent | None = None
    gone: Gone | None = None
    needs: Sequence[str] = ()
    """Why the session needs a person."""
    verified: bool | None = None
    """Whether the hash chain was verified; None if it was not checked."""
    usage: Sequence[UsageRow] = ()
    command: str = ""
    options: Options = Options(person="user")
    remark: str = ""
    """A sentence for the end of the file, for instance what was redacted."""


def report(contents: Contents) -> Iterator[str]:
    """The file, piece by piece."""
    whole, events = contents.whole, contents.events
    entries = [one for one in entries_of(events, whole, {}) if one.position >= contents.first]
    code, style = script(), STYLE + heights_style()
    policy = _POLICY.format(script=_digest(code), style=_digest(style))
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{shown(whole.head.name)} · onrecord</title>\n"
        f"<style>{style}</style></head>\n<body>\n"
    )
    yield skip_link("timeline", "Skip to the timeline")
    yield _top(contents)
    picture = Picture().fold(events)
    yield f'<section class="lanes" aria-label="Lanes"><div class="lanes-in">{draw_lanes(picture)}</div>'
    yield f"{_SIGNS}</section>\n"
    files = Files(edits_of(entries, whole))
    spans = spans_of(whole.head, events, _chapters(contents, files))
    yield _bars(contents, entries, len(files.names | set(changed_files(whole))))
    yield '<main class="cols">\n<section class="note" id="note" aria-label="What the next agent reads">'
    yield _note(contents, marked(spans["panel"]))
    yield '</section>\n<div class="middle">\n<section id="timeline" aria-label="Timeline">\n'
    yield from _timeline(contents, entries)
    yield '</section>\n<section id="findings"><h2>Findings</h2>'
    yield draw_board(marked(spans["board"]))
    yield '</section>\n<section id="attempts"><h2>Attempts</h2>'
    yield draw_attempts(marked(spans["attempts"]), _metrics(whole)) + metric_plots(whole)
    yield '</section>\n<section id="files"><h2>Files</h2>'
    yield draw_files(marked(spans["files"]))
    yield f'</section>\n<section id="cost"><h2>Cost</h2>{usage_table(contents.usage)}</section>\n'
    yield '<section id="events"><h2>Events</h2>'
    yield from _events(contents, {entry.position for entry in entries})
    yield f'</section>\n</div>\n<aside class="inspector" id="inspector" aria-label="Event">{_HELP}</aside>\n</main>\n'
    yield _foot(contents)
    yield f"<script>{code}</script>\n</body></html>\n"


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _metrics(whole: Whole) -> list[str]:
    return metric_names(whole.attempts.all(), METRIC_COLUMNS)


def _chapters(contents: Contents, files: Files) -> dict[str, Chapter]:
    """What goes back when the slider does."""
    names = _metrics(contents.whole)

    def panel(whole: Whole, event: Event | None) -> dict[str, list[Line]]:
        # Which processes run, and what happened last, is known of the end only.
        known = () if event else (contents.gone, contents.recent)
        made = {"": state_lines(whole, *known)}
        made |= {name: finding_lines(whole, name) for name in touched(whole, event)}
        count = len(whole.facts.decisions)
        if count and (event is None or event.kind == "decision.made"):
            # Under one key each: a decision never changes.
            made |= {f"decision {count}": decision_lines(whole, count - 1)}
        return made

    def board(whole: Whole, event: Event | None) -> dict[str, list[Line]]:
        return {name: finding_card(whole, name) for name in touched(whole, event)}

    def attempts(whole: Whole, event: Event | None) -> dict[str, list[Line]]:
        gone = contents.gone if event is None else None
        changed = [*whole.attempts.attempts][-1:] if event and event.kind == "attempt.started" else None
        if event and changed is None:
            changed = [str((event.data or {}).get("attempt"))]
        found = {name: whole.attempts.attempts.get(name) for name in changed or whole.attempts.attempts}
        return {name: [attempt_row(one, gone, names)] for name, one in found.items() if one}

    return {
        "panel": Chapter(panel, _FACTS),
        "board": Chapter(board, _CLAIMS),
        "attempts": Chapter(attempts, ("attempt.",)),
        "files": Chapter(files.draw, FILE_KINDS, frozenset(files.edits)),
    }


def touched(whole: Whole, event: Event | None) -> list[str]:
    """The findings that an event may have changed; without an event, all of them."""
    findings = whole.findings.findings
    data = event.data if event is not None and isinstance(event.data, dict) else {}
    if event is None or not event.kind.startswith(("finding.", "evidence.")) or data.get("anchors"):
        return [] if event is not None and not event.kind.startswith(_CLAIMS) else list(findings)
    if event.kind == "evidence.recorded":
        return whole.findings.resting_on(str(data.get("id")))
    name = next(reversed(findings), "") if event.kind == "finding.stated" else str(data.get("finding"))
    return [name, *findings[name]["contradicts"]] if name in findings else []


def _top(contents: Contents) -> str:
    head, spend = contents.whole.head, contents.whole.spend
    agents = " · ".join(dict.fromkeys(contents.whole.roster.agents))
    chips = [(head.status, ""), *((need, "need") for need in contents.needs[:3]), (agents, "")]
    if contents.verified is not None:
        chips.append(("chain verified", "ok") if contents.verified else ("chain broken", "bad"))
    if spend.tokens:
        from onrecord.pages.costs import cost_of, total_of
        from onrecord.pages.text import tokens

        cost = cost_of(total_of(contents.usage)) if contents.usage else ""
        chips.append((" · ".join(filter(None, (f"{tokens(spend.tokens)} tokens", cost))), ""))
    return (
        header(head.name, crumb=head.project.rstrip("/").rpartition("/")[2], chips=chips, command=contents.command)
        + "\n"
    )


def _bars(contents: Contents, entries: Sequence[Entry], files: int) -> str:
    whole = contents.whole
    names = [
        ("timeline", "Timeline", len(entries)), ("findings", "Findings", len(whole.findings.findings)),
        ("attempts", "Attempts", whole.attempts.count), ("files", "Files", files),
        ("cost", "Cost", None), ("events", "Events", whole.position),
    ]  # fmt: skip
    first, last = contents.first, whole.position
    return (
        f'<section class="bars" aria-label="Parts, search and position">{tabs(names)}'
        '<form class="find js" role="search" hidden><input type="search" placeholder="Search  ( / )" '
        'aria-label="Search the timeline"><span class="ev" role="status"></span></form>'
        f'<div class="slider js" hidden>{sign_button("▶", "Play", "data-play=1")}'
        f'<input type="range" min="{first}" max="{last}" value="{last}" aria-label="Position">'
        f"<output>position {last} of {last}</output>"
        f'<span class="zoom">zoom {sign_button("&minus;", "Zoom out of the lanes", "data-zoom=0.5")}'
        f"{sign_button('+', 'Zoom into the lanes', 'data-zoom=2')}</span>"
        '<button type="button" class="compare">compare…</button></div></section>\n'
    )


def _note(contents: Contents, lines: list[Line]) -> str:
    drawn = draw_lines(lines, SECTIONS)
    written = f'<details class="more"><summary>the note, word for word</summary>{note_text(contents.note)}</details>'
    return f"<h2>What the next agent reads</h2>{drawn or '<p class=ev>Nothing was written down yet.</p>'}{written}"


def _timeline(contents: Contents, entries: Sequence[Entry]) -> Iterator[str]:
    if contents.first > 1:
        yield f'<p class="ev">This report begins at position {contents.first}; the log has everything before it.</p>'
    drawn = draw_timeline(entries, contents.options)
    yield from in_parts(drawn if len(entries) <= COLOURED_ENTRIES else map(uncoloured, drawn))
    if not any(entry.kind == TURN for entry in entries):
        yield '<p class="empty">No agent has said anything yet.</p>'


def _events(contents: Contents, drawn: set[int]) -> Iterator[str]:
    yield (
        '<p class="ev">Every fact with its payload. Turns are in the timeline, and usage is under Cost.</p>'
        '<div class="wide"><table class="grid events"><thead><tr><th>#</th><th>time (UTC)</th><th>by</th><th>kind</th>'
        "<th>payload</th><th>hash</th></tr></thead><tbody>"
    )
    for event in contents.events:
        if tier_of(event.kind) != TRANSCRIPT and event.kind not in _UNLISTED and event.position >= contents.first:
            yield _event(event, is_drawn=event.position in drawn)
    yield "</tbody></table></div>"


def _event(event: Event, *, is_drawn: bool) -> str:
    because = f' data-because="{event.because}"' if event.because else ""
    id_ = f"r{event.position}" if is_drawn else f"e{event.position}"
    return (
        f'<tr id="{id_}" data-p="{event.position}" data-run="{event.run}"{because}><td><a href="#e{event.position}">'
        f'{event.position}</a></td><td title="{day(event.at)}">{clock(event.at)}</td><td>{shown(event.by)}</td>'
        f"<td>{shown(event.kind)}</td><td><details><summary>payload</summary>{payload(event.data, PAYLOAD_SHOWN)}"
        f"</details></td><td><code>{short_hash(event.hash)}</code></td></tr>\n"
    )


def _foot(contents: Contents) -> str:
    head = contents.whole.head
    verified = {True: "; the hash chain up to there was verified", False: "; the hash chain is broken", None: ""}
    remark = f" {shown(contents.remark)}" if contents.remark else ""
    return (
        f"<footer>Made by onrecord {at_second(contents.made_at)} from position {head.position} of session "
        f'<code>{attribute(head.session)}</code>, hash <code title="{head.hash.hex()}">{short_hash(head.hash)}</code>'
        f"{verified[contents.verified]}.{remark}</footer>\n"
    )
