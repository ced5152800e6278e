"""Choosing one of the numbered lines above: by its number or with the arrow keys; Enter takes it, q leaves.

Only one line is drawn again, with spaces over what was there, so it works in any window and writes no escape sequence.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.surfaces.cli.shared.call import Call

HELP = "Enter: {verb}  ↑↓, number: choose  q: leave"
_UP = (b"\x1b[A", b"\x1bOA", b"k")
_DOWN = (b"\x1b[B", b"\x1bOB", b"j", b"\t")
_TAKE = (b"\r", b"\n")
_LEAVE = (b"q", b"Q", b"\x1b", b"\x04", b"")
_GAP, _LEAST_LABEL = 3, 8
_ESCAPE = b"\x1b"
_ESCAPE_SECONDS = 0.05
"""How soon the rest of an arrow key follows its first byte."""


def can_choose(call: Call) -> bool:
    """Whether a person can be asked: there is a terminal on both sides, and asking was not forbidden."""
    return (
        call.output.terminal and sys.stdin.isatty() and not ({"no-input", "quiet"} & {name for name, _ in call.given})
    )


def choose(labels: Sequence[str], verb: str = "resume") -> int | None:
    """The index of the chosen label; None if the person left. Ctrl-C raises KeyboardInterrupt, as everywhere."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        # What was typed ahead counts, so pending input is kept.
        tty.setcbreak(terminal, termios.TCSADRAIN)
        return _loop(terminal, labels, HELP.format(verb=verb))
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        sys.stdout.write("\n")
        sys.stdout.flush()


def _loop(terminal: int, labels: Sequence[str], help_: str) -> int | None:
    at, typed = 0, ""
    while True:
        _draw(f"> {typed or at + 1}  ", labels[at], help_)
        for key in _keys(terminal):
            if key in _TAKE:
                return at
            if key in _LEAVE:
                return None
            at, typed = _moved(key, at, typed, len(labels))


def _moved(key: bytes, at: int, typed: str, count: int) -> tuple[int, str]:
    """The chosen index and the number typed so far, after one key."""
    if key in _UP:
        return (at - 1) % count, ""
    if key in _DOWN:
        return (at + 1) % count, ""
    if key.isdigit():
        number = typed + key.decode()
        if not 0 < int(number) <= count:
            number = key.decode()  # a new number begins
        return (int(number) - 1, number) if 0 < int(number) <= count else (at, "")
    return at, ""


def _keys(terminal: int) -> list[bytes]:
    """The next keys; an arrow is several bytes, and one read may have several keys."""
    found = os.read(terminal, 64)
    if found == _ESCAPE and select.select([terminal], [], [], _ESCAPE_SECONDS)[0]:
        found += os.read(terminal, 64)
    if not found:
        return [b""]
    keys: list[bytes] = []
    while found:
        size = 3 if found[:2] in (b"\x1b[", b"\x1bO") else 1
        keys.append(found[:size])
        found = found[size:]
    return keys


def _draw(number: str, label: str, help_: str) -> None:
    """The line again. A long label gives way to the help: the number says which one it is."""
    from rich.cells import cell_len, set_cell_size

    from onrecord.surfaces.cli.shared.pretty import console, cut

    width = console().width - 1
    room = max(_LEAST_LABEL, width - cell_len(number) - cell_len(help_) - _GAP)
    line = f"{number}{cut(label, room)}{' ' * _GAP}{help_}"
    sys.stdout.write("\r" + set_cell_size(cut(line, width), width) + "\r")
    sys.stdout.flush()
