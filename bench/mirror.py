"""Mirroring: what readings cost on disk, how soon a turn is visible, and the memory a long conversation needs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import onrecord
from bench.report import Figure
from onrecord.agents.mirroring import FOLLOW_SECONDS, mirror
from onrecord.stores.payloads import Payloads
from onrecord.vendors.port import Location

DATA = Path(__file__).resolve().parent.parent / "tests" / "vendors" / "data"
"""Session files that the real programs wrote."""
FILES = {
    "claude": "projects/*/*.jsonl", "codex": "sessions/*/*/*/*.jsonl", "gemini": "tmp/*/chats/*.jsonl",
    "qwen": "projects/*/chats/*-*.jsonl", "copilot": "session-state/*/events.jsonl",
}  # fmt: skip
A_TURN, A_CALL = 8, 3
"""About how many records a turn has, and a call of a tool with its result."""
VERSUS = "against copying it turn by turn, without readings, as before"
LONG = """
import sys
from pathlib import Path
from onrecord import connect
from onrecord.agents.mirroring import mirror
from onrecord.vendors.port import Location
session = connect(sys.argv[1], project="bench").create("long", agent="claude")
session.agents.locate("claude", "c" * 36, reason="imported")
mirror(session, "claude", "c" * 36, {}, location=Location("c" * 36, sys.argv[2], ""))
print(int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024)
"""


def conversations(place: Path, *, quick: bool) -> list[Figure]:
    """All figures."""
    return [*_bytes(place), _visible(place), _memory(place, 500 if quick else 5_000)]


def _linked(store: Path, name: str, agent: str) -> onrecord.Session:
    session = onrecord.connect(str(store), project="bench").create(name, agent=agent)
    session.agents.locate(agent, "c" * 36, reason="imported")
    return session


def _bytes(place: Path) -> list[Figure]:
    """The payloads as stores keep them, with readings and as they were before, whole and in small parts."""
    figures, packed = [], Payloads(lambda: b"bench")
    by_turn = 0
    for part in (10_000, A_TURN, A_CALL):
        ours = before = 0
        for agent, pattern in FILES.items():
            for number, file in enumerate(sorted((DATA / agent).glob(pattern))):
                session = _linked(place / f"{part}.db", f"{agent}-{number}", agent)
                for data in _mirrored(session, agent, file, place / "growing.jsonl", part):
                    ours += _kept(packed, data, conversation=True)
                    before += _kept(packed, _as_before(data, agent, place))
        rows = "whole files" if part > 100 else f"{part} records at a time"  # the first of them
        figures.append(Figure(f"bytes of a mirror with readings, {rows}", ours / before, "x", 1.15))
        by_turn = before if part == A_TURN else by_turn
    figures.append(Figure("bytes of a conversation followed call by call", ours / by_turn, "x", 1.15, detail=VERSUS))
    return figures


def _mirrored(session: onrecord.Session, agent: str, file: Path, growing: Path, part: int) -> list[dict[str, Any]]:
    lines = file.read_bytes().splitlines(keepends=True)
    growing.write_bytes(b"")
    for start in range(0, len(lines), part):
        with growing.open("ab") as out:
            out.write(b"".join(lines[start : start + part]))
        mirror(session, agent, "c" * 36, {}, location=Location("c" * 36, str(growing), ""))
    return [event.data for event in session.events(kinds=("payload.kept",))]


def _as_before(data: dict[str, Any], agent: str, place: Path) -> dict[str, Any]:
    """The same part as it was kept before there were readings."""
    first = "mark_before" in data
    offset, size = data["mark_after"][0], len("".join(data["lines"]).encode()) + len(data["lines"])
    before, after = ({name: _digest(f"{name}{at}") for name in ("head", "tail")} for at in (offset - size, offset))
    return {
        "lines": data["lines"], "vendor": agent, "vendor_id": "c" * 36, "generation": 0, "torn": data.get("torn", 0),
        "mark_before": [0 if first else offset - size, None if first else before], "mark_after": [offset, after],
        "source": {"path": f"{place}/growing.jsonl", "home": "", "cwd": ""},
    }  # fmt: skip


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def _kept(payloads: Payloads, data: dict[str, Any], *, conversation: bool = False) -> int:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    packed = payloads.pack(text, conversation=conversation)
    return len(packed.stored) + len(packed.body or b"")


def _record(number: int, role: str, text: str) -> str:
    record = {
        "type": role, "uuid": f"r{number}", "parentUuid": f"r{number - 1}" if number else None, "sessionId": "c" * 36,
        "timestamp": "2026-11-15T06:00:00Z", "cwd": "/p", "message": {"role": role, "content": text},
    }  # fmt: skip
    return json.dumps(record) + "\n"


def _visible(place: Path) -> Figure:
    """How long after it was written a turn is in the transcript, with the interval that followers use."""
    path = place / "followed.jsonl"
    path.write_text("")
    session = _linked(place / "followed.db", "followed", "claude")
    ended = threading.Event()

    def follow() -> None:
        writer = onrecord.connect(str(place / "followed.db"), project="bench").get("followed", agent="claude")
        while not ended.wait(FOLLOW_SECONDS):
            mirror(writer, "claude", "c" * 36, {}, location=Location("c" * 36, str(path), ""))

    thread = threading.Thread(target=follow)
    thread.start()
    worst = 0.0
    for number in range(6):
        sleep(0.13 * number)
        written = perf_counter()
        with path.open("a") as out:
            out.write(_record(2 * number, "user", f"question {number}") + _record(2 * number + 1, "assistant", "yes"))
        while len(session.transcript()) <= number:
            sleep(0.01)
        worst = max(worst, perf_counter() - written)
    ended.set()
    thread.join()
    return Figure("a turn is visible after, at worst", worst, " s", 1.0)


def _memory(place: Path, turns: int) -> Figure:
    """The peak of a process that mirrors a long conversation, each turn with a prompt, a result and an answer."""
    path = place / "long.jsonl"
    with path.open("w") as out:
        for number in range(turns):
            out.write(_record(3 * number, "user", f"question {number} " + "because of this " * 40))
            out.write(_record(3 * number + 1, "assistant", "look at that " * 800))
            out.write(_record(3 * number + 2, "assistant", f"answer {number} " + "and so it is " * 80))
    done = subprocess.run(
        [sys.executable, "-c", LONG, str(place / "long.db"), str(path)], capture_output=True, check=True, text=True
    )
    size = path.stat().st_size / 1024 / 1024
    return Figure(f"memory to mirror {turns:,} turns", float(done.stdout), " MB", 80, detail=f"file of {size:.0f} MB")
