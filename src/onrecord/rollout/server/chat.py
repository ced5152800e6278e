"""One turn of one session: record the intent, ask the engine, record the reply, and only then end the answer."""

from __future__ import annotations

import asyncio
from array import array
from contextlib import aclosing, suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord.aio import settled
from onrecord.errors import BadReply, InvalidInput, OnrecordError, TokenMismatch, TurnAborted, UpstreamFailed
from onrecord.rollout.engines import COMPLETIONS, read_reply, upstream_request
from onrecord.rollout.halves import joined
from onrecord.rollout.requests import token_limit
from onrecord.rollout.server.answers import answer_text
from onrecord.rollout.server.engine_json import dump
from onrecord.rollout.server.settings import (
    CONTINUE,
    PARTIALS_AT_ONCE,
    PASS,
    RENEWALS_PER_LEASE,
    RETRY_PAUSE_LIMIT_SECONDS,
    STEPS_AT_ONCE,
    UNAVAILABLE,
    Settings,
)
from onrecord.rollout.server.streaming import Flow, Partials
from onrecord.rollout.server.upstream import Refusal, Upstream, Whole
from onrecord.rollout.streams import STREAMING_DIALECTS, Gathered, Piece, as_sent, is_split, streamed_request
from onrecord.rollout.turns import ABORT, ERROR, LENGTH, STOP, TOOL_CALLS, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onrecord.rollout.engines import Parse
    from onrecord.rollout.server.live import Begun, Live
    from onrecord.rollout.server.metrics import Metrics

R = TypeVar("R")
LARGE_PROMPT = 8_192
"""From this many ids, prompts are written and replies are parsed on a thread, so that the loop serves other clients."""


