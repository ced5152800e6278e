"""The first page: the sessions that need a person and why, then the others; a filter, and a search through all text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.log.text import words_of
from onrecord.pages.costs import sparkline
from onrecord.pages.frame import empty, sign_button
from onrecord.pages.text import attribute, money, short, shown, tokens
from onrecord.views.render import ago
from onrecord.web.frame import document
from onrecord.web.words import about, colour, reason, resume_command, who

if TYPE_CHECKING:
    from onrecord.log.head import Head
    from onrecord.session.session_store import Found
    from onrecord.session.standing import Standing
    from onrecord.web.frame import Frame
    from onrecord.web.shelf import Listed, Shelf, Used

LISTED = 60
"""How many sessions each list of the page has; the filter finds the rest."""
HITS_SHOWN = 20
"""How many events a search shows."""
ABOUT_WIDTH = 160
_HOUR = 3_600_000_000
_COPY = (
    '<svg viewBox="0 0 15 15" aria-hidden="true"><rect x="1.5" y="1.5" width="8" height="9" rx="1.5"/>'
    '<path d="M5 13.5h6.5a1.5 1.5 0 0 0 1.5-1.5V5"/></svg>'
)
KEYS = (
    ("j", "k", "move"), ("enter", "open"), ("r", "copy the resume command"), ("a", "all projects, or this one"),
    ("/", "search"), ("?", "all keys"),
)  # fmt: skip


FIRST_STEPS = (
    ("onrecord start claude", "start an agent on the record; also codex, gemini, copilot, opencode, qwen, cursor"),
    (
        "onrecord setup --yes",
        "record every conversation of your agents from now on, and import those of the last month",
    ),
    ("onrecord demo", "watch a worker being killed, and its session survive"),
)
"""What a person without sessions can do, each with its command."""


def home(frame: Frame, shelf: Shelf, projects: tuple[str, ...] | None, today: str, now: int) -> str:
    """The whole page. `projects` None means all of them; `today` is what was used today, in words."""
    everything = projects is None
    here = frame.project_name
    other = "" if everything else "?all=1"
    label = f"only {here}" if everything else "all projects"
    crumb = "all projects" if everything else here
    header = (
        f'<header><h1><a href="{frame.base}/">onrecord</a></h1><span class="crumb">{shown(crumb)}</span>'
        f'<a class="chip" id="scope" href="{frame.base}/{other}">{shown(label)}</a><span class="sp"></span>'
        f'<span class="chip" id="live" role="status">connecting</span>'
        f'<a class="chip" href="{frame.base}/cost{other}">{today}</a>'
        f"{sign_button('<kbd>?</kbd>', 'Keyboard shortcuts', 'class=key data-help')}</header>"
    )
    body = (
        '<main class="wrap"><div class="bar">'
        '<input id="words" type="search" autocomplete="off" spellcheck="false" aria-label="Search sessions, messages, '
        'findings and commands" placeholder="Search sessions, messages, findings, commands…  ( / )">'
        '<button type="button" class="cmd" data-copy="onrecord start claude" title="Copy this command">'
        "onrecord start claude</button></div>"
        f'<div id="list" aria-live="off">{lists(frame, shelf, projects, "", now)}</div>'
        f'<div id="hits"></div>{_keys()}</main>'
    )
    return document(frame, "onrecord", header + body, view="home", data={"all": "1" if everything else ""})


def lists(frame: Frame, shelf: Shelf, projects: tuple[str, ...] | None, words: str, now: int) -> str:
    """Both lists, filtered."""
    needing, others = shelf.listed(projects, words, LISTED)
    everywhere = projects is None
    if not needing.total and not others.total:
        return _nothing(words, everywhere=everywhere)
    parts = []
    if needing.total:
        parts.append(f'<h2 id="needs">Needs you · {needing.total:,}</h2>')
        parts.append(_box(frame, shelf, needing, now, label="needs", everywhere=everywhere))
    if others.total:
        title = "Everything else" if needing.total else "Sessions"
        many = f" · {others.total:,}" if others.total > LISTED else ""
        parts.append(f'<h2 id="others">{title}{many}</h2>')
        parts.append(_box(frame, shelf, others, now, label="others", everywhere=everywhere))
    return "".join(parts)


def _nothing(words: str, *, everywhere: bool) -> str:
    if words:
        return empty(f"No session has the words “{words}” in its name, title or next action.")
    where = "There are" if everywhere else "This project has"
    rows = "".join(
        f'<li><button type="button" class="cmd" data-copy="{attribute(command)}" title="Copy this command">'
        f"{shown(command)}</button><span>{shown(what)}</span></li>"
        for command, what in FIRST_STEPS
    )
    return (
        f'<div class="first"><p><b>{where} no sessions yet.</b></p><p>A session is one piece of work on record: what '
        "agents did, what they learned, where they stopped and what comes next. It appears here as soon as an agent "
        f"works.</p><ul>{rows}</ul></div>"
    )


def _box(frame: Frame, shelf: Shelf, found: Listed, now: int, *, label: str, everywhere: bool) -> str:
    rows = "".join(_kept_row(frame, shelf, one, now, everywhere=everywhere) for one in found.shown)
    rest = found.total - len(found.shown)
    more = f'<p class="ev">{rest:,} more: type to find them.</p>' if rest else ""
    return f'<ul class="box" aria-labelledby="{label}">{rows}</ul>{more}'


def _kept_row(frame: Frame, shelf: Shelf, one: Standing, now: int, *, everywhere: bool) -> str:
    """A row, rendered again only if something that it shows has changed."""
    head = one.entry.head
    state = (head.hash, one.needs, one.working, ago(one.entry.active_at, now), everywhere, now // _HOUR)
    known = shelf.rows.get(head.session)
    if known is None or known[0] != state:
        known = shelf.rows[head.session] = state, row(frame, one, shelf.used(head), now, everywhere=everywhere)
    return known[1]


def row(frame: Frame, one: Standing, used: Used, now: int, *, everywhere: bool) -> str:
    """One session."""
    head = one.entry.head
    where = f'<span class="ev"> {short(project_name(head.project), 40)}</span>' if everywhere else ""
    kind, command, told = colour(one), resume_command(one), about(one)
    return (
        f'<li class="row" data-session="{attribute(head.session)}" data-command="{attribute(command)}">'
        f'<span class="dot {kind}" aria-hidden="true"></span>'
        f'<span class="what"><a href="{frame.base}/s/{attribute(head.session)}" title="{attribute(told)}">'
        f"<b>{attribute(head.name)}</b></a>"
        f"{where}<small>{short(told, ABOUT_WIDTH)}</small></span>"
        f'<span class="why {kind}">{reason(one, now)}</span>'
        f'<span class="who"><small>{short(who(one.entry.listing), 60)}</small>'
        f'<small class="ev">{ago(one.entry.active_at, now)}</small></span>'
        f"{sparkline(used.activity)}"
        f'<span class="num">{amount(used)}</span>'
        f'<button type="button" class="copy" data-copy="{attribute(command)}" title="Copy: {attribute(command)}" '
        f'aria-label="Copy the command that resumes {attribute(head.name)}">{_COPY}</button></li>'
    )


def amount(used: Used) -> str:
    """Tokens and cost in a few characters."""
    if not used.tokens:
        return "–"
    cost = "–" if used.unknown and not used.cost else _cost(used)
    return f"{tokens(used.tokens)} · {cost}"


def used_words(used: Used) -> str:
    """Tokens and cost with their units; nothing, if nothing was used."""
    if not used.tokens:
        return ""
    cost = "" if used.unknown and not used.cost else f" · {_cost(used)}"
    return f"{tokens(used.tokens)} tokens{cost}"


def _cost(used: Used) -> str:
    return f"{money(used.cost)}{'+' if used.unknown else ''}"


def project_name(project: str) -> str:
    """The last part of a project's key, which may be a path or an address."""
    return project.rstrip("/").rpartition("/")[2].removesuffix(".git") or project or "no project"


