"""Turns through every adapter against our own `record_turn` and against each framework's own durable store.

`./dev bench frameworks` measures what is installed: in this environment, or in the one that `./dev frameworks NAME`
made for a framework. By hand: `.venvs/NAME/bin/python bench/frameworks.py [NAME...] [--turns N] [--resumed N]`.

One workload for all: the turns of `workload.turns`. A *turn* is what the framework does for one exchange; a *durable
call* is one call of its store that must be on disk when it returns. ADK and Strands make three for these turns, one for
each event or message; LangGraph makes five for a graph with one node (three checkpoints, the writes of two tasks),
openai-agents one for each save. So each call is compared with `record_turn`, which is one durable call too, whole turns
with the framework's own store, if it has one, and the resume of a session that was saved in several calls also with
that of our own, saved in as many.

A run of openai-agents reads the history, saves the prompt, and saves what the model said (`openai-agents-run`). A whole
turn in one save is measured beside it and has no target there: no run of the framework does that.

Equal durability: the frameworks' own SQLite stores run with `synchronous=FULL`, as ours does, and sync once for each
commit (ADK, which keeps a rollback journal, more often). Strands and agent-framework have files of their own, which are
not synced: those figures have no target.

Ratios are of one run; the samples alternate between the stores, so that a busy machine slows all of them. Turns are
compared by the time until they are durable, by the first quartile and on average, resumes by processor time, because a
reader waits for nothing else. What a framework does with any store (it makes JSON of its messages, and objects of what
it reads) is measured by itself, in the same run: the target is for the rest.

Resumes are of sessions of their own, of 1,000 turns, and in processes of their own. LangGraph's own store writes its
whole state with each checkpoint, 8 GB for 1,000 turns: for the resume it gets all but the last five turns in one step.
Its reader reads the newest row only, so that takes nothing from a resume. Our log has every turn.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "src")]  # not this directory: its modules have names of libraries

from bench.framework_stores import (  # noqa: E402 - the path above makes this a program of its own
    OPENED,
    STEPPING,
    answering,
    connected,
    plain,
    plain_steps,
    step_messages,
    stepping,
)
from bench.framework_table import MEASURED  # noqa: E402 - as above
from bench.report import Figure, show  # noqa: E402 - as above
from bench.workload import text, turns  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.framework_stores import Pair, Write
    from bench.framework_table import Measured

STEPS = 100
"""How many durable calls of LangGraph are measured by themselves, after the turns."""
RESUMED = 1_000
"""The turns of the sessions whose resumes are compared."""
ROUNDS, RESUMES = 3, 5
"""In how many processes each is resumed, and how often. The quickest counts: others only ever add to it."""
LAST = 5
"""The turns that are always written as a run writes them."""
GROWN = 400
"""The turns of the thread whose bytes are compared with its text."""


def size_of(place: Path) -> int:
    """The bytes of a store's files, its write-ahead log copied into the database."""
    if (place / "x.db").exists():
        with sqlite3.connect(place / "x.db") as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
    files = [file for file in place.rglob("*") if file.is_file() and file.suffix not in (".lock", ".db-shm")]
    return sum(file.stat().st_size for file in files)


class Cost(NamedTuple):
    """What something took: milliseconds, milliseconds of the processor, and milliseconds on average."""

    wall: float
    processor: float
    mean: float = 0.0

    def __str__(self) -> str:
        return f"{self.wall:.2f} ms, {self.processor:.2f} of the processor"