class LaneKept:
    """Renews a lease in the meantime: a generation may take longer than the lease.

    It is a timer that becomes a task when it is time: most turns end before.
    """

    def __init__(self, live: Live, seconds: float) -> None:
        self._live, self._seconds = live, seconds
        self._keeper: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds / RENEWALS_PER_LEASE, self._due)

    def __exit__(self, *_problem: object) -> None:
        self._timer.cancel()
        if self._keeper is not None:
            self._keeper.cancel()

    def _due(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            with suppress(OnrecordError):  # the step that ends the turn reports a lost lease
                await settled(partial(self._live.renew, self._seconds))
            await asyncio.sleep(self._seconds / RENEWALS_PER_LEASE)


class Chat:
    """Runs turns: asks the engine and applies the abort policy."""

    def __init__(self, settings: Settings, upstream: Upstream, metrics: Metrics, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.upstream = upstream
        self.metrics = metrics
        self.clock = clock
        self.weights: str | None = None
        """The version of the engine's weights as the trainer reported it; for engines that do not name it."""
        self._weights_known = asyncio.Event()
        self._weights_known.set()
        self._steps = asyncio.Semaphore(STEPS_AT_ONCE)
        self._partials = asyncio.Semaphore(PARTIALS_AT_ONCE)

    def flow(self, request: dict[str, Any]) -> Flow | None:
        """Where a turn says what it has so far; None if the client or the engine has no use for that."""
        settings = self.settings
        if not request.get("stream") or settings.whole_streams or settings.dialect not in STREAMING_DIALECTS:
            return None
        parsed = settings.dialect in COMPLETIONS or settings.abort_policy == CONTINUE
        parsed = parsed and "prompt" not in request
        return Flow(parsed=parsed, own_parser=settings.parse is not None)

    async def turn(
        self, live: Live, request: dict[str, Any], flow: Flow | None = None, *, takeover: bool = False,
        resample: bool = False,
    ) -> str | Refusal:  # fmt: skip
        """The recorded answer to a request; or the engine's refusal, which is not recorded."""
        settings, retries = self.settings, 0
        begin = partial(live.begin, request, takeover=takeover, resample=resample)
        while True:
            begun = await self._recorded("begin", begin, live.fold)
            if isinstance(begun, str):
                self.metrics.replays.inc()
                return begun
            reply = await self._asked(live, begun, request, flow)
            if isinstance(reply, Refusal):
                return reply
            if reply.finish != ABORT:
                return await self._ended("commit", live, begun, reply, request, flow=flow)
            text = await self._ended("abort", live, begun, reply, request, flow=flow)
            # A client that has received the beginning of an answer cannot get another one in the same stream.
            spoken = flow is not None and flow.sent and settings.abort_policy not in (CONTINUE, PASS)
            if settings.abort_policy == UNAVAILABLE or spoken:
                raise TurnAborted(f"the engine aborted the turn: {reply.abort_cause}")
            if settings.abort_policy == PASS or retries >= settings.retries:
                return text
            retries += 1
            self.metrics.retries.inc()
            await asyncio.sleep(min(settings.retry_pause * 2 ** (retries - 1), RETRY_PAUSE_LIMIT_SECONDS))

    async def _asked(self, live: Live, begun: Begun, request: dict[str, Any], flow: Flow | None) -> Reply | Refusal:
        """The engine's reply. A failure is recorded before it is raised."""
        try:
            with LaneKept(live, self.settings.lease_seconds):
                reply = await self._generated(live, begun, request, flow)
            if isinstance(reply, Refusal):
                why = f"the engine answered {reply.status}"
                await self._recorded("fail", partial(live.withdraw, begun.intent, why))
            elif reply.finish == ERROR:
                raise UpstreamFailed("the engine ended the generation with an error")
        except (UpstreamFailed, BadReply) as problem:
            await self._failed(live, begun, problem.message)
            raise
        return reply

    def report_weights(self, version: str | None) -> None:
        """The weights that the engine has from now on; None while the trainer changes them.

        Until the next version is reported no request goes to the engine: it would wait there, and then it would be
        unknown which weights sampled its tokens.
        """
        if version is None:
            self._weights_known.clear()
        else:
            self.weights = version
            self._weights_known.set()

    async def _known_weights(self) -> str | None:
        if not self._weights_known.is_set():
            try:
                await asyncio.wait_for(self._weights_known.wait(), self.settings.upstream_seconds)
            except TimeoutError:
                raise UpstreamFailed("the weights are being updated, and their version was not reported") from None
        return self.weights

    def _earlier(self, begun: Begun) -> Reply | None:
        """What the engine must continue. The text of a stream that was cut off comes from its ids."""
        earlier = begun.unfinished if self.settings.abort_policy == CONTINUE else None
        if earlier is None or earlier.message is not None or not earlier.output_ids:
            return earlier
        if begun.decode is None or self.settings.dialect not in COMPLETIONS:
            return None  # which part of it was thinking or a call, only the engine knew
        return earlier._replace(message={"role": "assistant", "content": begun.decode(earlier.output_ids)})

    async def _generated(self, live: Live, begun: Begun, request: dict[str, Any], flow: Flow | None) -> Reply | Refusal:
        prompt = begun.prompt_ids
        earlier = self._earlier(begun)
        done = earlier.output_ids if earlier else []
        limit = token_limit(request)
        if earlier and limit is not None and len(done) >= limit:
            return earlier._replace(finish=LENGTH, abort_cause="")
        build = partial(_body, self.settings.dialect, request, prompt, done, streamed=flow is not None)
        body = await settled(build) if len(prompt) > LARGE_PROMPT else build()
        weights = await self._known_weights()
        asked = perf_counter()
        try:
            if flow is None:
                answered = await self.upstream.ask(body, begun.root)
            else:
                answered = await self._streamed(live, begun, body, earlier, flow)
        finally:
            self.metrics.upstream_seconds.observe(perf_counter() - asked)
        if isinstance(answered, Refusal):
            return answered
        parse = _as_it_is if "prompt" in request else self.settings.parse
        read = partial(read_reply, self.settings.dialect, answered, _sent(prompt, done), parse)
        reply = await settled(read) if len(prompt) > LARGE_PROMPT else read()
        if weights is not None and reply.output_ids and not reply.weight_versions:
            # If the weights changed meanwhile, it is unknown which of them sampled which token.
            version = weights if self.weights == weights else ""
            reply = reply._replace(weight_versions=((version, len(reply.output_ids)),))
        if earlier:
            reply = _continued(earlier, reply, begun, parse, flow.sent if flow else {})
        if "prompt" in request:
            reply = _as_text(reply, begun)
        if flow is not None and flow.sent and reply.message is not None:
            reply = reply._replace(message=as_sent(dict(reply.message), flow.sent))
        return reply

    async def _streamed(self, live: Live, begun: Begun, body: bytes, earlier: Reply | None, flow: Flow) -> Any:
        """The engine's reply as a whole, after its chunks were passed on and recorded one by one."""
        gathered, weights = Gathered(), self.weights

        async def record(ids: list[int], logprobs: list[float]) -> None:
            version = weights if self.weights == weights else ""
            spans = [(version, len(ids))] if version else []
            async with self._partials:
                await self._recorded("stream", partial(live.stream, begun.intent, ids, logprobs, spans))

        first = Piece({}, list(earlier.output_ids), list(earlier.logprobs)) if earlier else None
        partials, whole = Partials(record, first), False
        said = earlier.message if earlier else None
        split = bool(earlier and begun.decode and is_split(begun.decode(earlier.output_ids)))
        try:
            async with aclosing(self.upstream.chunks(body, begun.root)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Refusal | Whole):
                        whole = True
                        return chunk if isinstance(chunk, Refusal) else chunk.body
                    piece = gathered.add(chunk)
                    flow.begin(_named(gathered.id, begun), int(self.clock()), said, split=split)
                    flow.add(piece)
                    partials.add(piece)
            made = gathered.body()
            whole = True
            return made
        finally:
            await partials.stop(whole=whole)

    async def _ended(
        self, step: str, live: Live, begun: Begun, reply: Reply, request: dict[str, Any], *, flow: Flow | None
    ) -> str:
        """Record the end of a turn, and only then return the answer."""
        id, created = _named(reply.response_id, begun), int(self.clock())
        if flow is not None and flow.sent:
            id, created = flow.id, flow.created  # the client has them already
        reply = reply._replace(response_id=id)
        text = answer_text(reply, request, id=id, prompt_length=len(begun.prompt_ids), created=created)
        end = live.commit if step == "commit" else live.abort
        try:
            await self._recorded(step, partial(end, begun.intent, reply._replace(response=text)), live.fold)
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
        self.metrics.turns.inc(label=ERROR)

    def _count(self, begun: Begun, reply: Reply) -> None:
        tokens = self.metrics.tokens
        self.metrics.turns.inc(label=reply.finish)
        tokens.inc(len(reply.output_ids), "aborted" if reply.finish == ABORT else "sampled")
        tokens.inc(len(begun.prepared.tail), "prompt")
        if reply.finish != ABORT and begun.prepared.discards:
            tokens.inc(begun.prepared.discards, "discarded")

    async def _recorded(self, step: str, call: Callable[[], R], then: Callable[[], object] | None = None) -> R:
        async with self._steps:
            begin = perf_counter()
            try:
                return await settled(call, then)
            finally:
                self.metrics.record_seconds.observe(perf_counter() - begin, step)


def _as_it_is(message: dict[str, Any]) -> dict[str, Any]:
    return message


def _named(id: str, begun: Begun) -> str:
    """The id of an answer: the engine's, or one of our own if there is none, or an answer on record has it already."""
    return id if id and id not in begun.responses else f"chatcmpl-{begun.intent.id}"


def _continued(earlier: Reply, reply: Reply, begun: Begun, parse: Parse | None, sent: dict[str, Any]) -> Reply:
    """An aborted reply and what continued it, as one; if its client has begun to receive it, as it was sent."""
    with suppress(BadReply):
        whole = joined(earlier, reply, begun.decode, parse, begun.prompt_ids)
        as_sent(dict(whole.message or {}), sent)
        return whole
    return joined(earlier, reply, None, parse, begun.prompt_ids)


def _as_text(reply: Reply, begun: Begun) -> Reply:
    """The reply to a text completion: also what the engine took for thinking or for a call is text."""
    message, finish = reply.message or {}, STOP if reply.finish == TOOL_CALLS else reply.finish
    content = message.get("content") or ""
    if begun.decode and any(message.get(name) for name in ("tool_calls", "reasoning_content", "reasoning")):
        content = begun.decode(reply.output_ids)
    return reply._replace(message={"role": "assistant", "content": content}, finish=finish)


def _sent(prompt: array[int], done: Sequence[int]) -> array[int]:
    """The ids that the engine gets: the prompt, and what an aborted try of the same turn had sampled."""
    return array("i", [*prompt, *done]) if done else prompt


def _body(dialect: str, request: dict[str, Any], prompt: array[int], done: Sequence[int], *, streamed: bool) -> bytes:
    request = {name: value for name, value in request.items() if name != "prompt"}
    body = upstream_request(dialect, request, _sent(prompt, done), len(done))
    body = streamed_request(body) if streamed else body
    return dump(body)
