"""How a timeline is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Options(NamedTuple):
    """What is shown, and where images are."""

    output: bool = True
    """Whether results of tools are shown; without them a call still says how it ended."""
    media: Callable[[Mapping[str, Any]], str | None] | None = None
    """The address of an image (a `data:` URL, or a path of the page) for the part that names it; None only names it."""
    person: str = "you"
    """How the person who prompts an agent is called."""
