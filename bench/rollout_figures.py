"""What the recording proxy costs: per turn, for the first chunk of a stream, in memory, and behind a load balancer.

Each figure compares with the engine itself, or with one proxy, in the same run: the machine may be busy, and both sides
are then measured on the same busy machine.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench.alone import Others, going_first
from bench.report import Figure
from bench.rollout_client import Talk, talk
from examples.rollout.running import Server, proxy
from examples.rollout.tokenizer import make

DIALECT = ("--dialect", "vllm-completions")
SHARE, PERIOD = 0.25, 5_000
"""The share of a processor that a limited proxy has, and the period in which it has it, in microseconds."""
_CGROUPS = Path("/sys/fs/cgroup")
CONTROLS = (
    (
        _CGROUPS / "cpu",
        {"cpu.cfs_period_us": PERIOD, "cpu.cfs_quota_us": int(SHARE * PERIOD), "cpu.shares": 262_144},
    ),
    (_CGROUPS, {"cpu.max": f"{int(SHARE * PERIOD)} {PERIOD}", "cpu.weight": 10_000}),
)
"""How Linux limits the processor time of a process, in control groups of version 1 and of version 2. Below the limit it
goes before everything else: what other programs do must not count."""


def _ours(name: str, *options: str) -> Server:
    root = Path(__file__).resolve().parents[1]
    return Server("-m", f"bench.{name}", *options, environment={"PYTHONPATH": str(root)})


def _engine(*options: str) -> Server:
    return _ours("rollout_engine", *options)


def _processor(server: Server) -> float:
    """The processor time of a server so far, in seconds, by the kernel's exact clock of that process."""
    return time.clock_gettime(~server.process.pid << 3 | 2)


