"""A load of rollouts over HTTP: many agents at once, a proxy that is killed on the way; the check that nothing is lost.

The mock engine answers as its prompt says, so what every trajectory must be in the end can be worked out without a
proxy (`expected`), id for id. Agents do what real ones do: they send a request again when its reply got lost.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from examples.rollout.engine import Engine
from examples.rollout.running import Server, engine, proxy
from examples.rollout.tokenizer import make
from onrecord.rollout.server.upstream import remember_what_is_missing

PATIENCE_SECONDS = 60.0
"""How long an agent asks again before it gives up."""
PROBE = """
import http.client, json, os, sys, time
host, port, samples = sys.argv[1], int(sys.argv[2]), []
connection = None
while True:
    begin = time.perf_counter()
    try:
        connection = connection or http.client.HTTPConnection(host, port, timeout=10)
        connection.request("GET", "/health")
        connection.getresponse().read()
        samples.append(time.perf_counter() - begin)
    except (OSError, http.client.HTTPException):
        connection = None
    time.sleep(0.01)
    if len(samples) % 20 == 0:
        with open(sys.argv[3] + ".new", "w") as file:
            json.dump(samples, file)
        os.replace(sys.argv[3] + ".new", sys.argv[3])
"""


@dataclass
class Load:
    """What a load was, and what came of it."""

    sessions: int
    turns: int
    kills: int
    seconds: float = 0.0
    answered: int = 0
    asked_again: int = 0
    health: list[float] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    due: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is time for the next kill."""
    killed: int = 0

    def answer(self) -> None:
        """Count an answer."""
        self.answered += 1
        if self.answered >= self.sessions * self.turns * (self.killed + 1) // (self.kills + 1):
            self.due.set()

    def p99_health(self) -> float:
        """The 99th percentile of `/health`, in seconds, while the proxy was up."""
        return sorted(self.health)[int(len(self.health) * 0.99)] if self.health else float("nan")


def prompts(session: int, turn: int) -> str:
    """What the user of a session says in a turn: a sum now and then, else a remark."""
    if turn % 5 == 0:
        return f"What is {session} plus {turn}?"
    return f"Let me see the next one, number {session * 1000 + turn}, please."


def answered(messages: list[dict[str, Any]], message: dict[str, Any], session: int, turn: int) -> None:
    """Go on with a conversation as an agent does."""
    messages.append(message)
    calls = message.get("tool_calls") or []
    if calls:
        result = str(sum(json.loads(calls[0]["function"]["arguments"]).values()))
        messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": result})
    else:
        messages.append({"role": "user", "content": prompts(session, turn + 1)})


def expected(tokenizer: Path, session: int, turns: int) -> list[tuple[list[int], list[int]]]:
    """The prompt and output ids every turn of a session must have, worked out by hand."""
    options = Namespace(tokenizer=str(tokenizer), log=None)
    model = Engine(options)

    def ids_of(text: str) -> list[int]:
        return list(model.tokenizer.encode(text, add_special_tokens=False).ids)

    ids = ids_of(f"<|im_start|>user\n{prompts(session, 0)}<|im_end|>\n<|im_start|>assistant\n")
    found = []
    for turn in range(turns):
        text = model.says(ids)
        output = [*ids_of(text), model.end]
        found.append((ids, output))
        said = f"tool\n{session + _asked_at(turn)}" if "<tool_call>" in text else f"user\n{prompts(session, turn + 1)}"
        ids = ids + output + ids_of("\n") + ids_of(f"<|im_start|>{said}<|im_end|>\n<|im_start|>assistant\n")
    return found


def _asked_at(turn: int) -> int:
    return turn - turn % 5


