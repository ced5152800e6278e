"""Kill -9 at every step of a turn: the next prompt has the same ids, and no turn is lost or doubled."""

import itertools
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from bench.rollout_load import run_load
from examples.rollout.running import Server
from examples.rollout.running import proxy as serving
from tests.rollout.server.places import USER, aborts, code_of, message_of, says, waits

ROOT = Path(__file__).resolve().parents[3]
STEPS = ["intent", "abort", "second intent", "commit"]
"""The appends of a turn that is aborted once, in a proxy that just started: its first intent takes the lease too."""
DEATHS = [
    ("intent", "before"), ("intent", "after"), ("abort", "before"), ("abort", "after"),
    ("second intent", "after"), ("commit", "before"), ("commit", "after"),
]  # fmt: skip
"""Between two steps the engine may or may not have been called: these are all the different moments."""
TURNS, KILLS = 210, 5
"""Of the test with random routing."""


@pytest.fixture
def dying(tmp_path, engine, tokenizer_place):
    """Starts a proxy in its own process, which dies at the given step."""

    def start(*words):
        return Server(
            "-m", "tests.rollout.server.dying", *words, "rollout", "serve", "--store", str(tmp_path / "store.db"),
            "--project", "rollouts", "--upstream", engine.url, "--tokenizer", str(tokenizer_place), "--port", "0",
            environment={"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        )  # fmt: skip

    return start


def post(url, session, messages):
    path = f"{url}/sessions/{session}/v1/chat/completions"
    return httpx.post(path, json={"model": "policy", "messages": messages}, timeout=60, trust_env=False)


def begun(proxy):
    """A session with one turn, and the messages of the next one."""
    session = proxy.new()
    return session, [USER, message_of(proxy.chat(session, [USER])), USER]


@pytest.mark.parametrize(("step", "when"), DEATHS)
def test_killed_at_every_step(start, engine, dying, step, when):
    """Whichever step of a turn was the last, the next proxy continues with the same ids, and the turn counts once."""
    first = start()
    undisturbed, messages = begun(first)
    for _turn in range(2):
        messages += [message_of(first.chat(undisturbed, messages)), USER]
    expected = engine.prompts()[:]
    engine.requests.clear()
    session, messages = begun(first)
    first.stop()
    engine.script.append(aborts("Let me"))
    with dying(str(STEPS.index(step) + 1), when) as mortal:
        with pytest.raises(httpx.TransportError):
            post(mortal.url, session, messages)
        assert mortal.process.wait(90) == -signal.SIGKILL
    engine.script.clear()
    asked = len(engine.requests)
    second = start()
    messages += [message_of(second.chat(session, messages)), USER]
    answered = (step, when) == ("commit", "after")
    assert len(engine.requests) == asked + (0 if answered else 1)
    message_of(second.chat(session, messages))
    assert engine.prompts()[0] == expected[0]
    assert engine.prompts()[-1] == expected[2]
    assert {tuple(prompt) for prompt in engine.prompts()[1:-1]} == {tuple(expected[1])}
    record = second.record(session)
    assert record["messages"][:-1] == messages
    assert [one["status"] for one in record["records"]] == ["COMPLETED"] * 3


def test_killed_while_the_engine_generates(start, engine, dying):
    """If a process dies while the engine generates, the turn is incomplete; the same request starts it again at once."""
    first = start()
    session, messages = begun(first)
    first.stop()
    assert engine.arrived.acquire(timeout=90)
    engine.script.append(waits(says("Nobody hears this.")))
    with dying("99", "after") as mortal, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(post, mortal.url, session, messages)
        assert engine.arrived.acquire(timeout=60)
        second = start()
        assert code_of(second.chat(session, messages)) == (409, "lease_held")
        mortal.kill()
        with pytest.raises(httpx.TransportError):
            asked.result()
    engine.go_on.set()
    assert message_of(second.chat(session, messages))["content"] == "Fine."
    assert engine.prompts()[1] == engine.prompts()[2]
    assert second.record(session)["head"]["num_assistant"] == 2


def test_a_rollout_whose_process_died_is_incomplete(start, dying):
    """Without another request, the sample ends with the turn that never ended: INCOMPLETE, nothing else."""
    first = start()
    session, messages = begun(first)
    first.stop()
    with dying("2", "before") as mortal, pytest.raises(httpx.TransportError):
        post(mortal.url, session, messages)
    (sample,) = start().http.post(f"/sessions/{session}/samples").json()["samples"]
    assert sample["status"] == "INCOMPLETE"


@pytest.mark.timeout(900)
def test_a_load_with_kills(tmp_path, count):
    """Many sessions, one reply in ten aborted, weights updated, the proxy killed three times: every turn is there once.

    Every prompt and every output is compared id by id with the expected one; every answer with the record.
    """
    load = run_load(tmp_path, sessions=count(16, 64), turns=count(12, 50), kills=3)
    assert load.problems == []
    assert load.answered == load.sessions * load.turns
    assert load.engine["aborted"] > 0
    assert load.engine["weight_version"] > 1
    assert load.killed == 3
    assert load.health


@pytest.mark.timeout(900)
def test_agents_move_between_proxies(tmp_path, count):
    """Two proxies share a store; if one is killed, its agents continue with the other, and nothing is lost or doubled."""
    load = run_load(tmp_path, sessions=count(10, 64), turns=count(8, 50), kills=count(2, 4), proxies=2)
    assert load.problems == []
    assert load.answered == load.sessions * load.turns
    assert load.killed == load.kills


def test_random_routing_with_kills_of_a_process(start, engine, tmp_path, tokenizer_place):
    """Two proxies, one of them a process that is killed now and then: every turn continues its base, none is lost."""
    here, rng = start(), random.Random(7)  # which proxy gets a request, not a secret
    session, messages, kills = here.new(), [USER], 0
    there = serving(tmp_path / "store.db", engine.url, tokenizer_place)
    try:
        for number in range(TURNS):
            engine.script.append(says(f"Answer {number}."))
            if number % (TURNS // KILLS) == TURNS // KILLS - 1:
                message_of(post(there.url, session, messages))  # it has the lease, and the session in memory
                there.kill()
                there, kills = serving(tmp_path / "store.db", engine.url, tokenizer_place), kills + 1
            answer = message_of(post(rng.choice([here.url, there.url]), session, messages))
            assert answer["content"] == f"Answer {number}."
            messages += [answer, {"role": "user", "content": f"{number}"}]
    finally:
        there.stop()
    record = here.record(session)
    assert (kills, record["messages"]) == (KILLS, messages[:-1])
    assert len(engine.requests) == TURNS, "the repeated request got the recorded answer"
    assert all(later[: len(one)] == one for one, later in itertools.pairwise(engine.prompts()))
    (sample,) = here.http.post(f"/sessions/{session}/samples").json()["samples"]
    assert (len(sample["turn_ends"]), sample["discarded_tokens"], sample["status"]) == (TURNS, 0, "COMPLETED")
    assert sum(sample["loss_mask"]) == sum(len(one["output_ids"]) for one in record["records"])
