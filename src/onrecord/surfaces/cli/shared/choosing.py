"""Which session a person means when they name none: the likeliest first, chosen with a number or the arrow keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.errors import SessionNotFound
from onrecord.log.head import LIVE
from onrecord.session.standing import standing
from onrecord.surfaces.cli.shared.attention import SHAPES, need_data, sentence, spoken
from onrecord.surfaces.cli.shared.chooser import can_choose, choose
from onrecord.surfaces.cli.shared.output import Cell
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.views.needs import LIMIT, QUESTION, WAITS
from onrecord.views.render import ago, iso
from onrecord.work.git_files import stands_at
from onrecord.work.project import find_worktree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore
    from onrecord.session.standing import Standing
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.listing import Listing

OFFERED = 20
"""How many sessions are offered."""


def standings(call: Call, records: SessionStore, heads: Iterable[Head]) -> list[Standing]:
    """These sessions as they are now: who is at work, and what needs a person."""
    now = call.now()
    return [
        standing(entry, lambda entry=entry: records.leases(entry.head.session), now)  # type: ignore[misc]  # a default binds it
        for entry in records.entries(list(heads))
    ]


def chosen_head(call: Call, records: SessionStore, verb: str) -> Head | None:
    """The live session that the person chooses; None if they leave."""
    found = likeliest(standings(call, records, records.every(LIVE)))[:OFFERED]
    if not found:
        raise SessionNotFound("this project has no live session", hint="start one: `onrecord open my-task`")
    rows: list[list[str | Cell]] = [row(one, number, call.now()) for number, one in enumerate(found, start=1)]
    call.output.table(COLUMNS, rows)
    index = choose([one.entry.head.name for one in found], verb)
    return None if index is None else found[index].entry.head


def asking(call: Call) -> Callable[[SessionStore], Head] | None:
    """The question which session is meant, if a person can be asked; leaving it ends the command."""

    def ask(records: SessionStore) -> Head:
        head = chosen_head(call, records, call.verb.name)
        if head is None:
            raise SystemExit(0)
        return head

    return ask if can_choose(call) else None


def likeliest(found: list[Standing]) -> list[Standing]:
    """Sessions of this branch first, then of this directory, then the others; each newest first."""
    here = find_worktree(os.curdir)
    branch = stands_at(here).get("branch")

    def distance(one: Standing) -> tuple[bool, bool, int]:
        listed = one.entry.listing
        return not (branch and listed["branch"] == branch), not _is_below(listed["cwd"], here), -one.entry.active_at

    return sorted(found, key=distance)


def _is_below(path: str | None, top: str) -> bool:
    return path is not None and Path(path).is_relative_to(top)


COLUMNS = (">", "!", "#session", "!status", "agent", "*what", "active")


def row(one: Standing, number: int, now: int) -> list[str | Cell]:
    """A session in a list to choose from; its number is 0 if it cannot be chosen."""
    head, listed = one.entry.head, one.entry.listing
    live = head.status in LIVE
    status = status_of(one)
    ordinary = "" if live else "quiet"
    return [
        Cell(str(number or ""), "quiet"),
        mark_of(one),
        Cell(head.name, "strong" if live else ordinary),
        Cell(status, ordinary),
        Cell(who(listed), "quiet"),
        Cell(what(one, now), "attention" if one.needs else ordinary),
        Cell(ago(one.entry.active_at, now), "quiet"),
    ]


def mark_of(one: Standing) -> Cell:
    """The shape of a session's status, or `!` if it needs a person."""
    if one.needs:
        return Cell("!", "attention")
    return Cell(SHAPES[status_of(one)], "" if one.entry.head.status in LIVE else "quiet")


def standing_data(one: Standing) -> dict[str, Any]:
    """A session of a list as data, with what needs a person."""
    listed = one.entry.listing
    return session_data(one.entry.head) | {
        "last_activity_at": iso(one.entry.active_at),
        "needs": [sentence(need) for need in one.needs], "needs_you": [need_data(need) for need in one.needs],
        "working": one.working, "idle": one.idle, "agent": listed["agent"] or None, "vendor": listed["vendor"],
        "last_prompt": listed["prompt"] or None, "people": listed["people"],
    }  # fmt: skip


def status_of(one: Standing) -> str:
    """The status to show: working, waiting, limited or idle while a process runs, else the session's own."""
    if not one.working:
        return one.entry.head.status
    kinds = {need.kind for need in one.needs}
    running = "working" if one.busy else "idle"
    return "waiting" if kinds & {WAITS, QUESTION} else "limited" if LIMIT in kinds else running


def who(listed: Listing) -> str:
    """The agent and its vendor, once if they have the same name."""
    agent, vendor = listed["agent"], listed["vendor"] or ""
    return agent if agent.startswith(vendor) or not vendor else f"{agent} ({vendor})"


def repeats(prompt: str, title: str) -> bool:
    """Whether the prompt begins with the title: automatic titles are made from the first prompt."""
    return bool(title) and " ".join(prompt.split()).startswith(" ".join(title.rstrip("…").split()))


def what(one: Standing, now: int) -> str:
    """What a session is about now: what needs a person, else the next action, the last prompt, or its title."""
    listed = one.entry.listing
    if one.needs:
        return "; ".join(spoken(need, now) for need in one.needs)
    if listed["next"]:
        return f"next: {listed['next']}"
    return listed["prompt"] or one.entry.head.title
