"""An engine for measurements: it costs as little as possible, and takes a chosen time for an answer.

It answers `/v1/completions` like vLLM, by ids, with the same words each time; whole, or in chunks. The text of each
chunk is the moment at which it was sent, in nanoseconds of the monotonic clock, which all processes of a machine share.

    python -m bench.rollout_engine --latency 0.5 --tokens 32 --chunks 4
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import time
from contextlib import suppress

WORD, END = 300, 1
"""Ids; what they mean is of no interest here."""


class Engine(asyncio.Protocol):
    """One connection: requests one after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.received = b""
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
        if found and len(body) >= length:
            self.received = body[length:]
            self.task = asyncio.get_running_loop().create_task(self.answer(json.loads(body[:length])))

    async def answer(self, asked: dict[str, list[int]]) -> None:
        """One answer."""
        assert self.transport is not None
        prompt, count = asked["prompt"], self.options.tokens
        await asyncio.sleep(self.options.latency)
        if not asked.get("stream"):
            body = _json({"id": "b", "choices": [_choice(count, prompt, "stop")], "usage": None})
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self.transport.write(head.encode() + body)
            return
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        for number in range(self.options.chunks):
            last = number == self.options.chunks - 1
            choice = _choice(max(1, count // self.options.chunks), None if number else prompt, "stop" if last else None)
            text = (
                b"data: " + _json({"id": "b", "choices": [choice]}) + b"\n\n" + (b"data: [DONE]\n\n" if last else b"")
            )
            end = b"0\r\n\r\n" if last else b""
            self.transport.write(head.encode() + f"{len(text):x}\r\n".encode() + text + b"\r\n" + end)
            head = ""
            if not last:
                await asyncio.sleep(self.options.between)


def _choice(count: int, prompt: list[int] | None, finish: str | None) -> dict[str, object]:
    ids = [WORD] * (count - 1) + [END if finish else WORD]
    named = {} if prompt is None else {"prompt_token_ids": prompt}
    scores = {"tokens": ["w"] * count, "token_logprobs": [-0.5] * count}
    text = f" {time.monotonic_ns()}"
    return {"index": 0, "text": text, "token_ids": ids, "logprobs": scores, "finish_reason": finish, **named}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


async def _serve(options: argparse.Namespace) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Engine(options), "127.0.0.1", options.port)
    print(f"engine on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--between", type=float, default=0.02)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
