"""The scenes: how a session ended, and who continues it. Each returns the first request of the next agent."""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.coldstart.facts import (
    NEEDED,
    OBJECTIVE,
    SESSIONS,
    Fact,
    known,
    on_record,
    progress_file,
    repeated,
    told,
    upto,
)
from onrecord.vendors import port
from tests.e2e.lab import Lab
from tests.e2e.modelserver import Received, patiently
from tests.e2e.terminal import Terminal
from tests.e2e.test_claude import TestClaude
from tests.e2e.test_codex import TestCodex
from tests.e2e.test_copilot import TestCopilot
from tests.e2e.test_gemini import TestGemini
from tests.e2e.test_opencode import TestOpencode
from tests.e2e.wire import FENCED

NAME = "cold"
GO_ON = "Continue the work. [[say I will]]"
PAUSE = "[[shell touch under-way && sleep 600]]"
SETTLED_SECONDS = 4.0
"""Time that a program needs to write a compacted conversation."""
READY = {suite.programs[0]: suite.ready for suite in (TestClaude, TestCodex, TestCopilot, TestGemini, TestOpencode)}
"""What each screen shows when it accepts a command."""
WITHIN = 4 * 1024
"""How many bytes of our own text must be enough."""
SUMMARY_EVERY = 3
"""The model server summarises by keeping every third line: about what a summary of a few sentences can hold."""


class Seen(NamedTuple):
    """What one agent's first request contained."""

    vendor: str
    condition: str
    ours: bool
    facts: list[Fact]
    """What was planted by then."""
    found: list[Fact]
    in_ours: list[Fact]
    """What the first 4 KB of our own text contain."""
    size: int
    """Bytes more than a fresh start of the same agent in the same repository."""
    own: int
    """Bytes of our own text."""
    again: list[str]
    """Finished steps that a reader of this request would repeat."""

    @classmethod
    def failed(cls, vendor: str, condition: str) -> Seen:
        """A program that did not do its part: it is reported, without facts."""
        return cls(vendor, condition, ours=False, facts=[], found=[], in_ours=[], size=0, own=0, again=[])

    @property
    def needed(self) -> tuple[int, int]:
        """How many of the facts without which work is repeated are there, and how many there are."""
        return (
            sum(fact.kind in NEEDED for fact in (self.in_ours if self.ours else self.found)),
            sum(fact.kind in NEEDED for fact in self.facts),
        )


class Compacted(NamedTuple):
    """How a person compacts a conversation: in a terminal, by a command of the program."""

    command: str
    resume: tuple[str, ...]
    """The words after the program's name that resume a conversation in a terminal."""
    done: str
    """What the screen shows afterwards."""


COMPACTED_BY = {
    "claude": Compacted("/compact", ("--resume", "{}"), r"Compacted"),
    "codex": Compacted("/compact", ("resume", "{}"), r"Context compacted"),
    "gemini": Compacted("/compress", ("-r", "{}"), r"Chat history compressed"),
    "copilot": Compacted("/compact", ("--resume={}",), r"Compaction completed"),
    "opencode": Compacted("/compact", ("-s", "{}"), r"▣\s+Compaction"),
}
"""Qwen Code is missing: it declines ("Compression was not beneficial for this history size")."""