def hits(frame: Frame, found: list[Found], query: str, now: int) -> str:
    """Events that a search found, with the words marked."""
    if not found:
        return empty("Nothing was found in the text of the sessions.")
    wanted = words_of(query)
    rows = "".join(
        f'<li class="hit"><a href="{frame.base}/s/{attribute(one.session.session)}#e{one.event.position}">'
        f"<b>{attribute(one.session.name)}</b> "
        f'<span class="ev">{_kind(one.event.kind)} · {attribute(one.event.by)} · {one.event.position} · '
        f"{ago(one.event.at, now)}</span></a>"
        f"<small>{marked(one.snippet, wanted)}</small></li>"
        for one in found
    )
    return f'<h2 id="found">Found in the text · {len(found)}</h2><ul class="box" aria-labelledby="found">{rows}</ul>'


def _kind(kind: str) -> str:
    """What an event is, in words that need no knowledge of the log."""
    return (
        "conversation"
        if kind.startswith(("turn.", "item.", "payload."))
        else shown(kind.replace(".", " ").replace("_", " "))
    )


def marked(text: str, words: list[str]) -> str:
    """A text with words marked. The marks go in before the escaping, as characters that no text keeps."""
    folded = text.casefold()
    if len(folded) != len(text):
        return attribute(text)
    spans = sorted((start, start + len(word)) for word in words if word for start in _places(folded, word))
    parts, end = [], 0
    for start, stop in spans:
        if start >= end:
            parts.append(f"{attribute(text[end:start])}<mark>{attribute(text[start:stop])}</mark>")
            end = stop
    return "".join(parts) + attribute(text[end:])


def _places(text: str, word: str) -> list[int]:
    found, start = [], text.find(word)
    while start >= 0:
        found.append(start)
        start = text.find(word, start + 1)
    return found


def _keys() -> str:
    said = "".join(f"<span>{' '.join(f'<kbd>{key}</kbd>' for key in keys)} {what}</span>" for *keys, what in KEYS)
    return f'<p class="ev keys">{said}</p>'


def title_of(head: Head) -> str:
    """The title of a session's page."""
    return f"{head.name} · onrecord"
