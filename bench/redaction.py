"""Redaction: what looking for secrets adds to a recorded turn, what it takes per KB, and the slowest hostile text."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import onrecord
from bench.report import Figure, ratio, timed
from bench.workload import turns
from onrecord.log.events import Draft
from onrecord.redaction.anchors import AUTOMATON, PLAIN, VECTORS
from onrecord.redaction.scanner import Scanner
from onrecord.session.funnel import Funnel

TURN_AIM, KILOBYTE_AIM, HOSTILE_AIM = 1.10, 25.0, 1.0
SECRET = "ghp_" + "a1B2c3" * 6
HOSTILE = ("eyJ-", "token=", "://a:", "-----BEGIN PRIVATE KEY-----", "Z2hwX", "curl -u ", 'token\\":', "sk-ant-")


class OpenFunnel(Funnel):
    """A funnel that lets everything pass: the same turn without the search."""

    def passed(self, drafts: Sequence[Draft], project: Callable[[], str]) -> tuple[Sequence[Draft], list[Draft]]:
        """Nothing is looked at."""
        return drafts, []


def search(place: Path, *, quick: bool) -> list[Figure]:
    """Whole turns with and without the search, in turn; then the search alone, in processor time."""
    rounds = 200 if quick else 1_500
    # Each in a file of its own: in one file, the session that was opened last is cheaper to append to.
    looked, open_ = (
        onrecord.connect(str(place / f"{name}.db"), project="bench").open(name) for name in ("looked", "open")
    )
    open_.funnel = OpenFunnel(lambda: b"")
    given = turns(50)
    ours, theirs = (list[float](), list[float]()), (list[float](), list[float]())
    for number in range(rounds):
        turn = given[number % 50]
        pair = [(looked, ours), (open_, theirs)]
        for session, (wall, processor) in pair if number % 2 else reversed(pair):
            begun = time.process_time()
            wall.append(timed(partial(session.record_turn, turn)))
            processor.append(time.process_time() - begun)
    payloads = [json.dumps({"items": turn}).encode() for turn in given]
    dirty = [payload.replace(b" the ", f" {SECRET} ".encode(), 1) for payload in payloads]
    figures = [
        Figure(f"record_turn with the search / without it{what}", ratio(one[50:], other[50:]), "x", TURN_AIM)
        for what, one, other in zip(("", ", processor time"), ours, theirs, strict=True)
    ]
    for name, aim in ((VECTORS, KILOBYTE_AIM), (AUTOMATON, KILOBYTE_AIM), (PLAIN, None)):
        finder = Scanner(way=name)
        figures += [
            Figure(f"search per KB, {name}", _per_kilobyte(finder.find, payloads), " us", aim),
            Figure(f"search per KB, {name}, a secret inside", _per_kilobyte(finder.find, dirty), " us", aim),
        ]
    slowest = max(_seconds(Scanner(way=way).find, part) for part in HOSTILE for way in (AUTOMATON, VECTORS))
    return [*figures, Figure("slowest hostile text of 100 KB", slowest, " s", HOSTILE_AIM)]


def _per_kilobyte(find: Callable[[bytes], object], payloads: list[bytes]) -> float:
    best = float("inf")
    for _round in range(5):
        begun = time.process_time()
        for payload in payloads:
            find(payload)
        best = min(best, time.process_time() - begun)
    return best / sum(map(len, payloads)) * 1024 * 1e6


def _seconds(find: Callable[[bytes], object], part: str) -> float:
    data = (part * 100_000)[:100_000].encode()
    begun = time.process_time()
    find(data)
    return time.process_time() - begun
