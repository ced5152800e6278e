"""Asking: a client's request becomes a turn, in whichever protocol the client speaks.

A turn is its own task: it keeps running if its client hangs up, so the generated reply is recorded and the repeated
request gets it. The same request again joins the running turn.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from typing import Protocol as Typed

from starlette.responses import Response

from onrecord.aio import settled
from onrecord.errors import (
    InvalidInput,
    LeaseLost,
    OnrecordError,
    ProxyBusy,
    SessionClosed,
    SessionErased,
    SessionRetired,
    StoreError,
    TurnConflict,
)
from onrecord.rollout.engines import lacking
from onrecord.rollout.requests import check_request
from onrecord.rollout.server import answers, completions, messages, responses
from onrecord.rollout.server.live import key_of
from onrecord.rollout.server.streaming import Streamed
from onrecord.rollout.server.upstream import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onrecord.rollout.server.chat import Chat
    from onrecord.rollout.server.live import Live
    from onrecord.rollout.server.metrics import Metrics
    from onrecord.rollout.server.shelf import Shelf
    from onrecord.rollout.server.streaming import Flow, Rendering

    Turn = asyncio.Task[str | Refusal]

T = TypeVar("T")
_MOVED_ON = (LeaseLost, SessionClosed, SessionErased, SessionRetired, StoreError)
"""Errors after which memory may differ from the record."""


class Protocol(NamedTuple):
    """How the clients of one endpoint speak; the record has chat messages in every case."""

    to_chat: Callable[[dict[str, Any], Known], Awaitable[dict[str, Any]]]
    respond: Callable[[str, dict[str, Any]], Response]
    """The whole answer."""
    chunks: Callable[[dict[str, Any], str, int], Rendering]
    """An answer in parts: from the request, the id of the answer and its time."""
    refused: Callable[[OnrecordError], Response]


class Known(Typed):
    """What the record knows of the conversation that a request continues: a session, or a tree of them."""

    def arguments(self) -> dict[str, list[str]]:
        """The arguments of the recorded calls, by the id of the call."""

    def conversation(self, response: str) -> list[dict[str, Any]]:
        """The messages up to the recorded answer with this id."""


async def _as_chat(asked: dict[str, Any], _known: Known) -> dict[str, Any]:
    return asked if "prompt" not in asked else _without_prompt(asked)


async def _from_text(asked: dict[str, Any], _known: Known) -> dict[str, Any]:
    return completions.to_chat(asked)


async def _from_items(asked: dict[str, Any], known: Known) -> dict[str, Any]:
    return await settled(partial(responses.to_chat, _without_prompt(asked), known.conversation))


async def _from_message(asked: dict[str, Any], known: Known) -> dict[str, Any]:
    return messages.to_chat(_without_prompt(asked), await settled(known.arguments))


def _without_prompt(asked: dict[str, Any]) -> dict[str, Any]:
    """A request with messages. With a field `prompt` it would be run as a text completion, without its messages."""
    if asked.get("prompt") is not None:
        raise InvalidInput(
            "a turn with messages has no prompt", hint="leave the field out; text and ids go to .../v1/completions"
        )
    return {name: value for name, value in asked.items() if name != "prompt"}


def _refused_message(error: OnrecordError) -> Response:
    plain = answers.problem_of(error)
    headers = {name: value for name, value in plain.headers.items() if name == "retry-after"}
    return messages.refused(plain.status_code, error, headers)


CHAT = Protocol(_as_chat, answers.respond, answers.ChatChunks, answers.problem_of)
TEXT = Protocol(_from_text, completions.respond, completions.TextChunks, answers.problem_of)
RESPONSES = Protocol(_from_items, responses.respond, responses.ResponseEvents, answers.problem_of)
MESSAGES = Protocol(_from_message, messages.respond, messages.MessageEvents, _refused_message)


class Asking:
    """The running turns of a proxy."""

    def __init__(self, chat: Chat, shelf: Shelf, metrics: Metrics) -> None:
        self.chat = chat
        self.shelf = shelf
        self.metrics = metrics
        self.turns: set[Turn] = set()
        self.draining = False

    async def response(self, turn: Turn, flow: Flow | None, protocol: Protocol, asked: dict[str, Any]) -> Response:
        """The response to a request: the recorded answer, its beginning while it is generated, or a refusal."""
        if asked.get("stream") and flow is not None and await flow.begun():
            return Streamed(protocol.chunks(asked, flow.id, flow.created), flow, partial(self.outcome, turn))
        answer = await self.outcome(turn)
        return passed(answer) if isinstance(answer, Refusal) else protocol.respond(answer, asked)

    def turn(self, live: Live, chat: dict[str, Any], how: dict[str, bool]) -> tuple[Turn, Flow | None]:
        """The running turn of a request: a new one, or the one that has the same request."""
        self.refuse_draining()
        self.check(chat)
        if live.turn is None:
            return self._start(live, chat, how), live.flow
        if live.asks(key_of(chat)):
            self.metrics.joined.inc()
            return live.turn, live.flow
        raise TurnConflict("another turn of this session is running", hint="wait for its answer")

    def check(self, chat: dict[str, Any]) -> None:
        """Refuse a request that is no turn, or that the engine's endpoint could not take as a whole."""
        check_request(chat, lacking(self.chat.settings.dialect))

    def refuse_draining(self) -> None:
        """Refuse new turns while the proxy shuts down."""
        if self.draining:
            raise ProxyBusy("this proxy is shutting down")

    async def outcome(self, turn: Turn) -> str | Refusal:
        """How a turn ended."""
        await asyncio.wait([turn])
        if turn.cancelled() and self.draining:
            raise ProxyBusy("this proxy stopped before the turn ended")
        if turn.cancelled():
            raise SessionRetired("the session was deleted while its turn was running")
        return turn.result()

    def _start(self, live: Live, asked: dict[str, Any], how: dict[str, bool]) -> Turn:
        limit = self.chat.settings.turns_limit
        if len(self.turns) >= limit:
            raise ProxyBusy(f"this proxy is running {len(self.turns):,} turns, its limit")
        flow = self.chat.flow(asked)
        turn = asyncio.get_running_loop().create_task(self.on(live, self._turn(live, asked, flow, how)))
        live.take(turn, asked, flow)
        self.turns.add(turn)
        self.metrics.in_flight = len(self.turns)

        def ended(turn: Turn) -> None:
            live.turn = live.asked = live.flow = None
            self.turns.discard(turn)
            self.metrics.in_flight = len(self.turns)
            if flow is not None:
                flow.end()
            if not turn.cancelled():
                turn.exception()  # a waiting request gets the error; without one, the record has it

        turn.add_done_callback(ended)
        return turn

    async def _turn(self, live: Live, asked: dict[str, Any], flow: Flow | None, how: dict[str, bool]) -> str | Refusal:
        try:
            return await self.chat.turn(live, asked, flow, **how)
        except Exception:
            if live.has_open_turn:  # its end could not be recorded: releasing the lease implies it
                self.shelf.evict(live)
            raise

    async def on(self, live: Live, step: Awaitable[T]) -> T:
        """Run a step on a session. If memory may now differ from the record, evict the session."""
        live.users += 1
        try:
            return await step
        except Exception as error:
            if isinstance(error, _MOVED_ON) or not isinstance(error, OnrecordError):
                self.shelf.evict(live)
            raise
        finally:
            live.users -= 1


def passed(answer: Refusal) -> Response:
    """The engine's own answer, unchanged."""
    return Response(answer.body, answer.status, headers=dict(answer.headers))
