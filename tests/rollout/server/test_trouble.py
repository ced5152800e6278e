"""Trouble: a store that fails, a machine that is gone, a bug, very long prompts."""

import time

import pytest

from onrecord.errors import OutcomeUnknown, StoreBusy, StoreFull
from tests.rollout.server.places import USER, code_of, message_of

ELSEWHERE = {"host": "elsewhere", "boot": "b", "space": "", "pid": 1, "started": "1", "handle": "h"}


class Failing:
    """Makes a method of a store fail, once for each given problem."""

    def __init__(self, store, name):
        self.problems: list[tuple[Exception, bool]] = []
        real = getattr(store, name)

        def failing(*args, **options):
            if not self.problems:
                return real(*args, **options)
            problem, landed = self.problems.pop(0)
            if landed:
                real(*args, **options)
            raise problem

        setattr(store, name, failing)


@pytest.fixture
def failing(proxy):
    """The proxy's store, with appends that can be made to fail."""
    return Failing(proxy.records.store, "append")


def test_a_store_that_fails_before_the_engine_is_asked(proxy, engine, failing):
    """Without a recorded intent there is no generation: the client gets 503, and its retry succeeds."""
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    failing.problems.append((StoreBusy("busy"), False))
    refused = proxy.chat(session, [USER, message, USER])
    assert code_of(refused) == (503, "store_busy")
    assert refused.headers["retry-after"]
    assert len(engine.requests) == 1
    assert proxy.chat(session, [USER, message, USER]).status_code == 200
    assert proxy.record(session)["head"]["num_assistant"] == 2


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_in_doubt(proxy, engine, failing, landed):
    """If the outcome of a commit is unknown, the client gets no answer; landed or not, the turn counts once in the end."""
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    real, problems = proxy.proxy.chat.upstream.ask, failing.problems

    async def ask(content, session):
        answered = await real(content, session)
        if len(engine.requests) == 2:
            problems.append((OutcomeUnknown("who knows"), landed))
        return answered

    proxy.proxy.chat.upstream.ask = ask
    assert code_of(proxy.chat(session, [USER, message, USER])) == (503, "outcome_unknown")
    assert message_of(proxy.chat(session, [USER, message, USER]))["content"] == "Fine."
    assert len(engine.requests) == (2 if landed else 3)
    assert proxy.record(session)["head"]["num_assistant"] == 2
    assert len({tuple(prompt) for prompt in engine.prompts()[1:]}) == 1


def test_a_lease_that_could_not_be_given_back(proxy, failing):
    """If a full disk keeps a proxy from releasing a lease, the same proxy takes it over later."""
    release = Failing(proxy.records.store, "release")
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    failing.problems += [(StoreFull("full"), False), (StoreFull("full"), False)]
    release.problems.append((StoreFull("full"), False))
    assert code_of(proxy.chat(session, [USER, message, USER])) == (503, "store_full")
    assert proxy.chat(session, [USER, message, USER]).status_code == 200


def test_a_machine_that_is_gone(proxy):
    """A lease held on another machine is free once it expires, and not before."""
    session = proxy.new()
    acquire = proxy.records.store.acquire
    acquire(session, "policy", ELSEWHERE, seconds=300)
    assert code_of(proxy.chat(session, [USER])) == (409, "lease_held")
    lease = acquire(session, "policy", ELSEWHERE, seconds=0.01, takeover=True)
    while time.time() * 1e6 <= lease.until:
        time.sleep(0.01)
    assert proxy.chat(session, [USER]).status_code == 200


def test_a_bug_is_told_and_survived(proxy, engine, tokenizer, monkeypatch):
    """An unexpected error is 500, in the form of every refusal, and the session continues afterwards."""
    session = proxy.new()
    message = message_of(proxy.chat(session, [USER]))
    with monkeypatch.context() as patch:
        patch.setattr("onrecord.rollout.server.chat.read_reply", lambda *_args: 1 / 0)
        broken = proxy.chat(session, [USER, message, USER])
        assert code_of(broken) == (500, "internal")
        assert broken.headers["connection"] == "close", "its client opens another connection"
    assert proxy.chat(session, [USER, message, USER]).status_code == 200
    assert proxy.record(session)["head"]["num_assistant"] == 2
    assert engine.prompts()[1] == engine.prompts()[2]


def test_long_prompts(proxy, engine, tokenizer):
    """Prompts of many thousand ids give the same results."""
    session = proxy.new()
    long = {"role": "user", "content": "Let me see, and the next one, please. " * 3_000}
    message = message_of(proxy.chat(session, [long]))
    proxy.chat(session, [long, message, USER])
    one, two = engine.prompts()
    assert len(one) > 10_000
    assert two[: len(one)] == one
    assert tokenizer.decode(one).startswith("<|im_start|>user\nLet me see")
