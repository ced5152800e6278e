"""The routes of the page.

    GET  /                               the sessions; ?all=1 of every project
    GET  /list, /search, /cost           the lists filtered, a search through all text, what was used
    GET  /s/{session}                    a session; ?tab=, ?at=POSITION
    GET  /s/{session}/...                its parts: rows, look, view, lanes, event, compare, verify, media
    POST /s/{session}/act                what a person does, with --allow-writes only
    GET  /live                           server-sent events: which sessions moved
    GET  /static/{name}, /health

Answers are rendered here from views; the browser holds no state that the log does not have. Everything that reads the
store runs on threads; the loop only streams.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from onrecord.errors import InvalidInput, NotFound, OnrecordError, StoreReadOnly
from onrecord.log.names import is_ulid
from onrecord.pages.text import shown
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.web.acting import act
from onrecord.web.desk import Desk
from onrecord.web.frame import Frame, assets, document
from onrecord.web.guard import Guard
from onrecord.web.home import HITS_SHOWN, hits, home, lists, project_name
from onrecord.web.live import VIEWERS_LIMIT, WATCHED_LIMIT, Hub
from onrecord.web.read_only import ReadOnly
from onrecord.web.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from starlette.requests import Request

    from onrecord.web.settings import Settings

WORDS_LIMIT = 200
"""The longest search, in characters."""
STATUSES = {
    "session_not_found": 404, "ambiguous_name": 404, "not_found": 404, "event_not_found": 404, "invalid_input": 400,
    "invalid_name": 400, "session_closed": 409, "session_paused": 409, "session_held": 409, "illegal_transition": 409,
    "conflict": 409, "store_read_only": 403, "tenant_refused": 403, "store_busy": 503, "session_erased": 410,
    "payload_erased": 410,
}  # fmt: skip
"""The status of every error that a browser can meet, by its code; any other is 500."""


class Site:
    """One server: its sessions, its viewers, its routes."""

    def __init__(self, records: SessionStore, settings: Settings) -> None:
        self.settings = settings.checked()
        self._writing = records
        self.records = SessionStore(
            ReadOnly(records.store), project=records.project, also=records.also, place=records.place,
            clock=records.clock,
        )  # fmt: skip
        self.shelf = Shelf(self.records)
        self.hub = Hub(self.records)
        self.frame = Frame(
            settings.prefix, assets(), project_name(records.place or records.project), settings.allow_writes,
            settings.person,
        )  # fmt: skip
        self.desk = Desk(self.records, self.shelf, self.frame)

    def application(self) -> Starlette:
        """The page as an ASGI application, behind its guard."""
        return self.routes([Middleware(Guard, settings=self.settings)], self._lifespan)

    def routes(self, before: Sequence[Middleware] = (), lifespan: Callable[..., Any] | None = None) -> Starlette:
        """Only the pages: the caller guards them, and begins and ends the site."""
        routes = [
            Route("/", self.home),
            Route("/list", self.list),
            Route("/search", self.search),
            Route("/cost", self.cost),
            Route("/s/{session}", self.session),
            Route("/s/{session}/rows/{number:int}", self.rows),
            Route("/s/{session}/look", self.look),
            Route("/s/{session}/view/{tab}", self.view),
            Route("/s/{session}/lanes", self.lanes),
            Route("/s/{session}/event/{position:int}", self.event),
            Route("/s/{session}/compare", self.compare),
            Route("/s/{session}/verify", self.verify),
            Route("/s/{session}/media/{position:int}/{line:int}", self.media),
            Route("/s/{session}/act", self.act, methods=["POST"]),
            Route("/live", self.live),
            Route("/static/{name}", self.static),
            Route("/health", self.health),
        ]
        handlers: dict[Any, Callable[..., Any]] = {OnrecordError: self.refused, HTTPException: self.missing}
        return Starlette(routes=routes, exception_handlers=handlers, middleware=[*before], lifespan=lifespan)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self.begin()
        yield
        await self.end()

    def begin(self) -> None:
        """Begin to follow the store, on behalf of the running loop."""
        self.hub.start()
        self.shelf.start()

    async def end(self) -> None:
        """End what `begin` began."""
        self.hub.hush()
        await asyncio.to_thread(self.hub.stop)
        await asyncio.to_thread(self.shelf.stop)

    def end_streams(self) -> None:
        """End what every viewer hears, because the server stops."""
        self.hub.hush()

    # Lists

    def home(self, request: Request) -> Response:
        """The first page."""
        projects = self._projects(request)
        today = self.desk.used_today(everywhere=projects is None)
        return HTMLResponse(home(self.frame, self.shelf, projects, today, self.desk.now()))

    def list(self, request: Request) -> Response:
        """Both lists of the first page, filtered."""
        words = _words(request)
        return HTMLResponse(lists(self.frame, self.shelf, self._projects(request), words, self.desk.now()))

    def search(self, request: Request) -> Response:
        """Events that have all words."""
        words = _words(request)
        project = "" if request.query_params.get("all") else None
        within = request.query_params.get("session")
        session = _id(within) if within else None
        found = self.records.search(words, project=project, session=session, limit=HITS_SHOWN) if words.strip() else []
        return HTMLResponse(hits(self.frame, found, words, self.desk.now()))

    def cost(self, request: Request) -> Response:
        """What the sessions used."""
        everywhere = bool(request.query_params.get("all"))
        return HTMLResponse(self.desk.cost_page(everywhere=everywhere))

    def _projects(self, request: Request) -> tuple[str, ...] | None:
        return None if request.query_params.get("all") else (self.records.project, *self.records.also)

    # A session

    def session(self, request: Request) -> Response:
        """The page of a session."""
        params = request.query_params
        return HTMLResponse(
            self.desk.page(
                request.path_params["session"], params.get("tab", "timeline"), _number(params.get("at")),
                _number(params.get("upto")),
            )
        )  # fmt: skip

    def rows(self, request: Request) -> Response:
        """A stretch of the timeline."""
        body = self.desk.rows(_session(request), request.path_params["number"], _at(request))
        return Response(body, media_type="application/json")

    def look(self, request: Request) -> Response:
        """What surrounds the timeline: state, counts, the left column."""
        return Response(self.desk.look_json(_session(request), _at(request)), media_type="application/json")

    def view(self, request: Request) -> Response:
        """One tab."""
        upto = _number(request.query_params.get("upto"))
        return HTMLResponse(self.desk.view(_session(request), request.path_params["tab"], _at(request), upto))

    def lanes(self, request: Request) -> Response:
        """The picture of a session over time."""
        return HTMLResponse(self.desk.lanes(_session(request)))

    def event(self, request: Request) -> Response:
        """One event."""
        return HTMLResponse(self.desk.event(_session(request), request.path_params["position"]))

    def compare(self, request: Request) -> Response:
        """What changed in meaning between two positions."""
        before, after = (_number(request.query_params.get(name)) for name in ("from", "to"))
        if before is None or after is None:
            raise InvalidInput("two positions are needed: from and to")
        return HTMLResponse(self.desk.compare(_session(request), before, after))

    def verify(self, request: Request) -> Response:
        """Recompute the chain of a session."""
        return JSONResponse(self.desk.verify(_session(request)))

    def media(self, request: Request) -> Response:
        """An image of a conversation."""
        where = request.path_params
        type_, body = self.desk.media(
            _session(request), where["position"], where["line"], request.query_params.get("p", "")
        )
        # Should a browser ever take it for a page: it has no script, no style and no origin.
        kept = "no-store" if self.settings.tenant_header else "private, max-age=3600"
        headers = {"cache-control": kept}
        return Response(body, media_type=type_, headers=headers)

    async def act(self, request: Request) -> Response:
        """Do what a person asks for."""
        if not self.settings.allow_writes:
            raise StoreReadOnly("this page only reads", hint="start it with writes allowed")
        try:
            form = json.loads(await request.body())
        except (ValueError, RecursionError):
            form = None
        if not isinstance(form, dict):
            raise InvalidInput("the request is not a JSON object")
        where = _session(request)

        def do() -> dict[str, Any]:
            id_ = self.records.find(where).session
            with Session(
                self._writing.store, id_, agent=self.settings.person, clock=self._writing.clock
            ) as session:  # it takes no lease, so there is none to release
                event = act(session, form)
            return {"position": event.position, "kind": event.kind}

        return JSONResponse(await run_in_threadpool(do))

    # Live

    async def live(self, request: Request) -> Response:
        """Tell a viewer which sessions moved, until it hangs up."""
        watched = [one for one in request.query_params.getlist("watch") if is_ulid(one)][:WATCHED_LIMIT]
        if len(self.hub.viewers) >= VIEWERS_LIMIT:
            return PlainTextResponse("too many viewers\n", 503, headers={"retry-after": "5"})
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self.hub.stream(frozenset(watched)), media_type="text/event-stream", headers=headers)

    # The rest

    async def static(self, request: Request) -> Response:
        """A file of the page."""
        found = self.frame.assets.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        fixed = request.query_params.get("v") == found.version
        headers = {"cache-control": "private, max-age=31536000, immutable" if fixed else "no-cache"}
        return Response(found.body, media_type=found.type, headers=headers)

    async def health(self, _request: Request) -> Response:
        """Whether the server runs."""
        return PlainTextResponse("ok\n")

    async def refused(self, request: Request, problem: Exception) -> Response:
        """An error in plain words."""
        assert isinstance(problem, OnrecordError)  # noqa: S101  # Starlette chose this handler by its class
        status = STATUSES.get(problem.code, 500)
        if request.method == "POST" or "json" in request.headers.get("accept", ""):
            return JSONResponse({"code": problem.code, "message": problem.message, "hint": problem.hint}, status)
        return self._sentence(status, problem.message, problem.hint)

    async def missing(self, _request: Request, problem: Exception) -> Response:
        """No such page."""
        status = problem.status_code if isinstance(problem, HTTPException) else 500
        return self._sentence(status, "There is no such page.", "")

    def _sentence(self, status: int, sentence: str, hint: str) -> Response:
        more = f'<p class="ev">{shown(hint)}</p>' if hint else ""
        body = (
            f'<header><h1><a href="{self.frame.base}/">onrecord</a></h1></header><main class="wrap"><div class="empty">'
            f"<p><b>{shown(sentence)}</b></p>{more}</div></main>"
        )
        return HTMLResponse(document(self.frame, "onrecord", body, view="plain", data={}), status)


def _words(request: Request) -> str:
    words = request.query_params.get("words", "")
    if len(words) > WORDS_LIMIT:
        raise InvalidInput(f"a search has at most {WORDS_LIMIT} characters")
    return words


def _number(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):  # noqa: PLR2004  # no log is longer
        raise InvalidInput("a position is a whole number")
    return int(text)


def _at(request: Request) -> int | None:
    return _number(request.query_params.get("at"))


def _session(request: Request) -> str:
    return _id(request.path_params["session"])


def _id(text: str) -> str:
    """Parts of a page are asked for by id: a name may move to another session."""
    if not is_ulid(text):
        raise NotFound("a session is named by its id here")
    return text
