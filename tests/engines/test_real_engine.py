"""A real engine behind the proxy: agents with tools, aborts, kills and other weights; every token is checked.

The check is independent of engine and proxy: Transformers computes the logprob of every sampled token from the
exported samples, with the weights that the sample names. One wrong id, one id too few or the wrong version of the
weights would show as a difference of whole units.
"""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from onrecord.rollout.streams import STREAMING_DIALECTS, add_delta
from tests.engines.real import FIRST, SECOND

pytestmark = pytest.mark.timeout(1800)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]
AGENTS, TURNS = 6, 6
TOLERANCE = 0.01
"""How far the logprob of a token may be from Transformers': both compute in float32, in another order."""
LONG, LONGER = 300, 700
"""How many tokens a generation has that is long enough to be interrupted."""
FAST = 60
"""The same for llama.cpp, which samples thousands of tokens in a second: its agents have many turns."""
SAMPLED, PAUSES = 20, 5
"""How many tokens the engine samples before it is interrupted, and how often it is."""
ABORTED = 'onrecord_rollout_turns_total{finish="abort"'
WEIGHTS = {FIRST: "a", SECOND: "b", "": "a", "default": "a"}


class Counts:
    """What the tests counted, for the table in the docs."""

    found: dict[str, Any] = {}  # noqa: RUF012  # one for the whole run

    file = ""

    @classmethod
    def add(cls, test: str, dialect: str, **counts: Any) -> None:
        cls.found.setdefault(dialect, {})[test] = counts
        if cls.file:
            Path(cls.file).write_text(json.dumps(cls.found, indent=1), encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def _results(pytestconfig):
    Counts.file = pytestconfig.getoption("--engine-results") or ""


def long(engine, tokens):
    """Options for a generation with so many tokens.

    With `min_tokens`, SGLang returns the logprobs of a distribution without the end of the turn; llama.cpp has none.
    """
    if engine.name == "llama":
        return {"ignore_eos": True, "max_tokens": FAST}
    if engine.name == "sglang":
        return {"ignore_eos": True, "max_tokens": tokens}
    return {"min_tokens": tokens, "max_tokens": tokens + 100}


def added(call):
    """What the tool returns. The model has learned little: its arguments may be none."""
    try:
        given = json.loads(call["function"]["arguments"])
    except ValueError:
        return "not a sum"
    return str(sum(value for value in given.values() if isinstance(value, int)) if isinstance(given, dict) else 0)


class Agents:
    """Agents that add numbers with a tool, and repeat a request until it is answered."""

    def __init__(self, url):
        self.url = url
        self.calls = self.answered = self.repeated = 0
        self.turns = {}
        self.further = []
        """Sessions that agents began because they had not had enough."""
        self.lock = threading.Lock()

    def new(self):
        until = time.monotonic() + 300
        while True:
            try:
                return httpx.post(f"{self.url}/sessions", json={}, timeout=60, trust_env=False).json()["session_id"]
            except httpx.TransportError:  # the proxy was killed
                assert time.monotonic() < until
                time.sleep(0.3)

    def ask(self, session, messages, **options):
        until = time.monotonic() + 900
        while time.monotonic() < until:
            try:
                answer = httpx.post(
                    f"{self.url}/sessions/{session}/v1/chat/completions", timeout=600, trust_env=False,
                    json={"model": "tiny", "messages": messages, "tools": TOOLS, "temperature": 1.0, **options},
                )  # fmt: skip
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code == httpx.codes.OK:
                return answer.json()
            if answer is not None and answer.status_code not in (409, 502, 503):
                raise AssertionError(answer.text)
            with self.lock:
                self.repeated += 1
            time.sleep(0.3)
        raise AssertionError("no answer for a quarter of an hour")

    def run(self, session, turns, enough=None, **options):
        """One agent with so many turns, and as many in further sessions until the event `enough` is set.

        In one session a few more long turns would be longer than the engine's context.
        """
        self.converse(session, turns, **options)
        while enough is not None and not enough.is_set():
            session = self.new()
            self.further.append(session)
            self.converse(session, turns, **options)

    def converse(self, session, turns, **options):
        """One session: ask for sums, run the tool that the model calls, and keep the messages."""
        numbers = random.Random(session)

        def sum_please():
            return {"role": "user", "content": f"Add {numbers.randint(1, 99)} and {numbers.randint(1, 99)}."}

        messages: list[dict[str, Any]] = [sum_please()]
        for _turn in range(turns):
            choice = self.ask(session, messages, **options)["choices"][0]
            message = choice["message"]
            messages.append({key: value for key, value in message.items() if value is not None})
            calls = message.get("tool_calls") or []
            with self.lock:
                self.answered += 1
                self.calls += len(calls)
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": added(call)} for call in calls]
            if not calls:
                messages.append(sum_please())
        self.turns[session] = messages

    def all(self, number, turns, **options):
        """Run agents side by side; returns when each has had its turns."""
        sessions = [self.new() for _ in range(number)]
        with ThreadPoolExecutor(number) as threads:
            for done in [threads.submit(self.run, session, turns, **options) for session in sessions]:
                done.result()
        return sessions + self.further

    def samples(self, sessions):
        """Frozen and handed over: one sample for each session."""
        made = []
        for session in sessions:
            answer = httpx.post(
                f"{self.url}/sessions/{session}/samples", json={"past_length": True}, timeout=120, trust_env=False
            )
            assert answer.status_code == httpx.codes.OK, answer.text
            made += answer.json()["samples"]
        return made

    def record(self, session):
        return httpx.get(f"{self.url}/sessions/{session}?tokens=true", timeout=60, trust_env=False).json()


def worst_difference(scorer, samples):
    """The largest difference between a recorded logprob and Transformers', and how much the other weights would differ."""
    scores = scorer.score([sample["tokens"] for sample in samples])
    here = other = 0.0
    tokens = 0
    for number, sample in enumerate(samples):
        weights = ["a"] * len(sample["tokens"])
        for version, start, end in sample["weight_versions"]:
            weights[start:end] = [WEIGHTS[version]] * (end - start)
        for at, (mask, logprob) in enumerate(zip(sample["loss_mask"], sample["logprobs"], strict=True)):
            if mask:
                tokens += 1
                here = max(here, abs(logprob - scores[weights[at]][number][at]))
                wrong = "a" if weights[at] == "b" else "b"
                other = max(other, abs(logprob - scores[wrong][number][at]))
    assert other > 10 * TOLERANCE, "the check would not see wrong weights"
    return round(here, 5), tokens


def check(scorer, agents, sessions):
    """Every turn is on record once, as the agent saw it; every token has the logprob that its weights give it."""
    turns = 0
    for session in sessions:
        record = agents.record(session)
        said = [one for one in record["messages"] if one["role"] == "assistant"]
        seen = [one for one in agents.turns[session] if one["role"] == "assistant"]
        assert [(one.get("content") or "", one.get("tool_calls") or []) for one in said] == [
            (one.get("content") or "", one.get("tool_calls") or []) for one in seen
        ]
        assert record["head"]["num_assistant"] == len(seen)
        turns += len(seen)
    samples = agents.samples(sessions)
    assert len(samples) == len(sessions)
    assert sum(len(sample["turn_ends"]) for sample in samples) == turns
    worst, tokens = worst_difference(scorer, samples)
    assert worst < TOLERANCE
    return {"turns": turns, "tokens": tokens, "difference": worst}


def test_agents_with_tools(scorer, start, dialect):
    """Six agents, six turns each, with tools that the model really calls: token-exact."""
    agents = Agents(start(dialect).url)
    sessions = agents.all(AGENTS, TURNS, max_tokens=200)
    assert agents.answered == AGENTS * TURNS
    assert agents.calls > 0
    Counts.add("agents", dialect, calls=agents.calls, **check(scorer, agents, sessions))


class Following(Agents):
    """Agents that are answered in chunks."""

    early = 0
    """How many answers had begun to arrive before they were committed."""

    def __init__(self, url):
        super().__init__(url)
        self.seen = threading.Event()
        """Whether there was one: a call is sent as a whole, and the model may begin with one again and again."""

    def ask(self, session, messages, **options):
        asked = {"model": "tiny", "messages": messages, "tools": TOOLS, "temperature": 1.0, "stream": True, **options}
        path, message = f"{self.url}/sessions/{session}/v1/chat/completions", {"role": "assistant", "content": ""}
        with httpx.stream("POST", path, timeout=600, trust_env=False, json=asked) as answer:
            assert answer.status_code == httpx.codes.OK, answer.read()
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    said = {name: value for name, value in choice["delta"].items() if value and name != "role"}
                    if said and not (message["content"] or message.get("tool_calls")):
                        early = self.record(session)["turn_under_way"]
                        with self.lock:
                            self.early += early
                        if early:
                            self.seen.set()
                    add_delta(message, said)
        return {"choices": [{"message": message}]}


def test_streams(engine, scorer, start, dialect):
    """Chunks arrive before the turn is committed, and add up to what is on record, token-exact."""
    if dialect not in STREAMING_DIALECTS:
        pytest.skip("it is asked for whole replies")
    agents = Following(start(dialect).url)
    sessions = agents.all(2, 3, enough=agents.seen, **long(engine, LONG))
    assert agents.early > 0
    Counts.add("streams", dialect, early=agents.early, **check(scorer, agents, sessions))


def generating(engine, url, done=None):
    """Wait until turns are running and the engine has sampled tokens since then, or the agents are done."""
    until, before = time.monotonic() + 300, None
    while time.monotonic() < until:
        if done is not None and done.is_set():
            return
        running = metric(url, "onrecord_rollout_turns_in_flight")
        if running and engine.name == "llama":
            return  # a turn takes too short a time to be watched
        sampled = engine.sampled() if running else 0.0
        if not running or before is None or sampled < before:
            before = sampled if running else None
        elif sampled >= before + SAMPLED:
            return
        time.sleep(0.05)
    raise AssertionError("the engine sampled nothing for five minutes")


def pauses(engine, url, enough, done):
    """Interrupt the engine now and then until the agents are done; they have enough when a turn was aborted."""
    pauses = 0
    while not done.is_set() and (pauses < PAUSES or not enough.is_set()):
        generating(engine, url, done)
        pause_and_resume(engine)
        pauses += 1
        done.wait(2.0)
        if metric(url, ABORTED):
            enough.set()


def pause_and_resume(engine):
    engine.pause()
    time.sleep(0.3)
    engine.resume()


def metric(url, name):
    text = httpx.get(f"{url}/metrics", timeout=60, trust_env=False).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def test_aborts_by_the_engine(engine, scorer, start, dialect):
    """The engine's own pause aborts generations: the proxy retries, and every turn is there once, token-exact."""
    url = start(dialect, "--retries", "50").url
    agents, enough, done = Agents(url), threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        interrupting = threads.submit(pauses, engine, url, enough, done)
        try:
            sessions = agents.all(4, 3, enough=enough, **long(engine, LONG))
        finally:
            enough.set()
            done.set()
        interrupting.result()
    aborted = metric(url, ABORTED)
    assert aborted > 0
    Counts.add("aborts", dialect, aborted=int(aborted), **check(scorer, agents, sessions))


def test_kills(engine, scorer, start, dialect):
    """The proxy is killed twice while it waits for the engine, and the engine once, in its first dialect: a start is slow.

    Every turn is there once, token-exact.
    """
    first = start(dialect)
    agents = Agents(first.url)
    port = first.url.rpartition(":")[2]
    sessions, killed = [agents.new() for _ in range(4)], threading.Event()
    with ThreadPoolExecutor(4) as threads:
        options = {"enough": killed, **long(engine, LONG)}
        running = [threads.submit(agents.run, session, 3, **options) for session in sessions]
        try:
            for _kill in range(2):
                generating(engine, first.url)
                first.kill()
                first = start(dialect, "--port", port)
            if dialect == engine.about["dialects"][0]:
                generating(engine, first.url)
                engine.kill()
                engine.start()
        finally:
            killed.set()
        for one in running:
            one.result()
    sessions += agents.further
    assert agents.repeated > 0
    Counts.add("kills", dialect, repeated=agents.repeated, **check(scorer, agents, sessions))


@pytest.fixture
def weights(engine):
    """Changes the weights of the paused engine and continues; in the end it has the first ones again."""

    def change(url, *, abort):
        aborted = metric(url, ABORTED)
        while True:
            generating(engine, url)
            if abort:  # the proxy sends nothing until it knows the version
                report(url, updating=True)
            engine.pause(abort=abort)
            if not abort or soon(lambda: metric(url, ABORTED) > aborted):
                break
            # Every turn ended in the moment of the pause: the agents have another one.
            engine.resume()
            report(url, version=FIRST)
        engine.update("b", SECOND)
        report(url, version=SECOND)
        engine.resume()

    engine.name_weights(FIRST)
    yield change
    engine.pause()
    engine.update("a", FIRST)
    engine.resume()


def report(url, **weights):
    """What a trainer reports to the proxy."""
    httpx.post(f"{url}/weights", json=weights, timeout=60, trust_env=False).raise_for_status()


def soon(holds):
    """Whether this holds within half a minute."""
    until = time.monotonic() + 30
    while not holds() and time.monotonic() < until:
        time.sleep(0.1)
    return holds()


def versions_of(agents, sessions):
    """The versions of each turn, in order."""
    return [
        [version for version, _count in record["weight_versions"]]
        for session in sessions
        for record in agents.record(session)["records"]
    ]


def interrupted(engine, agents, sessions, turns, change):
    """Run agents, and change the weights when the engine is in the middle of their turns; they have turns until then."""
    report(agents.url, version=FIRST)
    changed = threading.Event()
    with ThreadPoolExecutor(len(sessions)) as threads:
        options = {"enough": changed, **long(engine, LONGER)}
        running = [threads.submit(agents.run, session, turns, **options) for session in sessions]
        try:
            change(agents.url)
        finally:
            changed.set()
        for one in running:
            one.result()
    sessions += agents.further


def test_continuing_with_other_weights(engine, scorer, start, dialect, weights):
    """With `continue`, one turn has tokens of two versions, and each token has the logprob of its own version."""
    agents = Agents(start(dialect, "--abort-policy", "continue", "--retries", "50").url)
    sessions = [agents.new() for _ in range(3)]
    interrupted(engine, agents, sessions, 2, partial(weights, abort=True))
    versions = versions_of(agents, sessions)
    assert [FIRST, SECOND] in versions, "no turn was interrupted by the update"
    found = check(scorer, agents, sessions)
    Counts.add("continue", dialect, mixed=versions.count([FIRST, SECOND]), **found)


def test_versions_inside_one_reply(engine, scorer, start, dialect, weights):
    """The engine itself continues a turn with other weights and says so: the record has both versions of one reply.

    An engine that does not say it leaves the turn without a version: unknown, and not the wrong one.
    """
    url = start(dialect).url
    agents = Agents(url)
    sessions = [agents.new() for _ in range(3)]
    interrupted(engine, agents, sessions, 1, partial(weights, abort=False))
    versions = versions_of(agents, sessions)
    named = engine.name == "sglang" or dialect == "vllm-generate"
    assert ([FIRST, SECOND] if named else [""]) in versions
    assert metric(url, ABORTED) == 0
    if engine.name == "sglang":
        found = check(scorer, agents, sessions)
        Counts.add("inside", dialect, mixed=versions.count([FIRST, SECOND]), **found)
