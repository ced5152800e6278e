"""A bare `onrecord`: first what needs a person, with the command that helps; then the other sessions to choose from."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from onrecord.agents.noticing import notice_in
from onrecord.errors import OnrecordError
from onrecord.log.head import LIVE, STATUSES
from onrecord.machine import is_gone
from onrecord.surfaces.cli.shared.attention import sentence, spoken
from onrecord.surfaces.cli.shared.chooser import can_choose, choose
from onrecord.surfaces.cli.shared.choosing import COLUMNS, row, standing_data, standings, status_of, what, who
from onrecord.surfaces.cli.shared.exits import NotInitialised
from onrecord.surfaces.cli.shared.mistyped import refuse_mistyped
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.shapes import NEEDS_YOU
from onrecord.views.needs import CREW, KINDS
from onrecord.views.render import ago, iso

if TYPE_CHECKING:
    from onrecord.session.session_store import SessionStore
    from onrecord.session.standing import Standing
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.listing import ListedAgent

SHOWN = 20
"""How many sessions the overview shows without --limit."""
ENDED_SHOWN = 3
"""How many sessions that have ended are shown below the live ones."""
NEEDS_SHOWN = 3
"""How many reasons of one session are shown; `onrecord show` has all of them."""
NOTICED_AT_ONCE = 50
"""In how many sessions one overview records that agents were killed; the rest is for the next one."""
REASON_LINES = 3
"""How many lines one reason may take."""

FIRST_COMMANDS = (
    ("onrecord setup", "record your coding agents"),
    ("onrecord open fix-login", "start a session of your own"),
    ("onrecord demo", "see a session survive a crash"),
)
"""What a newcomer may type, and what it does; short enough for a narrow window."""

ENDED = tuple(status for status in STATUSES if status not in LIVE)


def overview(call: Call) -> int:
    """Show the sessions of this project."""
    try:
        records = call.records(make=False)
    except NotInitialised:
        return _nothing(call, "Nothing is on record yet.")
    found, more = _found(call, records)
    if not found:
        refuse_mistyped(call, records, newcomer=True)
    if call.output.json:
        place = {"store": records.url, "project": records.project}
        call.output.envelope("overview", place | {"sessions": [standing_data(one) for one in found], "more": more})
        return 0
    if not found:
        return _nothing(call, _elsewhere(records))
    if not call.output.terminal:
        call.output.table((), [_plain(call, one) for one in found])
        return 0
    _show(call, found)
    if more:
        call.output.note("there are more: `onrecord list` lists them")
    live = [one for one in found if one.entry.head.status in LIVE]
    return _resume_one(call, live) if live and can_choose(call) else 0


def _found(call: Call, records: SessionStore) -> tuple[list[Standing], bool]:
    """By need over all live sessions, however old; then the newest; then a few that have ended."""
    limit = call.number("limit") or SHOWN
    project = "" if "all" in call else None
    live = standings(call, records, records.every(LIVE, project=project))
    if _notice_ended(records, live):
        live = standings(call, records, records.every(LIVE, project=project))
    live.sort(key=lambda one: (KINDS.index(one.needs[0].kind) if one.needs else len(KINDS), -one.entry.active_at))
    ended = records.sessions(project=project, status=ENDED, limit=limit)
    room = max(0, min(limit - len(live), ENDED_SHOWN if live else limit))
    more = len(live) > limit or len(ended) > room
    return live[:limit] + standings(call, records, ended[:room]), more


def _notice_ended(records: SessionStore, live: list[Standing]) -> bool:
    """Record the end of agents that were killed and could call no hook; whether there were any."""
    ended = [
        one.entry.head.session for one in live
        if any(_ended_silently(agent) for name, agent in one.entry.listing["agents"].items() if name not in one.working)
    ]  # fmt: skip
    done = False
    for session in ended[:NOTICED_AT_ONCE]:
        try:
            done = notice_in(records, session, os.environ) or done
        except (OnrecordError, OSError):
            continue  # a session that cannot be read or written is reported elsewhere
    return done


def _ended_silently(agent: ListedAgent) -> bool:
    return bool(agent["here"] and agent["via"] and agent["talks"] and agent["process"] and is_gone(agent["process"]))


def _plain(call: Call, one: Standing) -> list[str | Cell]:
    """A line for scripts: name, status, whether it needs a person, what about it, when, and the command that helps."""
    head = one.entry.head
    status, active = status_of(one), iso(one.entry.active_at)
    if one.needs:
        reasons = "; ".join(sentence(need) for need in one.needs)
        return [head.name, status, NEEDS_YOU, reasons, active, one.needs[0].command]
    return [head.name, status, "", what(one, call.now()), active, ""]


def _show(call: Call, found: list[Standing]) -> None:
    """The sessions that need a person, each with its reasons and the command; then a table of the others."""
    needing = [one for one in found if one.needs]
    if needing:
        from onrecord.surfaces.cli.shared.pretty import print_block

        print_block([Cell(f"{counted(len(needing), 'session needs', 'sessions need')} you", "attention")])
        start = len(str(len(found))) + 2
        for number, one in enumerate(needing, start=1):
            _show_need(call, str(number), start, one)
        call.output.line()
    others = [one for one in found if not one.needs]
    rows = [
        row(one, number if one.entry.head.status in LIVE else 0, call.now())
        for number, one in enumerate(others, start=len(needing) + 1)
    ]
    call.output.table(COLUMNS, rows)


def _show_need(call: Call, number: str, start: int, one: Standing) -> None:
    from onrecord.surfaces.cli.shared.pretty import print_block

    head, now = one.entry.head, call.now()
    heading = [
        Cell("!", "attention"), Cell(head.name, "strong"), Cell(status_of(one), ""),
        Cell(who(one.entry.listing), "quiet"), Cell(ago(one.entry.active_at, now), "quiet"),
    ]  # fmt: skip
    print_block(heading, number, start)
    for need in one.needs[:NEEDS_SHOWN]:
        print_block([Cell(spoken(need, now), "attention")], start=start, lines=REASON_LINES)
    if len(one.needs) > NEEDS_SHOWN:
        print_block([Cell(f"and {len(one.needs) - NEEDS_SHOWN} more", "quiet")], start=start)
    # One that is longer than the window is left to the terminal: with a break in it, it could not be copied.
    call.output.line(" " * start + one.needs[0].command)


def _resume_one(call: Call, live: list[Standing]) -> int:
    """Let the person choose one of the numbered sessions, and resume it."""
    index = choose([one.entry.head.name for one in live])
    return 0 if index is None else resume_chosen(call, live[index])


def resume_chosen(call: Call, one: Standing) -> int:
    """Do what Enter does: resume the agent, attach to a running team, or show a session that has no agent."""
    from onrecord.surfaces.cli.main import main

    head, agents = one.entry.head, one.entry.listing["agents"]
    if CREW in agents:
        verb, words = "team", ["attach" if CREW in one.working else "resume", "--session", head.session]
    elif any(agent["talks"] for agent in agents.values()) or head.status == "paused":
        verb, words = "resume", [head.session]
    else:
        verb, words = "show", [head.session]
    for option in ("store", "project"):
        if option in call:
            words += [f"--{option}", call.get(option) or ""]
    call.output.line(f"onrecord {verb} {' '.join(head.name if word == head.session else word for word in words)}")
    call.close()
    return main([verb, *words])


def _elsewhere(records: SessionStore) -> str:
    others = records.sessions(project="", limit=1)
    return (
        "No session belongs to this project; `onrecord --all` shows those of all projects."
        if others
        else "Nothing is on record yet."
    )


def _nothing(call: Call, why: str) -> int:
    """Show a newcomer the first commands."""
    if call.output.json:
        call.output.envelope("overview", {"store": None, "project": None, "sessions": [], "more": False})
        return 0
    if call.output.quiet:
        return 0
    lines = [why, "", *(f"  {command:<23}  {does}" for command, does in FIRST_COMMANDS)]
    sys.stderr.write("\n".join(lines) + "\n")
    return 0
