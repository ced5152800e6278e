"""STATE.md: the workspace's readable copy of the state of the work, with regions an agent may write.

A region is fenced by two lines, `<!-- onrecord:begin KEY NAME -->` and `<!-- onrecord:end KEY NAME -->`. The key is a
hash of session, section and the text the region was rendered with, so it shows whether the text was changed, and a
marker copied from elsewhere is only text. Rendered text never contains anything that looks like a marker: comments are
escaped. Only the text inside the fences is read back; a file with fences that are not exactly as rendered is not read
at all.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from onrecord.views.render import visible
from onrecord.views.sections import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.views.fold import Whole
    from onrecord.views.values import Process, Section

    Gone = Callable[[Process], bool]

_HEAD = re.compile(r"<!-- onrecord:state session=(\w+) position=(\d+) outside=([0-9a-f]{12}) -->")
_MARKER = re.compile(r"<!-- onrecord:(begin|end) ([0-9a-f]{12}) (.+) -->")
_HEADING = re.compile(r"^( {0,3})#(?=\s|$)", re.MULTILINE)


class Region(NamedTuple):
    """The text of one region of a file, and whether it was changed since it was rendered."""

    section: str
    text: str
    changed: bool
    base: str
    """The key it was rendered with; it identifies the text that was changed."""


class Read(NamedTuple):
    """What was found in a file."""

    session: str | None
    """The session it was rendered for; None when onrecord did not render the file."""
    position: int
    regions: list[Region]
    whole: bool
    """Whether every fence is as it was rendered, once and in order."""
    untouched_outside: bool
    """Whether the text outside of the regions is as it was rendered."""


def neutral(text: str) -> str:
    """Text that can act neither as a marker or comment, nor as the heading of a section."""
    flat = visible(text.replace("\r\n", "\n"), lines=True).replace("<!--", "&lt;!--").replace("-->", "--&gt;")
    return _HEADING.sub(r"\1\\#", flat).strip("\n").rstrip()


def key_of(session: str, section: str, text: str) -> str:
    """The key in a region's markers: it identifies the text the region was rendered with."""
    return sha256(f"{session}\0{section}\0{text}".encode(errors="surrogatepass")).hexdigest()[:12]


def shown_text(whole: Whole, section: Section) -> str:
    """The text inside the region of a section; empty for one that only grows, since a reader adds to it."""
    return "" if section["rule"] == "append" else neutral(whole.phases.text_of(section["name"]))


def render(whole: Whole, gone: Gone | None = None) -> str:
    """The whole file. `gone` knows which processes are gone."""
    session, name = whole.head.session, whole.head.name
    lines = [
        f"> Made by onrecord from position {whole.position} of session {name}. Write only between begin and end; the",
        "> rest is made from the log and comes back. `onrecord state-file sync` takes in what you wrote.",
    ]
    for section in whole.phases.described():
        lines += ["", f"# {section['name']}", ""]
        lines += [f"*{section['description']}*", ""] if section["description"] else []
        lines += _body(whole, session, section, gone)
    outside = _outside(lines, [number for number, line in enumerate(lines) if _MARKER.fullmatch(line)])
    return "\n".join(
        [f"<!-- onrecord:state session={session} position={whole.position} outside={outside} -->", *lines, ""]
    )


def _body(whole: Whole, session: str, section: Section, gone: Gone | None) -> list[str]:
    name = section["name"]
    if section["rule"] == "generated":
        return [neutral(line) for line in lines_of(whole, section, gone)] or ["(nothing yet)"]
    lines = []
    if section["rule"] == "append" and whole.phases.text_of(name):
        lines = [*neutral(whole.phases.text_of(name)).split("\n"), "", "*Corrections (they are appended):*", ""]
    text = shown_text(whole, section)
    key = key_of(session, name, text)
    inside = text.split("\n") if text else [""]
    return [*lines, f"<!-- onrecord:begin {key} {name} -->", *inside, f"<!-- onrecord:end {key} {name} -->"]


def read(content: str, whole: Whole) -> Read:
    """What a file says inside its fences. It searches only for the writable sections of the profile."""
    lines = content.replace("\r\n", "\n").split("\n")
    head = _HEAD.fullmatch(lines[0].strip())
    if head is None:
        return Read(None, 0, [], whole=False, untouched_outside=False)
    session, position = head[1], int(head[2])
    sections = [one for one in whole.phases.described() if one["rule"] != "generated"]
    marks = _genuine(lines, {one["name"]: key_of(session, one["name"], shown_text(whole, one)) for one in sections})
    order = [(mark[1], mark[3]) for _number, mark in marks]
    keys = [mark[2] for _number, mark in marks]
    if order != [(edge, one["name"]) for one in sections for edge in ("begin", "end")] or keys[::2] != keys[1::2]:
        return Read(session, position, [], whole=False, untouched_outside=False)
    regions = []
    for (begin, opening), (end, _closing) in zip(marks[::2], marks[1::2], strict=True):
        text = neutral("\n".join(lines[begin + 1 : end]))
        changed = key_of(session, opening[3], text) != opening[2]
        regions.append(Region(opening[3], text, changed, opening[2]))
    numbers = [number - 1 for number, _mark in marks]
    same = _outside(lines[1:], numbers) == head[3]
    return Read(session, position, regions, whole=True, untouched_outside=same)


def _genuine(lines: list[str], keys: dict[str, str]) -> list[tuple[int, re.Match[str]]]:
    """The markers that count: those with the key of the present text; where the log moved on, any of that section."""
    marks = [(number, found) for number, line in enumerate(lines) if (found := _MARKER.fullmatch(line.strip()))]
    present = {mark[3] for _number, mark in marks if mark[2] == keys.get(mark[3])}
    return [
        (number, mark)
        for number, mark in marks
        if mark[3] in keys and (mark[2] == keys[mark[3]] or mark[3] not in present)
    ]


def _outside(lines: list[str], marks: list[int]) -> str:
    """A hash of everything that is not inside a region, markers included; `marks` are the lines of the markers."""
    inside = {number for begin, end in zip(marks[::2], marks[1::2], strict=True) for number in range(begin + 1, end)}
    kept = [line.rstrip() for number, line in enumerate(lines) if number not in inside and line.strip()]
    return sha256("\n".join(kept).encode(errors="surrogatepass")).hexdigest()[:12]
