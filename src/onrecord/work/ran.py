"""How a command ended: the value that running gives and that recording and judging take."""

from __future__ import annotations

from typing import NamedTuple


class Ran(NamedTuple):
    """How a command ended."""

    exit_code: int
    """Of the shell's kind: 128 + signal for a killed one, 127 when there is no such command, 124 when out of time."""
    seconds: float
    output: str
    """The beginning and the end of what it printed."""
    error_output: str
    """The end of what it printed to standard error."""
    size: int
    """How many bytes it printed."""
    left_out: int
    timed_out: bool = False
    stopped_by: int = 0
    """The signal that onrecord itself was stopped with, if it was."""
    killed_by: int = 0
    """The signal that ended the command, if one did."""
    traceback: bool = False
    unshown: tuple[tuple[int, bytes], ...] = ()
    """Output whose reader was too slow to take it while the command ran."""
