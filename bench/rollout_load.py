"""A load of rollouts over HTTP: many agents, a proxy that is killed in between, and the check that nothing is lost.

The mock engine's answers depend only on its prompt, so `expected` can compute every trajectory without a proxy, id by
id. Agents behave like real ones: they repeat a request if its reply was lost.
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
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import httpx

import onrecord
from examples.rollout.engine import Engine
from examples.rollout.running import Server, engine, proxy
from examples.rollout.tokenizer import make

PATIENCE_SECONDS = 60.0
"""How long an agent retries before it gives up."""
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
    """The parameters of a load, and its results."""

    sessions: int
    turns: int
    kills: int
    random_routing: bool = False
    """Whether every request goes to a random proxy, as behind a load balancer."""
    seconds: float = 0.0
    answered: int = 0
    asked_again: int = 0
    health: list[float] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    due: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the next kill is due."""
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
    """What the user of a session says in a turn: sometimes a sum, usually a remark."""
    if turn % 5 == 0:
        return f"What is {session} plus {turn}?"
    return f"Let me see the next one, number {session * 1000 + turn}, please."


def answered(messages: list[dict[str, Any]], message: dict[str, Any], session: int, turn: int) -> None:
    """Continue a conversation as an agent does."""
    messages.append(message)
    calls = message.get("tool_calls") or []
    if calls:
        result = str(sum(json.loads(calls[0]["function"]["arguments"]).values()))
        messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": result})
    else:
        messages.append({"role": "user", "content": prompts(session, turn + 1)})


def expected(tokenizer: Path, session: int, turns: int) -> list[tuple[list[int], list[int]]]:
    """The prompt and output ids that every turn of a session must have, computed without a proxy."""
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
    """One agent: one session, one turn after the other, with retries as long as necessary."""

    def __init__(self, load: Load, urls: list[str], number: int, trust: ssl.SSLContext) -> None:
        self.load = load
        self.client = httpx.AsyncClient(timeout=60, verify=trust, trust_env=False)
        self.urls = urls
        """The known proxies. The agent stays with one as long as that answers."""
        self.at = number % len(urls)
        self.number = number
        self.random = Random(number)
        self.id = ""
        self.bodies: list[str] = []

    async def run(self) -> None:
        """Open a session and run all its turns."""
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
            if self.load.random_routing:
                self.at = self.random.randrange(len(self.urls))
            try:
                response = await self.client.post(self.urls[self.at] + path, json=body)
                if response.status_code == 200:
                    return response
                if response.status_code not in (409, 503):
                    raise RuntimeError(f"{path}: {response.status_code} {response.text[:300]}")
            except httpx.TransportError:
                self.at = (self.at + 1) % len(self.urls)
                if time.monotonic() > give_up:
                    raise
            self.load.asked_again += 1
            await asyncio.sleep(0.05)

    async def check(self, tokenizer: Path) -> list[str]:
        """Every deviation from the expected result, in plain words."""
        record = (await self.client.get(f"{self.urls[0]}/sessions/{self.id}?tokens=true")).json()
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
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Proxies:
    """The proxies of a load, on one store: each has its own port and returns there after a kill."""

    def __init__(self, place: Path, tokenizer: Path, upstream: str, count: int) -> None:
        self.ports = [free_port() for _ in range(count)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self._words = (place / "store.db", upstream, tokenizer, "--port")
        self._log = place / "proxy.log"
        self._running = [self._start(port) for port in self.ports]

    def _start(self, port: int) -> Server:
        store, upstream, tokenizer, option = self._words
        return proxy(store, upstream, tokenizer, option, str(port), log=self._log)

    def kill(self, number: int) -> None:
        """Kill one."""
        self._running[number].kill()

    def restart(self, number: int) -> None:
        """Restart a killed one."""
        self._running[number] = self._start(self.ports[number])

    def stop(self) -> list[int]:
        """Ask all to stop; returns their exit statuses."""
        return [each.stop() for each in self._running]


async def _drive(load: Load, tokenizer: Path, proxies: Proxies) -> None:
    if find_spec("sniffio") is None:
        # httpx tries to import it at every step of every request, and a search of every directory costs more than that.
        sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]  # None is how Python marks a missing module
    trust = httpx.create_ssl_context(trust_env=False)
    agents = [Agent(load, proxies.urls, number, trust) for number in range(load.sessions)]
    begin = time.perf_counter()
    work = asyncio.gather(*(agent.run() for agent in agents))
    restarts: dict[int, asyncio.Task[None]] = {}
    work.add_done_callback(lambda _work: load.due.set())  # if agents give up there is nothing more to wait for
    while load.killed < load.kills:
        await load.due.wait()
        load.due.clear()
        number = load.killed % len(proxies.ports)
        if number in restarts:
            await restarts[number]
        proxies.kill(number)
        load.killed += 1
        restarts[number] = asyncio.create_task(asyncio.to_thread(proxies.restart, number))
    await asyncio.gather(work, *restarts.values())
    load.seconds = time.perf_counter() - begin
    for agent in agents:
        load.problems += await agent.check(tokenizer)
        await agent.client.aclose()


def run_load(
    place: Path, *, sessions: int, turns: int, kills: int, proxies: int = 1, random_routing: bool = False
) -> Load:
    """Run a load in this directory, with its own servers."""
    load, kept = Load(sessions, turns, kills, random_routing), place / "health.json"
    tokenizer = make(place / "tokenizer")
    with engine(tokenizer, "--abort-every", "10", "--update-every", "1", log=place / "engine.log") as upstream:
        running = Proxies(place, tokenizer, upstream.url, proxies)
        # A process of its own: what it measures is how the proxy answers, not how busy the agents are.
        probe = subprocess.Popen([sys.executable, "-c", PROBE, "127.0.0.1", str(running.ports[0]), str(kept)])
        try:
            asyncio.run(_drive(load, tokenizer, running))
        finally:
            probe.kill()
            probe.wait()
            load.problems += [f"a proxy ended with {status}" for status in running.stop() if status]
        load.engine = httpx.get(f"{upstream.url}/stats", trust_env=False).json()
    load.health = json.loads(kept.read_text()) if kept.exists() else []
    with onrecord.connect(str(place / "store.db")) as records:
        for head in records.sessions(project="", limit=1_000):
            commits = sum(1 for _ in records.get(head.session).events(kinds=("turn.committed",)))
            if commits not in (0, turns):  # a session whose maker never heard of it has none
                load.problems.append(f"{head.name} has {commits} commits in its log for {turns} turns")
    return load
