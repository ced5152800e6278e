"""Streaming: what a running turn has said so far, for its clients and for the record.

The engine's chunks take two ways that do not wait for each other. `Flow` passes them to every client that waits for the
turn, at once. `Partials` records them, a few at a time. The last chunk of a client is sent after the commit, so a
client that has seen the end of an answer knows that it is on record.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from starlette.responses import Response

from onrecord.errors import OnrecordError, UpstreamFailed
from onrecord.rollout.server.upstream import Refusal
from onrecord.rollout.streams import TEXTS, Piece, add_delta, certain, rest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send

FIRST_PARTIAL_SECONDS = 0.02
"""How long the first ids of a stream wait to be recorded: a client gets them first."""
PARTIAL_SECONDS = 0.1
"""The pause between two records of the same stream; ids that come in the meantime share the next one."""
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Flow:
    """What a running turn has said so far. Any number of clients may follow it, each from the beginning."""

    def __init__(self, *, parsed: bool, own_parser: bool) -> None:
        self.id = ""
        self.created = 0
        self.sent: dict[str, Any] = {}
        """The message as far as clients have received it."""
        self._parsed, self._own_parser = parsed, own_parser
        self._heard: dict[str, Any] = {}
        self._pieces: list[Piece] = []
        self._moved = asyncio.Event()
        self._ended = self._held = False

    def begin(self, id: str, created: int, said: Mapping[str, Any] | None, *, split: bool = False) -> None:
        """A generation has begun. `said` is what it continues; clients of this flow may not have received it.

        `split`: its first ids end a character that those before them began. The engine's text lacks that character, so
        what follows is held until the whole text is known, and comes with the end of the answer.
        """
        if not self.id:
            self.id, self.created = id, created
            if said:
                self.add(Piece({name: said[name] for name in TEXTS if said.get(name)}, [], []))
        self._held = self._held or split

    def add(self, piece: Piece) -> None:
        """Pass on what a chunk adds, except for text that may still change."""
        if self._held:
            piece = piece._replace(delta={})
        add_delta(self._heard, piece.delta)
        delta: dict[str, Any] = {}
        for name in TEXTS:
            if name in piece.delta:
                parsed = self._parsed and name == "content"
                sure = certain(self._heard[name], parsed=parsed, own_parser=self._own_parser)
                new = sure[len(self.sent.get(name) or "") :]
                delta |= {name: new} if new else {}
        if "tool_calls" in piece.delta:
            delta["tool_calls"] = piece.delta["tool_calls"]
        add_delta(self.sent, delta)
        if delta or piece.ids:
            self._pieces.append(piece._replace(delta=delta))
            self._wake()

    def end(self) -> None:
        """No more comes."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def begun(self) -> bool:
        """Wait for the first word; false if the turn ended without one."""
        while not self.sent and not self._ended:
            await self._moved.wait()
        return bool(self.sent)

    async def follow(self) -> AsyncIterator[list[Piece]]:
        """Everything from the beginning, then what is new, until the end."""
        at = 0
        while True:
            moved, ended = self._moved, self._ended
            new = self._pieces[at:]
            at += len(new)
            if new:
                yield new
            elif ended:
                return
            else:
                await moved.wait()


class Partials:
    """Records the ids of a stream while it runs; one record at a time, each with all that came meanwhile."""

    def __init__(self, record: Callable[[list[int], list[float]], Awaitable[None]], first: Piece | None = None) -> None:
        self._record = record
        self._ids: list[int] = list(first.ids) if first else []
        self._logprobs: list[float] = list(first.logprobs) if first else []
        self._task: asyncio.Task[None] | None = None
        self._busy = self._stopped = False

    def add(self, piece: Piece) -> None:
        """Record this soon."""
        self._ids += piece.ids
        self._logprobs += piece.logprobs
        if self._task is None and self._ids:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        pause = FIRST_PARTIAL_SECONDS
        while not self._stopped:
            await asyncio.sleep(pause)
            self._busy = True
            await self._flush()
            self._busy = False
            pause = PARTIAL_SECONDS

    async def _flush(self) -> None:
        ids, logprobs, self._ids, self._logprobs = self._ids, self._logprobs, [], []
        if ids:
            with suppress(OnrecordError):  # the step that ends the turn reports it
                await self._record(ids, logprobs)

    async def stop(self, *, whole: bool) -> None:
        """Stop; unless the reply is whole and will be recorded as such, record what is left."""
        self._stopped = True
        if self._task is not None:
            if not self._busy:
                self._task.cancel()
            await asyncio.wait([self._task])
        if not whole:
            await self._flush()


class Rendering(Protocol):
    """An answer in the chunks of one protocol."""

    def begin(self) -> bytes:
        """What comes before the first word."""

    def piece(self, piece: Piece) -> bytes:
        """What the turn has just said."""

    def end(self, answer: str, left: list[dict[str, Any]]) -> bytes:
        """What was not sent yet of the recorded answer, and its end."""

    def error(self, error: OnrecordError) -> bytes:
        """The end of a stream that has no answer."""


class Streamed(Response):
    """A running turn as a stream. It ends with the recorded answer, or with an error."""

    def __init__(self, rendering: Rendering, flow: Flow, outcome: Callable[[], Awaitable[str | Refusal]]) -> None:
        super().__init__()
        self.raw_headers = list(_HEADERS)
        self._rendering, self._flow, self._outcome = rendering, flow, outcome

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # as ASGI has it
        """Send chunks as they come. The turn continues if its client hangs up."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            before = self._rendering.begin()
            async for pieces in self._flow.follow():
                body = before + b"".join(map(self._rendering.piece, pieces))
                before = b""
                if body:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": await self._last(), "more_body": False})
        except OSError:
            return  # the client hung up

    async def _last(self) -> bytes:
        try:
            answer = await self._outcome()
            if isinstance(answer, Refusal):
                raise UpstreamFailed(f"the engine answered {answer.status} when the turn was continued")
        except OnrecordError as error:
            return self._rendering.error(error)
        return self._rendering.end(answer, rest(message_of(answer), self._flow.sent))


def message_of(answer: str) -> dict[str, Any]:
    """The assistant's message of a recorded answer."""
    message: dict[str, Any] = json.loads(answer)["choices"][0]["message"]
    return message
