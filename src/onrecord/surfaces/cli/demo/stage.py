"""Where the demo appears: plain lines here; `screen` does the same for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from onrecord.views.render import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

_WIDTH = 100


class Stage(Protocol):
    """What the demo can show."""

    def title(self, text: str) -> None:
        """The one line above everything."""

    def step(self, text: str, *, bad: bool = False) -> None:
        """What happens next."""

    def event(self, position: int, kind: str, text: str) -> None:
        """An event that was acknowledged."""

    def fact(self, label: str, text: str, *, good: bool | None = None) -> None:
        """Something that was found."""

    def quote(self, text: str) -> None:
        """Words from the record."""

    def page(self, text: str) -> None:
        """A text from the record, as it is."""

    def check(self, name: str, detail: str, *, ok: bool) -> None:
        """A promise, kept or not."""

    def commands(self, lines: list[str]) -> None:
        """What to type next."""


class PlainStage:
    """Lines without colour, for pipes and files."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line
        self._step = 0

    def title(self, text: str) -> None:
        """The one line above everything."""
        self._line(f"onrecord demo: {text}")

    def step(self, text: str, *, bad: bool = False) -> None:
        """What happens next, numbered."""
        del bad  # a pipe has no colour
        self._step += 1
        self._line("")
        self._line(f"{self._step}. {text}")

    def event(self, position: int, kind: str, text: str) -> None:
        """An event that was acknowledged."""
        self._line(f"   {position:>3} {kind:<22} {one_line(text, _WIDTH)}")

    def fact(self, label: str, text: str, *, good: bool | None = None) -> None:
        """Something that was found."""
        self._line(f"   {label:<14} {'' if good is not False else 'NO: '}{text}")

    def quote(self, text: str) -> None:
        """Words from the record."""
        self._line(f"     {one_line(text, _WIDTH)}")

    def page(self, text: str) -> None:
        """A text from the record, as it is."""
        for line in text.splitlines():
            self._line(f"   | {line}")

    def check(self, name: str, detail: str, *, ok: bool) -> None:
        """A promise, kept or not."""
        self._line(f"   {'ok' if ok else 'FAILED':<6} {name} ({detail})")

    def commands(self, lines: list[str]) -> None:
        """What to type next."""
        for line in lines:
            self._line(f"   {line}")