async def measured(name: str, count: int, long: int, place: Path) -> list[Figure]:
    """Append the same turns to the stores in alternation, then read sessions of `long` turns; ratios of them."""
    about = MEASURED[name]
    made = await stores_of(name, place)
    stock = turns(count + STEPS)
    writers = {which: write for which, (write, _read) in made.items()}
    if about.encoding:
        (place / "bytes").mkdir()
        writers |= {"encoding": about.encoding(), "bytes": (await plain(place / "bytes"))[0]}
    turn = await alternated(writers, stock[:count], about)
    call, against = turn["ours"].wall / about.calls, turn["plain"].wall
    if name == "langgraph":
        steppers = {which: stepping(STEPPING[which]) for which in ("ours", "theirs")}
        both = {"plain": writers["plain"], **steppers}
        step = await alternated(both, stock[count:], about._replace(made=step_messages))
        call, against = step["ours"].wall / 2, step["plain"].wall
    close_all()
    if "calls" not in about.aims:
        return _turns(name, turn)
    resumed = await resumes(name, long, place)
    found = [
        Figure(f"{name}: a durable call against record_turn", call / against, "x", None if about.encoding else 2.0,
               detail=f"a turn: {turn['ours']}; record_turn: {turn['plain']}"),
        *_encoding_apart(name, call, turn),
        *_in_steps(name, turn),
        *_resumes(name, resumed, about.decoding and about.decoding(turns(long))),
        *going_on(name, place),
    ]  # fmt: skip
    if "theirs" not in made:
        return found
    size = {which: size_of(place / which) for which in made}
    return [*found, *_against_its_own(name, turn, resumed, size)]


async def stores_of(name: str, place: Path) -> dict[str, Pair]:
    """The stores that are compared, each in a directory of its own."""
    about = MEASURED[name]
    stores = {"plain": plain, "ours": about.ours, "theirs": about.theirs}
    if about.calls > 1:
        stores["steps"] = plain_steps
    made: dict[str, Pair] = {}
    for which, store in stores.items():
        if store is not None:
            (place / which).mkdir(parents=True)
            made[which] = await store(place / which)
    return made


async def resumes(name: str, count: int, place: Path) -> dict[str, Cost]:
    """What it takes to read a session of so many turns, in each store; the samples alternate."""
    about, stock, place = MEASURED[name], turns(count), place / "resumed"
    made = await stores_of(name, place)
    for which, (write, _read) in made.items():
        rest = stock
        if which == "theirs" and about.at_once and count > LAST:
            about.at_once(place / which, stock[:-LAST])
            rest = stock[-LAST:]
        for turn in rest:
            await write(turn if which in ("plain", "steps") else about.made(turn))
    found: dict[str, list[Cost]] = {which: [] for which in made}
    for _round in range(ROUNDS):
        for which, (_write, read) in made.items():
            found[which] += _resumed_elsewhere(read)
    close_all()
    return {which: min(costs, key=lambda one: one.processor) for which, costs in found.items()}


def going_on(name: str, place: Path) -> list[Figure]:
    """Resumes of the same sessions, each with the next turn, against the framework's own store."""
    about, turn = MEASURED[name], turns(1)[0]
    if about.going_on is None:
        return []
    found: dict[str, list[Cost]] = {which: [] for which in about.going_on}
    for _round in range(ROUNDS):
        for which, go_on in about.going_on.items():
            found[which] += _resumed_elsewhere(partial(go_on, place / "resumed" / which, turn))
    ours, theirs = (min(found[which], key=lambda one: one.processor) for which in ("ours", "theirs"))
    return [
        Figure(f"{name}: resume and the next turn, against its own store", ours.processor / theirs.processor, "x", 1.0,
               detail=f"ours: {ours}; its own: {theirs}")
    ]  # fmt: skip


def close_all() -> None:
    """Close the stores that were opened."""
    for store in OPENED:
        store.close()
    OPENED.clear()


def _encoding_apart(name: str, call: float, turn: dict[str, Cost]) -> list[Figure]:
    if "encoding" not in turn:
        return []
    least, same = turn["encoding"].wall, turn["bytes"]
    return [
        Figure(f"{name}: against record_turn of its bytes, its encoding apart", (call - least) / same.wall, "x", 2.0,
               detail=f"its own part of a save: {least:.2f} ms, with any store; record_turn of its bytes: {same}")
    ]  # fmt: skip


def _in_steps(name: str, turn: dict[str, Cost]) -> list[Figure]:
    if "steps" not in turn:
        return []
    ratio = turn["ours"].wall / turn["steps"].wall
    return [Figure(f"{name}: a turn against ours in three commits", ratio, "x", detail=f"ours: {turn['steps']}")]


