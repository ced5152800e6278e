"""How the command shows which processes have a session open, and what needs a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.machine.wall_clock import local_time
from onrecord.views.render import iso

if TYPE_CHECKING:
    from onrecord.log.store import Lease
    from onrecord.session.handle import Session
    from onrecord.views.needs import Need
    from onrecord.views.values import Effect

SHAPES = {
    "working": "●", "waiting": "●", "limited": "●", "idle": "○", "open": "○", "active": "○", "resumed": "○",
    "paused": "◌", "closed": "✓", "archived": "▪", "erased": "×",
}  # fmt: skip
"""The shape of each status: `●` has an agent at work, `○` has none, `◌` is paused, the others have ended."""


class Presence(NamedTuple):
    """Which processes have a session open now."""

    working: list[Lease]
    dead: list[Lease]
    """Leases whose process has ended."""


def presence(session: Session, now: int) -> Presence:
    """Separate leases of running processes from those of ended ones."""
    leases = session.log.leases()
    dead = [lease for lease in leases if machine.is_gone(lease.holder)]
    working = [lease for lease in leases if lease not in dead and lease.until > now]
    return Presence(working, dead)


def unknown_effects(session: Session, here: Presence) -> dict[str, Effect]:
    """Effects without a result whose process has ended, also if the session was not resumed since."""
    alive = {lease.lane for lease in here.working}
    unfinished = session.views.effects.unfinished
    return session.effects.unknown() | {key: effect for key, effect in unfinished.items() if effect["by"] not in alive}


def sentence(need: Need) -> str:
    """A need for programs and pipes, with its end as an exact time."""
    return need.why + (f", until {iso(need.until)}" if need.until else "")


def spoken(need: Need, now: int) -> str:
    """A need for a person, with its end as the clock on the wall shows it."""
    return need.why + (f", until {local_time(need.until, now)}" if need.until and need.until > now else "")


def need_data(need: Need) -> dict[str, Any]:
    """A need as data."""
    return {
        "kind": need.kind, "agent": need.agent or None, "why": need.why, "command": need.command,
        "position": need.position, "since": iso(need.at), "until": iso(need.until) if need.until else None,
    }  # fmt: skip
