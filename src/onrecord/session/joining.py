"""Joining: an agent takes the lease of its lane, and a new run begins with `agent.joined`."""

from __future__ import annotations

from onrecord import machine
from onrecord.log.events import NEW_RUN
from onrecord.log.head import refuse_ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.log.store import Receipt
    from onrecord.session.handle import Session


def join(
    session: Session,
    head: Head,
    first: Sequence[Draft] = (),
    *,
    expect: int | None = None,
    takeover: bool,
    seconds: float,
    about: dict[str, object],
) -> list[Event]:
    """Take the lease, and record that together with the first events of the run, if they are known already.

    `head` is where the caller has read the log up to. With first events the log must still be there (`LogMoved`): their
    run is the next one, and they may depend on all that was read. So must it be if `expect` names a position.
    """
    refuse_ended(head)
    process = machine.identity()
    holder = process | {"handle": machine.portion()[:4].hex()}
    joined = session._draft("agent.joined", {"process": process, **about})
    if session.run is None:
        joined = joined._replace(run=NEW_RUN)
    leases = []
    if first:
        expect = head.position

    def append(drafts: Sequence[Draft]) -> list[Receipt]:
        lease, receipts = session.store.join(
            session.id, session.agent, holder, drafts, expect=expect, seconds=seconds, takeover=takeover
        )
        leases.append(lease)
        return receipts

    drafts = (joined, *(draft._replace(run=head.run + 1) for draft in first))
    events = session._append(drafts, None, append=append)
    session.run = events[0].run
    session.log.catch_up()  # another process may have appended before the lease was ours
    (session.lease,) = leases
    return events
