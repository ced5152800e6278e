"""How the tests are run: `--full` for the long form, Hypothesis profiles, and no silent skip in CI."""

import gc
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import tests.scratch  # noqa: F401  # chooses where temporary files are, before the first use
from tests.frameworks.environments import notice
from tests.skips import NoSilentSkips

if TYPE_CHECKING:
    from tests.parallel import SideBySideThenAlone
    from tests.postgres.servers import Stores

FULL_TIMEOUT_SECONDS = 3600

gc.disable()  # until the tests are collected: what is imported and collected stays to the end

settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,  # a shared machine is sometimes slow; bench measures slowness, not these tests
    derandomize=True,  # CI must fail for the change it tests, not for the seed it drew
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # the same: it looks at the clock
)
settings.register_profile(
    "full",
    max_examples=5_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


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
    if not config.getoption("--full"):
        # Hypothesis parses every loaded module and tries its constants as values. That takes seconds in every worker, and makes
        # the examples depend on what else a worker has imported.
        providers._get_local_constants = lambda: providers._local_constants
    config.addinivalue_line("markers", "timeout(seconds): how long this test may take")
    config.addinivalue_line("markers", "only_full: run with --full only, because a shorter test shows most of it")
    config.addinivalue_line("markers", "every_store: run on PostgreSQL too, not only with --full")
    config.addinivalue_line("markers", "on_file: about a store in a file, whatever `every_store` says")
    config.pluginmanager.register(NoSilentSkips(), "no-silent-skips")


def pytest_collection_finish() -> None:
    """Garbage collection looks at what the tests make, and not at ten thousand tests and every imported library again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(FULL_TIMEOUT_SECONDS))
        return
    left_out = [item for item in items if item.get_closest_marker("only_full") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests of frameworks that are not installed; here, because only this file is read by every run."""
    if line := notice(config.args):
        terminalreporter.line(line)


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist the hook does not exist
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
    """A PostgreSQL server for the whole run, started by the first test that needs it."""
    from tests.postgres.servers import Stores, running

    with running() as server:
        yield Stores(server)
