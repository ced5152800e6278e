"""The routes of the recording proxy.

    POST   /sessions                              a new session
    GET    /sessions/{id}                         its record; ?tokens=true with the ids
    DELETE /sessions/{id}                         give it up
    POST   /sessions/{id}/v1/chat/completions     a turn
    POST   /sessions/{id}/v1/messages             the same in Anthropic's protocol
    POST   /sessions/{id}/samples                 freeze and read its samples; {"acknowledge": digest} confirms them
    POST   /sessions/{id}/branches                a new session that shares its first turns
    POST   /sessions/{id}/reward                  a reward of the session or of one of its turns
    POST   /weights                               the version of the weights, for engines that do not name it
    GET    /v1/models, /sessions/{id}/v1/models   the engine's models
    GET    /health, /metrics

A turn is its own task: it keeps running if its client hangs up, so the generated reply is recorded and the repeated
request gets it. Everything that may take long or wait for the disk runs on threads; the loop is always free.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onrecord.aio import settled
from onrecord.errors import (
    InvalidInput,
    LeaseLost,
    NameTaken,
    OnrecordError,
    ProxyBusy,
    SessionClosed,
    SessionErased,
    SessionNotFound,
    SessionRetired,
    StoreError,
    TooLarge,
    TurnConflict,
)
from onrecord.log.head import refuse_ended
from onrecord.log.names import is_ulid, make_ulid
from onrecord.machine import entropy
from onrecord.rollout.engines import check_request, load_json
from onrecord.rollout.matching import canonical, same_json
from onrecord.rollout.recording import (
    POLICY_AGENT,
    REWARD,
    SAMPLE_OPTIONS,
    branch,
    read_lane,
    record_reward,
    refuse_retired,
)
from onrecord.rollout.server import messages
from onrecord.rollout.server.answers import problem, problem_of, respond
from onrecord.rollout.server.chat import Chat
from onrecord.rollout.server.guard import Guard
from onrecord.rollout.server.live import load, read
from onrecord.rollout.server.metrics import CONTENT_TYPE, Metrics
from onrecord.rollout.server.shelf import Shelf
from onrecord.rollout.server.upstream import Refusal, Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.requests import Request

    from onrecord.rollout.server.live import Live
    from onrecord.rollout.server.settings import Settings
    from onrecord.rollout.trajectory import Policy
    from onrecord.rollout.turns import Tokenizer
    from onrecord.session.session_store import SessionStore

    Turn = asyncio.Task[str | Refusal]

T = TypeVar("T")
TAKEOVER_HEADER = "onrecord-takeover"
"""With the value `true`, the proxy takes the lease over from its present holder."""
SESSION_FIELDS = ("name", "metadata", "group")
BRANCH_FIELDS = ("name", "turns")
REWARD_FIELDS = ("reward", "turn", "name")
RESAMPLE_HEADER = "onrecord-resample"
"""With the value `true`, a turn is generated again even if its answer is on record; the new answer replaces it."""
NAME_LIMIT = 200
"""The longest name of a version of weights, in characters."""
LARGE_BODY = 64 * 1024
"""From this many bytes, a request is parsed on a thread."""
_MOVED_ON = (LeaseLost, SessionClosed, SessionErased, SessionRetired, StoreError)
"""Errors after which memory may differ from the record."""


class Proxy:
    """One recording proxy: its sessions, its engine, its routes."""

    def __init__(self, records: SessionStore, tokenizer: Tokenizer, settings: Settings, policy: Policy) -> None:
        self.records = records
        self.settings = settings.checked()
        self.policy = policy.checked()
        self.metrics = Metrics()
        self.upstream = Upstream(settings)
        self.chat = Chat(settings, self.upstream, self.metrics, records.clock)
        bring = partial(load, records, tokenizer=tokenizer, policy=policy, lease_seconds=settings.lease_seconds)
        self.shelf = Shelf(bring, settings.memory_sessions, self.metrics)
        self.draining = False
        self._turns: set[Turn] = set()
        self._stop_at = 0.0

    def application(self) -> Starlette:
        """The proxy as an ASGI application."""
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.show_metrics),
            Route("/v1/models", self.models),
            Route("/sessions/{id}/v1/models", self.models),
            Route("/weights", self.report_weights, methods=["POST"]),
            Route("/sessions", self.create, methods=["POST"]),
            Route("/sessions/{id}", self.show, methods=["GET"]),
            Route("/sessions/{id}", self.delete, methods=["DELETE"]),
            Route("/sessions/{id}/branches", self.branch, methods=["POST"]),
            Route("/sessions/{id}/reward", self.reward, methods=["POST"]),
            Route("/sessions/{id}/samples", self.samples, methods=["POST"]),
            Route("/sessions/{id}/v1/chat/completions", self.complete, methods=["POST"]),
            Route("/sessions/{id}/v1/messages", self.message, methods=["POST"]),
        ]
        handlers: dict[Any, Callable[..., Any]] = {
            OnrecordError: _refused, HTTPException: _no_such_route, ClientDisconnect: _gone, Exception: _broken,
        }  # fmt: skip
        guard = Middleware(Guard, settings=self.settings)
        return Starlette(routes=routes, exception_handlers=handlers, middleware=[guard], lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        await self.drain()

    def stop_taking(self) -> None:
        """Accept no more turns: running ones have until the end of the drain."""
        if not self.draining:
            self.draining = True
            self._stop_at = asyncio.get_running_loop().time() + self.settings.drain_seconds

    def hurry(self) -> None:
        """Cancel the running turns: on record they began and did not end."""
        for turn in self._turns:
            turn.cancel()

    async def drain(self) -> None:
        """Let running turns finish, for a while; then evict every session."""
        self.stop_taking()
        if self._turns:
            left = max(0.0, self._stop_at - asyncio.get_running_loop().time())
            _done, late = await asyncio.wait(self._turns, timeout=left)
            self.hurry()
            await asyncio.gather(*late, return_exceptions=True)
        await self.shelf.clear()
        await self.upstream.close()

    # Routes

    async def health(self, _request: Request) -> Response:
        """The health check. It waits for nothing."""
        status = "draining" if self.draining else "ok"
        return JSONResponse({"status": status, "turns_in_flight": len(self._turns), "sessions": len(self.shelf)})

    async def show_metrics(self, _request: Request) -> Response:
        """What Prometheus reads."""
        return Response(self.metrics.page(), media_type=CONTENT_TYPE)

    async def models(self, _request: Request) -> Response:
        """The engine's list of models, unchanged: clients ask for it to see whether the endpoint works."""
        return _passed(await self.upstream.models())

    async def report_weights(self, request: Request) -> Response:
        """Take note of the weights that the engine has from now on; replies that name none are recorded with it."""
        asked = await self._body(request)
        _refuse_unknown(asked, ("version",), "weights")
        version = asked.get("version")
        if not isinstance(version, str | int) or isinstance(version, bool) or not 0 < len(str(version)) <= NAME_LIMIT:
            raise InvalidInput(f"version must be text of at most {NAME_LIMIT} characters, or an integer")
        self.chat.weights = str(version)
        return JSONResponse({"version": self.chat.weights})

    async def create(self, request: Request) -> Response:
        """A new session."""
        asked = await self._body(request, empty=True)
        _refuse_unknown(asked, SESSION_FIELDS, "a new session")
        metadata, name = asked.get("metadata", {}), asked.get("name")
        if not isinstance(metadata, dict):
            raise InvalidInput("metadata must be an object")
        for field in ("name", "group"):
            if asked.get(field) is not None and not isinstance(asked[field], str):
                raise InvalidInput(f"the {field} of a session must be text")
        if asked.get("group"):
            metadata = metadata | {"group": asked["group"]}
        return JSONResponse(await settled(partial(self._create, name, metadata)))

    def _create(self, name: str | None, metadata: dict[str, Any]) -> dict[str, Any]:
        """A new session. If it has a name, the same request again after a lost reply gets the same session."""
        chosen = name or self._new_name()
        try:
            session = self.records.create(chosen, agent=POLICY_AGENT, metadata=metadata)
            return {"session_id": session.id, "name": chosen, "created": True}
        except NameTaken:
            head = self.records.named(chosen)
            if head is None:
                raise
        session = self.records.get(head.session, agent=POLICY_AGENT)
        refuse_retired(session)
        refuse_ended(session.head)
        if not same_json(session.views.facts.metadata, metadata):
            raise NameTaken(f"there is a session named {chosen!r} with other metadata", hint="choose another name")
        return {"session_id": session.id, "name": chosen, "created": False}

    async def show(self, request: Request) -> Response:
        """A session's record."""
        id = _session_id(request)
        tokens = request.query_params.get("tokens", "").lower() in ("1", "true", "yes")
        live = self.shelf.peek(id)
        if live is not None:
            return await settled(lambda: JSONResponse(live.describe(tokens=tokens)))
        return await settled(lambda: JSONResponse(self._read(id, tokens=tokens)))

    def _read(self, id: str, *, tokens: bool) -> dict[str, Any]:
        session = self.records.get(id, agent=POLICY_AGENT)
        refuse_retired(session)
        refuse_ended(session.head)
        return read(session, POLICY_AGENT, self.policy, tokens=tokens)

    async def delete(self, request: Request) -> Response:
        """Give a session up, and cancel its running turn."""
        live = await self._live(request)
        if live.turn is not None:
            live.turn.cancel()
            await asyncio.wait([live.turn])
        await self._on(live, settled(live.delete))
        self.shelf.drop(live)
        return Response(status_code=204)

    async def samples(self, request: Request) -> Response:
        """Freeze and read the samples; or, with their digest, record that the trainer has them."""
        asked = await self._body(request, empty=True)
        live = await self._live(request)
        digest = asked.get("acknowledge")
        if digest is not None:
            await self._on(live, settled(partial(live.acknowledge, str(digest))))
            self.shelf.drop(live)
            return JSONResponse({"session_id": live.id, "digest": digest, "retired": True})
        _refuse_unknown(asked, SAMPLE_OPTIONS, "samples")
        return await self._on(live, settled(lambda: JSONResponse(live.samples(asked))))

    async def reward(self, request: Request) -> Response:
        """Record a reward; it needs no lease, and may come after the samples were frozen."""
        asked, id = await self._body(request), _session_id(request)
        _refuse_unknown(asked, REWARD_FIELDS, "a reward")
        recorded = await settled(partial(self._reward, id, asked))
        return JSONResponse({"session_id": id, "recorded": recorded})

    def _reward(self, id: str, asked: dict[str, Any]) -> bool:
        name = asked.get("name", REWARD)
        if not isinstance(name, str):
            raise InvalidInput("the name of a reward must be text")
        session = self.records.get(id, agent=POLICY_AGENT)
        lane = read_lane(session, POLICY_AGENT, self.policy)
        return record_reward(session, lane, asked.get("reward"), turn=asked.get("turn"), name=name)  # type: ignore[arg-type]  # it checks

    async def branch(self, request: Request) -> Response:
        """A new session that shares the first turns of this one."""
        asked, id = await self._body(request, empty=True), _session_id(request)
        _refuse_unknown(asked, BRANCH_FIELDS, "a branch")
        if asked.get("name") is not None and not isinstance(asked["name"], str):
            raise InvalidInput("the name of a session must be text")
        return JSONResponse(await settled(partial(self._branch, id, asked.get("name"), asked.get("turns"))))

    def _branch(self, id: str, name: str | None, turns: Any) -> dict[str, Any]:
        session = self.records.get(id, agent=POLICY_AGENT)
        refuse_retired(session)
        lane = read_lane(session, POLICY_AGENT, self.policy)
        new = branch(session, lane, name or self._new_name(), turns)
        shared = len(read_lane(new, POLICY_AGENT, self.policy).commits)
        return {"session_id": new.id, "name": new.name, "turns": shared, "branch_of": id}

    def _new_name(self) -> str:
        return f"rollout-{make_ulid(int(self.records.clock() * 1e3), entropy(10)).lower()}"

    async def complete(self, request: Request) -> Response:
        """A turn of a session."""
        try:
            response = await self._complete(request)
        except OnrecordError as error:
            response = problem_of(error)
        self.metrics.answers.labels(str(response.status_code)).inc()
        return response

    async def message(self, request: Request) -> Response:
        """A turn of a session in Anthropic's protocol."""
        try:
            asked = await self._body(request)
            live = await self._live(request)
            answer = await self._answer(request, messages.to_chat(asked, live.arguments()))
            response = _passed(answer) if isinstance(answer, Refusal) else messages.respond(answer, asked)
        except OnrecordError as error:
            plain = problem_of(error)
            response = messages.refused(plain.status_code, error, _retry_header(plain))
        self.metrics.answers.labels(str(response.status_code)).inc()
        return response

    async def _complete(self, request: Request) -> Response:
        asked = await self._body(request)
        answer = await self._answer(request, asked)
        return _passed(answer) if isinstance(answer, Refusal) else respond(answer, asked)

    async def _answer(self, request: Request, asked: dict[str, Any]) -> str | Refusal:
        """The recorded answer to a chat request, or the engine's refusal."""
        if self.draining:
            raise ProxyBusy("this proxy is shutting down")
        check_request(asked)
        wanted = canonical({name: value for name, value in asked.items() if not name.startswith("stream")})
        live = await self._live(request)
        turn = live.turn
        if turn is None:
            how = {"takeover": _takes_over(request), "resample": _says_yes(request, RESAMPLE_HEADER)}
            turn = self._start(live, asked, wanted, how)
        elif live.asked == wanted:
            self.metrics.joined.inc()
        else:
            raise TurnConflict("another turn of this session is running", hint="wait for its answer")
        await asyncio.wait([turn])
        if turn.cancelled() and self.draining:
            raise ProxyBusy("this proxy stopped before the turn ended")
        if turn.cancelled():
            raise SessionRetired("the session was deleted while its turn was running")
        return turn.result()

    # Behind them

    def _start(self, live: Live, asked: dict[str, Any], wanted: str, how: dict[str, bool]) -> Turn:
        if len(self._turns) >= self.settings.turns_limit:
            raise ProxyBusy(f"this proxy is running {len(self._turns):,} turns, its limit")
        turn = asyncio.get_running_loop().create_task(self._on(live, self._turn(live, asked, how)))
        live.turn, live.asked = turn, wanted
        self._turns.add(turn)
        self.metrics.in_flight.set(len(self._turns))

        def ended(turn: Turn) -> None:
            live.turn = live.asked = None
            self._turns.discard(turn)
            self.metrics.in_flight.set(len(self._turns))
            if not turn.cancelled():
                turn.exception()  # a waiting request gets the error; without one, the record has it

        turn.add_done_callback(ended)
        return turn

    async def _turn(self, live: Live, asked: dict[str, Any], how: dict[str, bool]) -> str | Refusal:
        try:
            return await self.chat.turn(live, asked, **how)
        except Exception:
            if live.has_open_turn:  # its end could not be recorded: releasing the lease implies it
                self.shelf.evict(live)
            raise

    async def _on(self, live: Live, step: Awaitable[T]) -> T:
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

    async def _live(self, request: Request) -> Live:
        return await self.shelf.get(_session_id(request), takeover=_takes_over(request))

    async def _body(self, request: Request, *, empty: bool = False) -> dict[str, Any]:
        """The body of a request, read up to the limit."""
        limit, received = self.settings.body_limit, bytearray()
        async for part in request.stream():
            received += part
            if len(received) > limit:
                raise TooLarge(f"the body of a request may have at most {limit:,} bytes")
        if empty and not received:
            return {}
        parse = partial(load_json, bytes(received))
        try:
            asked = await settled(parse) if len(received) > LARGE_BODY else parse()
        except ValueError as error:
            raise InvalidInput(f"the body is not JSON: {error}") from None
        if not isinstance(asked, dict):
            raise InvalidInput("the body must be a JSON object")
        return asked


