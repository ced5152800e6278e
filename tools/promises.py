"""Writes under each promise of docs/internals/promises.md the tests that hold it. `--check` fails when they differ.

A test names its promises at the end of its docstring: `... survives a power cut (P18).`, `(A09, B09)`, `(E04-E12)`.
The sentences of the register are written by hand; the lists of tests are generated.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
REGISTER = ROOT / "docs" / "internals" / "promises.md"

PROMISE = re.compile(r"^- \*\*([A-Z]\d\d)\*\* ")
HELD = "  - held by "
REFERENCE = re.compile(r"\(([A-Z]\d\d(?:(?:, |-)[A-Z]\d\d)*)\)")


def codes_in(docstring: str) -> Iterator[str]:
    """The promises that a docstring names, with ranges expanded."""
    for group in REFERENCE.findall(docstring):
        for one in group.split(", "):
            first, _, last = one.partition("-")
            for number in range(int(first[1:]), int((last or first)[1:]) + 1):
                yield f"{first[0]}{number:02}"


def named_in(path: Path) -> Iterator[tuple[str, str]]:
    """Every promise named in a file, with the test (or the state machine) that names it."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if REFERENCE.search(text) else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for code in codes_in(ast.get_docstring(node) or ""):
                yield code, node.name


def holders() -> dict[str, dict[str, list[str]]]:
    """Promise to file to tests."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(TESTS.rglob("*.py")):
        for code, test in named_in(path):
            tests = found[code][path.relative_to(TESTS).as_posix()]
            if test not in tests:
                tests.append(test)
    return found


def promised(text: str) -> list[str]:
    """The promises of the register, in its order."""
    return [found[1] for line in text.splitlines() if (found := PROMISE.match(line))]


def written(text: str) -> str:
    """The register with the current lists of tests."""
    held = holders()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(HELD):
            continue
        lines.append(line)
        if found := PROMISE.match(line):
            for file, tests in held[found[1]].items():
                lines.append(f"{HELD}`{file}`: {', '.join(f'`{test}`' for test in tests)}")
    return "\n".join([*lines, ""])


def problems(text: str) -> list[str]:
    """The problems of the register, in words."""
    listed, held = promised(text), holders()
    return [
        *(f"{code} is in the register twice" for code in sorted({code for code in listed if listed.count(code) > 1})),
        *(
            f"{code} is named by {min(held[code])} and is not in the register"
            for code in sorted(set(held) - set(listed))
        ),
        *(f"{code} is promised, and no test names it" for code in listed if code not in held),
    ]


def main(arguments: list[str]) -> int:
    text = REGISTER.read_text(encoding="utf-8")
    wrong = problems(text)
    if "--check" not in arguments:
        REGISTER.write_text(written(text), encoding="utf-8")
    elif written(text) != text:
        wrong.append("the lists of tests are out of date; `python tools/promises.py` writes them")
    for line in wrong:
        sys.stderr.write(f"{REGISTER.relative_to(ROOT)}: {line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
