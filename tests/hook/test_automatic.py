"""Automatic recording: after `onrecord setup`, every conversation is on record from its first prompt."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onrecord
from onrecord.agents.naming import create_for_prompt
from onrecord.connection import chosen_automatic, is_automatic, set_automatic, settings
from onrecord.session.handle import Session
from onrecord.surfaces.hook.process import Pending, _act
from onrecord.vendors.hooks import HookAnswer, HookCall
from onrecord.vendors.port import VENDORS, vendor

ID = "aaaaaaaa-0000-4000-8000-0000000000ad"
OTHER = "bbbbbbbb-0000-4000-8000-0000000000ad"


class Here:
    """A project and a store of its own; hooks are answered in this process."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.project = place / "project"
        (self.project / ".git").mkdir(parents=True)

    def hook(self, event: str, name: str = "claude", id_: str = ID, **about: Any) -> HookAnswer:
        of = vendor(name)
        payload = {"session_id": id_, "hook_event_name": event, "cwd": str(self.project)} | about
        call = of.parse_hook(payload, os.environ)
        return _act(Pending(), of, call)

    def call(self, name: str, payload: dict[str, Any]) -> HookCall:
        return vendor(name).parse_hook(payload, os.environ)

    def sessions(self) -> list[Session]:
        records = onrecord.connect(project=str(self.project))
        return [records.get(head.session) for head in records.sessions()]

    def roster(self) -> dict[str, list[str]]:
        (session,) = self.sessions()
        return {name: [link["id"] for link in one["links"]] for name, one in session.views.roster.agents.items()}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    made = Here(tmp_path)
    monkeypatch.chdir(made.project)
    for name in [name for name in os.environ if name.startswith("ONRECORD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ONRECORD_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("ONRECORD_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("CLAUDE_PID", str(os.getpid()))
    set_automatic(str(made.project), wanted=True)
    return made


def test_nothing_said_leaves_nothing(here: Here):
    """A start shows one line that says so and how to switch it off; without a prompt there is no session and no store."""
    answer = here.hook("SessionStart", source="startup")
    assert "onrecord setup --no-auto" in answer.notice
    assert answer.context == ""
    here.hook("SessionEnd", reason="prompt_input_exit")
    assert not (here.place / "store.db").exists()


def test_an_agent_that_shows_no_line_at_its_start_shows_it_with_its_first_answer(here: Here):
    """Qwen Code shows a hook's line only at a stop: the first one says that it is recorded, and no other."""
    started = here.hook("SessionStart", "qwen", source="startup")
    here.hook("UserPromptSubmit", "qwen", prompt="Fix the login bug")
    said = [here.hook("Stop", "qwen").notice for _ in range(2)]
    (session,) = here.sessions()
    assert started.notice == ""
    assert session.name in said[0]
    assert "onrecord setup --no-auto" in said[0]
    assert said[1] == ""


@pytest.mark.parametrize("name", VENDORS)
def test_the_first_prompt_makes_a_session(here: Here, name: str):
    """Every vendor's first prompt opens a session named by its words and the day, titled by it, with an agent of that name."""
    lines = (Path(__file__).parent / "payloads" / f"{name}.jsonl").read_text().splitlines()
    of = vendor(name)
    for one in map(json.loads, lines):
        payload = {"hook_event_name": one["event"]} | one["payload"] | {"cwd": str(here.project)}
        call = of.parse_hook(payload, os.environ)
        if call.moment == "prompt":
            break
    call.prompt, call.cwd, call.transcript = "Fix the login bug\nin the API, please: it's broken", "", ""
    answer = _act(Pending(), of, call)
    (session,) = here.sessions()
    assert re.fullmatch(r"fix-the-login-bug-in-the-api-20\d\d-\d\d-\d\d", session.name)
    assert session.head.title == "Fix the login bug in the API, please: it's broken"
    assert list(session.views.roster.agents) == [name]
    assert session.name in answer.context
    assert _act(Pending(), of, call).context == "", "once"
    again = of.parse_hook(payload, os.environ)
    again.moment, again.reason, again.prompt, again.cwd, again.transcript = "start", "resumed", "", "", ""
    told = _act(Pending(), of, again).context
    assert bool(told) is (name == "opencode"), "it came with a prompt, so it lasts; opencode adds it to each request"


def test_words_of_any_language_make_a_name(here: Here):
    """Accents are dropped; a prompt without a letter that a name can have gives the vendor's name; equal names are numbered."""
    said = ["Überprüfe die Tür", "修复登录", "  ", *["x" * 500] * 11]
    with onrecord.connect(project="words") as records:
        made = [create_for_prompt(records, one, agent="a", spare="claude", vendor_id=ID).name for one in said]
    names = [re.sub(r"-20\d\d-\d\d-\d\d", "", one) for one in made]
    assert names[:4] == ["uberprufe-die-tur", "claude", "claude-2", "x" * 40]
    assert names[-3:] == ["x" * 40 + "-9", "x" * 40 + "-aaaaaaaa", "x" * 20 + f"-{ID.replace('-', '')}"]


def test_a_conversation_stays_in_its_session(here: Here):
    """Resumed, cleared, compacted and new in the same process: one session, and the chain of ids in order."""
    here.hook("SessionStart", source="startup")
    here.hook("UserPromptSubmit", prompt="Fix the login bug")
    assert here.hook("SessionStart", source="compact").notice == ""
    assert here.sessions()[0].name in here.hook("SessionStart", source="resume").notice
    here.hook("SessionEnd", reason="clear")
    here.hook("SessionStart", id_=OTHER, source="clear")
    here.hook("UserPromptSubmit", id_=OTHER, prompt="Now the other one")
    third = OTHER.replace("b", "c")
    here.hook("SessionStart", id_=third, source="startup")
    here.hook("UserPromptSubmit", id_=third, prompt="A new one in the same process")
    assert here.roster() == {"claude": [ID, OTHER, third]}


def test_another_process_is_another_session(here: Here, monkeypatch: pytest.MonkeyPatch):
    """Two conversations side by side are two sessions; an agent that an agent runs as a tool is in that one's session."""
    here.hook("UserPromptSubmit", prompt="Fix the login bug")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setenv("CLAUDE_PID", str(child.pid))
        here.hook("UserPromptSubmit", id_=OTHER, prompt="Review the change")
        assert here.roster() == {"claude": [ID], "claude.claude": [OTHER]}
        monkeypatch.setenv("CLAUDE_PID", str(os.getppid()))
        here.hook("UserPromptSubmit", id_=OTHER.replace("b", "c"), prompt="Something else")
        assert len(here.sessions()) == 2
        child.communicate(b"\n")


def test_a_killed_agent_is_noticed(here: Here, monkeypatch: pytest.MonkeyPatch):
    """After a kill, the next start in the project copies the rest of the transcript and records that the agent left."""
    monkeypatch.setenv("ONRECORD_FOLLOW", "0")  # what follows it would copy the transcript first, sometimes
    transcript = here.place / f"{ID}.jsonl"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setenv("CLAUDE_PID", str(child.pid))
        here.hook("UserPromptSubmit", prompt="Fix the login bug", transcript_path=str(transcript))
        said = {
            "type": "assistant",
            "uuid": "1",
            "sessionId": ID,
            "message": {"role": "assistant", "content": "I am on it"},
        }
        transcript.write_text(json.dumps(said) + "\n")
        child.kill()
    monkeypatch.setenv("CLAUDE_PID", str(os.getpid()))
    here.hook("UserPromptSubmit", id_=OTHER, prompt="Another day")
    killed = next(one for one in here.sessions() if one.name.startswith("fix"))
    assert not killed.views.roster.agents["claude"]["here"]
    stop = killed.views.interruption()
    assert stop is not None
    assert stop["cause"] == "killed"
    assert "I am on it" in json.dumps([event.data for event in killed.events(kinds=["payload.kept"])])


def test_an_automatic_agent_is_not_asked_for_a_note(here: Here):
    """A person who only switched recording on gets no reminder at the end of every turn; with an objective, one does."""
    here.hook("UserPromptSubmit", prompt="Fix the login bug")
    ran: dict[str, Any] = {
        "tool_name": "Bash",
        "tool_input": {"command": "make"},
        "tool_use_id": "t1",
        "tool_response": {"stdout": ""},
    }
    here.hook("PostToolUse", **ran)
    assert here.hook("Stop").decision == ""
    here.sessions()[0].facts.set_objective("Fix it")
    here.hook("PostToolUse", **ran | {"tool_use_id": "t2"})
    assert here.hook("Stop").decision == "deny"


def test_the_choice_is_the_nearest_one(here: Here, monkeypatch: pytest.MonkeyPatch):
    """A project's own choice comes before the user's, a folder's before the one around it, the environment before all."""
    below = here.project / "deep" / "er"
    below.mkdir(parents=True)
    assert is_automatic(str(below))
    set_automatic(str(here.project / "deep"), wanted=False)
    assert (is_automatic(str(below)), is_automatic()) == (False, True)
    set_automatic(None, wanted=True)
    assert (is_automatic("/"), is_automatic(str(below))) == (True, False)
    set_automatic(str(here.project), wanted=False)
    assert not is_automatic()
    set_automatic(str(here.project), wanted=None)
    assert chosen_automatic(str(here.project)) is None
    monkeypatch.setenv("ONRECORD_AUTO", "0")
    assert not is_automatic("/")


def test_settings_keep_what_is_the_users(here: Here):
    """Switching changes its own line of the settings and nothing else; a file with only our lines is removed again."""
    config = here.place / "config.toml"
    set_automatic(str(here.project), wanted=None)
    assert not config.exists()
    mine = "# mine\nstealth = true  # as I like it\n\n[retention]\nerase_closed_after = 10\n"
    config.write_text(mine)
    set_automatic(str(here.project), wanted=True)
    assert settings()["retention"] == {"erase_closed_after": 10}
    assert is_automatic()
    set_automatic(str(here.project), wanted=None)
    assert config.read_text() == mine
