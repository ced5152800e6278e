"""Reading a session: show, at, diff. Everything shown is folded from the log; the note is what an agent gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.agents import pricing
from onrecord.errors import InvalidInput
from onrecord.machine import is_gone, terminal_of
from onrecord.session.reading import tail as provisional_tail
from onrecord.session.standing import standing_of
from onrecord.surfaces.cli.shared.attention import (
    Presence,
    need_data,
    presence,
    sentence,
    spoken,
    unknown_effects,
)
from onrecord.surfaces.cli.shared.call import whole_number
from onrecord.surfaces.cli.shared.choosing import mark_of, repeats
from onrecord.surfaces.cli.shared.choosing import status_of as shown_status
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.place import survey_worktree
from onrecord.surfaces.cli.shared.shapes import describe, event_data, item_line, lease_data, session_data
from onrecord.surfaces.cli.work import state_file
from onrecord.views.attempts import status_of
from onrecord.views.code import SHORT_REVISION
from onrecord.views.lanes import new_lane
from onrecord.views.needs import LIMITS
from onrecord.views.render import ago, iso, visible
from onrecord.views.transcript import shown as turn_data

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.fold import Whole
    from onrecord.views.transcript import Turn

ITEMS_SHOWN = 6
"""How many items of a provisional turn are shown; all of them are in the log."""
INTERRUPTIONS_SHOWN = 5
"""How many interruptions are shown, the newest first; --json has more of them."""
_LABEL = 12

Line = list[str | Cell]


def show(call: Call) -> int:
    """The note as the next agent reads it, and the state of everything else."""
    session = call.session()
    survey_worktree(call, session)
    state_file.show_lost(call, session)
    views = session.views
    here = presence(session, call.now())
    tail = provisional_tail(session)
    if call.output.json:
        call.output.envelope("session", whole_data(session, here, tail, call.now()))
        return 0
    about = _heading(call, session) + _agents(call, views) + _interruptions(call, views)
    _print(call, about + _lanes(views, here) + _budget(call, views) + _tail(tail))
    call.output.line()
    _print(call, [[Cell("what the next agent reads (onrecord note)", "quiet")], [""]])
    _print_note(call, session.note())
    return 0


def at(call: Call) -> int:
    """The session as it was after an event."""
    position = whole_number(call.positional["POSITION"], "POSITION")
    session = call.session()
    moment = session.at(position)
    event = session.log.event(position)
    if call.output.json:
        facts = {"event": event_data(event), "note": moment.note(), "brief": moment.brief()}
        call.output.envelope("moment", session_data(moment.views.head) | _views_data(moment.views, call.now()) | facts)
        return 0
    now = session.head.position
    _print(call, [[f"{session.name} after position {position} of {now}, by {event.by}, {ago(event.at, call.now())}"]])
    _print(call, [["event", f"{event.kind}  {describe(event)}"]])
    call.output.line()
    _print_note(call, moment.note())
    return 0


def diff(call: Call) -> int:
    """What changed in meaning between two positions."""
    words = list(call.words)
    if words and not words[0].isdigit():
        call.positional["NAME"] = words.pop(0)
    if not 1 <= len(words) <= 2:  # noqa: PLR2004  # the positions it goes from and to
        raise InvalidInput("diff needs one or two positions", hint=f"for example: `{call.verb.example}`")
    positions = [whole_number(word, "a position") for word in words]
    session = call.session()
    after = positions[1] if len(positions) > 1 else session.head.position
    changes = session.diff(positions[0], after)
    if call.output.json:
        call.output.envelope("diff", {"session": session.id, "from": positions[0], "to": after, "changes": changes})
        return 0
    rows = [
        [change["what"], _value(change["before"]), _value(change["after"], change.get("about"))] for change in changes
    ]
    call.output.table(("#what", "*before", "*after"), rows)
    if not rows:
        call.output.note(f"nothing changed between positions {positions[0]} and {after}")
    return 0


def whole_data(session: Session, here: Presence, tail: list[Turn], now: int) -> dict[str, Any]:
    """Everything the log means at its newest position."""
    views = session.views
    leases = [lease_data(lease, gone=False, now=now) for lease in here.working]
    leases += [lease_data(lease, gone=True, now=now) for lease in here.dead]
    now_here = standing_of(session)
    return session_data(views.head) | _views_data(views, now) | {
        "needs": [sentence(need) for need in now_here.needs], "needs_you": [need_data(one) for one in now_here.needs],
        "last_activity_at": iso(views.active_at), "working": now_here.working, "idle": now_here.idle,
        "last_prompt": now_here.entry.listing["prompt"] or None,
        "leases": leases, "unknown_effects": unknown_effects(session, here),
        "attempts": [one | {"status": status_of(one, is_gone)} for one in views.attempts.all()],
        "provisional": [turn_data(turn) for turn in tail], "note": session.note(), "brief": session.brief(),
    }  # fmt: skip


def _views_data(views: Whole, now: int) -> dict[str, Any]:
    facts, spend = views.facts, views.spend
    models = pricing.priced_by_model(spend)
    return {
        "objective": facts.objective, "next_action": facts.next_action, "reproduction": facts.reproduction,
        "decisions": facts.decisions, "attempts": views.attempts.all(),
        "findings": [views.findings.shown(one) for one in views.findings.findings.values()],
        "evidence": list(views.findings.evidence.values()), "scratch": facts.scratch, "metadata": facts.metadata,
        "lanes": {agent: new_lane() | lane for agent, lane in views.lanes.lanes.items()},
        "roster": views.roster.agents, "lifecycle": views.lifecycle.steps, "interruption": views.interruption(),
        "interruptions": views.lifecycle.interruptions,
        "budget": spend.budget, "used": spend.used(now), "remaining": spend.remaining(now),
        "usage": _summed(models), "usage_by_model": models, "usage_by_run": spend.runs,
        "erased": views.lifecycle.erased,
    }  # fmt: skip


def _heading(call: Call, session: Session) -> list[Line]:
    head, now = session.head, call.now()
    present = standing_of(session)
    active = ago(present.entry.active_at, now)
    state = f"{shown_status(present)}{', on hold' if head.held else ''}"
    lines: list[Line] = [["session", head.name], ["status", state]]
    if call.output.terminal:
        lines = [[Cell(f"{mark_of(present).text} {head.name}", "strong"), Cell(state, "")]]
    lines += [
        ["id", head.session],
        ["project", _project(head.project) if call.output.terminal else head.project],
        [
            "position",
            f"{head.position}, last activity {active}, opened {ago(head.opened_at, now)}{_by(session)}",
        ],
    ]
    prompt = present.entry.listing["prompt"]
    if head.title and not (call.output.terminal and repeats(prompt, head.title)):
        lines.append(["title", head.title])
    if head.parent:
        lines.append(["forked", f"from {head.parent} at position {head.forked_at}"])
    if prompt:
        lines.append(["last prompt", Cell(prompt, "quiet")])
    for need in present.needs:
        said = spoken(need, now) if call.output.terminal else sentence(need)
        lines.append([Cell("needs you", "attention"), Cell(said, "attention")])
        if need.command != f"onrecord show {head.name}":
            lines.append(["", need.command])
    return lines


def _project(name: str) -> str:
    """A project's name for a person: of one that is known by its first commit, as much as git shows."""
    first = "first-commit/"
    return name[: len(first) + SHORT_REVISION] if name.startswith(first) else name


