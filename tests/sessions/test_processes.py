"""Real processes on one store: killed, suspended, continued. Acknowledged events are there, and the dead hold no lease."""

from pathlib import Path

import pytest

import onrecord
from onrecord.errors import EffectUnknown, LeaseHeld
from tests.sessions.children import Child
from tests.stores import SHARED, url_of

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that other processes can open too."""
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def here(url: str):
    with onrecord.connect(url, project="/project") as records:
        yield records


def test_a_living_holder_is_named(url, here):
    """A second process gets the id of the process that holds the lane's lease (B14, T10)."""
    with Child(url, "s = records.open('work'); say('ready'); listen()") as child:
        child.hear()
        with pytest.raises(LeaseHeld) as refusal:
            here.open("work")
        assert refusal.value.holder["pid"] == child.pid
        assert f"process {child.pid}" in refusal.value.message


def test_a_dead_holder_is_replaced_at_once(url, here):
    """The lane of a killed process is free at once, without waiting for its lease to end (B14, G05)."""
    with Child(url, "s = records.open('work', lease_seconds=10_000); say(s.run); listen()") as child:
        assert child.hear() == "1"
        child.kill()
        session = here.open("work")
        assert session.run == 2
        session.record_turn(HELLO)


def test_a_turn_cut_off_by_kill_is_deduced(url, here):
    """After kill -9 in the middle of a turn, its items are there as an interrupted turn, and its base is known (J12, T01)."""
    code = """
s = records.open('work')
s.record_turn([{"role": "user", "content": "first"}])
t = s.turn()
t.user("second")
t.assistant("half an ans", tool_calls=[{"id": "c1", "name": "bash", "arguments": {"cmd": "make"}}])
t.record_usage("m", output_tokens=7)
say(t.base)
listen()
"""
    with Child(url, code) as child:
        base = int(child.hear())
        looking = here.get("work")
        assert [turn.status for turn in looking.transcript().provisional] == ["running"]
        child.kill()
    session = here.open("work")
    (tail,) = session.transcript().provisional
    assert (tail.status, tail.base) == ("interrupted", base)
    assert [item["content"] for item in tail.items] == ["second", "half an ans"]
    assert session.agents.lane()["last_commit"] == base
    assert session.views.spend.total["output_tokens"] == 7
    assert session.transcript().items == [{"role": "user", "content": "first"}]
    assert "turn 2 of main was interrupted" in session.note()
    with session.turn(base=base) as turn:
        turn.user("second, again")
    transcript = session.transcript()
    assert [item["content"] for item in transcript.items] == ["first", "second, again"]
    assert transcript.provisional == []
    assert [turn.status for turn in transcript.superseded] == ["interrupted"]
    assert session.verify().ok


def test_what_was_acknowledged_survives_kill(url, here, count):
    """Everything that a killed process got an acknowledgement for is there, and nothing else in part (B05, B08)."""
    code = """
s = records.open('work', takeover=True)
number = 0
while True:
    number += 1
    event = s.record_turn([{"role": "user", "content": f"{os.getpid()}/{number}"}])
    say(event.position, f"{os.getpid()}/{number}")
"""
    acknowledged: dict[int, str] = {}
    for cycle in range(count(4, 200)):
        with Child(url, code) as child:
            for _ in range(cycle * 7 % 23 + 1):
                position, said = child.hear().split()
                acknowledged[int(position)] = said
            child.kill()
    events = {event.position: event for event in here.get("work").events()}
    assert sorted(events) == list(range(1, len(events) + 1))
    for place, said in acknowledged.items():
        assert events[place].data["items"][0]["content"] == said
    assert here.get("work").verify().ok


def test_a_zombie_that_wakes_writes_nothing(url, here):
    """Fencing: a process that was suspended during a takeover of its lane is refused when it continues."""
    code = """
s = records.open('work')
t = s.turn()
t.user("before the sleep")
say("ready")
listen()
for step in (lambda: t.assistant("after it"), t.commit, lambda: s.once("pay", lambda: say("paid"))):
    try:
        step()
        say("written")
    except OnrecordError as refusal:
        say(refusal.code)
"""
    with Child(url, code) as child:
        child.hear()
        child.suspend()
        with pytest.raises(LeaseHeld):
            here.open("work")
        session = here.open("work", takeover=True)
        session.record_turn(HELLO)
        child.resume()
        child.tell()
        assert [child.hear() for _ in range(3)] == ["lease_lost"] * 3
    assert session.refresh().transcript().items == HELLO
    assert [turn.status for turn in session.transcript().superseded] == ["interrupted"]
    assert session.views.effects.unfinished == {}


def test_what_was_done_once_is_not_done_by_the_next_process(url, here):
    """An effect that completed in one process is not run again in another: its recorded result is returned."""
    code = "s = records.open('work'); say(s.once('charge-17', lambda: {'paid': 42})); listen()"
    with Child(url, code) as child:
        assert child.hear() == "{'paid': 42}"
        child.kill()
    session = here.open("work")
    assert session.once("charge-17", lambda: pytest.fail("it ran twice")) == {"paid": 42}


def test_an_effect_cut_off_by_kill_is_unknown(url, here):
    """An effect that was killed between start and finish is neither run again nor forgotten until the caller decides (T01)."""
    code = """
def charge():
    say("charging")
    listen()
s = records.open('work')
s.once("charge-17", charge)
"""
    with Child(url, code) as child:
        assert child.hear() == "charging"
        child.kill()
    session = here.open("work")
    assert set(session.effects.unknown()) == {"charge-17"}
    assert "effect charge-17 was started" in session.note()
    for _ in range(2):
        with pytest.raises(EffectUnknown) as refusal:
            session.once("charge-17", lambda: pytest.fail("it ran twice"))
        assert refusal.value.details["key"] == "charge-17"
    session.effects.settle("charge-17", result={"paid": 42})
    assert session.once("charge-17", lambda: pytest.fail("it ran twice")) == {"paid": 42}
    assert session.effects.unknown() == {}


def test_whoever_knows_better_may_run_it_again(url, here):
    """An unknown effect is run again only when the caller says so, and both tries are on record."""
    code = "s = records.open('work'); s.once('mail', lambda: say('sending') or listen())"
    with Child(url, code) as child:
        child.hear()
        child.kill()
    session = here.open("work")
    assert session.once("mail", lambda: "sent", rerun_unknown=True) == "sent"
    told = [(event.kind, event.data.get("ok")) for event in session.events(kinds=["effect.started", "effect.finished"])]
    assert told == [
        ("effect.started", None),
        ("effect.finished", False),
        ("effect.started", None),
        ("effect.finished", True),
    ]


def test_two_processes_append_side_by_side(url, here):
    """Agents of one session in several processes, each on its lane: every turn is there, in one log without gaps (A23)."""
    code = """
s = records.open('work', agent=listen())
for number in range(20):
    s.record_turn([{"role": "user", "content": str(number)}])
    s.decide(f"decision {number}")
say(s.head.position)
"""
    with Child(url, code) as one, Child(url, code) as other:
        one.tell("one")
        other.tell("other")
        one.hear()
        other.hear()
    session = here.get("work")
    for agent in ("one", "other"):
        said = [item["content"] for turn in session.transcript(agent) for item in turn.items]
        assert said == [str(number) for number in range(20)]
    assert [event.position for event in session.events()] == list(range(1, session.head.position + 1))
    assert len(session.views.facts.decisions) == 40
    assert session.verify().ok
