"""Real processes that work in a session until they get an order, or are suspended or killed."""

import atexit
import os
from functools import cache
from types import TracebackType
from typing import Self

import onrecord
from onrecord.errors import OnrecordError
from tests.crash.nursery import Nursery, Pipes


def run_lines(pipes: Pipes, url: str, code: str) -> None:
    """What a child does: some lines of Python, which have a store and two functions to speak with the test."""
    records = onrecord.connect(url, project="/project")
    names = {"os": os, "records": records, "say": pipes.say, "listen": pipes.order, "OnrecordError": OnrecordError}
    exec(code, names)  # the code is the test's own


@cache
def _nursery() -> Nursery:
    """Forks the children: an interpreter with our modules takes longer to start than these tests."""
    found = Nursery(__name__, "onrecord.stores.postgres.store")
    atexit.register(found.close)
    return found


class Child:
    """A process that runs a few lines on a store: a test can read its output and order it to continue."""

    def __init__(self, url: str, code: str) -> None:
        self._worker = _nursery().start(run_lines.__name__, url=url, code=code)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._worker.pid

    def hear(self) -> str:
        """The next line it prints, or its error."""
        return self._worker.line()

    def tell(self, line: str = "go on") -> None:
        self._worker.order(line)

    def suspend(self) -> None:
        self._worker.stop()

    def resume(self) -> None:
        self._worker.go_on()

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is tidied up."""
        if self._worker.status is None:
            self._worker.kill()
