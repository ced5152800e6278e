"""Handles in a forked child: it has the parent's handle, and not its lease. Only one of the two may write turns."""

from __future__ import annotations

from onrecord import machine
from onrecord.errors import LeaseLost
from onrecord.lean_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onrecord.log.store import Lease
    from onrecord.session.handle import Session


def refuse_inherited(lease: Lease) -> None:
    """`LeaseLost` if another process took this lease."""
    if not machine.is_mine(lease.holder):
        raise LeaseLost(
            f"process {lease.holder.get('pid')} opened this handle; this process was forked from it",
            hint="open the session again in this process",
        )


def forget_inherited(session: Session) -> None:
    """Drop a lease that a fork inherited: it stays the parent's, and only the parent releases it."""
    if session.lease is not None and not machine.is_mine(session.lease.holder):
        session.lease = session.run = None
