"""How the tests are run: `--full` for the long form, Hypothesis profiles, and no silent skip in CI."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.parallel import SideBySideThenAlone
    from tests.postgres.servers import Stores

FULL_TIMEOUT_SECONDS = 3600
ALLOWED_SKIP = "cannot run here:"

settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,  # a shared machine is slow now and then; slowness is measured in bench, not here
    derandomize=True,  # CI must fail for the change it tests, not for the seed it drew
    database=None,
)
settings.register_profile(
    "full",
    max_examples=5_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in {"", "0", "false", "no"}


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.hasplugin("timeout"):
        # The crash tests need no extra; without this plugin a hung test hangs, and everything else is the same.
        parser.addini("timeout", "not enforced: pytest-timeout is not installed")
    parser.addoption("--full", action="store_true", help="run every test in its long form")
    parser.addoption("--update-stories", action="store_true", help="write what the stories show into their files")


def pytest_configure(config: pytest.Config) -> None:
    # A run in the background (`&` in a script, nohup) ignores these, and so would every program that a test starts.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    settings.load_profile("full" if config.getoption("--full") else "ci")
    config.addinivalue_line("markers", "timeout(seconds): how long this test may take")
    config.addinivalue_line("markers", "every_store: run on PostgreSQL too, not only with --full")
    config.addinivalue_line("markers", "on_file: about a store in a file, whatever `every_store` says")
    config.pluginmanager.register(NoSilentSkips(), "no-silent-skips")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(FULL_TIMEOUT_SECONDS))


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody asks
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "SideBySideThenAlone":
    from tests.parallel import SideBySideThenAlone

    return SideBySideThenAlone(config, log)


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether this is the long form of the run."""
    return bool(pytestconfig.getoption("--full"))


@pytest.fixture(scope="session")
def count(full: bool) -> Callable[[int, int], int]:
    """How often to do something: `count(ci, full)`."""

    def choose(ci: int, full_count: int) -> int:
        return full_count if full else ci

    return choose


@pytest.fixture(scope="session")
def postgres() -> Iterator["Stores"]:
    """A PostgreSQL server for the whole run, started by the first test that wants it."""
    from tests.postgres.servers import Stores, running

    with running() as server:
        yield Stores(server)


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
