"""The register of promises, docs/internals/promises.md, and the table of attacks beside it: the tests they name exist."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def promises() -> ModuleType:
    """The tool that writes the register."""
    found = importlib.util.spec_from_file_location("promises", ROOT / "tools" / "promises.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_register_is_true(promises, capsys):
    """Every promise has a test, every number in a docstring is in the register, and the register lists the tests that exist."""
    assert promises.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("docstring", "codes"),
    [
        ("A claim (P18).", ["P18"]),
        ("A claim (A09, B09). And a second sentence.", ["A09", "B09"]),
        ("A claim (E04-E06, T01).", ["E04", "E05", "E06", "T01"]),
        ("A claim (with words), about SHA-256 and H37 in passing.", []),
    ],
)
def test_a_reference_is_recognised(promises, docstring, codes):
    """Numbers count where they are alone in parentheses, and a range means each of its numbers."""
    assert list(promises.codes_in(docstring)) == codes


def test_what_is_wrong_with_a_register_is_named(promises, monkeypatch):
    """A promise without a test, a number without a promise and a number used twice are each reported."""
    monkeypatch.setattr(promises, "holders", lambda: {"P01": {"a.py": ["test_a"]}, "P03": {"b.py": ["test_b"]}})
    found = promises.problems("- **P01** One.\n- **P01** One again.\n- **P02** Two.\n")
    assert found == [
        "P01 is in the register twice",
        "P03 is named by b.py and is not in the register",
        "P02 is promised, and no test names it",
    ]


def test_no_docstring_opens_with_a_number():
    """The docstring of a test opens with its claim; the numbers come last."""
    opening = re.compile(r"[A-Z]\d\d\b")
    suspect = re.compile(r"[\"']\s*[A-Z]\d\d\b")  # only such files are parsed
    wrong = [
        f"{path.name}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if suspect.search(text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and opening.match(ast.get_docstring(node) or "")
    ]
    assert wrong == []


ATTACKS = ROOT / "docs" / "internals" / "attacks.md"
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
NAMED_BENCH = re.compile(r"bench `(\w+)`")
INSIDE = "inside"


def attacks() -> list[tuple[str, str, str]]:
    """The lines of the table: what must hold, what shows it, and its control."""
    rows = [line.split("|") for line in ATTACKS.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [(line.strip(), shown, control) for _, line, shown, control, _ in rows if line.strip() != "line"]


def source_of(file: str, test: str) -> str:
    """The text of a test; "" if there is none of this name."""
    path = ROOT / "tests" / file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name == test)
    return next((ast.get_source_segment(text, node) or "" for node in found), "")


def problems_of(line: str, shown: str, control: str) -> list[str]:
    """What is wrong with a line of the table."""
    benches = (ROOT / "bench" / "run.py").read_text(encoding="utf-8")
    named = [*NAMED_TEST.findall(shown), *NAMED_TEST.findall(control)]
    wrong = [f"{line}: no test {test} in {file}" for file, test in named if not source_of(file, test)]
    wrong += [f"{line}: no bench {one}" for one in NAMED_BENCH.findall(shown + control) if f'"{one}":' not in benches]
    if not NAMED_TEST.search(shown) and not NAMED_BENCH.search(shown):
        wrong.append(f"{line}: nothing shows it")
    if control.strip() == INSIDE:
        if not any("control" in source_of(*one).lower() for one in NAMED_TEST.findall(shown)):
            wrong.append(f"{line}: none of its tests names a control")
    elif not NAMED_TEST.search(control) and not NAMED_BENCH.search(control):
        wrong.append(f"{line}: no control")
    return wrong


def test_every_attack_has_a_test_and_a_control():
    """Each line of the table names tests that exist, and a control that exists or is inside one of them."""
    assert [one for row in attacks() for one in problems_of(*row)] == []
    assert len(attacks()) > 50


@pytest.mark.parametrize(
    ("shown", "control", "wrong"),
    [
        ("`test_register.py::test_none`", "inside", ["no test test_none", "none of its tests"]),
        ("a promise", "`test_register.py::test_the_register_is_true`", ["nothing shows it"]),
        ("`test_register.py::test_the_register_is_true`", "", ["no control"]),
        ("bench `nothing`", "bench `hook`", ["no bench nothing"]),
    ],
)
def test_what_is_wrong_with_the_table_is_named(shown, control, wrong):
    """A missing test, a missing control and a line that nothing shows are each reported."""
    found = problems_of("x", shown, control)
    assert len(found) == len(wrong)
    assert all(part in one for part, one in zip(wrong, found, strict=True)), found
