"""The known vendors, by their names and by the names of their programs."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MODULES = {
    "claude": "onrecord.vendors.claude", "codex": "onrecord.vendors.codex", "gemini": "onrecord.vendors.gemini",
    "copilot": "onrecord.vendors.copilot", "cursor": "onrecord.vendors.cursor",
    "opencode": "onrecord.vendors.opencode", "qwen": "onrecord.vendors.qwen",
}  # fmt: skip
VENDORS = tuple(_MODULES)
"""Known vendors; each is a module of this room with a `VENDOR`."""


def load(name: str) -> Any:
    """The vendor of this name; `port.vendor` is the same with its type, and loads the whole port."""
    from onrecord.errors import InvalidInput

    if name not in _MODULES:
        raise InvalidInput(f"no vendor is named {name!r}", hint=f"use one of {', '.join(VENDORS)}")
    __import__(_MODULES[name])
    return sys.modules[_MODULES[name]].VENDOR


def vendor_of(command: str) -> str | None:
    """The vendor of a program, by the last part of its path; None for other programs."""
    program = command.rpartition("/")[2]
    return {"claude": "claude", "codex": "codex", "gemini": "gemini", "copilot": "copilot", "cursor-agent": "cursor",
            "agent": "cursor", "cursor": "cursor", "opencode": "opencode", "qwen": "qwen"}.get(program)  # fmt: skip
