"""The standing of a session at this moment: who is at work in it, and why it needs a person.

The log says what was left open (`views/listing`); the machine says which processes run; `views/needs` draws the
conclusion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.log.head import LIVE
from onrecord.session.listings import Entry, listing_of
from onrecord.views.needs import Need, needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.store import Lease
    from onrecord.session.handle import Session
    from onrecord.views.listing import Listing


class Standing(NamedTuple):
    """A session at a moment."""

    entry: Entry
    working: list[str]
    """The agents whose process runs."""
    needs: list[Need]
    idle: list[str]
    """Those of them whose turn has ended: they wait for the next prompt."""

    @property
    def busy(self) -> bool:
        """Whether an agent is in a turn."""
        return len(self.idle) < len(self.working)


def standing(entry: Entry, leases: Callable[[], list[Lease]], now: int) -> Standing:
    """What a listing means now. The leases are read only for agents whose process cannot be seen from here."""
    if entry.head.status not in LIVE:
        return Standing(entry, [], [], [])
    here = {name: agent["process"] for name, agent in entry.listing["agents"].items() if agent["here"]}
    working = [name for name, process in here.items() if process and _runs_here(process)]
    if any(not process or not _is_local(process) for process in here.values()):
        held = {lease.lane for lease in leases() if lease.until > now and not machine.is_gone(lease.holder)}
        working += [name for name in here if name in held and name not in working]
    idle = [name for name in working if _is_idle(entry.listing, name)]
    return Standing(entry, working, needs(entry.head, entry.listing, now, working, machine.is_gone), idle)


def standing_of(session: Session) -> Standing:
    """The standing of an open session."""
    listed = listing_of(session)
    return standing(Entry(session.head, listed), session.log.leases, int(session.clock() * 1e6))


def _is_idle(listed: Listing, name: str) -> bool:
    """Whether a coding agent waits for a prompt. Of any other program only its process is known."""
    return listed["agents"][name]["vendor"] is not None and listed["rests"] in (name, None)


def _is_local(process: Any) -> bool:
    return bool(process.get("host") == machine.identity()["host"])


def _runs_here(process: Any) -> bool:
    return _is_local(process) and not machine.is_gone(process)
