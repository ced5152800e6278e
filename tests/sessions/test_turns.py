"""Turns: each item durable as it arrives, a commit supersedes provisional turns, a retry never discards by accident."""

import pytest

from onrecord.errors import IdReused, InvalidInput, OutcomeUnknown, PayloadErased, TurnConflict

HELLO = [{"role": "user", "content": "hello"}]
LARGE = [{"role": "user", "content": "x" * 50_000}, {"role": "assistant", "content": "y"}]


def contents(items):
    return [item["content"] for item in items]


def nested(depth):
    """A list in a list in a list."""
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def test_leaving_the_block_commits(session):
    """Items are in the order they came; leaving the block commits them as one turn (B01, B02, B06)."""
    with session.turn() as turn:
        turn.system("be brief")
        turn.user("Some invited users get a 403 on first login.")
        call = {"id": "c1", "name": "bash", "arguments": {"cmd": "pytest -k invite"}}
        turn.assistant("Looking.", tool_calls=[call])
        turn.tool("c1", "3 failed", error=True)
    (committed,) = session.transcript().committed
    assert contents(committed.items) == [
        "be brief",
        "Some invited users get a 403 on first login.",
        "Looking.",
        "3 failed",
    ]
    assert committed.items[2]["tool_calls"] == [call]
    assert committed.items[3] == {"role": "tool", "call": "c1", "content": "3 failed", "error": True}
    assert session.agents.lane()["committed"] == 1
    assert turn.committed.position == session.agents.lane()["last_commit"]


def land(session, *, streamed):
    if not streamed:
        session.record_turn([{"role": "user", "content": "landed"}])
        return
    with session.turn() as turn:
        turn.user("landed")


@pytest.mark.parametrize("struck", [KeyboardInterrupt, OutcomeUnknown])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_turn_that_landed_unnoticed_is_built_upon(session, monkeypatch, struck, streamed):
    """A turn that was recorded although its caller was interrupted is not superseded by the next turn (B02)."""
    session.record_turn(HELLO)
    append = session.store.append

    def landed(id_, drafts, **options):
        receipts = append(id_, drafts, **options)
        if drafts[-1].kind in ("turn.recorded", "turn.committed"):
            raise struck("after the commit")
        return receipts

    monkeypatch.setattr(session.store, "append", landed)
    with pytest.raises(struck):
        land(session, streamed=streamed)
    monkeypatch.undo()
    with session.turn() as turn:
        turn.user("next")
    transcript = session.transcript()
    assert [contents(turn.items) for turn in transcript.committed] == [["hello"], ["landed"], ["next"]]
    assert transcript.superseded == []


def test_a_refused_turn_leaves_nothing_to_catch_up_with(session):
    """A refusal is certain: the handle continues with what it knows."""
    session.record_turn(HELLO, id="t1")
    with pytest.raises(IdReused):
        session.log.append(session.log.draft("turn.recorded", {"items": []}, id="t1"), fenced=True)
    assert not session._behind
    assert session.record_turn(HELLO).position == session.head.position


def test_each_item_is_there_before_the_next(session, again):
    """Another process sees every item of an open turn as soon as it is acknowledged (B06, B08)."""
    looking = again.get("fix-invite-403")
    with session.turn() as turn:
        for number in range(3):
            turn.user(f"item {number}")
            (running,) = looking.transcript().provisional
            assert contents(running.items) == [f"item {n}" for n in range(number + 1)]
            assert running.status == "running"
    assert looking.transcript().provisional == []


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (ValueError("no such tool"), "ValueError: no such tool"),
        (KeyboardInterrupt(), "KeyboardInterrupt()"),
        (OSError("cannot open 'caf\udce9'"), "OSError: cannot open 'caf\\udce9'"),
    ],
)
def test_an_exception_aborts_and_is_recorded(session, problem, reason):
    """An exception aborts the turn with its reason, whatever its text, and is raised to the caller (G07, G09)."""

    def work() -> None:
        with session.turn() as turn:
            turn.user("try")
            raise problem

    with pytest.raises(type(problem)) as raised:
        work()
    assert raised.value is problem
    (tail,) = session.transcript().provisional
    assert (tail.status, tail.reason, contents(tail.items)) == ("aborted", reason, ["try"])
    assert session.transcript().items == []
    session.record_turn(HELLO)


