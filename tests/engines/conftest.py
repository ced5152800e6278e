"""The tests of real engines run by `./dev engines` only: it installs the engine and says which one."""

import pytest

from examples.rollout.running import proxy
from tests.engines.real import MODEL, Engine, Scorer, about


def pytest_addoption(parser):
    parser.addoption("--engine", default=None, help="the engine that ./dev engines has installed")
    parser.addoption("--engine-results", default=None, help="a file for what was counted")


def pytest_ignore_collect(config):
    return True if config.getoption("--engine", None) is None else None


def pytest_generate_tests(metafunc):
    if "dialect" in metafunc.fixturenames:
        engine, name = about(metafunc.config.getoption("--engine")), metafunc.function.__name__
        metafunc.parametrize("dialect", engine["dialects"] if name in engine.get("tests", [name]) else [])


@pytest.fixture(scope="session")
def engine(pytestconfig, tmp_path_factory):
    place = tmp_path_factory.mktemp("engine")
    engine = Engine(pytestconfig.getoption("--engine"), place / "engine.log")
    try:
        engine.start()
        yield engine
    finally:
        engine.kill()


@pytest.fixture(scope="session")
def scorer(pytestconfig, tmp_path_factory):
    scorer = Scorer(pytestconfig.getoption("--engine"), tmp_path_factory.mktemp("scorer") / "scorer.log")
    yield scorer
    scorer.stop()


@pytest.fixture
def start(engine, tmp_path):
    """Starts proxies as users do; they are stopped at the end."""
    started = []

    def starter(dialect, *options):
        one = proxy(
            tmp_path / "store.db", engine.url, MODEL / "a", "--dialect", dialect, *options, log=tmp_path / "proxy.log"
        )
        started.append(one)
        return one

    yield starter
    for one in started:
        one.stop()
