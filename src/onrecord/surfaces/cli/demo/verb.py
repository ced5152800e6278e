"""`onrecord demo`: a worker process is killed in the middle of a turn, a second one continues.

Nothing is staged: the processes are real, the signal is SIGKILL, and everything shown was read from the log or from
the worker's pipe.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.connection import connect
from onrecord.surfaces.cli.demo.stage import PlainStage, Stage
from onrecord.surfaces.cli.demo.worker import SESSION
from onrecord.surfaces.cli.shared.exits import FAILED, OK
from onrecord.surfaces.cli.shared.shapes import item_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call

PROBES_SEEN = 3
"""How many items of the open turn must be acknowledged before the worker is killed."""
PACE_SECONDS = 0.12
"""The pause after each event on a terminal, in seconds."""
PATIENCE_SECONDS = 60.0
"""A demo process that takes longer has hung."""


class Check(NamedTuple):
    """A promise of the demo, and whether it was kept."""

    name: str
    ok: bool
    detail: str


def demo(call: Call) -> int:
    """Show the point, and check everything that is shown."""
    place = _place(call.get("keep"))
    url = f"sqlite:///{place / 'demo.db'}"
    stage: Stage = PlainStage(call.output.line)
    if call.output.json:
        stage = PlainStage(lambda _line: None)
    elif call.output.terminal:
        from onrecord.surfaces.cli.demo.screen import ScreenStage

        stage = ScreenStage()
    pace = PACE_SECONDS if call.output.terminal and "fast" not in call else 0.0
    stage.title("a session outlives its process")
    acknowledged, worker = _be_killed(url, pace, stage)
    with connect(url) as records:
        session = records.get(SESSION)
        survived = _survived(session, acknowledged, stage)
        tail = session.transcript().provisional
    told = _go_on(url, pace, stage)
    acknowledged += [line for line in told if line["what"] == "acknowledged"]
    with connect(url) as records:
        checks = [*survived, *_outcome(records.get(SESSION), acknowledged, told, len(tail))]
    about = {"directory": str(place), "worker": worker, "acknowledged": len(acknowledged)}
    return _finish(call, stage, url, about, checks)


def _place(keep: str | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="onrecord-demo-"))
    place = Path(keep).expanduser().resolve()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (place / "demo.db").exists():
        from onrecord.surfaces.cli.shared.exits import UsageError

        raise UsageError(f"{place} has a demo store already", hint="name another directory")
    return place


@contextmanager
def _process(verb: str, url: str, pace: float) -> Iterator[subprocess.Popen[str]]:
    command = [*machine.own_program(), verb, url, str(pace)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    # A demo process that hangs, or whose parent is stopped, must not stay behind.
    alarm = Timer(PATIENCE_SECONDS, process.kill)
    alarm.daemon = True
    alarm.start()
    with process:
        try:
            yield process
        finally:
            alarm.cancel()
            process.kill()


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The lines the process wrote; an incomplete last line is dropped."""
    for line in process.stdout or ():
        if line.endswith("\n"):
            yield json.loads(line)


