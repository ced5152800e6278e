"""Payloads as adapters read them: only what they fold, and the same values as `json.loads` returns."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import onrecord
from onrecord.frameworks.parsing import LINES, VENDOR, parsed, parser_of

FRAMEWORKS = Path(onrecord.__file__).parent / "frameworks"
VALUES = [
    {VENDOR: "x", "lines": ["{}"], "reading": [[0, "user", "a"]]},
    {VENDOR: "y", "lines": ["{}"], "reading": [[0, "user", "a"]]},
    {"key": "a", "result": {"lines": 1}},
    {VENDOR: "x", "lines": [1.0, 1, True, None, "\x7f\U0001f600", 10**30, 1e308, -0.0, [[]]]},
    [VENDOR, "x"],
    "x",
    None,
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_named_fields_of_own_payloads_are_read_and_everything_of_others(value: object) -> None:
    """Of a payload of its framework a parser makes the named fields; of any other value all of it."""
    own = isinstance(value, dict) and value.get(VENDOR) == "x"
    expected = {name: one for name, one in value.items() if name in ("lines", VENDOR)} if own else value  # type: ignore[attr-defined]  # a dict then
    found = parser_of("x", ("lines",))(json.dumps(value, ensure_ascii=False).encode())
    assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


def test_payloads_that_only_the_standard_library_reads_are_read_by_it() -> None:
    """An escaped lone surrogate, which quick parsers refuse, is read as `json.loads` reads it."""
    text = json.dumps({VENDOR: "x", "lines": ["\ud800"]})
    assert parser_of("x", ("lines",))(text.encode()) == json.loads(text) == parsed(text)
    with pytest.raises(ValueError, match="Expecting"):
        parser_of("x", ("lines",))(b'{"lines": [')


def test_texts_of_entries_are_parsed_with_their_payload() -> None:
    """With `values`, entries come parsed; texts that only the standard library reads, and those of others, as texts."""
    parse = parser_of("x", ("keys", "values"))
    entries = [{"a": [1.5, None, "\x7f"], "b": {"c": 10**30}}, [], "text", 0]
    lines = [json.dumps(one) for one in entries]
    own = {"keys": ["k"], VENDOR: "x"}
    assert parse(json.dumps({**own, LINES: lines, "reading": [1]}).encode()) == {**own, "values": entries}
    for odd in ([*lines, '"\\ud800"'], [*lines, "no JSON"], [1], "{}"):
        value = {**own, LINES: odd, "values": 1}
        assert parse(json.dumps(value).encode()) == value
    others = {VENDOR: "y", LINES: lines}
    assert parse(json.dumps(others).encode()) == others


BASES = {"Conversation": {"all", "keys", "lines"}, "Placed": {"all", "placed"}}
"""What the folds that adapters extend read themselves."""


def test_every_field_that_a_fold_reads_is_parsed() -> None:
    """An adapter names every field of its payloads that its fold reads: one that is not named would read as missing."""
    classes = {}
    for module in FRAMEWORKS.glob("*.py"):
        for one in ast.parse(module.read_text()).body:
            if isinstance(one, ast.ClassDef) and any(ast.unparse(base) in BASES for base in one.bases):
                classes[f"{module.stem}.{one.name}"] = _named(one), _read(one)
    assert len(classes) >= 8
    for name, (named, read) in classes.items():
        assert read <= named | {VENDOR}, name


def _named(of: ast.ClassDef) -> set[str]:
    (value,) = [one.value for one in of.body if ast.unparse(one).startswith("FIELDS") and hasattr(one, "value")]
    named = set(ast.literal_eval(value))
    return named | {LINES} if "values" in named else named


def _read(of: ast.ClassDef) -> set[str]:
    """The names by which methods that fold read their `data`; those of effects get all of it."""
    found = set()
    for method in of.body:
        if isinstance(method, ast.FunctionDef) and method.name in ("fold", "_apply", "_retract"):
            for node in ast.walk(method):
                match node:
                    case ast.Subscript(value=ast.Name(id="data"), slice=ast.Constant(value=str(name))):
                        found.add(name)
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id="data"), attr="get"),
                        args=[ast.Constant(value=str(name)), *_],
                    ):
                        found.add(name)
                    case ast.Compare(left=ast.Constant(value=str(name)), comparators=[ast.Name(id="data")]):
                        found.add(name)
            inherits = "super().fold(" in ast.unparse(method)
            found |= BASES[ast.unparse(of.bases[0])] if inherits else set()
    return found