def _refuse_unknown(asked: dict[str, Any], known: Sequence[str], what: str) -> None:
    """Refuse a field that would have no effect: it may be a misspelled one."""
    unknown = set(asked) - set(known)
    if unknown:
        raise InvalidInput(f"unknown field {min(unknown)!r:.80}", hint=f"the fields of {what}: {', '.join(known)}")


def _passed(answer: Refusal) -> Response:
    return Response(answer.body, answer.status, headers=dict(answer.headers))


def _retry_header(response: Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name == "retry-after"}


def _takes_over(request: Request) -> bool:
    return _says_yes(request, TAKEOVER_HEADER)


def _says_yes(request: Request, header: str) -> bool:
    return request.headers.get(header, "").lower() == "true"


def _session_id(request: Request) -> str:
    """The whole id in the path: over HTTP a prefix or a name is not enough."""
    id = request.path_params["id"].upper()
    if not is_ulid(id):
        raise SessionNotFound("no session has this id", hint="POST /sessions creates one")
    return str(id)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, OnrecordError)  # noqa: S101  # Starlette's signature is wider than what it calls this with
    return problem_of(error)


async def _no_such_route(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # as above
    return problem(error.status_code, "no_such_route", str(error.detail), headers=error.headers)


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # the client hung up while it was still sending


async def _broken(_request: Request, _error: Exception) -> Response:
    # The server closes the connection after this answer: a client that reuses it would lose its next request.
    headers = {"connection": "close"}
    return problem(500, "internal", "an error inside onrecord", hint="see the proxy's output", headers=headers)
