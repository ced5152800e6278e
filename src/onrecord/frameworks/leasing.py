"""One run of a conversation at a time: what `alone` of every adapter is made of.

The caller inside has the lease of the conversation's lane. Another one, in this process or in any other, is refused,
waits, or works in a fork, as `on_conflict` says. Waiting holds neither a thread of the pool nor the event loop.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from onrecord.frameworks.conversation import Conversation

C = TypeVar("C", bound="Conversation")

QUEUE_SECONDS = 60.0
"""How long a queued writer waits for the lease of a lane."""
_WAIT = 0.05


@contextmanager
def alone(kept: C, fork: Callable[[], C] | None = None) -> Iterator[C]:
    """Have the lease of a conversation, or of the one that `fork` makes if that is the policy."""
    who, until, has = object(), time.monotonic() + QUEUE_SECONDS, kept
    try:
        while (found := kept.take(who, fork=fork, waits=time.monotonic() < until)) is None:
            time.sleep(_WAIT)
        has = found
        yield found
    finally:
        has.leave(who)


@asynccontextmanager
async def aalone(
    kept: C, awaited: Callable[[Callable[[], Any]], Awaitable[Any]], fork: Callable[[], C] | None = None
) -> AsyncIterator[C]:
    """The same, awaited; `awaited` runs a call on a thread and translates its errors."""
    who, until, has = object(), time.monotonic() + QUEUE_SECONDS, kept
    try:
        while True:
            found = await awaited(partial(kept.take, who, fork=fork, waits=time.monotonic() < until))
            if found is not None:
                break
            await asyncio.sleep(_WAIT)
        has = found
        yield found
    finally:
        await awaited(partial(has.leave, who))  # also if it was cancelled while it took the lease
