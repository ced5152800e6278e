"""Writes the types of the async classes: src/onrecord/aio/__init__.pyi, from the source of the synchronous classes."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from onrecord.aio.deriving import (
    BLOCK,
    CHAPTER,
    ITERATOR,
    READ,
    SELF,
    SESSION,
    VALUE,
    VERB,
    Awaited,
    kind_of,
    members_of,
)
from onrecord.aio.own import OwnSession, OwnStore, OwnTurn
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.session.turns import Turn

NOTICE = "# Written by tools/reference.py from the synchronous classes. Do not edit.\n"
AWAITED = {"Session": "AsyncSession", "SessionStore": "AsyncSessionStore", "Turn": "AsyncTurn"}
_NATIVE = {"AsyncIterator": "collections.abc", "AbstractAsyncContextManager": "contextlib"}


def stub() -> str:
    """The whole file."""
    sources: dict[str, str] = {}
    classes: list[tuple[type, type]] = [(Turn, OwnTurn), (Session, OwnSession), (SessionStore, OwnStore)]
    classes += [(chapter, Awaited) for chapter in chapter_classes()]
    bodies = [_class(of, base, sources) for of, base in classes]
    imports: dict[str, set[str]] = {
        "onrecord.aio.calls": {"Outcome as Outcome", "outcome_of as outcome_of"},
        "onrecord.aio.deriving": {"Awaited"},
        "onrecord.aio.hands": {"settled as settled"},
        "onrecord.aio.own": {"OwnSession", "OwnStore", "OwnTurn"},
        "onrecord.session.session_store": {"SessionStore"},
    }
    for name, module in sources.items():
        imports.setdefault(module, set()).add(name)
    lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imports.items())]
    over = (
        'def over(store: SessionStore) -> AsyncSessionStore:\n    """The awaited form of what `connect()` returns."""\n'
    )
    return NOTICE + "\n" + "\n".join(lines) + "\n\n" + "\n".join([*bodies, over])


def chapter_classes() -> Iterator[type]:
    """The chapters of a session, in the order of their names."""
    session = Session.__new__(Session)
    for name, member in sorted(members_of(Session).items()):
        if kind_of(name, member) == CHAPTER:
            yield type(member.fget(session))


def _class(of: type, base: type, sources: dict[str, str]) -> str:
    lines = [f"class Async{of.__name__}({base.__name__}):", f'    """{_first(of)}"""', ""]
    for name, member in members_of(of).items():
        kind = kind_of(name, member)
        if kind and not hasattr(base, name):
            lines += [f"    {line}".rstrip() for line in _member(kind, member, sources)]
    return "\n".join(lines) + "\n"


def _member(kind: str, member: Any, sources: dict[str, str]) -> list[str]:
    function = member.fget if isinstance(member, property) else inspect.unwrap(member)
    node = definition(function)
    returns = ast.unparse(node.returns) if node.returns else "None"
    inner = returns.partition("[")[2].rpartition("]")[0]
    answer = {
        CHAPTER: f"Async{returns}", SELF: "Self", SESSION: "AsyncSession", ITERATOR: f"AsyncIterator[{inner}]",
        BLOCK: f"AbstractAsyncContextManager[{inner}]",
    }.get(kind, returns)  # fmt: skip
    arguments = _arguments(node)
    _learn(sources, f"{arguments} {answer}", function)
    prefix = "async def" if kind in (READ, VERB, SELF, SESSION) else "def"
    head = ["@property"] if kind in (VALUE, CHAPTER) else []
    return [*head, f"{prefix} {node.name}({arguments}) -> {answer}:", f'    """{_first(function)}"""', ""]


def _arguments(node: ast.FunctionDef) -> str:
    """The arguments with their types; defaults are only marked."""
    given = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(given, ast.FunctionDef)
    given.args.defaults = [ast.Constant(...) for _default in given.args.defaults]
    given.args.kw_defaults = [default and ast.Constant(...) for default in given.args.kw_defaults]
    every = [*given.args.posonlyargs, *given.args.args, *given.args.kwonlyargs]
    for argument in every:
        if isinstance(argument.annotation, ast.Name) and argument.annotation.id in AWAITED:
            argument.annotation.id = AWAITED[argument.annotation.id]
    return re.sub(r"(?<=\S)=\.\.\.", " = ...", ast.unparse(given.args))


def _learn(sources: dict[str, str], text: str, function: Any) -> None:
    """Note the module that each name of an annotation comes from."""
    known = _names_of(function.__module__) | _NATIVE | {"Self": "typing"}
    for word in re.findall(r"[A-Za-z_]\w*", text):
        if word in known and not hasattr(builtins, word) and word not in AWAITED.values():
            sources[word] = known[word]


@cache
def _names_of(module: str) -> dict[str, str]:
    """Every name a module imports or defines, and the module it comes from."""
    found: dict[str, str] = {}
    tree = _tree(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: node.module for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = module
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(str(sys.modules[module].__file__)).read_text())


def definition(function: Any) -> ast.FunctionDef:
    """The file that defines a function."""
    owner = function.__qualname__.rpartition(".")[0]
    for node in ast.walk(_tree(function.__module__)):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            # The last one: overloads come before their definition.
            for inner in reversed(node.body):
                if isinstance(inner, ast.FunctionDef) and inner.name == function.__name__:
                    return inner
    raise LookupError(function.__qualname__)


def _first(of: Any) -> str:
    return (inspect.getdoc(of) or "").partition("\n")[0].replace('"""', "'''")
