"""No silent skip in CI."""

import os

import pytest

ALLOWED_SKIP = "cannot run here:"


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in {"", "0", "false", "no"}


class NoSilentSkips:
    """Under CI a skipped test is a failure, unless its reason says why it cannot run on this machine."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        where = report.longrepr
        reason = where[2] if isinstance(where, tuple) else str(where)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(ALLOWED_SKIP):
            self.found.append(f"{report.nodeid}: {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if in_ci() and self.found and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if in_ci() and self.found:
            terminalreporter.section("skipped in CI", red=True, bold=True)
            for line in self.found:
                terminalreporter.line(line)
            terminalreporter.line(f'A reason that starts with "{ALLOWED_SKIP}" is accepted; any other skip fails.')