def test_an_abort_keeps_what_had_arrived(session):
    """An aborted turn remains as the last turn, with its partial items, and is not committed (J03, J04, J09)."""
    session.record_turn(HELLO)
    before = session.agents.lane()
    turn = session.turn()
    turn.user("go on")
    turn.record_usage("m", input_tokens=100, output_tokens=5)
    turn.abort("backend paused", partial=[{"role": "assistant", "content": "half an ans"}])
    after = session.agents.lane()
    assert (after["committed"], after["last_commit"]) == (before["committed"], before["last_commit"])
    (tail,) = session.transcript().provisional
    assert contents(tail.items) == ["go on", "half an ans"]
    assert session.transcript().items == HELLO
    assert session.context(4_000).items == HELLO
    assert session.views.spend.total["input_tokens"] == 100


def test_the_next_commit_supersedes_every_abort(session):
    """After three aborts and a success, only the success is in the trajectory, and everything is in the log (J07, J08, J11, J17)."""
    session.record_turn(HELLO)
    for number in range(3):
        turn = session.turn()
        turn.user(f"try {number}")
        turn.record_usage("m", output_tokens=10)
        turn.abort("finish_reason == abort")
        assert session.agents.lane()["aborted"] == number + 1
    with session.turn() as turn:
        turn.user("try 3")
        turn.record_usage("m", output_tokens=10)
    transcript = session.transcript()
    assert contents(transcript.items) == ["hello", "try 3"]
    assert transcript.provisional == []
    assert [turn.status for turn in transcript.superseded] == ["aborted"] * 3
    logged = [event.data["item"]["content"] for event in session.events(kinds=["item.added"])]
    assert logged == [f"try {number}" for number in range(4)]
    assert session.views.spend.total["output_tokens"] == 40
    assert session.views.spend.steps == 5


def test_a_whole_turn_is_one_event(session):
    """A turn that arrives complete is one durable event; its usage is counted in the same step (B01)."""
    position = session.head.position
    event = session.record_turn(HELLO, usage={"model": "m", "input_tokens": 3, "cost": 0.25})
    assert (event.kind, event.position) == ("turn.recorded", position + 1)
    assert session.transcript().items == HELLO
    assert session.views.spend.total["cost"] == 0.25
    assert session.head.position == position + 2


def test_a_large_turn_is_its_parts_in_one_step(session):
    """A turn over 32 KiB is stored in parts, and reads like any other (B01)."""
    session.record_turn(HELLO)
    event = session.record_turn(LARGE)
    assert event.kind == "turn.committed"
    assert [e.kind for e in session.events(after=session.agents.lane()["commits"][0]["position"])] == [
        "turn.begun", "item.added", "item.added", "turn.committed"
    ]  # fmt: skip
    assert session.transcript().items == HELLO + LARGE
    assert session.agents.lane()["committed"] == 2
    assert session.agents.lane()["last_commit"] == event.position


@pytest.mark.parametrize("items", [HELLO, LARGE], ids=["small", "large"])
def test_a_recorded_turn_can_be_sent_again(session, items):
    """With the caller's id, a turn with a lost acknowledgement is recorded once, however often it is sent (J05, B08)."""
    usage = {"model": "m", "output_tokens": 5}
    first = session.record_turn(items, id="turn-17", usage=usage)
    position = session.head.position
    session.record_turn([{"role": "user", "content": "in between"}])
    for _ in range(2):
        again = session.record_turn(items, id="turn-17", usage=usage)
        assert (again.position, again.hash, again.at) == (first.position, first.hash, first.at)
    assert session.refresh().head.position == position + 1
    assert session.views.spend.total["output_tokens"] == 5
    with pytest.raises(IdReused):
        session.record_turn([{"role": "user", "content": "other"}], id="turn-17")


def test_a_turn_sent_again_needs_no_budget(records):
    """The last turn a budget allows, sent again because its acknowledgement was lost, is answered and not refused (J05)."""
    session = records.open("work", budget={"steps": 1})
    first = session.record_turn(HELLO, id="turn-1")
    assert session.record_turn(HELLO, id="turn-1").position == first.position
    assert session.status == "active"


