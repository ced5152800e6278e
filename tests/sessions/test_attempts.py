"""Attempts: RUNNING first, settled once, never assumed to have succeeded."""

import contextlib
import multiprocessing
import os
import subprocess
import sys

import pytest

import onrecord
from onrecord import machine
from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.session.handle import Session
from onrecord.views.attempts import LOST, RUNNING, error_signature, orphaned, status_of

CODE = {"revision": "abc", "dirty": None}


def failed(session, command, error, *, code=CODE, fix=None):
    session.attempts.start(command, revision=code)
    session.attempts.settle(None, "failed", error=error, fix=fix)


def test_an_attempt_is_on_record_before_it_runs_and_is_settled_once(session, again):
    """An attempt is RUNNING with the exact command, then has its outcome; a settled attempt never changes (F01, F02, F06)."""
    session.attempts.start(["python", "train.py", "--name", "a b"], cwd="sub", revision=CODE)
    seen = Session(again.store, session.id).views.attempts.attempts["1"]
    assert (seen["status"], seen["command"], seen["cwd"]) == (RUNNING, "python train.py --name 'a b'", "sub")
    session.attempts.settle(1, "succeeded", metrics={"loss": 0.25}, outputs=[{"path": "m.pt"}])
    before = session.head
    for outcome in ("succeeded", "failed", "abandoned"):
        with pytest.raises(Conflict, match="already has its outcome: succeeded"):
            session.attempts.settle(1, outcome, error="e", reason="r")
    assert session.refresh().head == before
    assert session.views.attempts.get(1)["metrics"] == {"loss": 0.25}


def test_an_attempt_whose_outcome_was_erased_can_be_settled_again(session):
    """An erased outcome leaves the attempt unresolved; it can be settled again, however often that is erased (F13, K08)."""
    session.attempts.start("make")
    for _time in range(3):
        event = session.attempts.settle(1, "failed", error="E42")
        assert session.views.attempts.get(1)["status"] == "failed"
        session.log.erase("privacy", positions=[event.position])
        assert [one["number"] for one in session.views.attempts.unresolved()] == [1]
    assert session.verify().ok


def test_what_still_runs_is_waited_for_not_settled(records):
    """While the process of an attempt is alive, the hint says to wait; without a known process, it says to record the outcome."""
    session = records.open("work", agent="one")
    session.attempts.start("make", watched=True)
    with pytest.raises(Conflict, match="it is still running: make") as refusal:
        session.attempts.start("make test")
    assert refusal.value.hint == "wait until it ends"
    session.attempts.settle(1, "abandoned", reason="not needed")
    session.attempts.start("make")
    with pytest.raises(Conflict, match="has no outcome yet: make") as refusal:
        session.attempts.start("make test")
    assert refusal.value.hint == "record its outcome first"


def test_no_second_attempt_of_an_agent_while_one_is_unresolved(records):
    """An agent settles before it starts again; another agent is free; numbers continue across restarts (F09, F12)."""
    session = records.open("work", agent="one")
    session.attempts.start("make")
    with pytest.raises(Conflict, match="has no outcome yet"):
        session.attempts.start("make test")
    records.open("work", agent="two").attempts.start("make lint")
    session.attempts.settle(1, "abandoned", reason="not needed")
    Session(records.store, session.id, agent="one").attempts.start("make test")
    assert [(one["number"], one["by"]) for one in session.views.attempts.all()] == [(1, "one"), (2, "two"), (3, "one")]


def test_outcomes_say_what_they_must(session):
    """A failure needs its error, an abandoned attempt its reason, a success only finite metrics (F04)."""
    session.attempts.start("make")
    for outcome, about in (
        ("failed", {}),
        ("abandoned", {}),
        ("succeeded", {"metrics": {"loss": float("nan")}}),
        ("done", {}),
    ):
        with pytest.raises(InvalidInput):
            session.attempts.settle(1, outcome, **about)
    with pytest.raises(NotFound):
        session.attempts.settle(2, "failed", error="e")
    session.attempts.settle(1, "failed", error="loss is nan", metrics={"loss": float("nan")})
    assert session.views.attempts.get(1)["metrics"] == {"loss": "nan"}