class Stage:
    """A laboratory with two vendors' programs, and the scripts that plant facts."""

    def __init__(self, root: Path, vendor: str, other: str) -> None:
        self.vendor, self.other = vendor, other
        self.lab = Lab(root, [vendor, other])
        # Below the project, because some agents may not leave it, and not among its files, which agents may read.
        self.scripts = self.lab.project / ".git" / "planted"
        self.scripts.mkdir()
        self.probe = self.scripts / "probe.sh"
        self.probe.write_text("echo '403: no membership' >&2; exit 1\n")
        for session in SESSIONS:
            (self.scripts / f"record-{session}.sh").write_text(on_record(session, self.probe))
            (self.scripts / f"tell-{session}.sh").write_text(told(session))
        self.fresh: dict[str, int] = {}
        """The size of a fresh request of each vendor's agent: only the bytes on top of it count."""

    def close(self) -> None:
        """End every program and remove the laboratory."""
        self.lab.close()
        shutil.rmtree(self.lab.root, ignore_errors=True)

    def plant(self, session: int, *, how: str = "record") -> str:
        """The prompt that makes an agent run the script of a session."""
        return f"Work on it. [[shell sh .git/planted/{how}-{session}.sh]]"

    def onrecord(self, *words: str, cwd: Path | None = None) -> str:
        """Run our command; its output."""
        done = self.lab.run([sys.executable, "-m", "onrecord", *words], cwd=cwd)
        if done.status:
            raise RuntimeError(f"onrecord {' '.join(words)} failed: {done.err}{done.out}")
        return done.out

    def first(self, before: int, position: int = 0) -> Received:
        """The first request of a conversation after so many."""
        found = self.lab.server.conversation()[before:]
        if len(found) <= position:
            raise RuntimeError("the agent sent no request")
        return found[position]

    def count(self) -> int:
        """How many requests there were so far."""
        return len(self.lab.server.conversation())

    def seen(self, condition: str, request: Received, session: int, *, ours: bool = False, vendor: str = "") -> Seen:
        """Judge one request; `vendor` is whose, if it is not the first one's."""
        facts = upto(session)
        text = plain(request)
        blocks = [match[0] for match in FENCED.finditer(text)]
        own = "\n".join(blocks)
        short = own.encode()[:WITHIN].decode(errors="ignore")
        return Seen(
            self.vendor, condition, ours, facts, known(text, facts), known(short, facts),
            max(0, len(text.encode()) - self.fresh[vendor or self.vendor]), len(own.encode()), repeated(text, facts),
        )  # fmt: skip


def plain(request: Received) -> str:
    """The text of a request as a model reads it: the strings inside its JSON."""
    found: list[str] = []

    def collect(value: object) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    collect({name: value for name, value in request.body.items() if name != "tools"})
    return "\n".join(found)


def with_onrecord(stage: Stage) -> Iterator[Seen]:
    """Three sessions on record: killed, resumed, compacted, handed over, moved."""
    lab, vendor = stage.lab, stage.vendor
    stage.onrecord("setup", vendor, stage.other, "--user", "--no-input")
    trust_hooks(lab, vendor, stage.other)
    start = [sys.executable, "-m", "onrecord", "start", vendor, "--name", NAME, "-o", OBJECTIVE]
    run = lab.start([*start, "-p", f"{stage.plant(1)} {PAUSE}"])
    lab.appears("under-way")
    lab.room.clear()
    run.process.wait()
    before = stage.count()
    stage.onrecord("resume", NAME, "-p", f"{stage.plant(2)} [[say noted]]", "--yes")
    yield stage.seen("onrecord: kill -9, then resume", stage.first(before), 1, ours=True)
    if vendor in COMPACTED_BY:
        compact(stage, [sys.executable, "-m", "onrecord", "resume", NAME, "--yes", "--no-input"])
        before = stage.count()
        stage.onrecord("resume", NAME, "-p", GO_ON, "--yes")
        yield stage.seen("onrecord: after compaction", stage.first(before), 2, ours=True)
    before = stage.count()
    stage.onrecord("handoff", NAME, "--to", stage.other, "-p", f"{stage.plant(3)} [[say noted]]")
    yield stage.seen("onrecord: handed to another vendor", stage.first(before), 2, ours=True, vendor=stage.other)
    yield moved(stage)
    yield emptied(stage)


def compact(stage: Stage, resume: list[str]) -> None:
    """Resume a conversation in a terminal, compact it there, and end the program.

    The model server writes the summary: it answers a request without tools, or does what the last prompt says.
    """
    how = COMPACTED_BY[stage.vendor]
    before = len(stage.lab.server.received)
    stage.lab.server.aside = summary()
    terminal = Terminal(stage.lab, resume)
    terminal.shows(READY[stage.vendor])
    terminal.say(how.command, how.done)
    patiently(lambda: len(stage.lab.server.received) > before, "the model was asked for a summary")
    time.sleep(SETTLED_SECONDS)
    stage.lab.room.clear()


def trust_hooks(lab: Lab, *vendors: str) -> None:
    """Codex runs hooks only after a person accepted them once, in a terminal."""
    if "codex" in vendors:
        TestCodex().accept_hooks(lab)