def _resumes(name: str, resumed: dict[str, Cost], decode: Callable[[], object] | None) -> list[Figure]:
    """Resumes against those of our own sessions; what has a target is the one with more commits, decoding apart."""
    whole, count = resumed["ours"], {"plain": "", "steps": " in three commits"}
    in_steps = "steps" in resumed
    found = [
        Figure(f"{name}: resume against ours{said}", whole.processor / resumed[of].processor, "x",
               2.0 if decode is None and (of == "steps") == in_steps else None, detail=f"{whole}; ours: {resumed[of]}")
        for of, said in count.items()
        if of in resumed
    ]  # fmt: skip
    if decode is not None:
        least = min(timed_on_processor(decode) for _round in range(7))
        base = resumed["steps" if in_steps else "plain"].processor
        found.append(
            Figure(f"{name}: the same, its decoding apart", (whole.processor - least) / base, "x", 2.0,
                   detail=f"the framework decodes the messages in {least:.2f} ms, with any store")
        )  # fmt: skip
    return found


def _own(name: str) -> tuple[str, float | None]:
    """What the framework's own store is, and the target against it: none if it does not sync what it writes."""
    return ("its own store", 1.0) if MEASURED[name].durable else ("its own files, not synced", None)


def _turns(name: str, turn: dict[str, Cost]) -> list[Figure]:
    own, most = _own(name)
    aim = most if "turns" in MEASURED[name].aims else None
    return [
        Figure(f"{name}: a turn against {own}", turn["ours"].wall / turn["theirs"].wall, "x", aim,
               detail=f"ours: {turn['ours']}; its own: {turn['theirs']}"),
        Figure(f"{name}: a turn against {own}, on average", turn["ours"].mean / turn["theirs"].mean, "x", aim,
               detail=f"{turn['ours'].mean:.2f} and {turn['theirs'].mean:.2f} ms, with every checkpoint"),
    ]  # fmt: skip


def _against_its_own(
    name: str, turn: dict[str, Cost], resumed: dict[str, Cost], size: dict[str, int]
) -> list[Figure]:  # fmt: skip
    own, most = _own(name)
    return [
        *_turns(name, turn),
        Figure(f"{name}: resume against {own}", resumed["ours"].processor / resumed["theirs"].processor, "x", most,
               detail=f"its own: {resumed['theirs']}"),
        Figure(f"{name}: bytes against {own}", size["ours"] / size["theirs"], "x", 0.7, detail=f"{size['ours']:,}"),
    ]  # fmt: skip


def timed_on_processor(call: Callable[[], object]) -> float:
    """Milliseconds of the processor that a call takes."""
    begun = time.process_time()
    call()
    return (time.process_time() - begun) * 1e3


async def alternated(writers: dict[str, Write], stock: list[Any], about: Measured) -> dict[str, Cost]:
    """What a write takes in each store, one after the other with each turn, each as often the first one."""
    spent: dict[str, list[tuple[float, float]]] = {which: [] for which in writers}
    order = list(writers)
    for turn in stock:
        for which in order:
            given = turn if which in ("plain", "steps") else about.made(turn)
            given = [{"role": "user", "content": about.text(given)}] if which == "bytes" else given
            begun, used = time.perf_counter(), time.process_time()
            await writers[which](given)
            spent[which].append((time.perf_counter() - begun, time.process_time() - used))
        order.append(order.pop(0))
    return {which: _quick(times) for which, times in spent.items()}


