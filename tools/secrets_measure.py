"""Measures what redaction finds and what it marks wrongly: `python tools/secrets_measure.py [SEED...]`.

Recall on the synthetic corpus, through the function that cleans a vendor's record; false marks on the source of the
standard library and of every installed package, and on look-alike lines. The seeds of a measurement are never those
that a rule was tuned on.
"""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from pathlib import Path

import secrets_corpus as corpus

from onrecord.redaction.scanner import Scanner
from onrecord.redaction.values import Cleaner

SEEDS = (70_001, 70_002, 70_003, 70_004, 70_005)
SAMPLE = 20_000_000
"""How many bytes of ordinary source are searched."""


def main(words: list[str]) -> int:
    """Print the figures."""
    scanner = Scanner()
    total, missed = Counter[str](), Counter[str]()
    for seed in map(int, words or SEEDS):
        for case in corpus.cases(seed):
            cleaned = Cleaner(scanner, lambda: b"key" * 8).record(case.text, "text")
            total[case.sort] += 1
            if corpus.leaks(case, cleaned):
                missed[case.sort] += 1
                print(f"missed: {case.kind}, {case.around}")
    for sort, count in total.items():
        print(f"{sort}: {100 * (1 - missed[sort] / count):.2f} % of {count}")
    print(f"all: {100 * (1 - missed.total() / total.total()):.2f} % of {total.total()}")
    print(f"kinds: {len(corpus.FORMATS) + len(corpus.NAMED) + len(corpus.WRAPPED_VALUES)}")
    wrong = sum(Cleaner(scanner, lambda: b"key" * 8).record(line, "") != line for line in corpus.LOOK_ALIKES)
    print(f"look-alikes marked: {wrong} of {len(corpus.LOOK_ALIKES)}")
    for name in ("stdlib", "purelib"):
        marks, size = ordinary(scanner, Path(sysconfig.get_path(name)))
        print(f"{name}: {marks} marks in {size / 1e6:.1f} MB, {marks / size * 100_000:.2f} per 100 KB")
    return 0


def ordinary(scanner: Scanner, folder: Path) -> tuple[int, int]:
    """Marks in source, and how much of it was searched."""
    marks = size = 0
    for path in sorted(folder.rglob("*.py")):
        if size >= SAMPLE:
            break
        if "site-packages" in path.parts and "site-packages" not in folder.parts:
            continue
        data = path.read_bytes()
        marks, size = marks + len(scanner.find(data)), size + len(data)
    return marks, size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
