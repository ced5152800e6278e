"""Export of many samples: a million of them as Parquet, in memory that does not grow with their number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.report import Figure

SAMPLES = 1_000_000
WRITE = """
import json, sys, time
from pathlib import Path
import numpy as np
import pyarrow.parquet as pq
from onrecord.rollout.samples import Sample
from onrecord.rollout.writing import pieces

def samples(count):
    for number in range(count):
        length = 24 + number % 17
        sampled = np.arange(length) >= 8
        yield Sample(
            f"session-{number}", 0, "COMPLETED", (np.arange(length) + number).astype("i4"), sampled.astype("u1"),
            np.where(sampled, -0.5, 0.0).astype("f4"), sampled.astype("u1"), [length], "stop", "",
            weight_versions=[(str(number // 1000), 8, length)], rewards={"reward": 1.0}, turn_rewards=[None],
            group=str(number // 8), metadata={"seed": number},
        )

count, file = int(sys.argv[1]), sys.argv[2]
start = time.perf_counter()
with open(file, "wb") as out:
    for piece in pieces(samples(count), ".parquet"):
        out.write(piece)
seconds = time.perf_counter() - start
# Not ru_maxrss: that begins with the size of the process that started this one.
peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
read = pq.ParquetFile(file)
last = read.read_row_group(read.num_row_groups - 1).to_pylist()[-1]
assert read.metadata.num_rows == count and last["session"] == f"session-{count - 1}", last
print(json.dumps({"seconds": seconds, "mib": peak / 1024}))
"""


def parquet(place: Path, *, quick: bool) -> list[Figure]:
    """Two exports, each in a process of its own, the second with ten times the samples."""
    many = SAMPLES // 10 if quick else SAMPLES
    few, all_of_them = (_written(place / f"{count}.parquet", count) for count in (many // 10, many))
    detail = f"{many:,} samples in {all_of_them['seconds']:.0f} s, {all_of_them['mib']:.0f} MiB at most"
    return [
        Figure(
            "rollout export, ten times the samples, memory", all_of_them["mib"] / few["mib"], "x", 1.3, detail=detail
        ),
        Figure(
            "rollout export, ten times the samples, time for each",
            all_of_them["seconds"] / few["seconds"] / 10,
            "x",
            1.5,
        ),
    ]


def _written(file: Path, count: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(count), str(file)], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found
