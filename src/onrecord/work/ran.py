"""How a command ended: the result of running it, which is recorded and classified."""

from __future__ import annotations

from typing import NamedTuple


class Ran(NamedTuple):
    """How a command ended."""

    exit_code: int
    """As shells give it: 128 + signal if it was killed, 127 if there is no such command, 124 if its time ran out."""
    seconds: float
    output: str
    """The beginning and the end of its output."""
    error_output: str
    """The end of its standard error."""
    size: int
    """How many bytes it printed."""
    left_out: int
    timed_out: bool = False
    stopped_by: int = 0
    """The signal that stopped onrecord itself, if any."""
    killed_by: int = 0
    """The signal that ended the command, if any."""
    traceback: bool = False
    unshown: tuple[tuple[int, bytes], ...] = ()
    """Output that a slow reader had not taken when the command ended."""
