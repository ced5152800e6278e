"""A person is notified once of what needs them, by a real program of theirs, and no notifier harms an agent."""

import json
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from onrecord.surfaces import notifying
from onrecord.surfaces.notifying import END_SECONDS, ENDS, SENT_LIMIT, SENT_SECONDS, WAITING, Notice, decide
from tests.agents.conftest import Desk
from tests.hook.conftest import CONVERSATION
from tests.waiting import until, until_gone

if TYPE_CHECKING:
    from onrecord.crew.running import Crew

TELLER = """
import json, os, sys
notice = json.load(sys.stdin)
notice["env"] = sorted(name for name in os.environ if name.startswith("ONRECORD_"))
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(notice) + "\\n")
"""
HOSTILE = "\x1b]0;evil\x07; <b>$(reboot)</b>\n--help"
EMPTY = {"told": {}, "sent": [], "left_out": 0}


def note(key, event=WAITING, text="claude is waiting"):
    return Notice(event, key, "01SESSION", "fix", "/project", "claude", text, "onrecord show fix")


@pytest.fixture
def teller(tmp_path):
    """Settings that run a program for each notice; what it was given, as it was given."""
    program, told = tmp_path / "teller.py", tmp_path / "told.jsonl"
    program.write_text(TELLER)

    class Teller:
        def settings(self, **more):
            words = json.dumps([sys.executable, str(program), str(told)])
            lines = [f"{name} = {json.dumps(value)}" for name, value in more.items()]
            folder = tmp_path / ".config" / "onrecord"
            folder.mkdir(parents=True, exist_ok=True)
            command = [] if "command" in more else [f"command = {words}"]
            (folder / "config.toml").write_text("\n".join(["[notify]", *command, *lines]))

        def told(self):
            return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

        def words(self):
            return [(one["event"], one["text"]) for one in self.told()]

    found = Teller()
    found.settings()
    return found


def test_each_thing_is_told_once_and_not_too_much_at_once():
    """The same key once; ten within a minute; the next one says how many were left out; an end again after a while."""
    known, told = EMPTY, []
    for number in range(SENT_LIMIT + 3):
        for _process in range(2):
            answer, known = decide(known, note(f"s/{number}"), 100.0)
            told.append(answer)
    assert [one for one in told if one is not None] == [0] * SENT_LIMIT
    answer, known = decide(known, note("s/late"), 101.0 + SENT_SECONDS)
    assert (answer, known["left_out"]) == (3, 0)
    answer, known = decide(EMPTY, note("s/end", ENDS), 0.0)
    assert decide(known, note("s/end", ENDS), END_SECONDS - 1)[0] is None
    assert decide(known, note("s/end", ENDS), END_SECONDS + 1)[0] == 0


