"""Signals, noted instead of acted on: what runs is ended and recorded first."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Any, Self


class NotedSignals:
    """Notes signals while its block runs. `signal` is the first one, `count` how many came.

    `dropped` ones have no effect at all. With `keep_ignored`, a signal that this process was started to ignore
    (`nohup`, `&` in a script) stays ignored.
    """

    def __init__(self, numbers: tuple[int, ...], dropped: tuple[int, ...] = (), *, keep_ignored: bool = False) -> None:
        self.signal = 0
        self.count = 0
        self._numbers, self._dropped, self._keep_ignored = numbers, dropped, keep_ignored
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        with suppress(ValueError):  # not the main thread, which alone gets signals
            for number in self._numbers:
                if not (self._keep_ignored and signal.getsignal(number) is signal.SIG_IGN):
                    self._before[number] = signal.signal(number, self._note)
            for number in self._dropped:
                # A function, not SIG_IGN: children would inherit that.
                self._before[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_problem: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: object) -> None:
        self.signal = self.signal or number
        self.count += 1
