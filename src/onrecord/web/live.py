"""Live: one thread asks the store what moved, and every viewer hears of it as server-sent events.

A viewer hears positions, never content: it asks for what it lacks, so a missed word costs nothing. Like every
follower (session/following.py) it misses no event: positions are dense, and a head only shows what is committed.
The newest heads are read in one query for all viewers; the watched sessions are also asked one by one, more slowly,
because a machine with a wrong clock would keep its session from the top of the list.
"""

from __future__ import annotations

import asyncio
import json
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from onrecord.errors import OnrecordError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from onrecord.session.session_store import SessionStore

POLL_SECONDS = 0.05
"""How long the store is left alone between two looks, while there are viewers."""
SURE_SECONDS = 1.0
"""How often each watched session is asked by itself."""
BEAT_SECONDS = 15.0
"""How often an idle viewer hears that the connection still works."""
RETRY_MILLISECONDS = 1_000
HEADS_READ = 8
"""How many of the newest heads one look reads; more, if all of them moved."""
HEADS_LIMIT = 512
VIEWERS_LIMIT = 500
"""How many viewers one server has at once."""
WATCHED_LIMIT = 32
"""How many sessions one viewer watches by name."""


class Viewer:
    """One connection: the positions that it was not told yet."""

    def __init__(self, watched: frozenset[str]) -> None:
        self.watched = watched
        self.moved: dict[str, int] = {}
        self.woken = asyncio.Event()


class Hub:
    """Everybody who watches, and the thread that looks for them."""

    def __init__(self, records: SessionStore) -> None:
        self._records = records
        self.viewers: set[Viewer] = set()
        self._positions: dict[str, int] = {}
        self._somebody = Event()
        self._stopped = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self.failing = False

    def start(self) -> None:
        """Begin to look, on behalf of the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._watch, name="onrecord-live", daemon=True)
        self._thread.start()

    def hush(self) -> None:
        """End every stream; the thread ends soon. Call it in the loop."""
        self._stopped.set()
        self._somebody.set()
        for viewer in self.viewers:
            viewer.woken.set()

    def stop(self) -> None:
        """End every stream, and the thread."""
        if not self._stopped.is_set():
            self.hush()
        if self._thread is not None:
            self._thread.join()

    async def stream(self, watched: frozenset[str]) -> AsyncIterator[str]:
        """What one viewer hears, until it hangs up."""
        viewer = Viewer(watched)
        self.viewers.add(viewer)
        self._somebody.set()
        try:
            yield f"retry: {RETRY_MILLISECONDS}\n\n"
            yield _event(
                "hello", {"positions": {one: self._positions[one] for one in watched & self._positions.keys()}}
            )
            while not self._stopped.is_set():
                try:
                    await asyncio.wait_for(viewer.woken.wait(), BEAT_SECONDS)
                except TimeoutError:
                    yield _event("beat", {})
                    continue
                viewer.woken.clear()
                moved, viewer.moved = viewer.moved, {}
                if moved:
                    yield _event("moved", moved)
                if self.failing:
                    yield _event("failing", {})
        finally:
            self.viewers.discard(viewer)
            if not self.viewers:
                self._somebody.clear()

    def _watch(self) -> None:
        sure_at = 0.0
        while not self._stopped.is_set():
            if not self._somebody.is_set():
                self._somebody.wait()
                sure_at = 0.0
                continue
            try:
                moved = self._look()
                if time.monotonic() - sure_at > SURE_SECONDS:
                    moved |= self._make_sure()
                    sure_at = time.monotonic()
                failing = False
            except OnrecordError:
                moved, failing = {}, True
            changed, self.failing = failing and not self.failing, failing
            if (moved or changed) and self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._tell, moved)
            self._stopped.wait(POLL_SECONDS)

    def _look(self) -> dict[str, int]:
        """What moved among the newest sessions."""
        moved: dict[str, int] = {}
        limit = HEADS_READ
        while True:
            page = self._records.sessions(project="", limit=limit)
            fresh = {head.session: head.position for head in page if self._positions.get(head.session) != head.position}
            moved |= fresh
            if len(fresh) < len(page) or len(page) < limit or limit >= HEADS_LIMIT:
                self._positions |= moved
                return moved
            limit = HEADS_LIMIT

    def _make_sure(self) -> dict[str, int]:
        moved: dict[str, int] = {}
        for session in frozenset[str]().union(*(viewer.watched for viewer in list(self.viewers))):
            try:
                position = self._records.head(session).position
            except OnrecordError:
                continue  # erased, or never there: its page says so
            if self._positions.get(session) != position:
                moved[session] = self._positions[session] = position
        return moved

    def _tell(self, moved: dict[str, int]) -> None:
        for viewer in self.viewers:
            viewer.moved |= moved
            viewer.woken.set()


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