def _agents(call: Call, views: Whole) -> list[Line]:
    """The roster: each agent with its vendor, whether it is here, and its last conversation."""
    lines: list[Line] = []
    for name, agent in views.roster.agents.items():
        gone = bool(agent["process"]) and is_gone(agent["process"] or {})
        here = "left" if not agent["here"] else "its process has ended" if gone else _where(agent["process"])
        left = agent.get("left_at")
        vendor = agent["vendor"] if agent["vendor"] != name else ""  # most agents are named after it
        parts = [vendor or "", here + (f" {ago(left, call.now())}" if left and not agent["here"] else "")]
        parts.append(counted(agent["runs"], "run") if agent["runs"] > 1 else "")
        if agent["links"]:
            link = agent["links"][-1]
            parts.append(f"conversation {link['id']}")
            where = [str(link["last"].get(one)) for one in ("branch", "cwd") if link["last"].get(one)]
            parts += [f"in {where[-1]}" + (f" on {where[0]}" if len(where) > 1 else "")] if where else []
        lines.append([f"agent {name}", ", ".join(part for part in parts if part)])
    return lines


def _where(process: Any) -> str:
    """Where a running agent is: a person who has to answer it must find it."""
    pid = process.get("pid") if process else None
    if not isinstance(pid, int):
        return "here"
    terminal = terminal_of(pid)
    return f"here, process {pid}" + (f" on {terminal}" if terminal else "")