def test_a_correction_adds_and_overwrites_nothing(session):
    """The fix may come later; the error stays as it was recorded (F05, F17)."""
    failed(session, "make", "boom 7")
    session.attempts.correct(1, fix="pinned the compiler")
    attempt = session.views.attempts.get(1)
    assert (attempt["status"], attempt["error"], attempt["fix"]) == ("failed", "boom 7", "pinned the compiler")
    with pytest.raises(InvalidInput):
        session.attempts.correct(1)
    session.attempts.start("make")
    with pytest.raises(Conflict):
        session.attempts.correct(2, fix="too early")


def test_with_attempt_records_success_failure_and_bad_numbers(session):
    """`with session.attempts.record(...)` succeeds, fails with the exception as its error, or fails for a metric that is not finite."""
    with session.attempts.record("train 1") as attempt:
        attempt.metric("loss", 0.5)
        attempt.output("model.pt")
    with contextlib.suppress(ZeroDivisionError), session.attempts.record("train 2") as attempt:
        attempt.fix = "divide by one"
        raise ZeroDivisionError("division by zero")
    with session.attempts.record("train 3") as attempt:
        attempt.metric("loss", float("inf"))
    assert [(one["status"], one["error"], one["fix"]) for one in session.views.attempts.all()] == [
        ("succeeded", None, None),
        ("failed", "ZeroDivisionError: division by zero", "divide by one"),
        ("failed", "metric loss is inf", None),
    ]
    assert session.views.attempts.get(1)["outputs"] == ["model.pt"]


def test_lost_is_deduced_and_reversible(session):
    """An attempt with dead processes is lost and blocks the next; if a process is alive after all, it is running again (F13, T01)."""
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        session.attempts.start("train", process=machine.identity_of(sleeper.pid))
        attempt = session.views.attempts.get(1)
        assert status_of(attempt, machine.is_gone) == RUNNING
        position = session.head.position
        assert status_of(attempt, lambda _process: True) == LOST
        assert status_of(attempt, lambda _process: False) == RUNNING
    finally:
        sleeper.communicate(b"\n")
    assert status_of(attempt, machine.is_gone) == LOST
    assert attempt["status"] == RUNNING
    with pytest.raises(Conflict, match="is lost"):
        session.attempts.start("train")
    assert session.refresh().head.position == position
    session.attempts.settle(1, "failed", error="the machine went down")
    assert status_of(session.views.attempts.get(1), machine.is_gone) == "failed"


def test_a_command_that_outlives_its_keeper_still_runs(session):
    """As long as the command or its onrecord lives, an attempt is not lost; an orphan is reported (T01)."""
    dead = machine.identity() | {"pid": 2**22 + 1, "started": "0"}
    session.attempts.start("train", process=machine.identity(), keeper=dead)
    attempt = session.views.attempts.get(1)
    assert status_of(attempt, machine.is_gone) == RUNNING
    assert orphaned(attempt, machine.is_gone)
    assert not orphaned(attempt | {"keeper": machine.identity()}, machine.is_gone)
    assert status_of(attempt | {"process": dead}, machine.is_gone) == LOST


def test_an_attempt_nobody_watches_is_never_lost(session):
    """Without a recorded process an attempt waits until it is settled."""
    session.attempts.start("by hand")
    assert status_of(session.views.attempts.get(1), lambda _process: True) == RUNNING


def test_the_same_command_on_the_same_code_is_foreseen(session):
    """A failure is reported before the same command runs on the same code, not on other code (F14)."""
    failed(session, "make test", "boom")
    assert session.attempts.foresee(["make", "test"], CODE)["number"] == 1
    assert session.attempts.foresee("make lint", CODE) is None
    assert session.attempts.foresee("make test", CODE | {"dirty": "d1"}) is None
    failed(session, "make test", "boom", fix="clean first")
    failed(session, "make test", "boom")
    assert session.attempts.foresee("make test", CODE)["fix"] == "clean first"


