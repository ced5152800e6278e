"""The events of an engine's stream: where they end, and what counts."""

import asyncio
from time import monotonic

import pytest

from onrecord.rollout.server.settings import Settings
from onrecord.rollout.server.upstream import Upstream
from tests.rollout.server.test_wire import Scripted

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
FIRST, DONE = b'data: {"a": 1}\n\n', b"data: [DONE]\n\n"


def chunked(*parts):
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


def heard(server, times=1):
    """The events of each answer of a server."""

    async def run():
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        upstream = Upstream(Settings(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", upstream_seconds=30))
        found = [[event async for event in upstream.chunks(b"{}")] for _time in range(times)]
        await upstream.close()
        listening.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        if serving:
            await asyncio.wait(serving, timeout=60)
        await asyncio.sleep(0.01)  # its connections close
        return found

    return asyncio.run(run())


class Holding(Scripted):
    """It keeps a connection open after its last word."""

    async def __call__(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.script[0][0])
        await reader.read()
        await reader.read()
        writer.close()


@pytest.mark.parametrize("head", [b"\r\n", b"content-length: 99999\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n"])
def test_a_stream_ends_with_done(head):
    """An engine that leaves the connection open after `[DONE]` is not waited for."""
    body = chunked(FIRST, DONE) if b"chunked" in head else FIRST + DONE
    began = monotonic()
    assert heard(Holding([HEAD + head + body])) == [[{"a": 1}]]
    assert monotonic() - began < 20


@pytest.mark.parametrize(
    "after", [b"data: {\n\n", b'data: {"error": "x"}\n\n', b"zz\r\n"], ids=["no JSON", "an error", "no chunk"]
)
def test_what_comes_after_done_does_not_count(after):
    """Neither another event nor a broken connection makes a whole reply a failed one."""
    body = chunked(FIRST, DONE) + (chunked(after) if after.startswith(b"data") else after)
    assert heard(Scripted([HEAD + b"transfer-encoding: chunked\r\n\r\n" + body, None])) == [[{"a": 1}]]


def test_the_connection_of_a_whole_stream_is_used_again():
    """The end of the answer is read, so the next turn needs no new connection."""
    whole = HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunked(FIRST, DONE) + b"0\r\n\r\n"
    server = Scripted([whole], [whole])
    assert heard(server, times=2) == [[{"a": 1}]] * 2
    assert server.connections == 1


@pytest.mark.parametrize(
    ("last", "events"),
    [(b'data: {"b": 2}', [{"a": 1}, {"b": 2}]), (b"data: [DONE]", [{"a": 1}]), (b'data: {"b"', [{"a": 1}])],
    ids=["whole", "done", "cut off"],
)
def test_the_last_event_needs_no_newline(last, events):
    """The last event counts without a newline behind it, unless the connection ended inside it."""
    assert heard(Scripted([HEAD + b"\r\n" + FIRST + last, None])) == [events]
