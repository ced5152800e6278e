"""The worker processes of the PostgreSQL tests, with the same pipes and lines as `tests/crash/workers.py`."""

from itertools import count
from typing import TYPE_CHECKING, Any

from onrecord.connection import open_store
from onrecord.errors import OnrecordError
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from tests.crash import workers
from tests.crash.nursery import Pipes
from tests.crash.workers import acknowledge, items_of

if TYPE_CHECKING:
    from onrecord.log.store import Receipt
    from onrecord.stores.postgres.connections import Connection


def write_through_failovers(pipes: Pipes, path: str, session: str, agent: str) -> None:
    """Add turns forever; retry a transient failure with the same id, in the same process."""
    handle = SessionStore(open_store(path)).open(session, agent=agent)
    pipes.say("ready")
    for number in count():
        _persist(pipes, handle, number)


def _persist(pipes: Pipes, handle: Session, number: int) -> None:
    while True:
        try:
            acknowledge(pipes, handle.record_turn(items_of(number), id=f"{handle.agent}/{number}"))
        except OnrecordError as problem:
            if not problem.retryable:
                raise
            pipes.say("again", problem.code)
        else:
            return


def write_once_and_tell(pipes: Pipes, path: str, session: str, agent: str) -> None:
    """On each order add a turn, and report how it went."""
    handle = SessionStore(open_store(path)).open(session, agent=agent)
    pipes.say("ready")
    for number in count():
        if not pipes.order():
            return
        try:
            acknowledge(pipes, handle.record_turn(items_of(number), id=f"{agent}/{number}"))
        except OnrecordError as problem:
            pipes.say("refused", problem.code, "retryable" if problem.retryable else "final")


def deliver_over_a_bad_wire(pipes: Pipes, **task: Any) -> None:
    """As `deliver`; then name each event that was found on record after its answer was lost."""
    from onrecord.stores.postgres.append import Delivery  # the nursery loads no extra

    recalled: list[str] = []
    recall = Delivery.recall

    def noting(delivery: Delivery, connection: "Connection") -> "list[Receipt] | None":
        answer = recall(delivery, connection)
        if answer is not None and delivery._sent is not None:
            recalled.extend(placement.draft.id for placement in delivery._sent.placements)
        return answer

    Delivery.recall = noting  # type: ignore[assignment,method-assign]  # it only notes
    workers.deliver(pipes, **task)
    for id_ in recalled:
        pipes.say("recalled", id_)
