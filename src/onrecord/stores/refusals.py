"""Refusals that every store words alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.errors import LeaseHeld

if TYPE_CHECKING:
    from onrecord.log.store import Lease


def held_by(name: str, lease: Lease) -> LeaseHeld:
    """Who holds the lane, since when, until when, and how to take it."""
    from datetime import UTC, datetime

    since, until = (datetime.fromtimestamp(moment / 1e6, UTC).isoformat(timespec="seconds") for moment in lease[4:6])
    who = f"process {lease.holder.get('pid')} on {lease.holder.get('host')}"
    return LeaseHeld(
        f"agent {lease.lane!r} of session {name!r} is held by {who} since {since}",
        hint=f"it is free when that process ends, or at {until} if it stays silent; open with takeover to take it now",
        holder=lease.holder,
        since=lease.since,
        until=lease.until,
    )
