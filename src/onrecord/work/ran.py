"""How a command ended: the result of running it, which is recorded and classified."""

from __future__ import annotations

from typing import NamedTuple


class Ran(NamedTuple):
    """How a command ended."""

    exit_code: int
    """As shells give it: 128 + signal if it was killed, 127 if there is no such command, 124 if its time ran out."""
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
    """Output that a slow reader had not taken when the command ended."""
