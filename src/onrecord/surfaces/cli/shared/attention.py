"""Which sessions need a person, and why. All of it is deduced from the log and from who is still alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord import machine
from onrecord.log.head import LIVE, PAUSED

if TYPE_CHECKING:
    from onrecord.log.store import Lease
    from onrecord.session.handle import Session
    from onrecord.views.values import Effect

SHAPES = {
    "working": "●", "open": "○", "active": "○", "resumed": "○", "paused": "◌", "closed": "✓", "archived": "▪",
    "erased": "×",
}  # fmt: skip
"""The shape of each status: `●` has a process at work, `○` is idle, `◌` is paused, the others have ended."""


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


def needs(session: Session, here: Presence) -> list[str]:
    """Why a person should look at this session, the most pressing first; empty when there is no reason."""
    views = session.views
    if views.head.status not in LIVE:
        return []
    found: list[str] = []
    stop = views.interruption()
    if stop and (views.head.status == PAUSED or stop.get("vendor")):
        found.append(f"stopped: {stop.get('cause', 'unknown')}")
    found += [
        f"{name} is waiting: {agent['waits']['message']}"
        for name, agent in views.roster.agents.items()
        if agent["waits"] and agent["here"]
    ]
    found += [f"effect {key} may have happened" for key in unknown_effects(session, here)]
    alive = {lease.lane for lease in here.working}
    for agent, lane in views.lanes.lanes.items():
        if lane["open"] and agent not in alive:
            found.append(f"turn {lane['open']['turn']} of {agent} was interrupted: its process has ended")
        found += [f"turn {turn['turn']} of {agent} was {turn['how']}" for turn in lane["provisional"][-1:]]
    found += [f"blocked: {finding['claim']}" for finding in views.findings.labelled("blocked")]
    open_lanes = {agent for agent, lane in views.lanes.lanes.items() if lane["open"]}
    found += [
        f"the process of lane {lease.lane} has ended without closing it"
        for lease in here.dead
        if lease.lane not in open_lanes
    ]
    return found


def unknown_effects(session: Session, here: Presence) -> dict[str, Effect]:
    """Effects without a result whose process has ended, also if the session was not resumed since."""
    alive = {lease.lane for lease in here.working}
    unfinished = session.views.effects.unfinished
    return session.effects.unknown() | {key: effect for key, effect in unfinished.items() if effect["by"] not in alive}