def test_a_lost_reply_returns_the_committed_answer(records):
    """The same request on the same base, after its commit, gets the recorded answer; no model is called (J05)."""
    session = records.open("work")
    request = {"messages": ["what is the root cause?"], "model": "m"}
    with session.turn(request=request, base=0) as turn:
        turn.user("what is the root cause?")
        turn.assistant("the cookie")
    session.leave()
    again = records.open("work")
    before = again.head.position
    retry = again.turn(request=request, base=0)
    assert retry.answered
    assert contents(retry.answer) == ["what is the root cause?", "the cookie"]
    with retry:
        pass
    for step in (lambda: retry.user("x"), retry.commit, lambda: retry.abort("x")):
        with pytest.raises(TurnConflict):
            step()
    assert again.head.position == before
    with pytest.raises(TurnConflict):
        again.turn(request={"other": True}, base=0)
    assert not again.turn(request=request).answered


def test_a_lost_reply_that_was_erased_is_not_an_empty_answer(records):
    """When the committed answer was erased since, a retry says so instead of returning nothing (J05)."""
    session = records.open("work")
    with session.turn(request="q", base=0) as turn:
        turn.assistant("a secret")
    session.log.erase("secret", positions=[4])
    with pytest.raises(PayloadErased):
        session.turn(request="q", base=0)


def test_a_retry_is_checked_before_anything_moves(session):
    """An earlier base discards committed turns only where that is allowed, only when it commits, never silently (T16, J13)."""
    positions = [session.record_turn([{"role": "user", "content": f"turn {number}"}]).position for number in range(4)]
    before = session.head.position
    for base, rollback in ((positions[1], 0), (positions[1], 1), (positions[0] - 1, 8), (999, 8), (-1, 8)):
        with pytest.raises(TurnConflict) as refusal:
            session.turn(base=base, rollback=rollback)
        assert refusal.value.details["last_commit"] == positions[3]
    for rollback in (-1, 9):
        with pytest.raises(InvalidInput):
            session.turn(base=positions[0], rollback=rollback)
    assert session.refresh().head.position == before
    turn = session.turn(base=positions[1], rollback=2)
    turn.user("another way")
    assert contents(session.transcript().items) == [f"turn {number}" for number in range(4)]
    turn.commit()
    assert contents(session.transcript().items) == ["turn 0", "turn 1", "another way"]
    assert session.agents.lane()["committed"] == 3
    session.record_turn(HELLO)
    assert contents(session.transcript().items) == ["turn 0", "turn 1", "another way", "hello"]
    assert contents(session.context(8_000).items) == ["turn 0", "turn 1", "another way", "hello"]


def test_one_turn_at_a_time(session):
    """A lane has one open turn; a second one is refused with the position of the first (J01)."""
    turn = session.turn()
    for step in (session.turn, lambda: session.record_turn(HELLO), lambda: session.record_turn(LARGE)):
        with pytest.raises(TurnConflict, match="still open"):
            step()
    turn.commit()
    with pytest.raises(TurnConflict, match="already committed"):
        turn.user("late")
    session.record_turn(HELLO)


def test_a_turn_that_ended_says_how_to_go_on(session):
    """What is added to a turn after its end is refused; the hint is the call that begins or continues one."""
    turn = session.turn()
    turn.user("x")
    turn.abort("enough")
    with pytest.raises(TurnConflict, match="already aborted") as refused:
        turn.messages()
    assert refused.value.hint == "session.turn(resume=True) continues it"
    turn = session.turn(resume=True)
    assert contents(turn.items) == ["x"]
    turn.commit()
    with pytest.raises(TurnConflict, match="already committed") as refused:
        turn.messages()
    assert refused.value.hint == "session.turn() begins the next one"


def test_a_committed_turn_may_leave_its_block(session):
    """A turn that was ended by hand inside its block is not ended twice (J07)."""
    with session.turn() as turn:
        turn.user("x")
        turn.commit()
    with session.turn() as turn:
        turn.abort("no")
    assert [turn.status for turn in session.transcript().provisional] == ["aborted"]
    assert session.agents.lane()["committed"] == 1


