"""How the tests share the machine: most run side by side, and then the serial ones run alone.

`pytest -n 3` starts three workers. They share out the tests that only use what is theirs. When those are done all workers but one
leave, and the last one runs what needs the machine to itself: tests that kill processes in the middle of a write, count who got how
much of it, or measure time. Without `-n` every test runs in one process, in the usual order.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

SERIAL = (
    "tests/crash/test_checkpoint_races.py",
    "tests/crash/test_fencing.py",
    "tests/crash/test_forks_and_signals.py",
    "tests/crash/test_many_writers.py",
    "tests/postgres/test_promises.py",
    "tests/postgres/test_failover.py",
    "tests/postgres/test_partitions_of_the_network.py",
)
"""Node ids with one of these prefixes run alone."""
SLOW = "tests/e2e/"
"""Tests with real coding agents: each takes seconds, most of them waiting. They are spread over the run and all workers."""


def is_serial(nodeid: str) -> bool:
    return nodeid.startswith(SERIAL)


def spread(few: list[int], many: list[int]) -> list[int]:
    """Both lists in one, each in its order, the few at even distances: neighbours run on the same worker, one by one."""
    places = [((place + 0.5) / len(numbers), number) for numbers in (few, many) for place, number in enumerate(numbers)]
    return [number for _place, number in sorted(places)]


class SideBySideThenAlone(LoadScheduling):
    """xdist's own distribution for most tests; the serial ones wait until one worker is left."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._alone: list[int] = []

    @property
    def tests_finished(self) -> bool:
        return not self._alone and super().tests_finished

    @property
    def has_pending(self) -> bool:
        return bool(self._alone) or super().has_pending

    def schedule(self) -> None:
        if self.collection is not None or not self._check_nodes_have_same_collection():
            super().schedule()
            return
        self.collection = next(iter(self.node2collection.values()))
        self.maxschedchunk = self.maxschedchunk or len(self.collection)
        self._alone = [number for number, test in enumerate(self.collection) if is_serial(test)]
        shared = [number for number, test in enumerate(self.collection) if not is_serial(test)]
        slow = [number for number in shared if self.collection[number].startswith(SLOW)]
        self.pending = spread(slow, [number for number in shared if number not in set(slow)])
        for node in self.nodes:
            self.check_schedule(node)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        if self.pending or not self._alone:
            super().check_schedule(node, duration)
        else:
            self._leave_one()

    def remove_node(self, node: WorkerController) -> str | None:
        crashed = super().remove_node(node)
        if self._alone and not self.pending:
            self._leave_one()
        return crashed

    def _leave_one(self) -> None:
        """Nothing is left to share: all workers but one finish; when they are gone, that one gets the serial tests."""
        # A worker runs its last test only when it knows that none follows, or which one: `shutdown` says that none does.
        staying = [node for node in self.nodes if not node.shutting_down]
        for node in staying[1:]:
            node.shutdown()
        if staying == self.nodes[:1] == self.nodes:
            self.pending, self._alone = self._alone, []
            self._send_tests(staying[0], len(self.pending))
            staying[0].shutdown()