def test_text_from_an_agent_is_only_text(tmp_path, monkeypatch):
    """On a terminal, for a program on the desktop, and in tmux: nothing in it ends the message or becomes an option."""
    notice = note("x", text=HOSTILE)
    for env in ({}, {"TERM": "foot"}, {"TMUX": "1"}):
        said = notifying.terminal_message(notice, env)
        inner = said.removeprefix("\x1bPtmux;").replace("\x1b\x1b", "\x1b") if "TMUX" in env else said
        assert inner.count("\x1b") == (3 if "TMUX" in env else 2)
        assert "\x07" not in said
        assert "\n" not in said
    assert notifying.terminal_message(notice, {"TERM": "foot"}).count(";") == 3
    for name in ("notify-send", "terminal-notifier"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        words = notifying.desktop_command(notice, {"PATH": str(tmp_path), "DISPLAY": ":0"})
        assert words is not None
        assert words[0] == str(program)
        assert [word for word in words if "evil" in word and word.startswith("-")] == []
        assert name != "notify-send" or "<b>" not in words[-1]
    assert notifying.desktop_command(notice, {"PATH": "/nonexistent"}) is None


def test_a_permission_and_an_end_are_told_once_by_a_real_program(hooks, session, teller):
    """Hooks that see the same thing tell it once; the program gets JSON, and nothing that marks the agent's processes."""
    agent = {"ONRECORD_SPAWN": "t0ken"}
    hooks.claude("SessionStart", source="startup")
    for _again in range(2):
        assert hooks.claude("Notification", agent, message=HOSTILE).is_empty
    assert hooks.claude("Stop", agent).is_empty
    until(lambda: len(teller.told()) >= 2)
    ends, waits = sorted(teller.told(), key=lambda one: str(one["event"]))  # two programs: either may be faster
    assert (waits["event"], waits["name"], waits["agent"]) == ("waits", "fix-403", "solver")
    assert waits["text"] == f"solver is waiting: {HOSTILE}"
    assert waits["command"] == "onrecord show fix-403"
    assert (ends["event"], ends["text"]) == ("ends", "solver finished what it was asked")
    assert set(waits["env"]).isdisjoint({"ONRECORD_SPAWN", "ONRECORD_SESSION", "ONRECORD_AGENT"})
    assert hooks.trouble() == ""


def test_a_stop_with_a_question_is_a_question(hooks, session, teller):
    """The last answer asks something: the notice says what, and not that the agent finished; an idle agent sends none."""
    file = hooks.place / ".claude" / "projects" / "-project" / f"{CONVERSATION}.jsonl"
    file.parent.mkdir(parents=True)
    said = [("user", "Fix it"), ("assistant", [{"type": "text", "text": "Shall I delete the cache?"}])]
    records = [
        {"type": who, "uuid": who, "sessionId": CONVERSATION, "message": {"role": who, "content": content}}
        for who, content in said
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    hooks.claude("SessionStart", source="startup", transcript_path=str(file))
    hooks.claude("Stop", transcript_path=str(file))
    hooks.claude("Notification", notification_type="idle_prompt", message="Claude is waiting for your input")
    until(teller.told)
    assert teller.words() == [("waits", "solver asks: Shall I delete the cache?")]
    assert hooks.kinds("attention.needed") == []


def test_a_hung_or_missing_notifier_does_not_hold_up_the_agent(hooks, session, teller, tmp_path):
    """The hook answers while the notifier hangs; what is wrong with the notifier is a line for the doctor."""
    hooks.claude("SessionStart", source="startup")
    answered, seen = tmp_path / "answered", tmp_path / "seen"
    # It hangs until the hook has answered. A hook that waits for it kills it, and then nothing is seen.
    hangs = f"while [ ! -e {answered} ]; do sleep 0.05; done; touch {seen}"
    teller.settings(command=["sh", "-c", hangs])
    assert hooks.claude("Notification", message="May I?").is_empty
    answered.touch()
    until(seen.exists)
    teller.settings(command=[str(tmp_path / "missing")])
    assert hooks.claude("Notification", message="And now?").is_empty
    until(lambda: "missing could not be run: No such file or directory" in hooks.trouble())
    teller.settings(comand=["x"])
    assert hooks.claude("Notification", message="And then?").is_empty
    assert "notify: 'comand' is not a setting" in hooks.trouble()


def test_a_program_that_hangs_is_killed(tmp_path, monkeypatch):
    """With everything it started, when its time is up; the doctor reads which one it was."""
    monkeypatch.setenv("ONRECORD_STORE", str(tmp_path / "store.db"))
    pid = tmp_path / "pid"
    for seconds in (0.3, 3.0, 30.0):  # On a busy machine the shell may not even have begun after the first.
        monkeypatch.setattr(notifying, "COMMAND_SECONDS", seconds)
        notifying._run(["sh", "-c", f"sleep 600 & echo $! > {pid}; wait"], b"{}")
        if pid.exists():
            break
    until_gone(int(pid.read_text()))
    assert f"sh took more than {seconds:.0f} s and was killed" in (tmp_path / "hook-trouble.log").read_text()


def test_only_the_chosen_events_are_told(hooks, session, teller):
    """`events` leaves out the others."""
    teller.settings(events=["ends"])
    hooks.claude("SessionStart", source="startup")
    hooks.claude("Notification", message="May I?")
    hooks.claude("Stop")
    until(teller.told)
    assert teller.words() == [("ends", "solver finished what it was asked")]


def test_runs_tell_of_limits_that_pass_crashes_and_ends(tmp_path, bytecode, teller):
    """Notices of a limit that begins and that has passed, of a crash, and of the end of a run without a terminal."""
    desk = Desk(tmp_path, bytecode)
    desk.plan("limit 5", "answer")
    assert desk.run("start", "claude", "--name", "night", "-p", "Find the bug", "--wait").code == 0
    until(lambda: len(teller.told()) >= 3)
    end, limit, passed = sorted(teller.words())
    assert limit[0] == "limits"
    assert limit[1].startswith("claude was stopped by its usage limit, until ")
    assert passed == ("limits", "the limit of claude has passed; it continues")
    assert end == ("ends", "claude finished its work")
    desk.plan("die")
    assert desk.run("start", "claude", "--name", "day", "-p", "Find the bug").code == 137
    until(lambda: len(teller.told()) >= 4)
    last = teller.told()[-1]
    assert (last["event"], last["text"], last["command"]) == ("crashes", "claude was killed", "onrecord resume day")


def test_a_team_notifies_of_what_its_supervisor_cannot_settle(tmp_path, monkeypatch):
    """An agent that is not started again, one that a limit stopped, and one that finished; each state once."""
    from onrecord.connection import connect
    from onrecord.surfaces.cli.agents import team

    sent: list[tuple[str, str, str]] = []
    monkeypatch.setattr(notifying, "_chosen", lambda: {"bell": True})
    monkeypatch.setattr(notifying, "_tell", lambda _how, one: sent.append((one.event, one.text, one.command)))
    with connect("memory:", project="/project") as records:
        crew = SimpleNamespace(session=records.create("night", agent="crew"))
        records.get("night", agent="a").agents.record_attention_needed("5 restarts in 120 s; restart it by hand")
        rows = {
            name: {"state": state, "starts": 6, "until": 1_700_000_000.0}
            for name, state in (("a", "degraded"), ("b", "limited"), ("c", "finished"), ("d", "working"))
        }
        team._notify(cast("Crew", crew), rows)
    shown = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(1_700_000_000))
    assert sent == [
        (
            "crashes",
            "a keeps ending: 5 restarts in 120 s; restart it by hand",
            "onrecord team restart a --session night",
        ),
        ("limits", f"b was stopped by a limit, until {shown}; the team waits", "onrecord show night"),
        ("ends", "c finished its work", "onrecord show night"),
    ]
