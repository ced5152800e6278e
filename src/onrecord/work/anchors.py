"""Anchors: places in the code a finding rests on, and their fingerprints.

An anchor is written `path`, `path:10-20` or `path::Class.method`. A fingerprint covers what stands there, not where:
lines that only moved, because something was inserted above them, still have it.
"""

from __future__ import annotations

import ast
from hashlib import sha256
from pathlib import Path
from typing import Any

from onrecord.errors import InvalidInput

ANCHOR_BYTES = 16 * 1024 * 1024
"""The largest file a finding may rest on."""


def parse_anchor(text: str) -> dict[str, Any]:
    """An anchor from how people write it."""
    path, is_symbol, symbol = text.partition("::")
    if is_symbol:
        return {"path": _checked(path), "symbol": symbol}
    path, has_lines, lines = text.rpartition(":")
    if has_lines and lines.replace("-", "").isdigit():
        first, _dash, last = lines.partition("-")
        span = [int(first), int(last or first)]
        if not 1 <= span[0] <= span[1]:
            raise InvalidInput(f"{text!r} names no lines", hint="like src/auth.py:10-20")
        return {"path": _checked(path), "lines": span}
    return {"path": _checked(text)}


def fingerprint(root: Path, anchor: dict[str, Any], known: str | None = None) -> str | None:
    """The fingerprint of what stands at an anchor; None when nothing does. `known` is recognised where it moved to."""
    try:
        place = root / anchor["path"]
        if place.stat().st_size > ANCHOR_BYTES:
            raise InvalidInput(f"{anchor['path']} is too large to rest a finding on", hint="name a smaller file")
        content = place.read_bytes()
    except (OSError, ValueError):
        return None
    if anchor.get("symbol"):
        return _of_symbol(content, anchor["symbol"])
    if anchor.get("lines"):
        first, last = anchor["lines"]
        return _of_lines(content.splitlines(), first, last, known)
    return _hash(content)


def anchored(root: Path, text: str) -> dict[str, Any]:
    """An anchor with the fingerprint it has now; an error if nothing stands there."""
    anchor = parse_anchor(text)
    found = fingerprint(root, anchor)
    if found is None:
        raise InvalidInput(
            f"nothing stands at {text!r}", hint="path, path:10-20 or path::Class.method, below the project"
        )
    return anchor | {"fingerprint": found}


def _of_lines(lines: list[bytes], first: int, last: int, known: str | None) -> str | None:
    count = last - first + 1
    here = _hash(b"\n".join(lines[first - 1 : last])) if last <= len(lines) else None
    if here == known or known is None:
        return here
    windows = (_hash(b"\n".join(lines[start : start + count])) for start in range(len(lines) - count + 1))
    return known if known in windows else here


def _of_symbol(content: bytes, symbol: str) -> str | None:
    try:
        body: list[ast.stmt] = ast.parse(content).body
    except (SyntaxError, ValueError):
        return None
    found: ast.stmt | None = None
    for name in symbol.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((part for part in body if isinstance(part, kinds) and part.name == name), None)
        if found is None:
            return None
        body = getattr(found, "body", [])
    # What the code does, not how it is laid out: comments and formatting do not make a finding stale.
    return _hash(ast.dump(found).encode()) if found is not None else None


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def _checked(path: str) -> str:
    parts = Path(path).parts
    if not path or Path(path).is_absolute() or ".." in parts:
        raise InvalidInput(f"{path!r} is no path below the project", hint="give it relative to the project's root")
    return Path(path).as_posix()
