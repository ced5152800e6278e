"""One turn of one session: record the intent, ask the engine, record the reply, and only then answer."""

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
"""From this many ids, prompts are written and replies are parsed on a thread, so that the loop serves other clients."""


class Chat:
    """Runs turns: asks the engine and applies the abort policy."""

    def __init__(self, settings: Settings, upstream: Upstream, metrics: Metrics, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.upstream = upstream
        self.metrics = metrics
        self.clock = clock
        self.weights: str | None = None
        """The version of the engine's weights as the trainer reported it; for engines that do not name it."""
        self._steps = asyncio.Semaphore(STEPS_AT_ONCE)

    async def turn(
        self, live: Live, request: dict[str, Any], *, takeover: bool = False, resample: bool = False
    ) -> str | Refusal:
        """The recorded answer to a request; or the engine's refusal, which is not recorded."""
        settings, retries = self.settings, 0
        begin = partial(live.begin, request, takeover=takeover, resample=resample)
        while True:
            begun = await self._recorded("begin", begin)
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
            if settings.abort_policy == PASS or retries >= settings.retries:
                return text
            retries += 1
            self.metrics.retries.inc()
            await asyncio.sleep(min(settings.retry_pause * 2 ** (retries - 1), RETRY_PAUSE_LIMIT_SECONDS))

    async def _asked(self, live: Live, begun: Begun, request: dict[str, Any]) -> Reply | Refusal:
        """The engine's reply. A failure is recorded before it is raised."""
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
        """Renew the lease in the meantime: a generation may take longer than the lease."""
        seconds = self.settings.lease_seconds

        async def keep() -> None:
            while True:
                await asyncio.sleep(seconds / RENEWALS_PER_LEASE)
                with suppress(OnrecordError):  # the step that ends the turn reports a lost lease
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
        weights = self.weights
        with self.metrics.upstream_seconds.time():
            answered = await self.upstream.ask(body, begun.session)
        if isinstance(answered, Refusal):
            return answered
        read = partial(read_reply, self.settings.dialect, answered, [*prompt, *done], self.settings.parse)
        reply = await settled(read) if len(prompt) > LARGE_PROMPT else read()
        if weights is not None and reply.output_ids and not reply.weight_versions:
            # If the weights changed meanwhile, it is unknown which of them sampled which token.
            version = weights if self.weights == weights else ""
            reply = reply._replace(weight_versions=((version, len(reply.output_ids)),))
        return joined(earlier, reply, begun.decode, self.settings.parse) if earlier else reply

    async def _ended(self, step: str, live: Live, begun: Begun, reply: Reply, request: dict[str, Any]) -> str:
        """Record the end of a turn, and only then return the answer."""
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
            raise BadReply(f"the engine's reply cannot be recorded: {problem.message}") from None
        self._count(begun, reply)
        return text

    async def _failed(self, live: Live, begun: Begun, why: str) -> None:
        await self._recorded("fail", partial(live.fail, begun.intent, why))
        self.metrics.turns.labels(ERROR).inc()

    def _count(self, begun: Begun, reply: Reply) -> None:
        self.metrics.turns.labels(reply.finish).inc()
        self.metrics.tokens.labels("aborted" if reply.finish == ABORT else "sampled").inc(len(reply.output_ids))
        self.metrics.tokens.labels("prompt").inc(len(begun.prepared.tail))
        if reply.finish != ABORT:
            self.metrics.tokens.labels("discarded").inc(begun.prepared.discards)

    async def _recorded(self, step: str, call: Callable[[], R]) -> R:
        async with self._steps:
            with self.metrics.record_seconds.labels(step).time():
                return await settled(call)


def _body(dialect: str, request: dict[str, Any], prompt: Sequence[int], done: Sequence[int]) -> bytes:
    body = upstream_request(dialect, request, [*prompt, *done], len(done))
    return json.dumps(body, separators=(",", ":")).encode()
