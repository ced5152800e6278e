"""The tabs of a session besides its timeline: findings, attempts, team, files, cost, tokens, note and the raw log."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.agents import pricing
from onrecord.pages.attempts import attempts_table, metric_plots
from onrecord.pages.board import findings_board
from onrecord.pages.costs import UsageRow, usage_table
from onrecord.pages.entries import entries_of
from onrecord.pages.files import edits_of, files_list
from onrecord.pages.frame import empty
from onrecord.pages.panel import note_text
from onrecord.pages.text import at_minute, at_second, attribute, link, short, shown, soon, tokens
from onrecord.session.reading import recent
from onrecord.views.note import is_unwritten, note
from onrecord.views.transcript import TURN_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.session.usage import Used
    from onrecord.views.fold import Whole
    from onrecord.views.values import Agent
    from onrecord.web.session_page import Look

EVENTS_SHOWN = 200
"""How many events one page of the raw log lists."""
HASH_SHOWN = 8
"""How many characters of a hash the raw log shows; the inspector shows both ends."""
EDITS_READ = 1_000
"""How many of the last events of turns are looked at for edits of files."""
TOOLS_READ = 2_000
"""How many of the last uses of tools that hooks recorded are looked at for edits of files."""
_EPOCH = date(1970, 1, 1)


def findings(look: Look) -> str:
    """The findings as a board."""
    if not look.whole.findings.findings:
        return empty("No finding is on record yet.", 'onrecord finding state "The cache is stale" --label open')
    return findings_board(look.whole)


def attempts(look: Look) -> str:
    """The attempts as a table, with a plot of each metric."""
    if not look.whole.attempts.all():
        return empty("No attempt is on record yet.", "onrecord run -- pytest")
    return attempts_table(look.whole, None if look.is_past else machine.is_gone) + metric_plots(look.whole)


def team(look: Look) -> str:
    """Who takes part, and what each agent does now."""
    agents = look.whole.roster.agents
    if not agents:
        return empty("No agent has joined this session yet.", "onrecord start claude")
    one = None if look.is_past else look.standing
    states = dict.fromkeys(one.working, "working") | dict.fromkeys(one.idle, "idle") if one else {}
    rows = "".join(_agent(look, name, agent, states.get(name)) for name, agent in agents.items())
    return (
        '<table class="grid"><thead><tr><th scope="col">agent</th><th scope="col">state</th><th scope="col">vendor</th>'
        '<th scope="col" class="n">turns</th><th scope="col" class="n">runs</th><th scope="col">last start</th>'
        f'<th scope="col">conversation</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _agent(look: Look, name: str, agent: Agent, running: str | None) -> str:
    state, kind = _state(look, agent, running)
    lane = look.whole.lanes.lane(name)
    links = agent["links"]
    conversation = (
        f"{short(links[-1]['id'], 24)}" + (f" ({len(links)} links)" if len(links) > 1 else "") if links else "–"
    )
    at = agent.get("last_joined_at", agent["joined_at"])
    joined = agent.get("joined", 0)
    return (
        f'<tr><td><b>{attribute(name)}</b></td><td><span class="{kind}">{state}</span></td>'
        f'<td>{attribute(agent["vendor"] or "–")}</td><td class="n">{lane["committed"]:,}</td>'
        f'<td class="n">{agent["runs"]}</td><td>{at_minute(at)} {link(joined) if joined else ""}</td>'
        f"<td><code>{conversation}</code></td></tr>"
    )


def _state(look: Look, agent: Agent, running: str | None) -> tuple[str, str]:
    """What an agent does, as HTML, and the class of its colour."""
    waits, stop = agent["waits"], agent["stop"]
    if waits and agent["here"]:
        return f"waits: {shown(waits['message'])}", "tone-warn"
    if running:
        return running, "tone-ok" if running == "working" else "tone-dim"
    if stop:
        resets = stop.get("resets_at")
        until = f", until {soon(int(resets * 1e6), look.clock)}" if resets else ""
        return f"stopped: {shown(stop.get('cause', 'unknown')).replace('_', ' ')}{until}", "tone-warn"
    if not agent["here"]:
        return "left", "tone-dim"
    return ("here then", "tone-dim") if look.is_past else ("its process has ended", "tone-bad")


def files(look: Look) -> str:
    """The files that changed during the work, as far as the record says."""
    turns = list(islice(look.session.log.newest(TURN_KINDS, upto=look.position, page=EVENTS_SHOWN), EDITS_READ))
    tools = islice(look.session.log.newest(("tool.used",), upto=look.position, page=TOOLS_READ), TOOLS_READ)
    events = sorted([*turns, *tools], key=lambda event: event.position)
    drawn = files_list(look.whole, edits_of(entries_of(events, look.whole, None), look.whole))
    if len(turns) < EDITS_READ:
        return drawn
    first = turns[-1].position
    return f'{drawn}<p class="ev">Edits that no hook recorded are listed from position {first:,} on.</p>'


def cost(look: Look) -> str:
    """What the session used, by day, model and agent."""
    cells = [
        (int(day), agent, model, pricing.priced(model, int(day), cell))
        for day, agents in look.whole.spend.days.items()
        for agent, models in agents.items()
        for model, cell in models.items()
    ]
    if not cells:
        return empty("No model call is on record yet.", "onrecord usage --by model")
    return _cost_tables([("By day", "day", lambda one: day_name(one[0])), ("By model", "model", lambda one: one[2]),
                         ("By agent", "agent", lambda one: one[1])], cells)  # fmt: skip


def costs_of_all(found: Iterable[Used]) -> str:
    """What many sessions used, by day, model, session and agent."""
    cells = [
        (used.day, used.agent, used.model, pricing.priced(used.model, used.day, used.usage), used.session.name)
        for used in found
    ]
    if not cells:
        return empty("No model call is on record yet.", "onrecord usage --all")
    return _cost_tables([("By day", "day", lambda one: day_name(one[0])), ("By model", "model", lambda one: one[2]),
                         ("By session", "session", lambda one: one[4]), ("By agent", "agent", lambda one: one[1])],
                        cells)  # fmt: skip


def _cost_tables(groups: list[tuple[str, str, Callable[[Any], str]]], cells: list[Any]) -> str:
    return "".join(f"<h2>{title}</h2>{usage_table(_rows(cells, key, first), first)}" for title, first, key in groups)


def _rows(cells: list[Any], key: Callable[[Any], str], first: str) -> list[UsageRow]:
    sums: dict[str, dict[str, Any]] = {}
    for cell in cells:
        pricing.add_priced(sums.setdefault(key(cell), pricing.nothing()), cell[3])
    # Days by their dates, the newest first; all others by what they cost.
    by_name = first == "day"
    ordered = sorted(sums.items(), key=lambda one: (one[0] if by_name else one[1]["cost"], one[0]), reverse=True)
    return [
        UsageRow(
            name, total["calls"], total["input_tokens"], total["cache_read_tokens"], total["output_tokens"],
            total["cost"], total["unknown_cost_calls"],
        )
        for name, total in ordered
    ]  # fmt: skip


def day_name(day: int) -> str:
    """A day by its number since 1970."""
    return (_EPOCH + timedelta(days=day)).isoformat() if day else "earlier"


def note_view(look: Look) -> str:
    """The note word for word."""
    whole = look.whole
    end = recent(look.session, whole.position) if is_unwritten(whole) else None
    return note_text(note(whole, end, None if look.is_past else machine.is_gone))


def log(look: Look, upto: int | None, address: str) -> str:
    """The newest events up to a position, one line each."""
    last = min(upto or look.position, look.position)
    events = []
    for event in look.session.log.newest(upto=last, headers=True, page=EVENTS_SHOWN):
        events.append(event)
        if len(events) >= EVENTS_SHOWN:
            break
    rows = "".join(
        f'<tr data-position="{event.position}"><td class="n">{link(event.position)}</td>'
        f'<td class="n">{at_second(event.at)}</td>'
        f"<td><code>{shown(event.kind)}</code></td><td>{attribute(event.by)}</td>"
        f'<td class="n">{event.run}</td><td>{link(event.because) if event.because else ""}</td>'
        f"<td><code>{event.hash.hex()[:HASH_SHOWN]}</code></td></tr>"
        for event in events
    )
    first = events[-1].position if events else 1
    earlier = (
        f'<p><a href="{attribute(address)}&amp;upto={first - 1}" data-tab="log" data-upto="{first - 1}">'
        f"earlier events: 1 to {first - 1:,}</a></p>"
        if first > 1
        else ""
    )
    return (
        '<table class="grid log"><thead><tr><th scope="col" class="n">position</th><th scope="col">at</th>'
        '<th scope="col">kind</th><th scope="col">by</th><th scope="col" class="n">run</th><th scope="col">because</th>'
        f'<th scope="col">hash</th></tr></thead><tbody>{rows}</tbody></table>{earlier}'
    )


def used_words(found: Iterable[Used]) -> str:
    """What was used today, in words."""
    total = pricing.nothing()
    for used in found:
        pricing.add_priced(total, pricing.priced(used.model, used.day, used.usage))
    amount = int(total["input_tokens"] + total["output_tokens"])
    if not amount:
        return "no tokens today"
    known = f"${total['cost']:,.2f}" if total["cost"] else ""
    return f"today {tokens(amount)} tokens" + (f" · {known}" if known else "")


def has_rollout(whole: Whole) -> bool:
    """Whether the session is a rollout with token ids: its turns are those of a policy."""
    from onrecord.rollout.recording import POLICY_AGENT

    return POLICY_AGENT in whole.lanes.lanes
