"""A model server for tests: it does what the prompt says, in four wire formats, and remembers every request.

A prompt is its own script: `[[shell touch a]] [[say hello]]` makes the model call the shell tool first and answer "hello"
once the result is there. So an answer depends on the request alone, also after the program was killed and came back. What
cannot stand in a prompt (the server is overloaded twice, then well again) is set with `ModelServer.fail`.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.e2e.wire import CALLS, FENCED, Anthropic, Completions, Format, Gemini, Responses, Step, can_call, next_step

DRIP_SECONDS = 0.2
DEFAULT_WAIT_SECONDS = 60.0
SHORTEST_REST_SECONDS, LONGEST_REST_SECONDS = 0.02, 0.5
REST = 10
"""How much longer than a check took to wait before the next one."""


class Fault(NamedTuple):
    """An answer that is an error."""

    status: int
    kind: str
    message: str
    headers: Mapping[str, str] = MappingProxyType({})
    about: Mapping[str, Any] = MappingProxyType({})
    """Further fields of the error."""


FAULTS = {
    "rate_limit": Fault(429, "rate_limit_error", "Rate limit reached, try again later.", {"retry-after": "1"}),
    "overload": Fault(529, "overloaded_error", "Overloaded"),
    "unavailable": Fault(503, "server_error", "The model is overloaded. Please try again later."),
    "tokens": Fault(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"),
    "quota": Fault(429, "insufficient_quota", "You exceeded your current quota, please check your plan and billing details."),
}  # fmt: skip
"""Errors in the wording of the vendors' servers. A test may make its own."""


class Received(NamedTuple):
    """A request, as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    main: bool
    """It offers tools, so it is the conversation itself; other requests make titles, summaries and the like."""

    @property
    def text(self) -> str:
        """Its whole text, to search for a phrase; quotes and line ends are as in JSON."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def said(self) -> str:
        """Its text without what a hook injected: the record may quote other agents there."""
        return FENCED.sub("", self.text)


class ModelServer:
    """Listens on a socket it is given (which may come from another network namespace) until closed."""

    def __init__(self, listener: socket.socket) -> None:
        self._http = ThreadingHTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
        self._http.socket.close()
        self._http.socket = listener
        self._http.daemon_threads = True
        self._http.model = self  # type: ignore[attr-defined]  # the way a handler reaches its server
        self.port: int = listener.getsockname()[1]
        self.received: list[Received] = []
        self.closing = threading.Event()
        self.aside = "a title"
        """The answer to a request that offers no tools, as those for titles and summaries."""
        self._faults: list[tuple[str, Fault | Callable[[], Fault]]] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def fail(self, fault: Fault | Callable[[], Fault], times: int, phrase: str = "") -> None:
        """Answer the next `times` requests of a conversation (of one that has a phrase) with an error, perhaps made then."""
        due: list[tuple[str, Fault | Callable[[], Fault]]] = [(phrase, fault)] * times
        with self._changed:
            self._faults = [one for one in self._faults if one[0] != phrase] + due

    def record(self, received: Received) -> tuple[int, Fault | None]:
        """Keep a request; return its number, and the error to answer it with."""
        with self._changed:
            self.received.append(received)
            self._changed.notify_all()
            due = next((one for one in self._faults if received.main and one[0] in received.said), None)
            if due is not None:
                self._faults.remove(due)
            fault = due[1] if due else None
            return len(self.received), fault if isinstance(fault, Fault) or fault is None else fault()

    def conversation(self) -> list[Received]:
        """The requests that offer tools, oldest first."""
        with self._changed:
            return [one for one in self.received if one.main]

    def wait(self, wanted: Callable[[Received], bool], seconds: float = DEFAULT_WAIT_SECONDS) -> Received:
        """The first matching request of a conversation, as soon as it arrives."""

        def found() -> Received | None:
            return next((one for one in self.received if one.main and wanted(one)), None)

        with self._changed:
            hit = self._changed.wait_for(found, seconds)
        if hit is None:
            asked = [one.path for one in self.received]
            raise AssertionError(f"no such request within {seconds} s; there were {asked}")
        return hit


class Handler(BaseHTTPRequestHandler):
    """One connection. Every answer ends it: no program here minds, and nothing is left open when one is killed."""

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the requests are in `ModelServer.received`."""

    @property
    def model(self) -> ModelServer:
        found: ModelServer = self.server.model  # type: ignore[attr-defined]  # see ModelServer
        return found

    def do_GET(self) -> None:
        """Lists of models, and health probes."""
        self.send_json(200, {"object": "list", "data": [{"id": "mock-model", "object": "model"}]})

    do_HEAD = do_GET  # noqa: N815  # the name by which the base class calls it

    def do_POST(self) -> None:
        """A request for an answer."""
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        path = self.path.partition("?")[0]
        wire = format_of(path)
        asked = wire.read(body) if wire else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(path, headers, body, main=bool(asked and asked.tools))
        number, fault = self.model.record(received)
        if wire is None or asked is None:
            known = path.endswith(("/count_tokens", ":countTokens"))
            self.send_json(200 if known else 404, {"input_tokens": 10, "totalTokens": 10} if known else {})
            return
        step = next_step(asked) if asked.tools else Step("say", [self.model.aside])
        if step.verb in CALLS and not can_call(step, asked.tools):
            step = Step("say", [f"there is no tool to {step.verb} with"])
        if step.verb == "fail":
            fault = FAULTS[step.words[0]]
        if fault:
            body = wire.error(fault.status, fault.kind, fault.message)
            self.send_json(fault.status, body | {"error": body["error"] | dict(fault.about)}, fault.headers)
        elif wants_stream(path, body):
            self.stream(wire.write(step, asked, number), forever=step.verb == "drip")
        elif issubclass(wire, Completions | Gemini):
            self.send_json(200, wire.whole(step, asked, number))
        else:
            self.send_json(400, wire.error(400, "invalid_request_error", "only streams are spoken here"))

    def send_json(self, status: int, body: Any, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            "content-type": "application/json",
            "content-length": str(len(data)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def stream(self, frames: Any, *, forever: bool) -> None:
        """Write server-sent events; with `forever`, stop before the end and keep the program waiting for it."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        parts = list(frames)
        if forever:
            del parts[max(1, len(parts) - 2) :]
        try:
            for name, data in parts:
                text = data if isinstance(data, str) else json.dumps(data)
                self.wfile.write((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())
                self.wfile.flush()
            while forever and not self.model.closing.wait(DRIP_SECONDS):
                self.wfile.write(b": still thinking\n\n")
                self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


def format_of(path: str) -> Format | None:
    if path.endswith("/v1/messages"):
        return Anthropic
    if path.endswith("/responses"):
        return Responses
    if path.endswith("/chat/completions"):
        return Completions
    return Gemini if path.endswith((":streamGenerateContent", ":generateContent")) else None


def wants_stream(path: str, body: dict[str, Any]) -> bool:
    return bool(body.get("stream")) or path.endswith(":streamGenerateContent")


def patiently(check: Callable[[], bool], what: str, seconds: float = DEFAULT_WAIT_SECONDS) -> None:
    """Wait until a condition is true. A check that starts a process takes time from what it waits for, so it is made less often."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if check():
            return
        ended = time.monotonic()
        if ended > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(min(LONGEST_REST_SECONDS, max(SHORTEST_REST_SECONDS, REST * (ended - began))))
