"""The demo on a terminal: short steps that appear as they happen, colour where it matters."""

from __future__ import annotations

from rich.text import Text

from onrecord.surfaces.cli.shared.pretty import console
from onrecord.views.render import one_line, visible

_LABEL = 14


class ScreenStage:
    """The same words as `PlainStage`, with colour."""

    def __init__(self) -> None:
        self._screen = console()
        self._step = 0

    def title(self, text: str) -> None:
        """The one line above everything."""
        self._print(Text.assemble(("onrecord demo", "bold"), ("  ", ""), (text, "dim")))

    def step(self, text: str, *, bad: bool = False) -> None:
        """What happens next, numbered."""
        self._step += 1
        self._screen.print()
        self._print(Text.assemble((f" {self._step} ", "bold reverse"), " ", (text, "bold red" if bad else "bold")))

    def event(self, position: int, kind: str, text: str) -> None:
        """An event that was acknowledged."""
        self._print(Text.assemble((f"   {position:>3}  ", "dim"), (f"{kind:<22} ", "cyan"), one_line(text, 400)))

    def fact(self, label: str, text: str, *, good: bool | None = None) -> None:
        """Something that was found."""
        shape, style = {True: ("✓", "green"), False: ("✗", "bold red"), None: (" ", "")}[good]
        self._print(Text.assemble((f" {shape} ", style), (f"{label:<{_LABEL}} ", "dim"), one_line(text, 400)))

    def quote(self, text: str) -> None:
        """Words from the record."""
        self._print(Text.assemble((" " * (_LABEL + 4), ""), (one_line(text, 400), "italic dim")))

    def page(self, text: str) -> None:
        """A text from the record, as it is."""
        from textwrap import wrap

        for line in text.splitlines():
            for part in wrap(visible(line), max(20, self._screen.width - 6), subsequent_indent="  "):
                self._print(Text.assemble(("   │ ", "dim"), part))

    def check(self, name: str, detail: str, *, ok: bool) -> None:
        """A promise, kept or not."""
        shape, style = ("✓", "green") if ok else ("✗", "bold red")
        self._print(Text.assemble((f" {shape} ", style), name, (f"  {detail}", "dim")))

    def commands(self, lines: list[str]) -> None:
        """What to type next. Long ones wrap, so that they can be copied whole."""
        for line in lines:
            self._screen.print(Text(f"   {line}"), soft_wrap=True)

    def _print(self, line: Text) -> None:
        line.truncate(self._screen.width, overflow="ellipsis")
        self._screen.print(line, no_wrap=True)
