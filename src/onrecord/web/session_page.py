"""The page of one session: what the next agent reads, what happened, and any event, now or as it was at a position."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord import machine
from onrecord.log.head import LIVE
from onrecord.pages.frame import sign_button, skip_link
from onrecord.pages.lanes import legend
from onrecord.pages.panel import panel
from onrecord.pages.text import at_minute, attribute, in_words, short, shown
from onrecord.session.reading import recent
from onrecord.views.needs import ATTEMPT
from onrecord.views.note import is_unwritten
from onrecord.views.render import ago
from onrecord.web.frame import document
from onrecord.web.home import project_name, used_words
from onrecord.web.sturdy import sturdy
from onrecord.web.words import colour, reason, resume_command, told, tone

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.session.standing import Standing
    from onrecord.views.fold import Whole
    from onrecord.views.needs import Need
    from onrecord.web.frame import Frame
    from onrecord.web.shelf import Used

NEEDS_SHOWN = 3
TABS = ("timeline", "findings", "attempts", "team", "files", "cost", "rollout", "note", "log")
TITLES = {
    "timeline": "Timeline", "findings": "Findings", "attempts": "Attempts", "team": "Team", "files": "Files",
    "cost": "Cost", "rollout": "Rollout", "note": "Note", "log": "Raw log",
}  # fmt: skip


class Look(NamedTuple):
    """A session on a page: the handle, its views at a position, and its standing now."""

    session: Session
    whole: Whole
    now: int
    """The newest position."""
    standing: Standing | None
    used: Used
    clock: int
    is_past: bool

    @property
    def position(self) -> int:
        """The position that is looked at."""
        return self.whole.position


def chips(look: Look) -> str:
    """The state of a session in a few words, with the command that continues it."""
    head, one = look.whole.head, look.standing
    found = []
    if look.is_past:
        found.append(f'<span class="chip past">as it was · {shown(head.status)}</span>')
    elif one is not None:
        kind = {"b": "bad", "n": "need", "g": "ok"}.get(colour(one), "")
        why = reason(one, look.clock)  # HTML
        since = "" if one.needs or one.busy else f" · {ago(one.entry.active_at, look.clock)}"
        found.append(f'<span class="chip {kind}" id="why">{why}{since}</span>')
        if (head.status not in LIVE or head.status == "paused") and why != head.status:
            found.append(f'<span class="chip">{shown(head.status)}</span>')
    if head.held:
        found.append('<span class="chip">held against erasure</span>')
    agents = " · ".join(look.whole.roster.agents)
    if agents:
        found.append(f'<span class="chip">{short(agents, 60)}</span>')
    return "".join(found)


def needs(look: Look) -> str:
    """What a person should do, each with its command."""
    if look.standing is None or look.is_past or not look.standing.needs:
        return ""
    rows = "".join(_need(look, need) for need in look.standing.needs[:NEEDS_SHOWN])
    more = len(look.standing.needs) - NEEDS_SHOWN
    rest = f'<li class="ev">and {more} more</li>' if more > 0 else ""
    return f'<h2>Needs you</h2><ul class="needs">{rows}{rest}</ul>'


def _need(look: Look, need: Need) -> str:
    """One need. The form that settles an attempt finds its number here."""
    attempt = look.whole.attempts.started_at(need.position) if need.kind == ATTEMPT else None
    number = f' data-attempt="{attempt["number"]}"' if attempt else ""
    return (
        f'<li{number}><span class="{tone(need)}">{told(need, look.clock)} '
        f'<a class="at" href="#e{need.position}">{need.position}</a></span>'
        f'<button type="button" class="cmd" data-copy="{attribute(need.command)}" title="Copy this command">'
        f"{in_words(need.command)}</button></li>"
    )


def left(look: Look) -> str:
    """The left column: what needs a person, and what the next agent reads."""
    whole = look.whole

    def note() -> str:
        end = recent(look.session, whole.position) if is_unwritten(whole) else None
        return panel(whole, None if look.is_past else machine.is_gone, end)

    return f"{needs(look)}<h2>What the next agent reads</h2>{sturdy(note)}"


def counts(look: Look, *, rollout: bool) -> list[tuple[str, str, int | None]]:
    """The tabs of a session, each with how much there is."""
    whole = look.whole
    amounts = {
        "findings": len(whole.findings.findings), "attempts": len(whole.attempts.all()),
        "team": len(whole.roster.agents),
    }  # fmt: skip
    shown_tabs = [name for name in TABS if name != "rollout" or rollout]
    return [(name, TITLES[name], amounts.get(name)) for name in shown_tabs]


def slider_label(look: Look) -> str:
    """The position of the slider, in words."""
    at = look.whole.head.at
    return f"position <b>{look.position:,}</b> of {look.now:,} · {at_minute(at)}"


def page(frame: Frame, look: Look, tab: str, view: str, *, rollout: bool, stretch: int) -> str:
    """The whole page. `view` is the HTML of the chosen tab."""
    head = look.whole.head
    one = look.standing
    command = resume_command(one) if one else f"onrecord show {head.name}"
    everything = "" if head.project and project_name(head.project) == frame.project_name else "?all=1"
    header = (
        f"{skip_link('view', 'Skip to the chosen part')}"
        f'<header class="top"><a class="crumb" href="{frame.base}/{everything}">'
        f"{short(project_name(head.project), 30)} /</a>"
        f'<h1>{attribute(head.name)}</h1><span id="chips">{chips(look)}</span>'
        '<button type="button" class="chip" id="chain" title="Recompute the hash of every event">verify chain</button>'
        f'<span class="sp"></span><span class="chip" id="live" role="status">connecting</span>'
        f'<span class="chip" id="used">{used_words(look.used)}</span>'
        f'<button type="button" class="cmd" data-copy="{attribute(command)}" title="Copy: {attribute(command)}">'
        f"{attribute(command)}</button>{_act(frame, look)}"
        f"{sign_button('<kbd>?</kbd>', 'Keyboard shortcuts', 'class=key data-help')}</header>"
    )
    past = (
        '<section class="lanes" aria-label="Over time">'
        f'<div id="lanes" class="lanes-in {_room(look)}" tabindex="0" role="region" aria-label="Lanes over time"></div>'
        f'<div class="slider">{sign_button("◀", "One event back", "id=back")}'
        '<button type="button" id="play" aria-pressed="false">▶ play</button>'
        f"{sign_button('▶', 'One event forward', 'id=forth')}"
        f'<input type="range" id="position" min="1" max="{look.now}" value="{look.position}" '
        'aria-label="Position in the log">'
        f'<span id="where">{slider_label(look)}</span>'
        '<button type="button" id="now">now</button>'
        f'<span class="zoom">zoom {sign_button("&minus;", "Zoom out of the lanes", "id=narrower")}'
        f"{sign_button('+', 'Zoom into the lanes', 'id=wider')}</span>"
        '<button type="button" id="compare" class="link">compare…</button></div></section>'
    )
    middle = (
        f'<section class="middle" aria-label="Session"><div id="tabs">{_tabs(frame, look, tab, rollout=rollout)}</div>'
        f'<div id="view" tabindex="0" role="region" aria-label="The chosen part">{view}</div></section>'
    )
    body = (
        f'{header}{past}<p class="paper">These are the entries that were on the screen. The whole session, for paper: '
        f"<code>onrecord export {attribute(head.name)} --format html</code></p>"
        '<main class="cols">'
        f'<section class="note" id="left" tabindex="0" aria-label="What the next agent reads">{left(look)}</section>'
        f'{middle}<template id="legend"><h2>Signs in the lanes</h2>{legend()}</template>'
        '<aside class="inspector" id="inspector" tabindex="0" aria-label="Event">'
        '<p class="ev">Choose an event: its payload, who caused it, and what it changed.</p></aside></main>'
    )
    data = {
        "session": head.session, "name": head.name, "now": str(look.now),
        "at": str(look.position) if look.is_past else "", "tab": tab, "stretch": str(stretch),
        "person": frame.person,
    }  # fmt: skip
    return document(frame, f"{head.name} · onrecord", body, view="session", data=data)


def _room(look: Look) -> str:
    """The height of the lanes, known before they are drawn, so that nothing moves when they are."""
    agents = look.standing.entry.listing["agents"] if look.standing else look.whole.roster.agents
    return {0: "few", 1: "two"}.get(len(agents), "")


def _act(frame: Frame, look: Look) -> str:
    if not frame.allow_writes or look.is_past:
        return ""
    return '<button type="button" id="act" class="act">act…</button>'


def _tabs(frame: Frame, look: Look, current: str, *, rollout: bool) -> str:
    """Links that work without a script too."""
    past = f"&amp;at={look.position}" if look.is_past else ""
    made = "".join(
        f'<a href="{frame.base}/s/{look.session.id}?tab={name}{past}" data-tab="{name}"'
        f"{' aria-current=page' if name == current else ''}>{title} "
        f'<span class="ev count">{"" if count is None else f"{count:,}"}</span></a>'
        for name, title, count in counts(look, rollout=rollout)
    )
    return f'<nav class="tabs" aria-label="Parts of the session">{made}</nav>'
