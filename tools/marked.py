"""Tables that a command writes into a page between two comments: the rest of the page belongs to its author."""

from __future__ import annotations

from pathlib import Path


def write_table(page: Path, name: str, command: str, text: str) -> None:
    """Replace what is between `<!-- NAME: written by COMMAND -->` and `<!-- end of NAME -->`."""
    begin, end = f"<!-- {name}: written by {command} -->", f"<!-- end of {name} -->"
    head, begun, rest = page.read_text(encoding="utf-8").partition(begin)
    _old, ended, tail = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"{page.name} has no {begin} with {end} behind it")
    page.write_text(f"{head}{begin}\n{text.strip()}\n{end}{tail}", encoding="utf-8")
