"""The page of docs/reference about the Python names: every public class with its verbs, signatures, first sentences."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from aio_stub import chapter_classes, definition

import onrecord
from onrecord.aio.deriving import CHAPTER, kind_of, members_of
from onrecord.views import values

_SECTIONS = (
    ("Session", "What `store.open` and `store.get` return."),
    ("SessionStore", "What `onrecord.connect` returns."),
    ("Turn", "What `session.turn` returns."),
    ("Moment", "What `session.at` returns."),
    ("Transcript", "What `session.transcript` returns."),
    ("Context", "What `session.context` returns."),
)


def python_page() -> str:
    """The whole page."""
    parts = [
        "# Python",
        "",
        "`import onrecord` loads nothing but names; each is imported on first use. `onrecord.aio.over(store)` has the",
        "same classes with every verb awaited.",
        "",
        "| name | what it is |",
        "|---|---|",
        *(f"| `onrecord.{name}` | {_first(_public_value(name))} |" for name in _public()),
    ]
    for name, where in _SECTIONS:
        parts += ["", f"## {name}", "", where, "", *_table(getattr(onrecord, name))]
        if name == "Session":
            for chapter, of in _chapters():
                parts += ["", f"### session.{chapter}", "", _first(of), "", *_table(of)]
    return "\n".join([*parts, "", *_values()])


def _public() -> list[str]:
    return sorted((name for name in onrecord.__all__ if name != "__version__"), key=str.casefold)


def _public_value(name: str) -> Any:
    value = getattr(onrecord, name)
    return getattr(value, name) if inspect.ismodule(value) else value


def _chapters() -> Iterator[tuple[str, type]]:
    names = [name for name, member in sorted(members_of(onrecord.Session).items()) if kind_of(name, member) == CHAPTER]
    return zip(names, chapter_classes(), strict=True)


def _table(of: type) -> list[str]:
    rows = []
    for name, member in members_of(of).items():
        if isinstance(member, property):
            rows.append(f"| `{name}` | {_first(member)} |")
        elif inspect.isfunction(member):
            rows.append(f"| `{_signature(member)}` | {_first(member)} |")
    return ["| verb | what it does |", "|---|---|", *rows]


def _signature(function: Any) -> str:
    """How a verb is called: its arguments with their types, without `self`."""
    node = definition(inspect.unwrap(function))
    arguments = ast.unparse(node.args).removeprefix("self").lstrip(", ").removeprefix("/").lstrip(", ")
    returns = ast.unparse(node.returns) if node.returns else "None"
    return f"{node.name}({arguments}) -> {returns}".replace("|", "\\|")


def _values() -> list[str]:
    lines = [
        "## Values", "",
        "What views hold: plain dicts with these keys (`onrecord.views.values`). A key with `?` may be missing.", "",
        "| value | what it is | keys |", "|---|---|---|",
    ]  # fmt: skip
    for name, value in vars(values).items():
        if isinstance(value, type) and hasattr(value, "__required_keys__"):
            keys = [key if key in value.__required_keys__ else f"{key}?" for key in value.__annotations__]
            inherited = [
                key for base in getattr(value, "__orig_bases__", ()) for key in getattr(base, "__annotations__", ())
            ]
            shown = ", ".join(f"`{key}`" for key in dict.fromkeys([*keys, *inherited]))
            lines.append(f"| `{name}` | {_first(value)} | {shown} |")
    return lines


def _first(of: Any) -> str:
    text = (inspect.getdoc(of) or "").partition("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")
