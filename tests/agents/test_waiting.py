"""Waiting for a limit to end: parked on record, and the interrupted prompt is issued again exactly once."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from onrecord.agents import waiting
from onrecord.agents.outlasting import outlast
from onrecord.agents.resuming import MUST, Terms, plan_here, resume
from onrecord.agents.wrapping import Ask, Wrapped, record_prompt
from tests.waiting import until


@pytest.fixture
def limited(desk):
    """A session with an agent that was stopped by a limit that ends in a moment."""
    desk.plan("limit 1", "answer")
    assert desk.run("start", "claude", "--name", "fix", "-p", "Find the bug").code == 1
    return desk


def test_the_interrupted_prompt_is_issued_again_once_the_limit_ends(limited):
    """The session is parked until the reset, resumed in the same conversation, and finishes (G03, G10)."""
    (stop,) = limited.interruptions("fix")
    done = limited.run("resume", "fix", "--wait")
    assert done.code == 0, done
    assert limited.prompts() == ["Find the bug", "Find the bug"]
    session = limited.session("fix")
    steps = [step["step"] for step in session.views.lifecycle.steps]
    assert steps == ["opened", "paused", "resumed"]
    (resumed,) = session.events(kinds=("session.resumed",))
    assert resumed.at / 1e6 >= stop["resets_at"]
    assert limited.links("fix")[0]["last"]["verified"] is True
    assert len(limited.transcripts()) == 1
    again = limited.run("resume", "fix", "--wait")
    assert (again.code, limited.prompts()) == (0, ["Find the bug", "Find the bug"])
    assert "nothing to wait for" in again.out


def test_start_waits_through_one_limit_after_another(desk):
    """Limits may come at any moment; `start --wait` resumes after each and ends when the work is done (G04)."""
    desk.plan("limit 1", "limit 1", "answer")
    done = desk.run("start", "claude", "--name", "fix", "--wait", "-p", "Find the bug")
    assert done.code == 0, done
    assert done.err.count("because of its usage limit; the session is paused; Ctrl-C stops waiting") == 2
    assert "--wait` waits for that" not in done.err, "this command does"
    assert [stop["cause"] for stop in desk.interruptions("fix")] == ["usage_window", "usage_window"]
    assert desk.prompts() == ["Find the bug"] * 3
    assert len(desk.transcripts()) == 1


def test_the_one_who_waits_may_die(desk):
    """A wait that was killed is simply started again: everything it needs is on record."""
    desk.plan("limit 8", "answer")
    assert desk.run("start", "claude", "--name", "fix", "-p", "Find the bug").code == 1
    with desk.started("resume", "fix", "--wait", stdin=subprocess.DEVNULL) as waiter:
        until(lambda: desk.session("fix").status == "paused")
        waiter.kill()
        waiter.communicate(timeout=90)
    assert desk.session("fix").store.leases(desk.session("fix").id) == []
    assert desk.run("resume", "fix", "--wait").code == 0
    assert desk.prompts() == ["Find the bug", "Find the bug"]


def test_two_who_wait_issue_it_once(limited):
    """Two waiters wake at the same moment; one resumes, and the other sees that it did."""
    pair = [limited.started("resume", "fix", "--wait", stdin=subprocess.DEVNULL) for _ in range(2)]
    codes = []
    for waiter in pair:
        _out, err = waiter.communicate(timeout=60)
        codes.append(waiter.returncode)
        assert "Traceback" not in err
    assert 0 in codes
    assert limited.prompts() == ["Find the bug", "Find the bug"]


def test_who_comes_late_does_not_issue_it(limited, monkeypatch):
    """Another process resumes the agent after we looked and before we run it: the prompt is not issued a second time."""
    for name, value in limited.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(limited.project)
    session = limited.records().get("fix", agent="claude")
    asked = []

    def resume_late(ask):
        asked.append(ask.prompt)
        limited.ok("resume", "fix", "--wait")
        planned = plan_here(session, "claude")
        terms = Terms(MUST, lambda _hazard: False, lambda _text: None)
        return resume(Wrapped(session, planned.of, planned.env, show=False), planned, ask, terms).outcome

    done = outlast(session, Ask(headless=True), resume_late, lambda _text: None)
    assert (done.last, done.nothing) == (None, True)
    assert (asked, limited.prompts()) == (["Find the bug"], ["Find the bug", "Find the bug"])


def killed_after_reissue(desk, *, delivered):
    """A process that recorded the second issue of a prompt and was killed before, or after, the conversation got it."""
    session = desk.records().get("fix", agent="claude")
    stop = waiting.last_stop(session, "claude")
    assert stop is not None
    child = os.fork()
    if child == 0:
        own = desk.records().get("fix", agent="claude")
        own.acquire()
        ask = waiting.again(own, stop, Ask(), desk.environment)
        record_prompt(own, ask)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    if delivered:
        (link,) = desk.links("fix")
        words = [desk.place / "bin" / "claude", "-p", "--resume", link["id"]]
        desk.plan("die", "answer")
        subprocess.run(
            words, input=b"Find the bug", env=desk.environment, cwd=desk.project, stdout=subprocess.DEVNULL, check=False
        )


def test_killed_before_the_prompt_was_delivered_it_is_delivered_once(limited):
    """After SIGKILL between the record and the agent, the conversation has not seen the prompt, so it gets it, once."""
    killed_after_reissue(limited, delivered=False)
    done = limited.run("resume", "fix", "--wait")
    assert done.code == 0, done
    assert limited.prompts() == ["Find the bug", "Find the bug"]


def test_killed_after_the_prompt_was_delivered_it_is_not_doubled(limited):
    """After SIGKILL once the agent had the prompt, it is asked to continue, and the prompt is not issued a third time."""
    killed_after_reissue(limited, delivered=True)
    assert limited.prompts() == ["Find the bug", "Find the bug"]
    done = limited.run("resume", "fix", "--wait")
    assert done.code == 0, done
    assert limited.prompts() == ["Find the bug", "Find the bug", waiting.CONTINUE]


def test_an_agent_that_outlived_its_wrapper_is_waited_for(desk, tmp_path):
    """When the wrapper is killed, the agent keeps working undisturbed, and nothing is issued twice."""
    desk.plan(f"hang {tmp_path}/pid", "answer")
    with desk.started("start", "claude", "--name", "fix", "-p", "go", stdin=subprocess.DEVNULL) as wrapper:
        pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        wrapper.kill()
        wrapper.communicate(timeout=90)
    with desk.started("resume", "fix", "--wait", stdin=subprocess.DEVNULL) as waiter:
        assert "still running" in waiter.stderr.readline()
        time.sleep(1.0)
        assert waiter.poll() is None
        os.kill(pid, signal.SIGKILL)
        waiter.communicate(timeout=90)
    assert desk.prompts() == ["go"]


def test_what_went_on_by_hand_is_not_issued_again(limited):
    """After a person resumed the agent and it ended in order, the old prompt is not issued again."""
    limited.ok("resume", "fix", "-p", "Something else")
    done = limited.run("resume", "fix", "--wait")
    assert (done.code, limited.prompts()) == (0, ["Find the bug", "Something else"])
    assert "nothing to wait for" in done.out


def test_waiting_answers_with_one_envelope(desk):
    """--json gives one answer, however many limits there were."""
    desk.plan("limit 1", "limit 1", "answer")
    data = desk.data("start", "claude", "--name", "fix", "--wait", "-p", "Find the bug", kind="resumption")
    assert (data["finished"], data["verified"], data["status"]) == (True, True, "resumed")


def test_a_stop_that_does_not_end_by_itself_is_not_waited_for(desk):
    """A refused login or a crash has no reset: waiting says so and ends."""
    desk.plan("refuse", "answer")
    desk.run("start", "claude", "--name", "fix", "-p", "go")
    done = desk.run("resume", "fix", "--wait")
    assert done.code == 0, done
    assert "needs a person" in done.err


def test_where_no_reset_is_told_the_waits_grow(tmp_path):
    """After a rate limit without a time, the waits are one minute, then two, then four, up to an hour."""
    from onrecord import connect

    now = [1_000_000.0]
    records = connect(str(tmp_path / "x.db"), project="p")
    records.clock = lambda: now[0]
    session = records.create("fix", agent="claude")
    waits = []
    for _ in range(8):
        session.agents.record_interruption("rate_limit", "429", vendor="claude", vendor_id="x")
        stop = waiting.last_stop(session, "claude")
        assert stop is not None
        assert stop.until is not None
        waits.append(stop.until - now[0])
        now[0] += 10
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_a_reset_that_had_passed_when_it_was_told_is_not_believed_twice(tmp_path):
    """A reset in the past means to resume at once; if the limit is still there, the waits grow."""
    from onrecord import connect

    records = connect(str(tmp_path / "x.db"), project="p")
    records.clock = lambda: 1_000_000.0
    session = records.create("fix", agent="claude")
    waits = []
    for _ in range(4):
        session.agents.record_interruption("usage_window", "limit", resets_at=999_000.0, vendor="claude", vendor_id="x")
        stop = waiting.last_stop(session, "claude")
        assert stop is not None
        assert stop.until is not None
        waits.append(stop.until - 1_000_000.0)
    assert waits == [0, 5, 10, 20]


def test_other_agents_are_not_paused_by_ones_limit(tmp_path):
    """A quota belongs to one agent; a session in which another agent works is not paused."""
    from onrecord import connect

    records = connect(str(tmp_path / "x.db"), project="p")
    session = records.create("fix", agent="claude")
    other = records.open("fix", agent="other")
    session.agents.record_interruption("usage_window", "limit", resets_at=2e9, vendor="claude", vendor_id="x")
    stop = waiting.last_stop(session, "claude")
    assert stop is not None
    assert waiting.park(session, stop) is False
    assert session.refresh().status != "paused"
    other.leave()
    assert waiting.park(session, stop) is True
    assert session.refresh().status == "paused"


def test_waiting_ends_when_somebody_else_goes_on(tmp_path):
    """The clock does not overrule a person who resumes or closes the session by hand."""
    from onrecord import connect

    records = connect(str(tmp_path / "x.db"), project="p")
    session = records.create("fix", agent="claude")
    session.agents.record_interruption(
        "usage_window", "limit", resets_at=time.time() + 3600, vendor="claude", vendor_id="x"
    )
    stop = waiting.last_stop(session, "claude")
    assert stop is not None
    waiting.park(session, stop)
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        records.get("fix").resume("by hand")

    assert waiting.wait(session, stop, sleep=sleep) is False
    assert slept == [waiting.LOOK_SECONDS]
    assert Path(tmp_path / "x.db").exists()
