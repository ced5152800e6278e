"""How the tests share the machine: most run side by side, and then the serial ones run alone.

`pytest -n 3` starts three workers. They share out the tests that only use what is theirs; some of them stay together, because they
share something costly. When those are done all workers but one leave, and the last one runs what needs the machine to itself: tests that
kill processes in the middle of a write, count who got how much of it, or measure time. A test that drives real programs and failed among
the others then runs a second time, and the result says so. Without `-n` every test runs once, in one process, in the usual order.
"""

from collections.abc import Generator, Sequence
from itertools import cycle
from typing import Any

import pytest
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

SERIAL = (
    "tests/crash/test_checkpoint_races.py",
    "tests/crash/test_fencing.py",
    "tests/crash/test_forks_and_signals.py",
    "tests/crash/test_many_writers.py",
    "tests/postgres/test_promises.py::test_a_server_that_is_away_is_said_to_be_away",
    "tests/postgres/test_promises.py::test_a_stopped_process_writes_nothing_when_it_wakes",
    "tests/postgres/test_promises.py::test_acknowledged_survives_kill_9_of_its_writer",
    "tests/postgres/test_promises.py::test_control_",
    "tests/postgres/test_promises.py::test_none_of_sixteen_writers_starves",
    "tests/postgres/test_partitions_of_the_network.py",
)
"""Node ids with one of these prefixes run alone."""
SLOW = ("tests/e2e/", "tests/crew/test_headless.py", "tests/crew/test_panes.py", "tests/setup/test_setup.py")
"""Tests with real coding agents, teams and checked setups: each takes seconds, most of them waiting. They are spread over the run and
all workers."""
SLOW_UNTIL = 0.8
"""In this part of the run: short tests then fill what is left, and no worker ends long after the others."""
TOGETHER = ("tests/web/", "tests/frameworks/", "tests/mcp/", "tests/rollout/server/", "tests/test_tidy.py")
"""Tests that share something costly: a browser with a server, the import of a framework, the syntax tree of every module. Those with the
same opening run on one worker, at the beginning: the other workers do not pay for it, and the run does not end with them."""
DRIVING = (
    "tests/e2e/", "tests/web/", "tests/mcp/", "tests/crew/", "tests/frameworks/", "tests/engines/", "tests/test_examples.py",
)  # fmt: skip
"""Tests that drive real programs, browsers or servers, which sometimes fail for want of the processor. One that failed among the others
runs again, alone. A failure of any other test counts at once: nothing outside explains it."""
SECOND_RUNS = 3
"""So many tests of a run may run again. When more of them fail, the cause is not chance, and each further failure counts at once."""
AGAIN = "run again"


def is_serial(nodeid: str) -> bool:
    return nodeid.startswith(SERIAL)


def spread(few: list[int], many: list[int]) -> list[int]:
    """Both lists in one, each in its order, the few at even distances: neighbours run on the same worker, one by one."""
    places = [
        (share * (place + 0.5) / len(numbers), number)
        for numbers, share in ((few, SLOW_UNTIL), (many, 1.0))
        for place, number in enumerate(numbers)
    ]
    return [number for _place, number in sorted(places)]


def together(collection: Sequence[str], shared: list[int], workers: int) -> list[list[int]]:
    """The groups of tests that stay together, unless one is more than a worker's share of the run: then it is shared out."""
    groups = [[number for number in shared if collection[number].startswith(opening)] for opening in TOGETHER]
    return [group for group in groups if 0 < len(group) * workers <= len(shared)]


class SecondRuns:
    """Which tests run again, why, and with what result. The first failure is no failure of the run until the second run has ended."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._first: dict[str, str] = {}
        """What the first failure of each test said."""
        self._begun: set[str] = set()
        self._passed: set[str] = set()

    def is_due(self, nodeid: str) -> bool:
        """Whether this test, which has just ended, runs again."""
        due = nodeid in self._first and nodeid not in self._begun
        if due:
            self._begun.add(nodeid)
        return due

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        if report.failed and self._is_forgiven(report):
            self._first[report.nodeid] = f"{self._first.get(report.nodeid, '')}{report.longreprtext}\n"
            report.outcome = AGAIN  # type: ignore[assignment]  # pytest counts and shows outcomes that it does not know
        elif report.passed and report.when == "call" and report.nodeid in self._begun:
            self._passed.add(report.nodeid)
        return (yield)

    def _is_forgiven(self, report: pytest.TestReport) -> bool:
        if report.nodeid in self._first:
            return report.nodeid not in self._begun  # what failed in the test often fails in its teardown, too
        in_test = report.when in {"setup", "call"}  # not a teardown after a test that passed, nor the death of a worker
        return in_test and report.nodeid.startswith(DRIVING) and len(self._first) < self._allowed

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return (AGAIN, "R", AGAIN.upper()) if report.outcome == AGAIN else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._first.keys() - self._passed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED  # the second run did not take place

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._first:
            return
        terminalreporter.section("first failures of tests that ran again", yellow=True)
        for nodeid, said in self._first.items():
            terminalreporter.section(nodeid, sep="_")
            terminalreporter.line(said)
        if self._passed:
            tests = "1 test" if len(self._passed) == 1 else f"{len(self._passed)} tests"
            terminalreporter.section(f"{tests} passed only when run again alone", yellow=True, bold=True)
            for nodeid in sorted(self._passed):
                terminalreporter.line(nodeid)


class SideBySideThenAlone(LoadScheduling):
    """xdist's own distribution for most tests; the serial ones, and those that run again, wait until one worker is left."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._alone: list[int] = []
        self._second_runs = SecondRuns(0 if config.getoption("maxfail") else SECOND_RUNS)
        config.pluginmanager.register(self._second_runs, "second-runs")

    @property
    def tests_finished(self) -> bool:
        # While two workers are left, one of them may still end with a test that runs again.
        may_end = self.collection is None or len(self.nodes) < 2
        return may_end and not self._alone and super().tests_finished

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
        groups = together(self.collection, shared, len(self.nodes))
        for node, group in zip(cycle(self.nodes), groups, strict=False):
            self.node2pending[node].extend(group)
            node.send_runtest_some(group)
        given = {number for group in groups for number in group}
        slow = [number for number in shared if self.collection[number].startswith(SLOW)]
        self.pending = spread(slow, [number for number in shared if number not in given.union(slow)])
        for node in self.nodes:
            self.check_schedule(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        assert self.collection is not None
        if self._second_runs.is_due(self.collection[item_index]):
            self._alone.append(item_index)
        super().mark_test_complete(node, item_index, duration)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        if self.pending:
            super().check_schedule(node, duration)
        else:
            self._leave_one()

    def remove_node(self, node: WorkerController) -> str | None:
        crashed = super().remove_node(node)
        if not self.pending:
            self._leave_one()
        return crashed

    def _leave_one(self) -> None:
        """Nothing is left to share: all workers but one finish; when they are gone, that one gets the tests that run alone."""
        # A worker runs its last test only when it knows that none follows, or which one: `shutdown` says that none does. The last
        # worker gets it from xdist, when this scheduler says that the tests are finished.
        staying = [node for node in self.nodes if not node.shutting_down]
        for node in staying[1:]:
            node.shutdown()
        if self._alone and staying == self.nodes[:1] == self.nodes:
            self.pending, self._alone = self._alone, []
            self._send_tests(staying[0], len(self.pending))
