"""Changes of files: what an edit, a patch or a new file adds and removes, line by line."""

from __future__ import annotations

from difflib import unified_diff
from typing import NamedTuple

from onrecord.pages.text import shown

COMPARED = 400
"""The most lines of an edit that are compared; a longer one shows all old lines, then all new ones."""


class Diff(NamedTuple):
    """Lines with their marks, and how many are added and removed."""

    lines: list[str]
    added: int
    removed: int


def of_texts(old: str, new: str) -> Diff:
    """The difference between two texts."""
    before, after = old.splitlines(), new.splitlines()
    if not before or not after or len(before) > COMPARED or len(after) > COMPARED:
        return _counted([*(f"-{line}" for line in before), *(f"+{line}" for line in after)])
    return _counted(list(unified_diff(before, after, lineterm="", n=3))[2:])


def of_patch(text: str) -> Diff:
    """A patch as it was written."""
    return _counted(text.splitlines())


def joined(diffs: list[Diff]) -> Diff:
    """Several changes of one file."""
    lines = [line for number, diff in enumerate(diffs) for line in (["@@", *diff.lines] if number else diff.lines)]
    return Diff(lines, sum(one.added for one in diffs), sum(one.removed for one in diffs))


def _counted(lines: list[str]) -> Diff:
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    return Diff(lines, added, removed)


def diff_lines(lines: list[str]) -> str:
    """Lines of a diff as HTML; neighbours with the same mark share an element."""
    made: list[str] = []
    open_tag = ""
    for line in lines:
        tag = _tag(line)
        if tag != open_tag:
            made.append((f"</{open_tag}>" if open_tag else "") + (f"<{tag}>" if tag else ""))
            open_tag = tag
        made.append(f"{shown(line)}\n")
    return "".join(made) + (f"</{open_tag}>" if open_tag else "")


def _tag(line: str) -> str:
    if line.startswith(("+++ ", "--- ", "@@", "***", "diff --git ")):
        return "i"
    return "ins" if line.startswith("+") else "del" if line.startswith("-") else ""
