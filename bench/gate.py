"""The gate: one decision in a new process on a long session, against a bare interpreter with the same driver."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

import onrecord
from bench.report import Figure, ratio, timed
from bench.workload import turns

PROGRAM = "import sys\nfrom onrecord.surfaces.entry import main\nsys.exit(main())\n"
"""The program as uv and pip write it. Older versions of pip import `re` in it: a quarter of a bare process more."""
EVENTS = 10_000
AGENT = "main"


def fill(store: Path, count: int) -> None:
    """A session of `count` events: turns with usage, attempts, findings, decisions, a budget."""
    stock = turns(200)
    session = onrecord.connect(str(store), project="bench").open(
        "long", agent=AGENT, objective="measure", budget={"steps": 1e6}
    )
    number = 0
    while session.head.position < count:
        number += 1
        session.record_turn(stock[number % len(stock)], usage={"model": "m", "input_tokens": 900, "output_tokens": 80})
        if number % 5 == 0:
            session.decide(f"decision {number}")
        if number % 8 == 0:
            command = ["pytest", "-k", f"case_{number % 97}"]
            session.attempts.start(
                command, cwd="/project", revision={"revision": "a" * 40, "dirty": "b" * 64}, watched=True
            )
            session.attempts.settle(None, "failed", error=f"AssertionError: case {number}", fix="none", exit_code=1)
        if number % 50 == 0:
            evidence = [session.evidence.record("log", id=f"run-{number}", reference="x").data["id"]]
            anchors: list[onrecord.Anchor] = [{"path": f"src/part_{number}.py", "fingerprint": "c" * 64}]
            session.findings.state(f"part {number} is the cause", "rejected", evidence=evidence, anchors=anchors)
    session.leave()
    session.store.close()


def installed(place: Path) -> str:
    """The program in a directory of its own, as an installer of today leaves it."""
    path = place / "bin" / "onrecord"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{PROGRAM}")
    path.chmod(0o755)
    return str(path)


def decision(place: Path, *, quick: bool) -> list[Figure]:
    """A plain allow, which writes nothing, and a deny, which is on record before the command answers."""
    rounds = 15 if quick else 61
    program = installed(place)
    store = place / "gate.db"
    fill(store, EVENTS)
    environment = {
        "ONRECORD_STORE": str(store), "ONRECORD_PROJECT": "bench", "ONRECORD_AGENT": AGENT, "PATH": "/usr/bin:/bin",
        "HOME": str(place), "PYTHONPATH": ":".join(path for path in sys.path if path.endswith("src")),
    }  # fmt: skip

    def run(*command: str, code: int = 0) -> float:
        def go() -> None:
            # Not in a checkout of ours: it has a directory `bench`, which would be the project that is named so.
            done = subprocess.run(command, capture_output=True, env=environment, check=False, cwd=place)
            assert done.returncode == code, done

        return timed(go)

    bare = [sys.executable, "-c", "import apsw, json"]
    edit = [program, "gate", "--tool", "Edit", "--path", "src/auth.py", "--json"]
    command = [program, "gate", "--tool", "Bash", "--command", "pytest -k new", "--json"]
    samples: dict[str, list[float]] = {"bare": [], "edit": [], "run": []}
    for _ in range(rounds + 2):
        samples["bare"].append(run(*bare))
        samples["edit"].append(run(*edit))
        samples["run"].append(run(*command))
    run(program, "pause", "long")
    for _ in range(rounds // 3):
        # Another agent each time: a repeated refusal becomes a question.
        name = f"agent-{len(samples.setdefault('deny', []))}"
        samples["deny"].append(run(*edit, "--session", "long", "--agent", name, code=10))
    detail = ", ".join(f"{name} {statistics.median(found) * 1e3:.1f} ms" for name, found in samples.items())
    return [
        Figure(
            f"gate, plain allow of an edit, {EVENTS:,} events, against import apsw, json",
            ratio(samples["edit"][2:], samples["bare"][2:]), "x", 1.5, detail=detail,
        ),
        Figure("gate, plain allow of a run, the same", ratio(samples["run"][2:], samples["bare"][2:]), "x", 1.5),
        Figure("gate, deny, durably on record, the same", ratio(samples["deny"], samples["bare"][2:]), "x"),
    ]  # fmt: skip
