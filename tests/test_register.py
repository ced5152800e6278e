"""The register of promises, docs/internals/promises.md, and the tests that hold them."""

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
    wrong = [
        f"{path.name}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and opening.match(ast.get_docstring(node) or "")
    ]
    assert wrong == []