class Agent:
    """One agent: one session, its turns one after the other, asking again as long as it takes."""

    def __init__(self, load: Load, url: str, number: int, trust: ssl.SSLContext) -> None:
        self.load = load
        self.client = httpx.AsyncClient(base_url=url, timeout=60, verify=trust, trust_env=False)
        self.number = number
        self.id = ""
        self.bodies: list[str] = []

    async def run(self) -> None:
        """Open a session and take all its turns."""
        self.id = (await self.post("/sessions", {"metadata": {"number": self.number}})).json()["session_id"]
        messages = [{"role": "user", "content": prompts(self.number, 0)}]
        for turn in range(self.load.turns):
            request = {"model": "policy", "messages": messages, "stream": False}
            response = await self.post(f"/sessions/{self.id}/v1/chat/completions", request)
            self.bodies.append(response.text)
            self.load.answer()
            answered(messages, response.json()["choices"][0]["message"], self.number, turn)

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send a request until it is answered: the proxy may be gone, or busy."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                response = await self.client.post(path, json=body)
                if response.status_code == 200:
                    return response
                if response.status_code not in (409, 503):
                    raise RuntimeError(f"{path}: {response.status_code} {response.text[:300]}")
            except httpx.TransportError:
                if time.monotonic() > give_up:
                    raise
            self.load.asked_again += 1
            await asyncio.sleep(0.05)

    async def check(self, tokenizer: Path) -> list[str]:
        """Everything that is not as it must be, in words."""
        record = (await self.client.get(f"/sessions/{self.id}?tokens=true")).json()
        wanted = expected(tokenizer, self.number, self.load.turns)
        records = record["records"]
        if len(records) != self.load.turns:
            return [f"session {self.number} has {len(records)} turns on record, not {self.load.turns}"]
        problems, ids = [], list[int]()
        for turn, (one, (prompt, output), body) in enumerate(zip(records, wanted, self.bodies, strict=True)):
            ids = ids[: one["keep"]] + one["prompt_ids"]
            if ids != prompt:
                problems.append(f"session {self.number} turn {turn}: the prompt has other ids")
            if one["output_ids"] != output or one["provisional"]:
                problems.append(f"session {self.number} turn {turn}: the output has other ids")
            if json.loads(body)["choices"][0]["message"] != one["message"]:
                problems.append(f"session {self.number} turn {turn}: the answer was another one than is on record")
            ids = ids + one["output_ids"]
        return problems


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


async def _drive(
    load: Load, place: Path, tokenizer: Path, *, upstream: str, port: int, options: tuple[str, ...]
) -> None:
    url = f"http://127.0.0.1:{port}"

    def start() -> Server:
        return proxy(place / "store.db", upstream, tokenizer, "--port", str(port), *options, log=place / "proxy.log")

    remember_what_is_missing("sniffio")
    trust = httpx.create_ssl_context(trust_env=False)
    agents = [Agent(load, url, number, trust) for number in range(load.sessions)]
    running = start()
    try:
        begin = time.perf_counter()
        work = asyncio.gather(*(agent.run() for agent in agents))
        while load.killed < load.kills:
            await load.due.wait()
            load.due.clear()
            load.killed += 1
            running.kill()
            running = await asyncio.to_thread(start)
        await work
        load.seconds = time.perf_counter() - begin
        for agent in agents:
            load.problems += await agent.check(tokenizer)
            await agent.client.aclose()
    finally:
        ended = await asyncio.to_thread(running.stop)
        if ended:
            load.problems.append(f"the proxy ended with {ended}")


def run_load(place: Path, *, sessions: int, turns: int, kills: int, options: tuple[str, ...] = ()) -> Load:
    """Run a load in this directory, with servers of its own."""
    load, port, kept = Load(sessions, turns, kills), free_port(), place / "health.json"
    tokenizer = make(place / "tokenizer")
    with engine(tokenizer, "--abort-every", "10", "--update-every", "1", log=place / "engine.log") as upstream:
        # A process of its own: what it measures is how the proxy answers, not how busy the agents are.
        probe = subprocess.Popen([sys.executable, "-c", PROBE, "127.0.0.1", str(port), str(kept)])
        try:
            asyncio.run(_drive(load, place, tokenizer, upstream=upstream.url, port=port, options=options))
        finally:
            probe.kill()
            probe.wait()
        load.engine = httpx.get(f"{upstream.url}/stats", trust_env=False).json()
    load.health = json.loads(kept.read_text()) if kept.exists() else []
    return load