def test_the_same_words_twice_are_two_items(session):
    """The same message twice, or to two agents, is there twice: only ids make two appends one (T18)."""
    other = session.fork("side", agent="other").acquire()
    for _ in range(2):
        session.record_turn(HELLO)
    with session.turn() as turn:
        turn.user("hello")
        turn.user("hello")
    assert contents(session.transcript().items) == ["hello"] * 4
    other.record_turn(HELLO)
    assert contents(other.transcript().items) == ["hello"]


def test_a_transcript_is_not_cut_on_resume(records):
    """A long text has the same length when it is read after a restart (T13)."""
    text = "".join(chr(97 + number % 26) for number in range(200_000)) + "…✓"
    with records.open("work") as session, session.turn() as turn:
        turn.user(text)
    assert records.open("work").transcript().items[0]["content"] == text


def test_turns_begin_durably(session, again):
    """The intent of a turn, with base and fingerprint of its request, is on record before any model is called (B08)."""
    session.record_turn(HELLO)
    turn = session.turn(request={"prompt": "x"})
    begun = again.get("fix-invite-403").log.event(turn.position)
    assert begun.kind == "turn.begun"
    assert begun.data["base"] == turn.base == session.agents.lane()["commits"][-1]["position"]
    assert begun.data["turn"] == 2
    assert len(begun.data["fingerprint"]) == 64


@pytest.mark.parametrize(
    "items",
    [[], [{"role": "user"}] * 1_001, ["hello"], [None], [{"role": "oracle", "content": "x"}], [{"role": "user", "content": 5}],
     [{"role": "tool", "content": "x"}], [{"role": "user", "content": "x", "tool_calls": []}],
     [{"role": "assistant", "content": "x", "tool_calls": [{"id": "c1"}]}], [{"role": "assistant", "tool_calls": "c1"}],
     [{"role": "assistant", "tool_calls": [{"id": "c", "name": "a"}, {"id": "c", "name": "b"}]}],
     [{"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "a", "arguments": {"x": float("nan")}}]}],
     [{"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "a", "arguments": nested(300)}]}],
     [{"role": "user", "content": "fine"}, {"role": "user", "content": [float("nan")]}]],
)  # fmt: skip
def test_items_have_a_form(session, items):
    """A malformed item refuses the whole turn, with a description of an item; nothing of it is kept (B01)."""
    before = session.head
    with pytest.raises(InvalidInput):
        session.record_turn(items)
    assert session.refresh().head == before
    with session.turn() as turn:
        for item in items[-1:]:
            with pytest.raises(InvalidInput):
                turn.add(item, format="neutral") if isinstance(item, dict) and item != {"role": "user"} else turn.add(
                    None
                )


def test_a_decision_in_a_turn_outlives_it(session):
    """A decision made in a turn is a fact with the position it came from, even if the turn is aborted (B03, C05)."""
    turn = session.turn()
    said = turn.assistant("It must be the cookie.")
    turn.decide("look at the cookie first", why="the header was empty")
    turn.abort("out of tokens")
    (decision,) = session.views.facts.decisions
    assert (decision["text"], decision["because"]) == ("look at the cookie first", said.position)


def test_a_decision_after_anothers_event_knows_its_source(records):
    """Events that another agent appended in between do not hide the position a decision came from (C05)."""
    main, tester = records.open("work"), records.open("work", agent="tester")
    with main.turn() as turn:
        tester.decide("in between")
        said = turn.user("something")
        tester.decide("in between again")
        decided = turn.decide("therefore")
    assert decided.because == said.position
    tester.decide("because of that", because=decided.position)


def test_another_agents_events_do_not_confuse_a_lane(records):
    """Two agents that write in turn keep their own bases; no commit discards a turn of another agent, or an own one (J01)."""
    main, tester = records.open("work"), records.open("work", agent="tester")
    for number in range(4):
        main.record_turn([{"role": "user", "content": f"main {number}"}])
        tester.record_turn(LARGE)
        main.record_turn(LARGE)
        with tester.turn() as turn:
            turn.user(f"tester {number}")
    assert main.agents.lane()["committed"] == tester.agents.lane()["committed"] == 8
    assert len(main.transcript("main")) == len(main.transcript("tester")) == 8
    assert main.transcript().superseded == []
