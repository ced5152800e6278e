"""The short way of turns: as guarded as the long one, and its answers leave in one piece."""

import asyncio
import socket
import time

import httpx

from onrecord.rollout.server.receiving import Whole
from tests.rollout.server.places import code_of, message_of

USER = {"role": "user", "content": "Hello"}


def test_turns_are_guarded_like_every_route(start):
    """A foreign Host and a missing token are refused on the short way too; with the token a turn runs."""
    proxy = start(token="secret", host="127.0.0.1")
    path = f"/sessions/{'0' * 26}/v1/chat/completions"
    body = {"messages": [USER]}
    assert code_of(proxy.http.post(path, json=body)) == (401, "unauthorized")
    proxy.http.headers["authorization"] = "Bearer secret"
    assert code_of(proxy.http.post(path, json=body)) == (404, "session_not_found")
    assert message_of(proxy.chat(proxy.new(), [USER]))["content"] == "Fine."
    assert proxy.http.get(path).status_code == 405
    foreign = httpx.post(f"{start().url}{path}", json=body, headers={"host": "elsewhere.example"}, trust_env=False)
    assert code_of(foreign) == (403, "forbidden")


def test_a_body_that_comes_after_its_head_is_no_head(start):
    """A connection is used again after a long request, and head and body of the next one arrive one after the other."""
    proxy = start()
    long = b"{" + b" " * 200_000 + b"}"
    with socket.create_connection((proxy.http.base_url.host, proxy.http.base_url.port), timeout=20) as connection:
        for body in (long, b"{}", long, b"{}"):
            connection.sendall(
                f"POST /sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            )
            time.sleep(0.1)
            connection.sendall(body)
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200"), answer


class Written:
    """A connection that keeps what is written."""

    def __init__(self):
        self.packets = []
        self.closed = False

    def write(self, data):
        self.packets.append(data)

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def get_extra_info(self, name):
        return name

    def pause_reading(self):
        return "paused"


def test_head_and_body_leave_together():
    """The head of an answer waits for its body; alone, it leaves in the loop's next round or before the end."""

    async def written():
        plain = Written()
        whole = Whole(plain, asyncio.get_running_loop())  # type: ignore[arg-type]  # it has what is used
        whole.write(b"HTTP/1.1 200 OK\r\n\r\n")
        assert plain.packets == []
        whole.write(b"body")
        whole.write(b"more")
        whole.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await asyncio.sleep(0)
        whole.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert not whole.is_closing()
        whole.close()
        assert whole.is_closing()
        assert (whole.get_extra_info("peername"), whole.pause_reading()) == ("peername", "paused")
        return plain.packets

    assert asyncio.run(written()) == [
        b"HTTP/1.1 200 OK\r\n\r\nbody", b"more", b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ]  # fmt: skip
