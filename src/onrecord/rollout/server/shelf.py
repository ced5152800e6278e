"""The shelf: sessions in memory, the one used longest ago first to go. What is not here comes back from its log."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from onrecord.aio import settled
from onrecord.errors import OnrecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.rollout.server.live import Live
    from onrecord.rollout.server.metrics import Metrics


class Shelf:
    """Live sessions by id. Only the event loop touches it; loading and leaving happen on threads."""

    def __init__(self, load: Callable[[str], Live], limit: int, metrics: Metrics) -> None:
        self._load = load
        self._limit = limit
        self._metrics = metrics
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._moving: dict[str, asyncio.Task[None]] = {}
        """Sessions that are being brought in or put away just now: whoever wants one waits for that."""

    def __len__(self) -> int:
        return len(self._live)

    async def get(self, id: str) -> Live:
        """The session, from memory or from its log."""
        while id not in self._live:
            moving = self._moving.get(id)
            if moving is None:
                moving = self._move(id, self._bring(id))
            await asyncio.shield(moving)
        self._live.move_to_end(id)
        self._make_room()
        return self._live[id]

    def drop(self, live: Live) -> None:
        """Forget a session whose lane somebody else has, or that is over; the next request reads its log again."""
        if self._live.get(live.id) is live:
            del self._live[live.id]
            self._metrics.in_memory.set(len(self._live))

    async def clear(self) -> None:
        """Put every session away, in order."""
        for id in list(self._live):
            self._put_away(id)
        while self._moving:
            await asyncio.gather(*self._moving.values(), return_exceptions=True)

    def _make_room(self) -> None:
        spare = len(self._live) - self._limit
        if spare > 0:
            idle = [id for id, live in self._live.items() if live.is_idle]
            for id in idle[: min(spare, len(idle) - 1)]:  # the last one is the one that is wanted just now
                self._put_away(id)

    def _put_away(self, id: str) -> None:
        live = self._live.pop(id)
        self._metrics.in_memory.set(len(self._live))
        self._metrics.evicted.inc()
        self._move(id, self._leave(live))

    def _move(self, id: str, moving: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._moving[id] = asyncio.get_running_loop().create_task(moving)
        task.add_done_callback(lambda _task: self._moving.pop(id))
        return task

    async def _bring(self, id: str) -> None:
        self._live[id] = await settled(lambda: self._load(id))
        self._metrics.rehydrated.inc()
        self._metrics.in_memory.set(len(self._live))

    async def _leave(self, live: Live) -> None:
        try:
            await settled(live.leave)
        except OnrecordError:
            return  # the lane is somebody else's, or will be once its time has passed
