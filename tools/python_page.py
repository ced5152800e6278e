"""The page of docs/reference about the Python names: every public class with its verbs, signatures, first sentences."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from aio_stub import chapter_classes, definition

import onrecord
from onrecord.aio.deriving import CHAPTER, kind_of, members_of
from onrecord.log import item_values
from onrecord.views import stamps, values

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
        *(f"| `onrecord.{name}` | {_aliases().get(name) or _first(_public_value(name))} |" for name in _public()),
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
            shown = ", ".join(f"`{key}`" for key in _keys(value))
            lines.append(f"| `{name}` | {_aliases().get(name) or _first(value)} | {shown} |")
    return lines


def _keys(value: Any) -> list[str]:
    """The keys of a value. Its annotations are text, so Python itself does not know which of them may be missing."""
    kinds = {key: str(getattr(kind, "__forward_arg__", kind)) for key, kind in value.__annotations__.items()}
    return [key if value.__total__ and "NotRequired[" not in kind else f"{key}?" for key, kind in kinds.items()]


@cache
def _aliases() -> dict[str, str]:
    """What the source says of aliases: at run time they have the docstring of their type."""
    found = {}
    for module in (values, stamps, item_values):
        for node, after in pairwise(ast.parse(inspect.getsource(module)).body):
            match node, after:
                case (
                    ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                    ast.Expr(ast.Constant(str(text))),
                ):
                    found[name] = _line(text)
    return found


def _first(of: Any) -> str:
    return _line((inspect.getdoc(of) or "").partition("\n\n")[0])


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
