"""Runs benchmarks one at a time and prints their figures: `./dev bench [NAME...] [--quick] [--json FILE]`."""

from __future__ import annotations

import argparse
import compileall
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT)]  # not this directory: its modules have names of libraries

from bench import (  # noqa: E402 - the path above makes this a program of its own
    append,
    encryption,
    frameworks,
    gate,
    hook,
    mcp,
    mirror,
    pages,
    processes,
    reading,
    redaction,
    rollout,
    rollout_export,
    rollout_figures,
    rollout_server,
    session_keys,
    web,
)
from bench.coldstart import measure as coldstart  # noqa: E402 - as above
from bench.report import Figure, keep, show  # noqa: E402 - as above

BENCHES = {
    "record_turn": append.whole_turns,
    "streamed": append.streamed_turns,
    "group_commit": append.group_commit,
    "transcript": reading.transcript,
    "verify": reading.verify,
    "resume": reading.resume,
    "listing": reading.listing,
    "first_open": processes.first_open,
    "writers": processes.writers,
    "cold_start": processes.cold_start,
    "gate": gate.decision,
    "hook": hook.calls,
    "mcp": mcp.calls,
    "mirror": mirror.conversations,
    "report": pages.one_file,
    "redaction": redaction.search,
    "encryption": encryption.at_rest,
    "session_keys": session_keys.with_session_keys,
    "rollout": rollout.trajectories,
    "rollout_log": rollout.on_record,
    "rollout_recovery": rollout.recovery,
    "rollout_export": rollout_export.parquet,
    "rollout_server": rollout_server.load,
    "rollout_routing": rollout_server.routing,
    "rollout_overhead": rollout_figures.overhead,
    "rollout_many": rollout_figures.many,
    "rollout_balanced": rollout_figures.balanced,
    "web_home": web.first_page,
    "web_session": web.long_session,
    "web_live": web.live,
    "growth": append.growth,
    "frameworks": frameworks.frameworks,
    "coldstart": coldstart.cold_start,
}
BY_NAME = ("coldstart", "frameworks")
"""Run only when they are named: they start real coding agents, or run whole agent frameworks, for minutes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHES)}; by default all but {', '.join(BY_NAME)}"
    )
    parser.add_argument("--quick", action="store_true", help="smaller counts: a look, not a measurement")
    parser.add_argument("--json", type=Path, help="keep the figures in this file")
    parser.add_argument("--place", type=Path, help="measure on the disk of this directory")
    chosen = parser.parse_args()
    for name in chosen.names:
        if name not in BENCHES:
            parser.error(f"no benchmark is named {name!r}; there are {', '.join(BENCHES)}")
    # Compile like an installer: if not, every new process would compile edited files, and that would be measured.
    compileall.compile_dir(ROOT / "src", quiet=2)
    figures: list[Figure] = []
    for name in chosen.names or [name for name in BENCHES if name not in BY_NAME]:
        with tempfile.TemporaryDirectory(
            prefix="onrecord-bench-", dir=chosen.place, ignore_cleanup_errors=True
        ) as place:
            found = BENCHES[name](Path(place), quick=chosen.quick)
        show(found)
        figures += found
    if chosen.json:
        keep(figures, chosen.json)
    missed = [figure.name for figure in figures if not figure.met]
    print(
        f"{len(figures) - len(missed)} of {len(figures)} figures within target"
        + (f"; missed: {', '.join(missed)}" if missed else "")
    )
    return 1 if missed and not chosen.quick else 0


if __name__ == "__main__":
    sys.exit(main())
