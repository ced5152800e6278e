"""A web page, or another program of this machine, wants to use a local server with its user's rights, or to stop it."""

import asyncio
import socket
import threading
import time
from contextlib import suppress

import pytest

pytest.importorskip("starlette")

import httpx
import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from onrecord.machine import http_server, receiving
from onrecord.machine.http_server import listen
from onrecord.rollout.server.guard import Guard
from onrecord.rollout.server.serving import config_of
from onrecord.rollout.server.settings import Settings


@pytest.fixture
def guard() -> Guard:
    return Guard(app=None, settings=Settings("http://127.0.0.1:1"))  # type: ignore[arg-type]  # it is not called


HOST = "127.0.0.1:8000"


@pytest.mark.parametrize(
    "origin",
    ["http://127.0.0.1:9999", "http://localhost:8000.evil.example", "null", "http://evil.example", "http://[::1"],
)
def test_a_page_of_another_port_is_another_program(guard, origin):
    """An Origin with another port, host or nothing in it is refused; the proxy's own is accepted."""
    refusal = guard.refusal(Headers({"host": HOST, "origin": origin}))
    assert refusal is not None
    assert refusal.status_code == 403
    assert guard.refusal(Headers({"host": HOST, "origin": f"http://{HOST}"})) is None


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "text/plain; charset=utf-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
)
def test_a_form_is_not_a_request(guard, kind):
    """What a page can send without a preflight is refused; JSON, and a request without a body, are accepted."""
    refusal = guard.refusal(Headers({"host": HOST, "content-type": kind}), "POST")
    assert refusal is not None
    assert refusal.status_code == 415
    assert guard.refusal(Headers({"host": HOST, "content-type": "application/json"}), "POST") is None
    assert guard.refusal(Headers({"host": HOST}), "POST") is None


def test_a_token_must_be_long_and_private(desk, tmp_path):
    """A token file that others may read, or with one letter, is refused before the proxy listens."""
    token = tmp_path / "token"
    words = ("rollout", "serve", "--upstream", "http://127.0.0.1:1", "--tokenizer", "none", "--token-file", str(token))
    token.write_text("x" * 32)
    token.chmod(0o644)
    assert "other users may read the token file" in desk.run(*words).err
    token.chmod(0o600)
    token.write_text("x")
    assert "it needs at least 16" in desk.run(*words).err
    token.write_text("x" * 32)
    assert "token" not in desk.run(*words).err.partition("hint")[0].replace("tokenizer", ""), (
        "the control: another problem"
    )


async def echo(scope, receive, send):
    """Answers a request with the size of its body."""
    if scope["type"] != "http":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    size, more = 0, True
    while more:
        part = await receive()
        size, more = size + len(part.get("body", b"")), part.get("more_body", False)
    await PlainTextResponse(str(size))(scope, receive, send)


CONFIGS = {
    "the proxy": lambda: config_of(echo, 1),
    "page and tools": lambda: http_server.config_of(echo, keep_alive_seconds=75, grace_seconds=1),
}


@pytest.fixture(params=CONFIGS)
def port(monkeypatch, request):
    """The port of a server that treats its clients as one of ours does, with small limits."""
    monkeypatch.setattr(receiving, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(receiving, "SLOW_LIMIT", 5)
    monkeypatch.setattr(receiving, "REQUEST_SECONDS", 1.5)
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(CONFIGS[request.param]())
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(90)


PATIENCE_SECONDS, MOMENT_SECONDS = 60.0, 0.3
HALVES = {
    "nothing": b"",
    "half a header": b"POST / HTTP/1.1\r\nHost: x\r\nContent-",
    "half a body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
    "a second half": b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT",
}


async def left_open(port: int, sent: bytes, count: int, few: int) -> int:
    """How many of these connections the server still has when there are only a few, and a moment later."""
    pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _reader, writer in pairs:
        writer.write(sent)

    async def is_cut_off(reader: asyncio.StreamReader) -> bool:
        try:
            while await reader.read(4096):
                pass
        except ConnectionError:
            pass
        return True

    tasks = [asyncio.create_task(is_cut_off(reader)) for reader, _writer in pairs]
    left: set[asyncio.Task[bool]] = set(tasks)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(left) > few:
            _done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
    if left:
        _done, left = await asyncio.wait(left, timeout=MOMENT_SECONDS)
    for task in left:
        task.cancel()
    for _reader, writer in pairs:
        writer.close()
    return len(left)


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
ENDLESS = {
    "a header": HEAD + b"X-Long: " + b"y" * 400_000,
    "many headers": HEAD + b"X-Long: y\r\n" * 40_000,
    "a chunk's extension": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"y" * 400_000,
    "a trailer": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Long: " + b"y" * 400_000,
}


@pytest.mark.parametrize("endless", ENDLESS)
def test_a_head_without_end_is_refused(port, endless):
    """A client that never ends its headers, its trailers or what is between chunks gets 400, and is cut off."""
    with socket.create_connection(("127.0.0.1", port), timeout=90) as client, suppress(ConnectionError):
        client.sendall(ENDLESS[endless])
        assert client.recv(4096).startswith(b"HTTP/1.1 400")
        while client.recv(4096):
            pass


def test_a_body_in_chunks_of_one_byte(port):
    """Small chunks are no reason to refuse a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        client.sendall(b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")  # at once: the limits of time are short here
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n20000")


@pytest.mark.parametrize("half", HALVES)
def test_half_open_requests_are_few_and_end(port, half, monkeypatch):
    """Of 40 clients that never finish a request, a few stay connected, and those only for a while; others are served."""
    monkeypatch.setattr(receiving, "REQUEST_SECONDS", 2 * PATIENCE_SECONDS)
    assert asyncio.run(left_open(port, HALVES[half], 40, 5)) == 5
    assert httpx.post(f"http://127.0.0.1:{port}/", content=b"x" * 100_000, trust_env=False).text == "100000"
    monkeypatch.setattr(receiving, "REQUEST_SECONDS", 0.5)
    assert asyncio.run(left_open(port, HALVES[half], 3, 0)) == 0


def test_idle_connections_stay(port):
    """Control: a client that finished its requests may think for longer than a request may take."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        client.get("/")
        (before,) = client._transport._pool.connections  # type: ignore[attr-defined]  # which connection it is
        time.sleep(1.8)
        assert client.post("/", content=b"abc").text == "3"
        assert client._transport._pool.connections == [before]  # type: ignore[attr-defined]  # as above
