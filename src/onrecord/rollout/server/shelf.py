"""The shelf: an LRU cache of sessions in memory. A session that is not here is loaded from its log."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from onrecord.aio import settled
from onrecord.errors import LeaseHeld, OnrecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from onrecord.rollout.server.live import Live
    from onrecord.rollout.server.metrics import Metrics


class Shelf:
    """Live sessions by id. Only the event loop touches it; loading and leaving happen on threads."""

    def __init__(self, load: Callable[..., Live], limit: int, metrics: Metrics) -> None:
        self._load = load
        self._limit = limit
        self._metrics = metrics
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._moving: dict[str, asyncio.Task[None]] = {}
        """Sessions that are being loaded or evicted; a request for one waits for its task."""
        self._left_over: dict[str, dict[str, object]] = {}
        """Leases of this proxy that it failed to release: it does not use them, so it may take them over."""

    def __len__(self) -> int:
        return len(self._live)

    def peek(self, id: str) -> Live | None:
        """The session if it is in memory."""
        return self._live.get(id)

    def running(self, key: str) -> dict[str, bool]:
        """The sessions with a running turn, and whether it has the request with this key."""
        return {id: live.asks(key) for id, live in self._live.items() if live.turn is not None}

    async def get(self, id: str, *, takeover: bool = False) -> Live:
        """The session, from memory or from its log."""
        while id not in self._live:
            moving = self._moving.get(id)
            if moving is None:
                moving = self._move(id, self._bring(id, takeover=takeover))
            await asyncio.shield(moving)
        self._live.move_to_end(id)
        self._make_room(id)
        return self._live[id]

    def drop(self, live: Live) -> None:
        """Forget a session that has ended."""
        if self._live.get(live.id) is live:
            del self._live[live.id]
            self._metrics.in_memory = len(self._live)

    async def clear(self) -> None:
        """Evict every session."""
        for live in list(self._live.values()):
            self.evict(live)
        while self._moving:
            await asyncio.gather(*self._moving.values(), return_exceptions=True)

    def evict(self, live: Live) -> None:
        """Release a session's lease and forget it; the next request loads it from its log."""
        if self._live.get(live.id) is live:
            self.drop(live)
            self._metrics.evicted.inc()
            self._move(live.id, self._leave(live))

    def _make_room(self, wanted: str) -> None:
        spare = len(self._live) - self._limit
        if spare > 0:
            idle = [live for id, live in self._live.items() if id != wanted and live.is_idle]
            for live in idle[:spare]:
                self.evict(live)

    def _move(self, id: str, moving: Coroutine[None, None, None]) -> asyncio.Task[None]:
        async def moved() -> None:
            try:
                await moving
            finally:  # in the same step as its end: a session in memory is never also moving
                del self._moving[id]

        task = self._moving[id] = asyncio.get_running_loop().create_task(moved())
        task.add_done_callback(lambda task: task.cancelled() or task.exception())  # a waiting request gets the error
        return task

    async def _bring(self, id: str, *, takeover: bool) -> None:
        try:
            live = await settled(partial(self._load, id, takeover=takeover, at_once=id in self._left_over))
        except LeaseHeld as held:
            if held.holder != self._left_over.get(id):
                raise
            live = await settled(partial(self._load, id, takeover=True))
        self._left_over.pop(id, None)
        self._live[id] = live
        self._metrics.rehydrated.inc()
        self._metrics.in_memory = len(self._live)

    async def _leave(self, live: Live) -> None:
        holder = live.holder
        try:
            await settled(live.leave)
        except OnrecordError:
            self._left_over[live.id] = holder
