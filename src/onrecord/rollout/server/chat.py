"""One turn of one session: intent on record, engine asked, reply on record, then and only then the answer."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord.aio import settled
from onrecord.errors import BadReply, InvalidInput, OnrecordError, TokenMismatch, TurnAborted, UpstreamFailed
from onrecord.rollout.engines import joined, read_reply, token_limit, upstream_request
from onrecord.rollout.server.answers import answer_text
from onrecord.rollout.server.settings import (
    CONTINUE,
    PASS,
    RENEWALS_PER_LEASE,
    RETRY_PAUSE_LIMIT_SECONDS,
    STEPS_AT_ONCE,
    UNAVAILABLE,
    Settings,
)
from onrecord.rollout.server.upstream import Refusal, Upstream
from onrecord.rollout.turns import ABORT, ERROR, LENGTH, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from onrecord.rollout.server.live import Begun, Live
    from onrecord.rollout.server.metrics import Metrics

R = TypeVar("R")
LARGE_PROMPT = 8_192
"""From so many ids on, a prompt is written and a reply is read on a thread: the loop has other clients."""


class Chat:
    """How turns are taken: which engine, and what becomes of an abort."""

    def __init__(self, settings: Settings, upstream: Upstream, metrics: Metrics, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.upstream = upstream
        self.metrics = metrics
        self.clock = clock
        self._steps = asyncio.Semaphore(STEPS_AT_ONCE)

    async def turn(self, live: Live, request: dict[str, Any]) -> str | Refusal:
        """The answer to a request, as it was put on record; or the engine's refusal, of which nothing is kept."""
        settings, tries = self.settings, 0
        while True:
            begun = await self._recorded("begin", partial(live.begin, request))
            if isinstance(begun, str):
                self.metrics.replays.inc()
                return begun
            reply = await self._asked(live, begun, request)
            if isinstance(reply, Refusal):
                return reply
            if reply.finish != ABORT:
                return await self._ended("commit", live, begun, reply, request)
            text = await self._ended("abort", live, begun, reply, request)
            if settings.abort_policy == UNAVAILABLE:
                raise TurnAborted(f"the engine aborted the turn: {reply.abort_cause}")
            if settings.abort_policy == PASS or tries >= settings.retries:
                return text
            tries += 1
            self.metrics.retries.inc()
            await asyncio.sleep(min(settings.retry_pause * 2 ** (tries - 1), RETRY_PAUSE_LIMIT_SECONDS))

    async def _asked(self, live: Live, begun: Begun, request: dict[str, Any]) -> Reply | Refusal:
        """What the engine makes of the turn; whatever goes wrong is on record before it is told."""
        try:
            async with self._lane_kept(live):
                reply = await self._generated(begun, request)
            if isinstance(reply, Refusal):
                why = f"the engine answered {reply.status}"
                await self._recorded("fail", partial(live.withdraw, begun.intent, why))
            elif reply.finish == ERROR:
                raise UpstreamFailed("the engine ended the generation with an error")
        except (UpstreamFailed, BadReply) as problem:
            await self._failed(live, begun, problem.message)
            raise
        return reply

    @asynccontextmanager
    async def _lane_kept(self, live: Live) -> AsyncIterator[None]:
        """Keep the lane meanwhile: a generation that takes longer than the lease is no silence."""
        seconds = self.settings.lease_seconds

        async def keep() -> None:
            while True:
                await asyncio.sleep(seconds / RENEWALS_PER_LEASE)
                with suppress(OnrecordError):  # a lane that is lost is told by the step that ends the turn
                    await settled(partial(live.renew, seconds))

        keeper = asyncio.get_running_loop().create_task(keep())
        try:
            yield
        finally:
            keeper.cancel()

    async def _generated(self, begun: Begun, request: dict[str, Any]) -> Reply | Refusal:
        prompt = begun.prompt_ids
        earlier = begun.unfinished if self.settings.abort_policy == CONTINUE else None
        done = earlier.output_ids if earlier else []
        limit = token_limit(request)
        if earlier and limit is not None and len(done) >= limit:
            return earlier._replace(finish=LENGTH, abort_cause="")
        build = partial(_body, self.settings.dialect, request, prompt, done)
        body = await settled(build) if len(prompt) > LARGE_PROMPT else build()
        with self.metrics.upstream_seconds.time():
            answered = await self.upstream.ask(body)
        if isinstance(answered, Refusal):
            return answered
        read = partial(read_reply, self.settings.dialect, answered, [*prompt, *done])
        reply = await settled(read) if len(prompt) > LARGE_PROMPT else read()
        return joined(earlier, reply) if earlier else reply

    async def _ended(self, step: str, live: Live, begun: Begun, reply: Reply, request: dict[str, Any]) -> str:
        """Put the end of a turn on record, and only then have an answer."""
        text = answer_text(
            reply, request, id=reply.response_id or f"chatcmpl-{begun.intent.id}",
            prompt_length=len(begun.prompt_ids), created=int(self.clock()),
        )  # fmt: skip
        end = live.commit if step == "commit" else live.abort
        try:
            await self._recorded(step, partial(end, begun.intent, reply._replace(response=text)))
        except TokenMismatch as problem:
            await self._failed(live, begun, problem.message)
            raise
        except InvalidInput as problem:
            await self._failed(live, begun, problem.message)
            raise BadReply(f"the engine's reply cannot be put on record: {problem.message}") from None
        self._count(begun, reply)
        return text

    async def _failed(self, live: Live, begun: Begun, why: str) -> None:
        await self._recorded("fail", partial(live.fail, begun.intent, why))
        self.metrics.turns.labels(ERROR).inc()

    def _count(self, begun: Begun, reply: Reply) -> None:
        self.metrics.turns.labels(reply.finish).inc()
        self.metrics.tokens.labels("aborted" if reply.finish == ABORT else "sampled").inc(len(reply.output_ids))
        self.metrics.tokens.labels("prompt").inc(len(begun.prepared.tail))

    async def _recorded(self, step: str, call: Callable[[], R]) -> R:
        async with self._steps:
            with self.metrics.record_seconds.labels(step).time():
                return await settled(call)


def _body(dialect: str, request: dict[str, Any], prompt: Sequence[int], done: Sequence[int]) -> bytes:
    body = upstream_request(dialect, request, [*prompt, *done], len(done))
    return json.dumps(body, separators=(",", ":")).encode()