def _be_killed(url: str, pace: float, stage: Stage) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Let the worker record, and kill it while it is busy appending to an open turn."""
    acknowledged: list[dict[str, Any]] = []
    with _process("__demo-worker", url, pace) as process:
        stage.step(f"A worker (process {process.pid}) investigates a bug and records each step")
        open_items = -1
        for line in _lines(process):
            if line["what"] == "in the middle of a turn":
                open_items = 0
                continue
            acknowledged.append(line)
            if open_items < PROBES_SEEN:
                stage.event(line["position"], line["kind"], line["text"])
            open_items += open_items >= 0
            if open_items == PROBES_SEEN:
                process.send_signal(signal.SIGKILL)
        status = process.wait()
    stage.step(f"kill -9 {process.pid}, in the middle of a turn", bad=True)
    return acknowledged, {"pid": process.pid, "killed_by": -status}


def _survived(session: Session, acknowledged: list[dict[str, Any]], stage: Stage) -> list[Check]:
    """Compare the events acknowledged to the worker with those in the log."""
    found = {event.position: event.id for event in session.events()}
    there = sum(found.get(line["position"]) == line["id"] for line in acknowledged)
    report = session.verify()
    extra = len(found) - there
    stage.step("What survived")
    stage.fact("acknowledged", f"{len(acknowledged)} events, each reported through a pipe once it was durable")
    stage.fact("in the log", f"{there} of them, by position and id", good=there == len(acknowledged))
    if extra:
        stage.fact("besides", f"{extra} more on disk; the kill came before the report")
    stage.fact("chain", f"{report.events} events verified, last hash {report.hash.hex()[:16]}", good=report.ok)
    for turn in session.transcript().provisional:
        stage.fact(
            "open turn", f"begun at position {turn.begun}, {len(turn.items)} items, never committed: provisional"
        )
        for item in turn.items[:2]:
            stage.quote(item_line(item))
    return [
        Check("acknowledged events survived", there == len(acknowledged), f"{there} of {len(acknowledged)}"),
        Check("the chain verifies after the kill", report.ok, f"{report.events} events"),
    ]


def _go_on(url: str, pace: float, stage: Stage) -> list[dict[str, Any]]:
    """A second process takes over at once and continues."""
    told: list[dict[str, Any]] = []
    with _process("__demo-resume", url, pace) as process:
        stage.step(f"A second process ({process.pid}) resumes")
        for line in _lines(process):
            told.append(line)
            match line["what"]:
                case "took the lane":
                    stage.fact("lane", f"taken over from dead process {line['dead']} in {line['milliseconds']} ms")
                case "read the record":
                    stage.fact("unknown", f"effect {', '.join(line['unknown'])}: no result on record, so not repeated")
                    stage.fact("brief", "what it reads first, from the log:")
                    stage.page(line["brief"])
                    stage.step("It continues")
                case "acknowledged":
                    stage.event(line["position"], line["kind"], line["text"])
                case "superseded the tail":
                    superseded = f"{line['superseded']} interrupted turn, now superseded; it stays in the log"
                    stage.fact("tail", superseded, good=line["provisional"] == 0)
    return told


def _outcome(
    session: Session, acknowledged: list[dict[str, Any]], told: list[dict[str, Any]], tail: int
) -> list[Check]:
    """Read everything once more in this process, which wrote none of it."""
    found = {event.position: event.id for event in session.events()}
    there = sum(found.get(line["position"]) == line["id"] for line in acknowledged)
    took = next((line for line in told if line["what"] == "took the lane"), None)
    transcript, report = session.transcript(), session.verify()
    speed = f"{took['milliseconds']} ms" if took else "never"
    superseded = [turn for turn in transcript.superseded if turn.status == "interrupted"]
    return [
        Check("the interrupted turn was provisional", tail == 1, f"{tail} turn"),
        Check("the dead process's lane was taken at once", took is not None, speed),
        Check("the next commit superseded it", len(superseded) == 1 and not transcript.provisional, "1 turn"),
        Check("everything acknowledged is on record", there == len(acknowledged), f"{there} of {len(acknowledged)}"),
        Check("the chain verifies at the end", report.ok, f"{report.events} events"),
    ]  # fmt: skip


def _finish(call: Call, stage: Stage, url: str, about: dict[str, Any], checks: list[Check]) -> int:
    good = all(check.ok for check in checks)
    commands = [
        f"export ONRECORD_STORE={url}", f"onrecord show {SESSION}", f"onrecord log {SESSION}",
        f"onrecord at {SESSION} 12", f"onrecord diff {SESSION} 12", "onrecord search replica",
        f"onrecord verify {SESSION}",
    ]  # fmt: skip
    if shutil.which("onrecord") is None:
        # Run from a clone, the command is in an environment of its own.
        commands.insert(0, f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH")
    if call.output.json:
        data = {"ok": good, "store": url, "session": SESSION, "commands": commands}
        call.output.envelope("demo", data | about | {"checks": [check._asdict() for check in checks]})
        return OK if good else FAILED
    stage.step("What was promised, checked from the log")
    for check in checks:
        stage.check(check.name, check.detail, ok=check.ok)
    if not good:
        stage.step("A promise was not kept. The store was not deleted; please report this.", bad=True)
    stage.step("Look around; the demo's store was kept")
    stage.commands([*commands, f"rm -r {about['directory']}"])
    return OK if good else FAILED
