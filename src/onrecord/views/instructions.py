"""The instructions: the short block an agent needs to keep the record. One text for every domain.

It is between two markers with its version and the hash of its content, so that it can be found and updated, never
occurs twice, and a change by hand is detected. In a Jinja2 template it is a variable, `{{ onrecord_instructions }}`;
`placed` puts it into a text that lost it, so that no override of a template can drop it.
"""

from __future__ import annotations

import re
from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.views.values import Profile

BLOCK_VERSION = 1
"""Changes with the form of the block; its text may change without it."""
_BLOCK = re.compile(
    r"<!-- onrecord:instructions (?:\d+ )?([0-9a-f]{8}) -->\r?\n(.*?)"
    r"\r?\n?<!-- onrecord:instructions end -->(?:\r?\n)?",
    re.DOTALL,
)
_BASICS = """\
This work is kept on record by onrecord. If it isn't on record, it didn't happen.
- First: `onrecord continue`. It names the next step, what is verified (reuse it) and what was rejected (do not retry).
- Run things with `onrecord run -- COMMAND`. Settle what is unresolved before you edit or run anything else.
- A claim is a finding with evidence: `onrecord finding state "CLAIM" --label verified --evidence ID`.
- Before you stop: `onrecord next "..." --command "..."`, then `onrecord note check`. A summary alone is not an end."""
_BESIDE_TOOLS = """\
This work is kept on record by onrecord. If it isn't on record, it didn't happen.
- First: the onrecord tool `resume` (without the tools: `onrecord continue`). Then ask and `record` as you work.
- Run things with `onrecord run -- COMMAND`: it keeps the output, and its id is the evidence for a finding.
- Before you stop: `record` the next action, then `onrecord note check`. A summary alone is not an end."""
_PHASES = """\
- Profile {name}: {phases}. `onrecord phase enter NAME`, then work, then `onrecord phase finish NAME`.
- STATE.md is made from the log. Write only between its begin and end markers, or with `onrecord section NAME --text`;
  one line per action with `onrecord worklog TEXT`. A phase is finished by its sections, not by a work log line."""


def block(profile: Profile | None = None, *, tools: bool = False) -> str:
    """The block for a profile, or for work without one; shorter for an agent that has our tools."""
    parts = [_BESIDE_TOOLS if tools else _BASICS]
    if profile:
        phases = ", ".join(f"{one['number']} {one['name']}" for one in profile["phases"])
        parts.append(_PHASES.format(name=profile["name"], phases=phases))
        parts += [f"- {line.strip()}" for line in profile["instructions"].splitlines() if line.strip()]
    text = "\n".join(parts)
    return (
        f"<!-- onrecord:instructions {BLOCK_VERSION} {_digest(text)} -->\n{text}\n<!-- onrecord:instructions end -->\n"
    )


def placed(text: str, wanted: str) -> str:
    """A text with the wanted block exactly once: in place of an existing block, or at the end."""
    found = list(_BLOCK.finditer(text))
    if not found:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{wanted}"
    first = found[0]
    after = _BLOCK.sub("", text[first.end() :])
    return text[: first.start()] + wanted + after


def has_block(text: str) -> bool:
    """Whether a text has an instructions block."""
    return _BLOCK.search(text) is not None


def is_changed(text: str) -> bool:
    """Whether a block was changed by hand: its hash is not the one in its marker."""
    return any(_digest(found[2].replace("\r\n", "\n")) != found[1] for found in _BLOCK.finditer(text))


def installed(text: str | None, wanted: str) -> str:
    """A file's text with the wanted block, in place of one or at the end after a line break; None means no file."""
    if text is None:
        return wanted
    if "\r\n" in text:
        wanted = wanted.replace("\n", "\r\n")
    found = list(_BLOCK.finditer(text))
    if not found:
        return f"{text}{_line_end(text)}{wanted}"
    first = found[0]
    return text[: first.start()] + wanted + _BLOCK.sub("", text[first.end() :])


def removed(text: str) -> str | None:
    """The text without the block and the line break before it; None if the block was its only content."""
    found = _BLOCK.search(text)
    if found is None:
        return text
    if found.span() == (0, len(text)):
        return None
    before, end = text[: found.start()], _line_end(text)
    return removed(before.removesuffix(end) + text[found.end() :])


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
