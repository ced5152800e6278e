"""How a command ended: running returns this value; recording and judging use it."""

from __future__ import annotations

from typing import NamedTuple


class Ran(NamedTuple):
    """How a command ended."""

    exit_code: int
    """As in a shell: 128 + signal if killed, 127 if there is no such command, 124 after a timeout."""
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
    """Output that a slow reader had not read when the command ended."""
