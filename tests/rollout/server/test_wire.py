"""HTTP to an engine: every way in which an answer may end, or not."""

import asyncio
from functools import partial

import pytest

from onrecord.rollout.server.wire import Silent, TooLong, Unreachable, Wire

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"


class Scripted:
    """A server that sends these bytes for each request, one entry after the other; None closes the connection."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.connections = 0

    async def __call__(self, reader, writer):
        self.connections += 1
        try:
            while self.script:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                self.requests.append(head + await reader.readexactly(length))
                for said in self.script.pop(0):
                    if said is None:
                        return
                    writer.write(said)
                    await asyncio.sleep(0)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


async def _in_parts(wire):
    async with wire.asked("POST", b"{}") as (answer, parts):
        return answer.status, b"".join([part async for part in parts()])


async def _whole(wire):
    answer, body = await wire.whole("POST", b"{}", 1_000)
    return answer.status, body


FORMS = {"in parts": _in_parts, "whole": _whole}
"""The two ways in which an answer is read."""
PATIENCE_SECONDS = 90.0
"""Nothing here waits so long, unless the machine is busy with something else."""
PATIENCE = {"connect_seconds": PATIENCE_SECONDS, "idle_seconds": PATIENCE_SECONDS}


@pytest.fixture(params=list(FORMS))
def ask(request):
    """What a wire gets for some requests, as `asked` says it, in both ways of reading."""
    return partial(asked, request.param)


def asked(form, server, *, times=1, seconds=PATIENCE_SECONDS, wait=0.0, path=""):
    """What a wire gets for some requests: status and body, or the error."""

    async def run():
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        wire = Wire(f"http://127.0.0.1:{port}{path}", seconds=seconds, **PATIENCE)
        found: list[object] = []
        for _ in range(times):
            try:
                found.append(await FORMS[form](wire))
            except Silent as problem:
                found.append(str(problem))
            except TooLong:
                found.append("longer than allowed")
            await asyncio.sleep(wait)
        wire.close()
        listening.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize(
    "said",
    [
        [OK],
        [OK[:20], OK[20:-2], OK[-2:]],
        [b"HTTP/1.1 100 Continue\r\n\r\n", OK],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nfi\r\n2\r\nne\r\n0\r\nx-trailer: 1\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n\r\nfine", None],
        [b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\nfine", None],
    ],
    ids=["whole", "in parts", "continue", "chunked", "to the end", "old"],
)
def test_an_answer_in_every_form(ask, said):
    """With a length, in chunks, or up to the end of the connection: the body is the same."""
    assert ask(Scripted(said, said), times=2) == [(200, b"fine"), (200, b"fine")]


def test_a_connection_is_used_again(ask):
    """Requests one after the other need one connection; the request has its path, its type and its length."""
    server = Scripted([OK], [OK], [OK])
    ask(server, times=3, path="/v1/completions?x=1")
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /v1/completions?x=1 HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}" in server.requests[0]


def test_a_connection_that_the_engine_closed_is_not_used_again(ask):
    """An engine closes idle connections; the next request gets a new one, and is sent once."""
    server = Scripted([OK, None], [OK])
    assert ask(server, times=2, wait=0.05) == [(200, b"fine"), (200, b"fine")]
    assert (server.connections, len(server.requests)) == (2, 2)


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ([None], "closed the connection"),
        ([OK[:10], None], "closed the connection in its answer"),
        ([OK[:-1], None], "in the middle"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfi", None], "in the middle"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno\r\nfi"], "malformed chunk"),
        ([b"SSH-2.0-x\r\n\r\n"], "not HTTP"),
        ([b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n"], "too long"),
    ],
)
def test_an_answer_that_does_not_come_whole(ask, said, word):
    """It is an error that says what happened, the connection is not used again, and nothing is sent twice."""
    server = Scripted(said, [OK])
    first, second = ask(server, times=2)
    assert word in first
    assert second == (200, b"fine")
    assert len(server.requests) == 2


def test_an_engine_that_says_nothing(ask):
    """A silent engine is given up after the time it may take."""
    assert ask(Scripted([b"HTTP/1.1 200 OK\r\n"], [OK]), seconds=0.05) == ["it said nothing for 0.05 seconds"]


def test_an_engine_that_is_not_there():
    """Without a connection, the engine got nothing: another one may be asked."""

    async def run():
        async with Wire("http://127.0.0.1:9", seconds=PATIENCE_SECONDS, **PATIENCE).asked("GET"):
            raise AssertionError

    with pytest.raises(Unreachable, match=r"127.0.0.1:9: Connection refused"):
        asyncio.run(run())


def test_credentials_in_the_address():
    """A name and a password in the URL go to the engine as HTTP's basic authentication."""
    server = Scripted([OK])

    async def run():
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        wire = Wire(f"http://me:p%40ss@127.0.0.1:{port}", seconds=PATIENCE_SECONDS, **PATIENCE)
        async with wire.asked("GET") as (answer, _parts):
            assert answer.status == 200
        listening.close()

    asyncio.run(run())
    assert b"authorization: Basic bWU6cEBzcw==\r\n" in server.requests[0]
    assert server.requests[0].startswith(b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize("head", [b"content-length: 1001\r\n\r\n", b"\r\n" + b"y" * 1_001])
def test_an_answer_that_is_longer_than_allowed(head):
    """It is refused, with a length and without one; the connection is not used again."""
    server = Scripted([b"HTTP/1.1 200 OK\r\n" + head], [OK])
    assert asked("whole", server, times=2) == ["longer than allowed", (200, b"fine")]
    assert server.connections == 2
