"""Subscriptions: a client is notified when a session that it reads gets new events, from any process.

There are two ways in the protocol: `resources/subscribe` on a connection (up to 2025-11-25), and `subscriptions/listen`
with a stream of its own (2026-07-28). One task looks at the positions while there is a subscription of either kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from onrecord.errors import OnrecordError
from onrecord.surfaces.mcp.resources import position_of

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession

    from onrecord.surfaces.mcp.finding import Sessions

LOOK_SECONDS = 0.5
"""How often the positions are looked at."""
SUBSCRIPTIONS_LIMIT = 1_000


class Watcher:
    """Who wants to know about which resource, and what it was when they last heard of it."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus, max_subscriptions=SUBSCRIPTIONS_LIMIT)
        self._clients: dict[str, list[ServerSession]] = {}
        self._listened: dict[str, int] = {}
        """How many streams listen to a resource."""
        self._seen: dict[str, Any] = {}
        self._wanted = anyio.Event()

    def add(self, uri: str, client: ServerSession) -> None:
        """A client subscribes."""
        known = self._clients.setdefault(uri, [])
        if len(known) < SUBSCRIPTIONS_LIMIT and not any(_is_same(one, client) for one in known):
            known.append(client)
            client._connection.exit_stack.callback(self.remove, uri, client)  # noqa: SLF001  # as in _is_same
        self._look_at(uri)

    def remove(self, uri: str, client: ServerSession) -> None:
        """A client unsubscribes."""
        left = [one for one in self._clients.get(uri, ()) if not _is_same(one, client)]
        if left:
            self._clients[uri] = left
        else:
            self._clients.pop(uri, None)

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """A stream of notifications, until the client ends it."""
        wanted = list(params.notifications.resource_subscriptions or ())
        for uri in wanted:
            self._listened[uri] = self._listened.get(uri, 0) + 1
            self._look_at(uri)
        try:
            return await self._handler(ctx, params)
        finally:
            for uri in wanted:
                self._listened[uri] -= 1
                if not self._listened[uri]:
                    del self._listened[uri]

    def _look_at(self, uri: str) -> None:
        self._seen.setdefault(uri, self._now(uri))
        self._wanted.set()

    def _now(self, uri: str) -> Any:
        try:
            return position_of(self._sessions, uri)
        except OnrecordError:
            return None

    async def watch(self) -> None:
        """Look at the positions for as long as the server runs; wait while there is no subscription."""
        while True:
            await self._wanted.wait()
            await anyio.sleep(LOOK_SECONDS)
            wanted = [*dict.fromkeys([*self._clients, *self._listened])]
            self._seen = {uri: self._seen[uri] for uri in wanted if uri in self._seen}
            if not wanted:
                self._wanted = anyio.Event()
                continue
            for uri in wanted:
                now = await anyio.to_thread.run_sync(self._now, uri)
                if now is not None and now != self._seen.get(uri):
                    self._seen[uri] = now
                    await self._tell(uri)

    async def _tell(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri))
        for client in list(self._clients.get(uri, ())):
            await client.send_resource_updated(uri)  # a client that is gone is no error


def _is_same(one: ServerSession, other: ServerSession) -> bool:
    """Whether two handles are of one connection: the SDK makes a new one for each request."""
    return one is other or one._connection is other._connection  # noqa: SLF001  # there is no public name for it
