"""Processes: many writers on one store, simultaneous first opening, and the cost of a cold start."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.report import Figure, ratio, timed

WRITER = """
import json, sys, time, onrecord
from bench.workload import turns
store, name, begin, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
session = onrecord.connect(store, project="bench").open(name)
stock = turns(50)
time.sleep(max(0, begin - time.time()))
samples, end = [], begin + seconds
while time.time() < end:
    start = time.perf_counter()
    session.record_turn(stock[len(samples) % 50])
    samples.append(time.perf_counter() - start)
print(json.dumps({"count": len(samples), "worst": max(samples)}))
"""


def _run(store: Path, writers: int, seconds: float) -> list[dict[str, float]]:
    begin = time.time() + 1.5 + writers * 0.15
    command = [sys.executable, "-c", WRITER, str(store)]
    started = [
        subprocess.Popen([*command, f"w{n}", str(begin), str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for n in range(writers)
    ]
    results = []
    for process in started:
        out, problem = process.communicate(timeout=120)
        if process.returncode:
            raise SystemExit(problem.decode())
        results.append(json.loads(out))
    return results


def writers(place: Path, *, quick: bool) -> list[Figure]:
    """16 writer processes on one store, each on its own session."""
    seconds = 4 if quick else 10
    single = _run(place / "one.db", 1, seconds)[0]["count"] / seconds
    results = _run(place / "many.db", 16, seconds)
    counts = [result["count"] for result in results]
    fairness = sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts))
    worst = max(result["worst"] for result in results) * 1e3
    detail = f"{min(counts):.0f} to {max(counts):.0f} turns each"
    return [
        Figure("16 writer processes, slowest append", worst, " ms", 500, detail=detail),
        Figure("16 writer processes, Jain fairness", fairness, "", 0.95, at_least=True),
        Figure("16 writer processes, rate against one", sum(counts) / seconds / single, "x", 0.4, at_least=True),
    ]


def first_open(place: Path, *, quick: bool) -> list[Figure]:
    """16 processes open one fresh store at once."""
    rounds = 2 if quick else 5
    opened = 0
    code = "import sys, onrecord; onrecord.connect(sys.argv[1], project='b').open(sys.argv[2]).leave()"
    for number in range(rounds):
        store = str(place / f"fresh{number}" / "x.db")
        started = [subprocess.Popen([sys.executable, "-c", code, store, f"s{n}"]) for n in range(16)]
        opened += sum(process.wait() == 0 for process in started)
    return [
        Figure(
            f"fresh store opened by 16 processes at once, {rounds} times", opened / (16 * rounds), "", 1, at_least=True
        )
    ]


def cold_start(place: Path, *, quick: bool) -> list[Figure]:
    """`onrecord version` and a minimal append, against bare interpreters."""
    rounds = 15 if quick else 41
    program = str(Path(sys.executable).with_name("onrecord"))
    environment = {
        "ONRECORD_STORE": str(place / "cold.db"),
        "ONRECORD_PROJECT": "bench",
        "PATH": "/usr/bin:/bin",
        "HOME": str(place),
    }

    def run(*command: str) -> float:
        return timed(lambda: subprocess.run(command, check=True, capture_output=True, env=environment))

    run(program, "open", "cold")
    commands = {
        "pass": [sys.executable, "-c", "pass"],
        "import": [sys.executable, "-c", "import apsw, json"],
        "version": [program, "version"],
        "append": [program, "decide", "use the index", "--session", "cold"],
    }
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            samples[name].append(run(*command))
    detail = ", ".join(f"{name} {statistics.median(found) * 1e3:.0f} ms" for name, found in samples.items())
    return [
        Figure(
            "onrecord version against import apsw, json",
            ratio(samples["version"], samples["import"]),
            "x",
            2,
            detail=detail,
        ),
        Figure("a minimal append against import apsw, json", ratio(samples["append"], samples["import"]), "x", 3),
        Figure("onrecord version against python -c pass", ratio(samples["version"], samples["pass"]), "x"),
        Figure("a minimal append against python -c pass", ratio(samples["append"], samples["pass"]), "x"),
    ]
