"""Engines and proxies for the tests; each test ends its own."""

import pytest

import onrecord
from examples.rollout.tokenizer import make
from onrecord.rollout.server.loading import load_tokenizer
from tests.rollout.server.places import RunningProxy, ScriptedEngine


@pytest.fixture(scope="session")
def tokenizer_place(tmp_path_factory):
    """A directory with a tokenizer."""
    return make(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_place):
    """The tokenizer itself."""
    return load_tokenizer(str(tokenizer_place))


@pytest.fixture
def engine(tokenizer):
    """An engine that follows a script."""
    engine = ScriptedEngine(tokenizer)
    yield engine
    engine.stop()


@pytest.fixture
def start(tmp_path, tokenizer, engine):
    """Starts proxies on one store; `store` is the name or URL of another one."""
    running = []

    def start(*, store="store.db", upstream=None, with_tokenizer=None, **options):
        records = onrecord.connect(store if "://" in store else str(tmp_path / store), project="rollouts")
        running.append(RunningProxy(records, with_tokenizer or tokenizer, upstream or engine.url, **options))
        return running[-1]

    yield start
    for proxy in running:
        proxy.stop()
        proxy.records.close()


@pytest.fixture
def proxy(start):
    """A proxy with the usual settings."""
    return start()