def test_what_a_run_wrote_itself_is_not_other_code(session):
    """Files that the failed run left behind do not make its repetition a different command (F14)."""
    session.attempts.start("make", revision=CODE)
    session.attempts.settle(1, "failed", error="boom", code_after="abc/left-behind")
    assert session.attempts.foresee("make", CODE | {"dirty": "left-behind"})["number"] == 1


def test_an_error_that_failed_on_this_code_is_foreseen_for_its_other_commands(session):
    """A command that failed before gets a warning when any command met that error on this code (F14)."""
    failed(session, "train --big", "CUDA out of memory: 512 MiB at 0x7f01", code={"revision": "old", "dirty": None})
    assert session.attempts.foresee("train --big", CODE) is None
    failed(session, "train --small", "CUDA out of memory: 64 MiB at 0x7faa", fix="smaller batch")
    foreseen = session.attempts.foresee("train --big", CODE)
    assert (foreseen["number"], foreseen["fix"]) == (2, "smaller batch")
    assert session.attempts.foresee("train --other", CODE) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("KeyError at 0x7f00 in /tmp/a/b.py line 3", "KeyError at 0x11ab in /home/x.py line 99", True),
        ("timed out after 3 s", "timed out after 3.5 s", True),
        ("KeyError: 'row'", "KeyError: 'line'", False),
    ],
)
def test_an_error_signature_leaves_out_what_varies(one, other, same):
    """Numbers, addresses and paths differ from run to run; the words do not."""
    assert (error_signature(one) == error_signature(other)) is same


def _settle(url, number, outcome, ready, results):
    with onrecord.connect(url, project="/project") as records:
        session = records.open("race", agent=outcome)
        session.views  # noqa: B018 - folded before the race, so that both believe it is theirs
        ready.wait()
        try:
            session.attempts.settle(number, outcome, error="e", reason="r")
            results.put(outcome)
        except Conflict:
            results.put(None)


def _start(url, id, ready, results):
    with onrecord.connect(url, project="/project") as records:
        session = Session(records.store, id, agent="same")
        session.views  # noqa: B018 - as above
        ready.wait()
        try:
            results.put(session.attempts.start(f"make {os.getpid()}").position)
        except Conflict:
            results.put(None)


def race(target, arguments):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ready, results = context.Barrier(len(arguments)), context.Queue()
    processes = [context.Process(target=target, args=(*words, ready, results)) for words in arguments]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _process in processes]
    for process in processes:
        process.join(60)
    return found


def test_of_two_settlers_at_once_one_wins(tmp_path):
    """When two processes settle the same attempt at the same moment, one outcome is on record, and the other is refused."""
    url = f"sqlite:///{tmp_path}/race.db"
    with onrecord.connect(url, project="/project") as records:
        session = records.open("race", agent="one")
        for number in range(1, 4):
            session.attempts.start("make")
            found = race(_settle, [(url, number, "failed"), (url, number, "succeeded"), (url, number, "abandoned")])
            (winner,) = [outcome for outcome in found if outcome]
            assert session.views.attempts.attempts[str(number)]["status"] == winner
        settled = [event for event in session.events() if event.kind == "attempt.settled"]
        assert len(settled) == 3


def test_of_two_starters_of_one_agent_one_wins(tmp_path):
    """When two processes of one agent start at once, one attempt is RUNNING, and the other is refused (F09)."""
    url = f"sqlite:///{tmp_path}/race.db"
    with onrecord.connect(url, project="/project") as records:
        session = records.open("race")
        found = race(_start, [(url, session.id)] * 3)
        assert len([position for position in found if position]) == 1
        assert len(session.views.attempts.all()) == 1
