"""An optional ability of a store: to read a whole log without what only verification needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from onrecord.log.events import Event
    from onrecord.log.item_values import Json


@runtime_checkable
class Scanning(Protocol):
    """A store that can unpack and decode one event after the other.

    A resume reads every event of a log and keeps little of each. To unpack hundreds of payloads before the first one is
    decoded takes longer: their memory is new to the processor each time.
    """

    def scan(
        self, session: str, parse: Callable[[bytes], Json], *, after: int, upto: int | None,
        kinds: Collection[str] | None,
    ) -> Iterator[Event]:  # fmt: skip
        """What `read` returns, in order, each event decoded by `parse` when it is asked for, and without its hashes.

        A payload that cannot be unpacked or decoded raises `DamagedLog`. No read transaction stays open between events.
        """
