"""The routes of the recording proxy.

    POST   /sessions                              a new session
    GET    /sessions/{id}                         its record; ?tokens=true with the ids
    DELETE /sessions/{id}                         give it up
    POST   /sessions/{id}/v1/chat/completions     a turn
    POST   /sessions/{id}/v1/completions          a turn without messages: text or token ids
    POST   /sessions/{id}/v1/responses            a turn in OpenAI's Responses protocol
    POST   /sessions/{id}/v1/messages             a turn in Anthropic's protocol
    POST   /sessions/{id}/samples                 freeze and read its samples; {"acknowledge": digest} confirms them
    GET    /sessions/{id}/tree                    the session and its branches
    POST   /sessions/{id}/branches                a new session that shares its first turns
    POST   /sessions/{id}/reward                  a reward of the session or of one of its turns
    POST   /weights                               the version of the weights, for engines that do not name it
    GET    /v1/models, /sessions/{id}/v1/models   the engine's models
    GET    /health, /metrics

Everything that may take long or wait for the disk runs on threads; the loop is always free.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onrecord.aio import settled
from onrecord.errors import (
    InvalidInput,
    NameTaken,
    OnrecordError,
    SessionNotFound,
    SessionRetired,
    TooLarge,
)
from onrecord.log.head import refuse_ended
from onrecord.log.names import is_ulid, make_ulid
from onrecord.machine import entropy
from onrecord.rollout.branches import branching
from onrecord.rollout.ended import refuse_retired
from onrecord.rollout.lane import REWARD
from onrecord.rollout.matching import same_json
from onrecord.rollout.recording import (
    POLICY_AGENT,
    SAMPLE_OPTIONS,
    branch,
    read_lane,
    record_reward,
)
from onrecord.rollout.server.answers import merged, problem, problem_of
from onrecord.rollout.server.asking import CHAT, MESSAGES, RESPONSES, TEXT, Asking, passed
from onrecord.rollout.server.bodies import load_request
from onrecord.rollout.server.chat import Chat
from onrecord.rollout.server.guard import Guard
from onrecord.rollout.server.live import is_acknowledged, load, read
from onrecord.rollout.server.messages import in_form
from onrecord.rollout.server.metrics import CONTENT_TYPE, Metrics
from onrecord.rollout.server.shelf import Shelf
from onrecord.rollout.server.trees import Grove, KnownTree, answers_wanted
from onrecord.rollout.server.upstream import Refusal, Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from onrecord.rollout.server.asking import Protocol
    from onrecord.rollout.server.live import Live
    from onrecord.rollout.server.settings import Settings
    from onrecord.rollout.trajectory import Policy
    from onrecord.rollout.turns import Tokenizer
    from onrecord.session.session_store import SessionStore

TAKEOVER_HEADER = "onrecord-takeover"
"""With the value `true`, the proxy takes the lease over from its present holder."""
SESSION_FIELDS = ("name", "metadata", "group")
BRANCH_FIELDS = ("name", "turns")
REWARD_FIELDS = ("reward", "turn", "name")
RESAMPLE_HEADER = "onrecord-resample"
"""With the value `true`, a turn is generated again even if its answer is on record; the new answer replaces it."""
LINE_HEADER = "onrecord-session"
"""Of an answer with branches: the session that has the turn."""
TEXT_ROLLBACK = 1
"""With branches, how many turns a text completion may discard at least: only chat turns are branched."""
NAME_LIMIT = 200
"""The longest name of a version of weights, in characters."""
_TURN = re.compile(r"/sessions/([^/]+)/v1/chat/completions\Z")
LARGE_BODY = 64 * 1024
"""From this many bytes, a request is parsed on a thread."""


class Proxy:
    """One recording proxy: its sessions, its engine, its routes."""

    def __init__(self, records: SessionStore, tokenizer: Tokenizer, settings: Settings, policy: Policy) -> None:
        self.records = records
        self.settings = settings.checked()
        self.policy = policy = (branching(policy) if settings.branches else policy).checked()
        self.metrics = Metrics()
        self.upstream = Upstream(settings)
        self.chat = Chat(settings, self.upstream, self.metrics, records.clock)
        text_policy = policy._replace(max_rollback=max(policy.max_rollback, TEXT_ROLLBACK if settings.branches else 0))
        bring = partial(
            load, records, tokenizer=tokenizer, policy=policy, lease_seconds=settings.lease_seconds,
            text_policy=text_policy,
        )  # fmt: skip
        self.shelf = Shelf(bring, settings.memory_sessions, self.metrics)
        self.asking = Asking(self.chat, self.shelf, self.metrics)
        self.grove = Grove(records, self.shelf, self.policy)
        self._stop_at = 0.0

    def application(self) -> Starlette:
        """The proxy as an ASGI application."""
        routes = [  # Starlette tries them in this order: the busiest comes first
            Route("/sessions/{id}/v1/chat/completions", self.complete, methods=["POST"]),
            Route("/health", self.health),
            Route("/metrics", self.show_metrics),
            Route("/v1/models", self.models),
            Route("/sessions/{id}/v1/models", self.models),
            Route("/weights", self.report_weights, methods=["POST"]),
            Route("/sessions", self.create, methods=["POST"]),
            Route("/sessions/{id}", self.show, methods=["GET"]),
            Route("/sessions/{id}", self.delete, methods=["DELETE"]),
            Route("/sessions/{id}/tree", self.tree, methods=["GET"]),
            Route("/sessions/{id}/branches", self.branch, methods=["POST"]),
            Route("/sessions/{id}/reward", self.reward, methods=["POST"]),
            Route("/sessions/{id}/samples", self.samples, methods=["POST"]),
            Route("/sessions/{id}/v1/completions", self.complete_text, methods=["POST"]),
            Route("/sessions/{id}/v1/responses", self.respond, methods=["POST"]),
            Route("/sessions/{id}/v1/messages", self.message, methods=["POST"]),
        ]
        handlers: dict[Any, Callable[..., Any]] = {
            OnrecordError: _refused, HTTPException: _no_such_route, ClientDisconnect: _gone, Exception: _broken,
        }  # fmt: skip
        guard = Middleware(Guard, settings=self.settings)
        return Starlette(routes=routes, exception_handlers=handlers, middleware=[guard], lifespan=self._lifespan)

    def front(self) -> ASGIApp:
        """The same application, with a short way to the busiest route: Starlette's takes as long as half a turn."""
        return Front(self.application(), Guard(_nowhere, self.settings), self.complete)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        await self.drain()

    def stop_taking(self) -> None:
        """Accept no more turns: running ones have until the end of the drain."""
        if not self.asking.draining:
            self.asking.draining = True
            self._stop_at = asyncio.get_running_loop().time() + self.settings.drain_seconds

    def hurry(self) -> None:
        """Cancel the running turns: on record they began and did not end."""
        for turn in self.asking.turns:
            turn.cancel()

    async def drain(self) -> None:
        """Let running turns finish, for a while; then evict every session."""
        self.stop_taking()
        if self.asking.turns:
            left = max(0.0, self._stop_at - asyncio.get_running_loop().time())
            _done, late = await asyncio.wait(self.asking.turns, timeout=left)
            self.hurry()
            await asyncio.gather(*late, return_exceptions=True)
        await self.shelf.clear()
        await self.upstream.close()

    # Routes

    async def health(self, _request: Request) -> Response:
        """The health check. It waits for nothing."""
        status, running = "draining" if self.asking.draining else "ok", len(self.asking.turns)
        return JSONResponse({"status": status, "turns_in_flight": running, "sessions": len(self.shelf)})

    async def show_metrics(self, _request: Request) -> Response:
        """What Prometheus reads."""
        return Response(self.metrics.page(), media_type=CONTENT_TYPE)

    async def models(self, _request: Request) -> Response:
        """The engine's list of models, unchanged: clients ask for it to see whether the endpoint works."""
        return passed(await self.upstream.models())

    async def report_weights(self, request: Request) -> Response:
        """Take note of the weights that the engine has from now on; replies that name none are recorded with it."""
        asked = await self._body(request)
        _refuse_unknown(asked, ("version", "updating"), "weights")
        version, updating = asked.get("version"), asked.get("updating", False)
        if type(updating) is not bool or (updating and version is not None):
            raise InvalidInput(
                "updating must be true or false, and true only without a version",
                hint='announce {"updating": true} before the update, and {"version": ...} after it',
            )
        if updating:
            self.chat.report_weights(None)
            return JSONResponse({"version": self.chat.weights, "updating": True})
        if not isinstance(version, str | int) or isinstance(version, bool) or not 0 < len(str(version)) <= NAME_LIMIT:
            raise InvalidInput(f"version must be text of at most {NAME_LIMIT} characters, or an integer")
        self.chat.report_weights(str(version))
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
        if self.settings.branches:
            await self.grove.delete(_session_id(request), self._give_up)
        else:
            await self._give_up(await self._live(request))
        return Response(status_code=204)

    async def _give_up(self, live: Live) -> None:
        if live.turn is not None:
            live.turn.cancel()
            await asyncio.wait([live.turn])
        await self.asking.on(live, settled(live.delete))
        self.shelf.drop(live)

    async def tree(self, request: Request) -> Response:
        """A session and its branches."""
        id = _session_id(request)
        return JSONResponse(await settled(partial(self.grove.about, id)))

    async def samples(self, request: Request) -> Response:
        """Freeze and read the samples; or, with their digest, record that the trainer has them."""
        asked, id = await self._body(request, empty=True), _session_id(request)
        digest = asked.get("acknowledge")
        known, what = (SAMPLE_OPTIONS, "samples") if digest is None else (("acknowledge",), "an acknowledgement")
        _refuse_unknown(asked, known, what)
        if self.settings.branches:
            if digest is not None:
                await self.grove.acknowledge(id, str(digest), self.asking.on)
                return JSONResponse({"session_id": id, "digest": digest, "retired": True})
            return JSONResponse(await self.grove.samples(id, asked, self.asking.on))
        if digest is not None:
            await self._acknowledge(id, str(digest), takeover=_takes_over(request))
            return JSONResponse({"session_id": id, "digest": digest, "retired": True})
        live = await self._live(request)
        return await self.asking.on(live, settled(lambda: JSONResponse(live.samples(asked))))

    async def _acknowledge(self, id: str, digest: str, *, takeover: bool) -> None:
        """Record that the trainer has the samples; a repeated acknowledgement, after a lost reply, changes nothing."""
        try:
            live = await self.shelf.get(id, takeover=takeover)
            await self.asking.on(live, settled(partial(live.acknowledge, digest)))
            self.shelf.drop(live)
        except SessionRetired:
            if not await settled(partial(is_acknowledged, self.records, id, digest)):
                raise

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
        """A new branch. If it has a name, the same request again after a lost reply gets the same branch."""
        session = self.records.get(id, agent=POLICY_AGENT)
        refuse_retired(session)
        lane, created = read_lane(session, POLICY_AGENT, self.policy), True
        try:
            new = branch(session, lane, name or self._new_name(), turns)
        except NameTaken:
            head = self.records.named(str(name))
            if head is None or head.parent != id:
                raise
            new, created = self.records.get(head.session, agent=POLICY_AGENT), False
            refuse_retired(new)
            refuse_ended(head)
        shared = read_lane(new, POLICY_AGENT, self.policy).inherited
        if turns not in (None, shared):
            raise NameTaken(f"the branch {name!r} shares {shared} turns, not {turns}", hint="choose another name")
        return {"session_id": new.id, "name": new.name, "turns": shared, "branch_of": id, "created": created}

    def _new_name(self) -> str:
        return f"rollout-{make_ulid(int(self.records.clock() * 1e3), entropy(10)).lower()}"

    # Turns, in each protocol

    async def complete(self, request: Request) -> Response:
        """A turn of a session."""
        return await self._turn(request, CHAT)

    async def complete_text(self, request: Request) -> Response:
        """A turn of a session whose prompt has no messages."""
        return await self._turn(request, TEXT)

    async def respond(self, request: Request) -> Response:
        """A turn of a session in OpenAI's Responses protocol."""
        return await self._turn(request, RESPONSES)

    async def message(self, request: Request) -> Response:
        """A turn of a session in Anthropic's protocol."""
        return await self._turn(request, MESSAGES)

    async def _turn(self, request: Request, protocol: Protocol) -> Response:
        try:
            asked = await self._body(request)
            self.asking.refuse_draining()
            how = {"takeover": _takes_over(request), "resample": _says_yes(request, RESAMPLE_HEADER)}
            if self.settings.branches and protocol is not TEXT:
                response = await self._on_tree(_session_id(request), asked, how, protocol)
            else:
                live = await self._live(request)
                turn, flow = self.asking.turn(live, await protocol.to_chat(asked, live), how)
                response = await self.asking.response(turn, flow, protocol, asked)
        except OnrecordError as error:
            response = protocol.refused(error)
        self.metrics.answers.inc(label=str(response.status_code))
        return response

    async def _on_tree(self, root: str, asked: dict[str, Any], how: dict[str, bool], protocol: Protocol) -> Response:
        chat = await protocol.to_chat(asked, KnownTree(self.grove, root))
        count = answers_wanted(chat)
        started = await self.grove.start(root, chat, how, self.asking, count)
        if count == 1:
            ((live, turn, flow),) = started
            response = await self.asking.response(turn, flow, protocol, asked)
        else:
            live = started[0][0]
            outcomes = [await self.asking.outcome(turn) for _live, turn, _flow in started]
            refusals = [one for one in outcomes if isinstance(one, Refusal)]
            answers = [one for one in outcomes if isinstance(one, str)]
            response = passed(refusals[0]) if refusals else protocol.respond(merged(answers), asked)
        response.headers[LINE_HEADER] = live.id
        return response

    # Behind them

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
        parse = partial(load_request, bytes(received))
        return await settled(parse) if len(received) > LARGE_BODY else parse()