def moved(stage: Stage) -> Seen:
    """A new machine: a bundle, a clone of the repository and an empty home; a new conversation from the note."""
    lab, vendor = stage.lab, stage.vendor
    bundle, there = lab.root / "work.onrecord", lab.root / "new place"
    stage.onrecord("export", NAME, "--out", str(bundle))
    done = lab.run(["git", "clone", "-q", str(lab.project), str(there)])
    if done.status:
        raise RuntimeError(done.err)
    old, lab.home = lab.home, lab.root / "new home"
    lab.home.mkdir()
    try:
        for name in (vendor, stage.other):
            lab.cli(name).settings(lab.home, [there, lab.project], lab.server.url, lab.installed[name])
            lab.installed[name].furnish(lab.home)
        stage.onrecord("setup", vendor, "--user", "--no-input", cwd=there)
        trust_hooks(lab, vendor)
        stage.onrecord("import", str(bundle), cwd=there)
        before = stage.count()
        stage.onrecord("start", vendor, "--session", NAME, "--agent", "newcomer", "-p", GO_ON, cwd=there)
        return stage.seen("onrecord: new machine", stage.first(before), 3, ours=True)
    finally:
        lab.home = old


def emptied(stage: Stage) -> Seen:
    """The negative control: the same hooks, the same repository, and a session whose note is empty."""
    before = stage.count()
    stage.onrecord("start", stage.vendor, "--name", "empty", "-p", GO_ON)
    return stage.seen("control: the note is empty", stage.first(before), 3)


def without_onrecord(stage: Stage) -> Iterator[Seen]:
    """The same work without onrecord: the vendor's own resume and summary, a fresh start, a progress file."""
    lab, vendor, cli = stage.lab, stage.vendor, stage.lab.cli(stage.vendor)
    chosen = str(uuid.uuid4())
    run = lab.start(cli.start(chosen, f"{stage.plant(1, how='tell')} {PAUSE}"))
    lab.appears("under-way")
    vendor_id = chosen if cli.chooses_id else streamed_id(vendor, run.out)
    lab.keeps(cli, vendor_id, "Work on it.")
    lab.room.clear()
    run.process.wait()
    before = stage.count()
    done = lab.run(cli.resume(vendor_id, f"{stage.plant(2, how='tell')} [[say noted]]"))
    yield stage.seen("vendor's own resume after kill -9", stage.first(before), 1)
    vendor_id = streamed_id(vendor, done.out)
    before = stage.count()
    lab.run(cli.resume(vendor_id, GO_ON))
    yield stage.seen("vendor's own resume, second time", stage.first(before), 2)
    if vendor in COMPACTED_BY:
        lab.run(cli.resume(vendor_id, f"Sum it up. [[say {summary()}]]"))
        compact(stage, [vendor, *(word.format(vendor_id) for word in COMPACTED_BY[vendor].resume)])
        before = stage.count()
        lab.run(cli.resume(vendor_id, GO_ON))
        yield stage.seen("vendor's compaction summary", stage.first(before), 2)
    lab.run(["sh", str(stage.scripts / "tell-3.sh")])
    before = stage.count()
    lab.run(cli.start(str(uuid.uuid4()), GO_ON))
    yield stage.seen("fresh start, repository only", stage.first(before), 3)
    # The first session was killed before it could write; the second and third ended cleanly and wrote the file again.
    (lab.project / "PROGRESS.md").write_text(progress_file(3))
    before = stage.count()
    lab.run(cli.start(str(uuid.uuid4()), "Continue. [[shell cat PROGRESS.md]] [[say I will]]"))
    yield stage.seen("hand-written progress file", stage.first(before, 1), 3)


def streamed_id(vendor: str, output: str) -> str:
    """The conversation's id, in what the program printed."""
    of = port.vendor(vendor)
    found = [one for line in output.splitlines() if (one := of.stream_id(line))]
    if not found:
        raise RuntimeError(f"{vendor} printed no id: {output[:300]}")
    return found[-1]


def summary() -> str:
    """The summary that the model server writes: every third line of what was found."""
    lines = [f"{fact.kind}: {fact.phrase}" for fact in upto(2)]
    return "; ".join(lines[::SUMMARY_EVERY])


def baseline(stage: Stage) -> None:
    """Measure a fresh request of each agent."""
    for vendor in (stage.vendor, stage.other):
        before = stage.count()
        stage.lab.run(stage.lab.cli(vendor).start(str(uuid.uuid4()), GO_ON))
        stage.fresh[vendor] = len(plain(stage.first(before)).encode())
