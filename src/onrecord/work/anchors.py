"""Anchors: the code that a finding rests on, and its fingerprints.

An anchor is written `path`, `path:10-20` or `path::Class.method`. A fingerprint covers the content, not its line
numbers: lines that moved because something was inserted above them keep their fingerprint.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

from onrecord.errors import InvalidInput
from onrecord.machine.files import read_regular

if TYPE_CHECKING:
    from onrecord.views.values import Anchor

ANCHOR_BYTES = 16 * 1024 * 1024
"""The largest file a finding may rest on."""
SYMBOLS_KEPT = 200
"""Up to how many functions and classes of a file are known by name when the whole file is an anchor."""

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def parse_anchor(text: str) -> Anchor:
    """Parse an anchor as people write it."""
    path, is_symbol, symbol = text.partition("::")
    if is_symbol:
        if not symbol or not all(part.isidentifier() for part in symbol.split(".")):
            raise InvalidInput(f"{text!r} names no symbol", hint="write it like src/auth.py::Invite.accept")
        if not path.endswith((".py", ".pyi")):
            raise InvalidInput(f"symbols work only in Python files, not in {path!r}", hint="name lines: path:10-20")
        return {"path": _checked(path), "symbol": symbol}
    path, has_lines, lines = text.rpartition(":")
    first, _dash, last = lines.partition("-")
    if has_lines and first.isascii() and first.isdigit() and (not last or (last.isascii() and last.isdigit())):
        span = [int(first), int(last or first)]
        if not 1 <= span[0] <= span[1]:
            raise InvalidInput(f"{text!r} names no lines", hint="write them like src/auth.py:10-20")
        return {"path": _checked(path), "lines": span}
    return {"path": _checked(text)}


def anchored(root: Path, text: str, here: Path | None = None) -> Anchor:
    """An anchor with its present fingerprint; an error if there is no such code.

    The path is relative to `here` if that file exists, and to the root if not. The anchor's path is relative to the
    root.
    """
    anchor = parse_anchor(_from_root(root, here, text) if here else text)
    if _size(root, anchor) > ANCHOR_BYTES:
        raise InvalidInput(f"{anchor['path']} is too large for a finding to rest on", hint="name a smaller file")
    found = fingerprint(root, anchor)
    if found is None:
        raise InvalidInput(
            f"there is no code at {text!r}", hint="path, path:10-20 or path::Class.method, below the project"
        )
    return described(root, anchor | {"fingerprint": found})


def described(root: Path, anchor: Anchor) -> Anchor:
    """The anchor with the names that a survey needs: the functions of a whole file, the one around some lines."""
    anchor = {name: value for name, value in anchor.items() if name not in ("symbols", "within")}  # type: ignore[assignment]  # the same fields
    if anchor.get("symbol") or not anchor["path"].endswith((".py", ".pyi")):
        return anchor
    content = _content(root, anchor) or b""
    if lines := anchor.get("lines"):
        around = [name for name, span in _spans(content) if span[0] <= lines[0] and lines[1] <= span[1]]
        return anchor | {"within": around[-1]} if around else anchor
    symbols = symbols_of(content)
    return anchor | {"symbols": symbols} if symbols else anchor


def changed_parts(root: Path, anchor: Anchor) -> list[str]:
    """The functions and classes of a whole file that differ from when it was anchored, or were added or removed."""
    before = anchor.get("symbols")
    if not before:
        return []
    now = symbols_of(_content(root, anchor) or b"")
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def symbols_of(content: bytes) -> dict[str, str]:
    """Short fingerprints of the functions and methods of a Python file; none if there are too many, or no Python."""
    lines = content.decode(errors="replace").splitlines()
    spans = _spans(content)
    if len(spans) > SYMBOLS_KEPT:
        return {}
    outer = {name.rpartition(".")[0] for name, _span in spans}
    # A class counts by its methods: what changes in one of them is named by it.
    return {
        name: _hash("\n".join(lines[first - 1 : last]).encode())[:8]
        for name, (first, last) in spans
        if name not in outer
    }


def _spans(content: bytes) -> list[tuple[str, tuple[int, int]]]:
    """The functions and classes of a Python file with their first and last lines; outer ones come first."""
    try:
        found: list[ast.stmt] = ast.parse(content).body
    except (SyntaxError, ValueError):
        return []
    spans, waiting = [], [("", part) for part in _statements(found)]
    while waiting:
        prefix, part = waiting.pop(0)
        if isinstance(part, _DEFINITIONS):
            name = f"{prefix}{part.name}"
            first = min([part.lineno, *(decorator.lineno for decorator in part.decorator_list)])
            spans.append((name, (first, part.end_lineno or part.lineno)))
            if isinstance(part, ast.ClassDef):
                waiting += [(f"{name}.", inner) for inner in _statements(part.body)]
    return spans


def reanchored(root: Path, anchors: list[Anchor]) -> list[Anchor]:
    """The same anchors on the present code: moved lines get their new numbers, and missing code is left out."""
    found = []
    for anchor in anchors:
        where = anchor
        if anchor.get("lines"):
            moved = _moved_to(_content(root, anchor) or b"", anchor["lines"], anchor["fingerprint"])
            where = anchor | {"lines": moved or anchor["lines"]}
        print_now = fingerprint(root, where)
        if print_now is not None:
            found.append(described(root, where | {"fingerprint": print_now}))
    return found


def fingerprint(root: Path, anchor: Anchor, known: str | None = None) -> str | None:
    """The fingerprint of the code at an anchor; None if there is none. Moved lines still have the `known` one."""
    size = _size(root, anchor)
    if size > ANCHOR_BYTES:
        return f"{size} bytes"  # too large to read: it differs, and that is all that matters
    content = _content(root, anchor)
    return None if content is None else fingerprint_in(content, anchor, known)


def fingerprint_in(content: bytes, anchor: Anchor, known: str | None = None) -> str | None:
    """The fingerprint that an anchor has in the content of its file."""
    if anchor.get("symbol"):
        return _of_symbol(content, anchor["symbol"])
    if anchor.get("lines"):
        if known is not None and _moved_to(content, anchor["lines"], known):
            return known
        return _of_lines(content.splitlines(), *anchor["lines"])
    return _hash(content)


def excerpt(root: Path, anchor: Anchor) -> str:
    """The text of an anchor."""
    content = _content(root, anchor) or b""
    if anchor.get("symbol"):
        return _source_of(content, anchor["symbol"]) or ""
    if anchor.get("lines"):
        first, last = anchor["lines"]
        content = b"\n".join(content.splitlines()[first - 1 : last])
    return content.decode(errors="replace")


def _content(root: Path, anchor: Anchor) -> bytes | None:
    try:
        return read_regular(root / str(anchor["path"]))
    except (OSError, ValueError):
        return None


def _size(root: Path, anchor: Anchor) -> int:
    try:
        return (root / str(anchor["path"])).stat().st_size
    except (OSError, ValueError):
        return 0


def _of_lines(lines: list[bytes], first: int, last: int) -> str | None:
    return _hash(b"\n".join(lines[first - 1 : last])) if last <= len(lines) else None


def _moved_to(content: bytes, span: list[int], known: str) -> list[int] | None:
    """The present line numbers of the code with a known fingerprint; the old ones are tried first."""
    lines = content.splitlines()
    if _of_lines(lines, *span) == known:
        return span
    count = span[1] - span[0]
    starts = range(1, len(lines) - count + 1)
    return next(([first, first + count] for first in starts if _of_lines(lines, first, first + count) == known), None)


def _of_symbol(content: bytes, symbol: str) -> str | None:
    source = _source_of(content, symbol)
    return None if source is None else _hash(source.encode())


def _source_of(content: bytes, symbol: str) -> str | None:
    """The source of all definitions of a symbol, without indentation, so that every Python version agrees."""
    try:
        body: list[ast.stmt] = ast.parse(content).body
    except (SyntaxError, ValueError):
        return None
    found: list[ast.stmt] = []
    for name in symbol.split("."):
        found = [part for part in _statements(body) if name in _names_of(part)]
        body = [inner for part in found if isinstance(part, _DEFINITIONS) for inner in part.body]
    if not found:
        return None
    lines = content.decode(errors="replace").splitlines()
    return "\n".join(_text_of(part, lines) for part in found)


def _text_of(part: ast.stmt, lines: list[str]) -> str:
    decorators = getattr(part, "decorator_list", [])
    first = min([part.lineno, *(decorator.lineno for decorator in decorators)])
    return dedent("\n".join(line.rstrip() for line in lines[first - 1 : part.end_lineno] if line.strip()))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, including those below `if`, `try` and `with`."""
    for part in body:
        yield part
        if not isinstance(part, _DEFINITIONS):
            for inner in ("body", "orelse", "finalbody"):
                yield from _statements([one for one in getattr(part, inner, []) if isinstance(one, ast.stmt)])
            for handler in getattr(part, "handlers", []):
                yield from _statements(handler.body)


def _names_of(part: ast.stmt) -> list[str]:
    if isinstance(part, _DEFINITIONS):
        return [part.name]
    targets = part.targets if isinstance(part, ast.Assign) else [part.target] if isinstance(part, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def _from_root(root: Path, here: Path, text: str) -> str:
    path, mark, rest = text.partition("::")
    if not mark:
        path, mark, rest = text.rpartition(":")
        if not mark or not rest.replace("-", "").isdigit():
            path, mark, rest = text, "", ""
    local = Path(os.path.abspath(here / path))  # noqa: PTH100 - resolve() would follow links out of the project
    if not Path(path).is_absolute() and not local.exists():
        return text
    if not local.is_relative_to(root):
        raise InvalidInput(
            f"{path!r} is not in the project {root}", hint="name a file of the project, like src/auth.py"
        )
    return f"{local.relative_to(root).as_posix()}{mark}{rest}"


def _checked(path: str) -> str:
    parts = Path(path).parts
    if not path or Path(path).is_absolute() or ".." in parts:
        raise InvalidInput(f"{path!r} is not a path in the project", hint="give a path relative to the project's root")
    return Path(path).as_posix()