class Front:
    """An ASGI application that runs turns itself, and leaves everything else to another one."""

    def __init__(self, app: ASGIApp, guard: Guard, complete: Callable[[Request], Awaitable[Response]]) -> None:
        self._app, self._guard, self._complete = app, guard, complete

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] != "POST" or (turn := _TURN.match(scope["path"])) is None:
            await self._app(scope, receive, send)
            return
        response: Response | None = self._guard.refusal(Headers(scope=scope), "POST")
        if response is None:
            scope["path_params"] = {"id": turn[1]}
            request = Request(scope, receive, send)
            try:
                response = await self._complete(request)
            except ClientDisconnect as gone:
                response = await _gone(request, gone)
            except Exception as error:
                await (await _broken(request, error))(scope, receive, send)
                raise  # the server reports it
        await response(scope, receive, send)


async def _nowhere(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """What is behind a guard that is only asked."""


def _refuse_unknown(asked: dict[str, Any], known: Sequence[str], what: str) -> None:
    """Refuse a field that would have no effect: it may be a misspelled one."""
    unknown = set(asked) - set(known)
    if unknown:
        raise InvalidInput(f"unknown field {min(unknown)!r:.80}", hint=f"the fields of {what}: {', '.join(known)}")


def _takes_over(request: Request) -> bool:
    return _says_yes(request, TAKEOVER_HEADER)


def _says_yes(request: Request, header: str) -> bool:
    return request.headers.get(header, "").lower() == "true"


def _session_id(request: Request) -> str:
    """The whole id in the path: over HTTP a prefix or a name is not enough."""
    id = request.path_params["id"].upper()
    if not is_ulid(id):
        raise SessionNotFound("no session has this id")
    return str(id)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, OnrecordError)  # noqa: S101  # Starlette's signature is wider than what it calls this with
    return problem_of(error)


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # as above
    hint = "POST /sessions creates a session; its base URL is /sessions/{session_id}/v1, for Anthropic without /v1"
    said = problem(error.status_code, "no_such_route", str(error.detail), hint=hint, headers=error.headers)
    return in_form(request.url.path, said)


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # the client hung up while it was still sending


async def _broken(request: Request, _error: Exception) -> Response:
    # The server closes the connection after this answer: a client that reuses it would lose its next request.
    headers = {"connection": "close"}
    said = problem(500, "internal", "an error inside onrecord", hint="see the proxy's output", headers=headers)
    return in_form(request.url.path, said)