def _interruptions(call: Call, views: Whole) -> list[Line]:
    """Why work stopped, the last few times; the newest first."""
    lines: list[Line] = []
    for stop in reversed(views.lifecycle.interruptions[-INTERRUPTIONS_SHOWN:]):
        told = stop.get("resets_at")
        until = f" until {call.when(int(told * 1e6))}" if told else ""
        said = f": {stop['message'].splitlines()[-1]}" if stop.get("message") else ""
        cause = LIMITS.get(str(stop.get("cause")), stop.get("cause"))
        lines.append(["interrupted", f"{ago(stop['at'], call.now())}, {stop['by']}: {cause}{until}{said}"])
    return lines


def _by(session: Session) -> str:
    steps = session.views.lifecycle.steps
    return f" by {steps[0]['by']}" if steps else ""


def _lanes(views: Whole, here: Presence) -> list[Line]:
    lines: list[Line] = []
    for agent, lane in views.lanes.lanes.items():
        if not lane["turns"] and not any(lease.lane == agent for lease in here.dead):
            continue  # a coding agent, whose turns are in its conversation; the roster shows its process
        said = f"{counted(lane['committed'], 'turn')} committed"
        if lane["open"]:
            said += f", turn {lane['open']['turn']} open since position {lane['open']['position']}"
        for lease in here.working:
            said += f", process {lease.holder.get('pid')} has its lease" if lease.lane == agent else ""
        for lease in here.dead:
            dead = f", its process {lease.holder.get('pid')} has ended: the lease is free"
            said += dead if lease.lane == agent else ""
        lines.append([f"lane {agent}", said])
    return lines


def _budget(call: Call, views: Whole) -> list[Line]:
    spend = views.spend
    used = spend.used(call.now())
    parts = [
        f"{used[limit]:,.10g} of {allowed:,.10g} {limit}" for limit, allowed in spend.budget.items() if limit in used
    ]
    lines: list[Line] = [["budget", ", ".join(parts)]] if parts else []
    if spend.total["calls"]:
        total = _summed(pricing.priced_by_model(spend))
        cost = f"${total['cost']:,.4f}" if total["unknown_cost_calls"] < total["calls"] else "cost unknown"
        if 0 < total["unknown_cost_calls"] < total["calls"]:
            cost += f" and {counted(total['unknown_cost_calls'], 'call')} of unknown cost"
        if total["estimated_cost"]:
            all_of_it = total["estimated_cost"] >= total["cost"]
            cost += " (estimated)" if all_of_it else f" (${total['estimated_cost']:,.4f} of it estimated)"
        tokens = f"{total['input_tokens']:,} tokens in, {total['output_tokens']:,} out"
        lines.append(["usage", f"{counted(total['calls'], 'call')}, {tokens}, {cost}"])
    return lines


def _summed(models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the calls to all models used and cost, as in `onrecord usage`."""
    total = pricing.nothing()
    for used in models.values():
        pricing.add_priced(total, used)
    return total


def _tail(tail: list[Turn]) -> list[Line]:
    """The provisional tail: shown, and marked as not committed."""
    lines: list[Line] = []
    for turn in tail:
        why = f": {turn.reason}" if turn.reason else ""
        state = "is running" if turn.status == "running" else f"was {turn.status}{why}"
        said = f"turn of {turn.agent} since position {turn.begun} {state}; {counted(len(turn.items), 'item')}"
        lines.append(["provisional", said])
        lines += [["", Cell(item_line(item), "quiet")] for item in turn.items[:ITEMS_SHOWN]]
        if len(turn.items) > ITEMS_SHOWN:
            lines.append(["", Cell(f"and {len(turn.items) - ITEMS_SHOWN} more", "quiet")])
    return lines


def _print(call: Call, lines: list[Line]) -> None:
    """A label and its lines."""
    if call.output.terminal:
        from onrecord.surfaces.cli.shared.pretty import print_pairs

        print_pairs(lines, _LABEL)
        return
    call.output.table((), lines)


def _print_note(call: Call, text: str) -> None:
    if call.output.terminal:
        from onrecord.surfaces.cli.shared.pretty import print_page

        print_page(text)
        return
    call.output.write(visible(text, lines=True))


def _value(value: Any, about: str | None = None) -> str:
    text = "-" if value is None else value if isinstance(value, str) else str(value)
    return f"{text}: {about}" if about else text