def _quick(times: list[tuple[float, float]]) -> Cost:
    """The first quartile: what other processes add to the rest says nothing about the store."""
    wall, processor = (sorted(one)[len(times) // 4] * 1e3 for one in zip(*times, strict=True))
    return Cost(wall, processor, sum(one for one, _processor in times) / len(times) * 1e3)


def _resumed_elsewhere(read: Callable[[], Awaitable[int]]) -> list[Cost]:
    """Resumes in a process of their own: in one that reads several stores in turn, each finds the memory of another."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        try:
            costs = [asyncio.run(_resumed(read)) for _round in range(RESUMES)]
            os.write(sending, json.dumps(costs).encode())
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as answer:
        costs = [Cost(*one) for one in json.load(answer)]
    os.waitpid(child, 0)
    return costs


async def _resumed(read: Callable[[], Awaitable[int]]) -> Cost:
    begun, used = time.perf_counter(), time.process_time()
    await read()
    return Cost((time.perf_counter() - begun) * 1e3, (time.process_time() - used) * 1e3)


def grown(place: Path, count: int) -> list[Figure]:
    """The bytes of a thread of LangGraph for each byte of its text: words, and letters that cannot be compressed."""
    from langchain_core.messages import AIMessage, HumanMessage

    from onrecord.frameworks.langgraph import OnrecordSaver

    source = random.Random(4)
    letters = "".join(chr(one) for one in range(48, 112))
    figures = []
    for kind, target in (("words", 1.5), ("random letters", None)):
        where = place / kind.replace(" ", "-")
        where.mkdir()
        said: list[Any] = []
        graph = answering(OnrecordSaver(connected(where)), said)
        whole = 0
        for _turn in range(count):
            asked, answer = (
                text(source, 1_000) if kind == "words" else "".join(source.choices(letters, k=1_000)) for _ in range(2)
            )
            said[:] = [AIMessage(answer)]
            graph.invoke({"messages": [HumanMessage(asked)]}, {"configurable": {"thread_id": "s"}})
            whole += len(asked) + len(answer)
        OPENED.pop().close()
        size = size_of(where)
        about = f"{count} turns of 2 KB, {size:,} bytes"
        figures.append(Figure(f"langgraph: bytes against the text, {kind}", size / whole, "x", target, detail=about))
    return figures


def frameworks(place: Path, *, quick: bool) -> list[Figure]:
    """Every framework that is installed, here or in an environment of its own."""
    figures: list[Figure] = []
    count, long = (50, 100) if quick else (0, RESUMED)
    for name, about in MEASURED.items():
        (place / name).mkdir()
        if is_installed(about.module):
            figures += all_of(name, count, long, place / name)
            continue
        python = ROOT / ".venvs" / about.environment / "bin" / "python"
        if not python.exists():
            print(f"  {name} is not measured: ./dev frameworks {name} makes its environment", file=sys.stderr)
            continue
        command = [
            str(python),
            "-W",
            "ignore",
            __file__,
            name,
            "--turns",
            str(count),
            "--resumed",
            str(long),
            "--json",
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures += [Figure(*one) for one in json.loads(done.stdout.splitlines()[-1])]
    return figures


def is_installed(module: str) -> bool:
    """Whether a module can be imported here."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def all_of(name: str, count: int, long: int, place: Path) -> list[Figure]:
    """The figures of one framework: appends of `count` turns (0: as many as the table says), resumes of `long` ones."""
    found = asyncio.run(measured(name, count or MEASURED[name].appends, long, place))
    return found + (grown(place, min(long, GROWN)) if name == "langgraph" else [])


def main() -> None:
    """Measure what was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MEASURED)}")
    parser.add_argument("--turns", type=int, default=0, help="the turns that are appended, unless as in the table")
    parser.add_argument("--resumed", type=int, default=RESUMED, help="the turns of the sessions that are resumed")
    parser.add_argument("--json", action="store_true", help="the figures as one line of JSON")
    chosen = parser.parse_args()
    for name in chosen.names:
        if name not in MEASURED:
            parser.error(f"{name!r} is not measured; there are {', '.join(MEASURED)}")
    for name in chosen.names:
        with tempfile.TemporaryDirectory(prefix="onrecord-bench-", ignore_cleanup_errors=True) as place:
            figures = all_of(name, chosen.turns, chosen.resumed, Path(place))
        if chosen.json:
            print(json.dumps(figures))
        else:
            show(figures)


if __name__ == "__main__":
    main()
