"""What a headless agent prints: its stream has every step as JSON, and a person gets what the program itself prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.vendors.endings import record_in

if TYPE_CHECKING:
    from onrecord.vendors.port import Vendor


class Printer:
    """Turns the lines of a vendor's JSON stream into the text that the program prints without a stream."""

    def __init__(self, of: Vendor) -> None:
        self._of = of
        self._last = ""
        self._open = False
        """The text so far does not end with a line end."""

    def line(self, text: str) -> str:
        """What to print for one line of the stream. A line that is no JSON is printed as it is."""
        record = record_in(text)
        if record is None:
            return self._said(f"{text}\n")
        said = self._of.printed(record)
        if said and self._of.prints_last:
            self._last, said = said, ""
        return self._said(said)

    def end(self) -> str:
        """What is left to print when the program has ended."""
        said = self._said(self._last)
        return f"{said}\n" if self._open else said

    def _said(self, text: str) -> str:
        self._open = not text.endswith("\n") if text else self._open
        return text
