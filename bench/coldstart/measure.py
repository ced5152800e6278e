"""Plays every condition with every vendor: `./dev bench coldstart [--json FILE]`; `--quick` takes one vendor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.coldstart.scenes import Seen, Stage, baseline, with_onrecord, without_onrecord
from bench.coldstart.show import table
from bench.report import Figure
from tests.e2e.install import PROGRAMS, CannotInstall

VENDORS = tuple(PROGRAMS)


def cold_start(place: Path, *, quick: bool) -> list[Figure]:
    """What reaches the model of the next agent, with and without onrecord."""
    seen: list[Seen] = []
    for number, vendor in enumerate(VENDORS[:1] if quick else VENDORS):
        other = VENDORS[(number + 1) % len(VENDORS)]
        for name, play in (("with", with_onrecord), ("without", without_onrecord)):
            try:
                stage = Stage(place / f"{vendor}-{name}", vendor, other)
            except CannotInstall as why:
                print(f"  {vendor} is left out: {why}")
                continue
            try:
                baseline(stage)
                for one in play(stage):
                    seen.append(one)
                    print(f"  {vendor}: {one.condition}: {len(one.found)} of {len(one.facts)} facts", file=sys.stderr)
            except (AssertionError, RuntimeError, OSError) as problem:
                # One program that does not do its part must not hide what the others did.
                print(f"  {vendor} {name} onrecord stopped: {str(problem)[:300]}")
                seen.append(Seen.failed(vendor, f"{name} onrecord: did not finish"))
            finally:
                stage.close()
    print(table([rows(one) for one in seen]))
    return [figure(one) for one in seen]


def rows(one: Seen) -> dict[str, object]:
    """One result as plain data."""
    found, needed = one.needed
    return {
        "vendor": one.vendor, "condition": one.condition, "ours": one.ours, "facts": len(one.facts),
        "found": len(one.found), "needed": needed, "needed_found": found, "bytes": one.size, "own": one.own,
        "repeats": len(one.again), "missing": [fact.phrase for fact in one.facts if fact not in one.found],
    }  # fmt: skip


def figure(one: Seen) -> Figure:
    """The share of the needed facts: in the first 4 KB of our text for ours, anywhere in the request for the others."""
    found, needed = one.needed
    share = 100 * found / needed if needed else 0.0
    target = 100.0 if one.ours else None
    if one.condition.startswith("control"):
        return Figure(f"{one.vendor}, {one.condition}", share, "%", 10, detail=json.dumps(rows(one)))
    return Figure(f"{one.vendor}, {one.condition}", share, "%", target, at_least=True, detail=json.dumps(rows(one)))
