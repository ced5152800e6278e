"""Agents for measurements: many conversations on raw sockets, in one process, at little cost.

A conversation is a session with some turns. Each turn may go to another proxy, as behind a load balancer. What is
measured is when the first chunk and the whole answer arrive.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Talk:
    """A load, and what it measured."""

    urls: list[str]
    """The proxies; or engines, with `direct`."""
    sessions: int
    turns: int
    stream: bool = False
    direct: bool = False
    """Whether the requests go to an engine itself."""
    spread: float = 0.0
    """Over how many seconds the sessions begin."""
    prompt: str = "one two three four five six seven eight"
    lengths: list[int] = field(default_factory=list)
    """How many ids the prompt of each turn has; through a proxy, as it reports them."""
    asked: list[float] = field(default_factory=list)
    """How long each turn took, in seconds."""
    chunks: list[float] = field(default_factory=list)
    """How long after the engine had sent it each first chunk arrived."""
    retries: int = 0
    seconds: float = 0.0


class Connection:
    """One connection to one server: a request, then its answer."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self.host, self.port = where.hostname, where.port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes, float, float]:
        """Status, body, and when the first part of it and the last arrived."""
        data = json.dumps(body).encode()
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, self.port, limit=2**24)
        reader, writer = self.streams
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n".encode()
            + data
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in head:
            parts, first = [], 0.0
            while size := int((await reader.readline()).strip() or b"0", 16):
                parts.append((await reader.readexactly(size + 2))[:-2])
                first = first or time.monotonic()
            await reader.readline()
            return status, b"".join(parts), first, time.monotonic()
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        found = await reader.readexactly(length)
        now = time.monotonic()
        return status, found, now, now

    def close(self) -> None:
        """Close it."""
        if self.streams is not None:
            self.streams[1].close()


async def talk(load: Talk) -> Talk:
    """Run a load."""
    begin = time.monotonic()
    await asyncio.gather(*(_converse(load, number) for number in range(load.sessions)))
    load.seconds = time.monotonic() - begin
    return load


async def _converse(load: Talk, number: int) -> None:
    await asyncio.sleep(load.spread * number / load.sessions)
    at, connections = Random(number), [Connection(url) for url in load.urls]
    try:
        path = "/v1/completions"
        if not load.direct:
            _status, made, _first, _end = await connections[at.randrange(len(connections))].post("/sessions", {})
            path = f"/sessions/{json.loads(made)['session_id']}/v1/chat/completions"
        messages: list[dict[str, Any]] = []
        for turn in range(load.turns):
            messages = [*messages, {"role": "user", "content": f"{load.prompt} {number} {turn}"}]
            if load.direct:
                asked: dict[str, Any] = {"model": "policy", "prompt": [5] * load.lengths[turn], "logprobs": 0}
            else:
                asked = {"model": "policy", "messages": messages}
            said = await _turn(load, connections, at, path, {**asked, "stream": load.stream})
            messages = [*messages, {"role": "assistant", "content": said}]
    finally:
        for connection in connections:
            connection.close()


async def _turn(load: Talk, connections: list[Connection], at: Random, path: str, body: dict[str, Any]) -> str:
    while True:
        connection = connections[at.randrange(len(connections))]
        begin = time.monotonic()
        status, found, first, end = await connection.post(path, body)
        if status == 200:
            break
        if status not in (409, 503):
            raise RuntimeError(f"{path}: {status} {found[:300]!r}")
        load.retries += 1
        await asyncio.sleep(0.005)
    load.asked.append(end - begin)
    said = _text(found, stream=load.stream, direct=load.direct)
    if not load.direct and not load.stream:
        load.lengths.append(json.loads(found)["usage"]["prompt_tokens"])
    if load.stream:
        load.chunks.append(first - int(said.split()[0]) / 1e9)
    return said


def _text(found: bytes, *, stream: bool, direct: bool) -> str:
    if not stream:
        choice = json.loads(found)["choices"][0]
        return str(choice["text"] if direct else choice["message"]["content"])
    text = ""
    for line in found.split(b"\n"):
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                text += str((choice.get("text") if direct else choice["delta"].get("content")) or "")
    return text