def _memory(server: Server) -> float:
    """The most memory that a server has had, in MiB."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


ENGINE, EMPTY, PROXY = "engine", "empty", "proxy"
"""What a load goes to: the engine itself, the empty proxy of `rollout_limit` in front of it, or ours."""


class Round(NamedTuple):
    """One round: the same load on the engine itself, on the empty proxy and on ours."""

    stream: bool
    others: float
    """How many processors other programs had."""
    loads: dict[str, Talk]
    """By what they went to."""
    used: dict[str, float]
    """The processor time of a turn in the server that was asked, in seconds; likewise."""


def overhead(place: Path, *, quick: bool) -> list[Figure]:
    """64 sessions: how much longer a turn takes through the proxy, and how much later the first chunk of a stream.

    The method: the same client, in this process, talks to the engine itself and to the proxy in front of it, one after
    the other in every round, with prompts of the same number of ids, so what client and engine cost is on both sides
    and drops out. All of them share the machine's processors. They go before all other programs where the system allows
    it, and of all rounds count the quieter half: those in which other programs had the least of the processors.

    An empty proxy in between, which does nothing but two durable commits, shows how much of that is the machine: at 64
    turns a second its processors sleep between two steps, and each step begins with cold caches.
    """
    sessions, turns, latency, rounds = 64, 3, 1.0, 2 if quick else 8
    tokenizer = make(place / "tokenizer")
    how = ("--latency", str(latency), "--tokens", "64", "--chunks", "4")
    done: list[Round] = []
    with (
        going_first() as first,
        _engine(*how) as engine,
        _ours("rollout_limit", "--upstream", engine.url, "--store", str(place / "empty.db")) as empty,
        proxy(place / "store.db", engine.url, tokenizer, *DIALECT) as server,
    ):
        others = Others(lambda: sum(map(_processor, (engine, empty, server))))
        lengths = asyncio.run(talk(Talk([server.url], 1, turns))).lengths
        for number in range(rounds + 1):
            for stream in (False, True):
                loads, used = {}, {}
                others.since()
                for name, asked in ((ENGINE, engine), (EMPTY, empty), (PROXY, server)):
                    if stream and name == EMPTY:
                        continue
                    before = _processor(asked)
                    load = Talk([asked.url], sessions, turns, stream, name != PROXY, latency, lengths=lengths[:turns])
                    loads[name] = asyncio.run(talk(load))
                    used[name] = (_processor(asked) - before) / len(load.asked)
                if number:  # all are warm after the first round
                    done.append(Round(stream, others.since(), loads, used))
    return _overheads(done, f"proxy, {sessions} sessions, engine {latency:g} s", first=first)


def _overheads(done: list[Round], name: str, *, first: bool) -> list[Figure]:
    found = {}
    for stream in (False, True):
        rounds = sorted((one for one in done if one.stream is stream), key=lambda one: one.others)
        found[stream] = rounds[: (len(rounds) + 1) // 2]

    def took(what: str, times: Callable[[Talk], list[float]], *, stream: bool = False) -> float:
        return statistics.median([one for each in found[stream] for one in times(each.loads[what])]) * 1e3

    def cost(what: str, *, stream: bool = False) -> float:
        return statistics.median(one.used[what] for one in found[stream]) * 1e3

    bare, least, turn = (took(what, lambda load: load.asked) for what in (ENGINE, EMPTY, PROXY))
    chunk = [took(what, lambda load: load.chunks, stream=True) for what in (ENGINE, PROXY)]
    idle = f"others had {statistics.mean(one.others for one in found[False]):.1f} of {os.cpu_count()} processors"
    asked = sum(len(one.loads[PROXY].asked) for one in found[False])
    return [
        Figure(
            f"{name}: a turn, over the engine itself", turn - bare, " ms", 3,
            detail=f"{turn / bare:.3f}x, median of {asked} turns, {'' if first else 'not '}going first; {idle}",
        ),
        Figure(
            f"{name}: the same, of an empty proxy with two durable commits", (turn - bare) / (least - bare), "x",
            detail=f"the empty one takes {least - bare:.2f} ms",
        ),
        Figure(f"{name}: first chunk, over the engine itself", chunk[1] - chunk[0], " ms", 2),
        Figure(
            f"{name}: processor time of a turn", cost(PROXY), " ms",
            detail=f"streamed {cost(PROXY, stream=True):.2f} ms; the empty proxy {cost(EMPTY):.2f} ms; "
            f"the engine itself {cost(ENGINE):.2f} ms",
        ),
    ]  # fmt: skip


def many(place: Path, *, quick: bool) -> list[Figure]:
    """A thousand sessions with a turn running at the same time on one proxy: its memory."""
    sessions, turns = (100, 2) if quick else (1_000, 4)
    tokenizer = make(place / "tokenizer")
    with (
        _engine("--latency", "8" if not quick else "1", "--tokens", "512") as engine,
        proxy(place / "store.db", engine.url, tokenizer, *DIALECT) as server,
    ):
        load = Talk([server.url], sessions, turns, prompt="one two three four " * 100, spread=4.0)
        asyncio.run(talk(load))
        memory = _memory(server)
    detail = f"{turns} turns each, {len(load.asked) / load.seconds:.0f} turns/s"
    return [Figure(f"{sessions:,} sessions at once on one proxy: memory", memory, " MiB", 1_024, detail=detail)]


def balanced(place: Path, *, quick: bool) -> list[Figure]:
    """Two proxies on one store, each request at random: turns a second, and processor time of the proxies, of one.

    Engine and agents need processors too. So each proxy gets the same small share of one (`SHARE`), and engine and
    agents go first, where the system allows that: then the proxies are the limit, as they are on a machine with enough
    processors. How far the machine itself lets two such servers get is measured in the same run, with engines in place
    of proxies: they record nothing and share nothing. One and two take turns in every round, and a figure is the median
    of the rounds: what else runs on the machine changes from one minute to the next.
    """
    sessions, turns, rounds = (16, 6, 2) if quick else (32, 20, 5)
    tokenizer = make(place / "tokenizer")
    found: dict[tuple[str, int], list[Shared]] = {(what, count): [] for what in (PROXY, ENGINE) for count in (1, 2)}
    with ExitStack() as running:
        with going_first():
            engine = running.enter_context(_engine("--latency", "0.005", "--tokens", "32"))
        servers = {}
        for what, count in found:
            started = [
                proxy(place / f"store{count}.db", engine.url, tokenizer, *DIALECT) if what == PROXY
                else _engine("--latency", "0.005", "--tokens", "1000")
                for _ in range(count)
            ]  # fmt: skip
            servers[what, count] = [running.enter_context(server) for server in started]

        def load(what: str, count: int, turns: int) -> Talk:
            urls = [server.url for server in servers[what, count]]
            return Talk(urls, sessions, turns, direct=what == ENGINE, lengths=[64] * turns if what == ENGINE else [])

        for what, count in found:
            asyncio.run(talk(load(what, count, 3)))  # warm
        limited = [running.enter_context(_limited(server)) for each in servers.values() for server in each]
        for _ in range(rounds):
            for (what, count), reached in found.items():
                reached.append(_shared(servers[what, count], load(what, count, turns)))
    share = f"each with {SHARE:.0%} of a processor" if all(limited) else f"on {os.cpu_count()} cores"
    return _balances(found, f"random routing over two proxies, {sessions * turns:,} turns", share)


class Shared(NamedTuple):
    """What some servers reached together."""

    rate: float
    """Turns a second."""
    cost: float
    """Their processor time of a turn, in seconds."""
    retries: int


def _shared(servers: list[Server], load: Talk) -> Shared:
    before = sum(map(_processor, servers))
    with going_first():
        asyncio.run(talk(load))
    cost = (sum(map(_processor, servers)) - before) / len(load.asked)
    return Shared(len(load.asked) / load.seconds, cost, load.retries)


def _balances(found: dict[tuple[str, int], list[Shared]], name: str, share: str) -> list[Figure]:
    def gain(what: str) -> float:
        pairs = zip(found[what, 1], found[what, 2], strict=True)
        return statistics.median(two.rate / one.rate for one, two in pairs)

    pairs = list(zip(found[PROXY, 1], found[PROXY, 2], strict=True))
    rates, costs = ([statistics.median(each) for each in zip(*both, strict=True)] for both in (
        [(one.rate, two.rate) for one, two in pairs], [(one.cost * 1e3, two.cost * 1e3) for one, two in pairs],
    ))  # fmt: skip
    retries = sum(one.retries + two.retries for one, two in pairs)
    return [
        Figure(
            f"{name}: turns a second, of one proxy", gain(PROXY), "x", 1.5, at_least=True,
            detail=f"{rates[1]:.0f}/s against {rates[0]:.0f}/s, {share}, {len(pairs)} rounds, {retries} retries",
        ),
        Figure(
            f"{name}: capacity by processor time, of one proxy",
            statistics.median(2 * one.cost / two.cost for one, two in pairs), "x",
            detail=f"{costs[0]:.2f} ms a turn in one, {costs[1]:.2f} ms in two",
        ),
        Figure(
            f"{name}: turns a second, of what two servers that record nothing gain", gain(PROXY) / gain(ENGINE), "x",
            detail=f"they reach {gain(ENGINE):.2f}x of one; likewise",
        ),
    ]  # fmt: skip


@contextmanager
def _limited(server: Server) -> Iterator[bool]:
    """Give a server a share of one processor; yields whether that was possible. Only an administrator may."""
    group = None
    try:
        for root, values in CONTROLS:
            if (root / "cgroup.procs").exists():
                group = root / f"onrecord-bench-{server.process.pid}"
                group.mkdir()
                for name, value in values.items():
                    (group / name).write_text(str(value), encoding="utf-8")
                (group / "cgroup.procs").write_text(str(server.process.pid), encoding="utf-8")
                break
    except OSError:
        _ungroup(group, server)
        group = None
    try:
        yield group is not None
    finally:
        _ungroup(group, server)


def _ungroup(group: Path | None, server: Server) -> None:
    if group is not None:
        with suppress(OSError):
            (group.parent / "cgroup.procs").write_text(str(server.process.pid), encoding="utf-8")
            group.rmdir()
