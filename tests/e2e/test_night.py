"""A team of three vendors through a night in fast motion: a limit, a crash, a question, a dead supervisor, a cleared conversation."""

import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from onrecord.crew.next_step import RESTARTS_LIMIT
from tests.e2e.lab import Lab, Running
from tests.e2e.modelserver import Fault, patiently
from tests.e2e.suite import Laboratory
from tests.e2e.terminal import Terminal

SESSION = "night"
WINDOW_SECONDS = 30
PATIENCE = 120.0
"""Four programs start at once, and a limit announced to the minute may take one longer."""
ONRECORD = [sys.executable, "-m", "onrecord"]
WORK = "work.txt"
TRIES = 2
"""How often Claude tries before it gives up, in the laboratory's settings."""
BUSY = "test -e killed.here || (touch killed.here && sleep 600)"
PROMPTS = {
    "claude": f"The word of claude is magenta. [[shell echo claude >> {WORK}]] [[say magenta]]",
    "codex": f"The word of codex is ochre. [[shell {BUSY}]] [[shell echo codex >> {WORK}]] [[say ochre]]",
    "gemini": f"The word of gemini is indigo. [[shell echo gemini >> {WORK}]] [[say indigo]]",
    "broken": "The word of broken is umber. [[say umber]]",
}
"""Gemini asks a person before every command that has a redirection in it."""
WORDS = {
    "claude": ("The word of claude is", "The word of the morning is"),
    "codex": ("The word of codex is",),
    "gemini": ("The word of gemini is",),
}
"""What only the requests of each agent's conversations have in them."""
DONE = ("claude", "codex", "gemini", "morning")
COMMANDS = {"broken": "claude --no-such-option"}
MORNING = f"The word of the morning is teal. [[shell echo morning >> {WORK}]] [[say teal]]"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="cannot run here: tmux is not installed")
class TestNight(Laboratory):
    programs = ("claude", "codex", "gemini")

    def test_every_agent_finishes_once_and_the_record_tells_the_night(self, lab: Lab):
        """Limited, killed, asking, cleared, and for a while without a supervisor: each piece of work is done, once, and told (I20, G03)."""
        self.prepare(lab)
        night = Night(lab)
        night.supervise("team.toml")
        night.saw(claude="limited", codex="working", gemini="needs_person")
        lab.appears("killed.here", PATIENCE)
        night.kill_supervisor()
        os.kill(night.process_of("codex"), signal.SIGKILL)
        assert night.rows()["gemini"]["state"] == "needs_person", "without a supervisor, the record still says it"
        night.supervise("--session", SESSION)
        night.until(claude="idle", codex="idle", broken="degraded")
        assert night.rows()["gemini"]["state"] == "needs_person", "the supervisor answers nothing"

        person = night.attach("gemini")
        person.until(r"(?m)^\W*indigo\s*$", lambda: person.press("Enter"))
        night.until(gemini="idle")
        person.press("C-b", "0")
        person.say("/clear", r"(?s)\A(?!.*The word of claude)")
        person.say(MORNING, r"(?m)^\W*teal")
        night.until(claude="idle")
        self.check_work(lab)
        self.check_story(night)
        self.check_surfaces(lab, night)
        assert lab.onrecord("team", "stop", SESSION).status == 0
        night.supervisor.process.wait()
        assert {row["state"] for row in night.rows().values()} == {"stopped"}
        person.close()
        patiently(lambda: lab.room.inhabitants() == [], "nothing of the team is left")

    def prepare(self, lab: Lab) -> None:
        """Claude has used up its window. Without hooks of its own, Codex needs no consent."""
        assert lab.onrecord("setup", "claude", "gemini", "--user", "--no-tools", "--no-input").status == 0
        lab.server.fail(used_up, TRIES, "word of claude")
        agents = [
            f"[[agent]]\nid = '{name}'\ncommand = '{COMMANDS.get(name, name)}'\nprompt = '{prompt}'\n"
            for name, prompt in PROMPTS.items()
        ]
        (lab.project / "team.toml").write_text("".join([f"[team]\nname = '{SESSION}'\n", *agents]))

    def check_work(self, lab: Lab) -> None:
        """Each piece of work was done once, and no agent was asked twice."""
        done = (lab.project / WORK).read_text().split()
        assert sorted(done) == sorted(DONE)
        asked = {name: {times(one, name) for one in requests(lab, words)} for name, words in WORDS.items()}
        assert asked["claude"] == {(1, 0), (2, 0), (0, 0)}, (
            "after its limit it was asked again, once; cleared, not at all"
        )
        assert asked["codex"] == {(1, 0), (1, 1)}, "after the kill it was told to continue, once"
        assert asked["gemini"] == {(1, 0)}

    def check_story(self, night: "Night") -> None:
        """The log has every stop, every question and every start; each state was seen by itself."""
        stops = Counter((one["by"], one["data"]["cause"]) for one in night.events("interruption.recorded"))
        assert stops == {("claude", "usage_window"): 1, ("codex", "killed"): 1, ("broken", "crash"): RESTARTS_LIMIT + 1}
        asked = {one["by"] for one in night.events("attention.needed")}
        assert asked == {"gemini", "broken"}
        starts = Counter(one["data"]["agent"] for one in night.events("agent.spawned"))
        assert starts == {"claude": 1, "codex": 2, "gemini": 1, "broken": RESTARTS_LIMIT + 1}
        assert len(night.conversations("claude")) == 2, "cleared, it is still the same agent"
        assert len(night.conversations("codex")) == len(night.conversations("gemini")) == 1
        assert {
            ("claude", "limited"), ("claude", "idle"), ("codex", "working"), ("codex", "idle"),
            ("gemini", "needs_person"), ("gemini", "idle"), ("broken", "restarting"), ("broken", "degraded"),
        } <= night.seen  # fmt: skip

    def check_surfaces(self, lab: Lab, night: "Night") -> None:
        """What a person reads in the morning, once the last answer is on record: a supervisor copies it within moments."""
        patiently(
            lambda: "last words: teal" in lab.onrecord("note", SESSION).out, "the last answer is on record", PATIENCE
        )
        rows = night.rows()
        assert rows["claude"]["how"] == rows["codex"]["how"] == "resumed (verified)"
        assert "unknown option '--no-such-option'" in rows["broken"]["why"]
        (listed,) = json.loads(lab.onrecord("--json").out)["data"]["sessions"]
        assert [(one["agent"], one["command"]) for one in listed["needs_you"]] == [
            ("broken", f"onrecord team restart broken --session {SESSION}"),
        ]
        (row,) = json.loads(lab.onrecord("list", "--json").out)["data"]
        assert row["last_prompt"].startswith("The word of the morning is teal."), row
        shown = json.loads(lab.onrecord("show", SESSION, "--json").out)["data"]
        assert shown["roster"].keys() == {"crew", *PROMPTS}, shown
        note = lab.onrecord("note", SESSION).out
        assert "asked last: The word of the morning is teal." in note
        assert "last words of codex: ochre" in note
        assert "last words of gemini: indigo" in note
        assert all(note.count(f"ran: echo {name} >> {WORK}") == 1 for name in DONE), note
        exported = lab.onrecord("export", SESSION, "--format", "markdown")
        assert exported.status == 0, exported
        told = exported.out.partition("## Transcript")[2]
        assert all(told.count(f"$ echo {name} >> {WORK}") == 1 for name in DONE), told
        used = json.loads(lab.onrecord("usage", "--session", SESSION, "--by", "agent", "--json").out)["data"]
        answered = {name: len(requests(lab, words)) for name, words in WORDS.items()}
        assert {one["key"]: one["calls"] for one in used["rows"]} == answered | {"claude": answered["claude"] - TRIES}


class Night:
    """The team, as a person sees it from outside."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.supervisor: Running
        self.seen: set[tuple[str, str]] = set()

    def supervise(self, *words: str) -> None:
        self.supervisor = self.lab.start([*ONRECORD, "team", "up", *words])
        known = ("team", "status", SESSION)
        patiently(lambda: self.lab.onrecord(*known).status == 0, "the team is on record", PATIENCE)

    def kill_supervisor(self) -> None:
        """Only itself: the agents are in tmux, and stay."""
        self.supervisor.process.kill()
        self.supervisor.process.wait()

    def attach(self, agent: str) -> Terminal:
        """A person sits down before the team's terminals."""
        return Terminal(self.lab, [*ONRECORD, "team", "attach", agent, "--session", SESSION])

    def rows(self) -> dict[str, dict[str, Any]]:
        done = self.lab.onrecord("team", "status", SESSION, "--json")
        assert done.status == 0, done
        found: dict[str, dict[str, Any]] = json.loads(done.out)["data"]["agents"]
        self.seen |= {(name, row["state"]) for name, row in found.items()}
        return found

    def until(self, **states: str) -> None:
        """Wait until all of these agents are in these states at once."""
        self._wait(states, lambda rows: all(rows[name]["state"] == state for name, state in states.items()))

    def saw(self, **states: str) -> None:
        """Wait until each of these agents has been in its state: on a busy machine a limit may end before another begins."""
        self._wait(states, lambda _rows: states.items() <= self.seen)

    def _wait(self, states: dict[str, str], are_so: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
        def there() -> bool:
            return are_so(self.rows())

        try:
            patiently(there, f"{states}", PATIENCE)
        except AssertionError as why:
            logs = {name: self.lab.onrecord("team", "logs", name, "--session", SESSION).out for name in states}
            shown = "\n".join(f"== {name}\n{text.strip()[-9000:]}" for name, text in logs.items())
            raise AssertionError(f"{why}: {self.rows()}\n{self.supervisor.err}\n{shown}") from None

    def events(self, kind: str) -> list[dict[str, Any]]:
        done = self.lab.onrecord("log", SESSION, "--json", "--limit", "0", "--kind", kind)
        found: list[dict[str, Any]] = json.loads(done.out)["data"]["events"]
        return found

    def located(self, agent: str) -> list[dict[str, Any]]:
        return [one["data"] for one in self.events("agent.located") if one["by"] == agent]

    def conversations(self, agent: str) -> set[str]:
        return {one["vendor_id"] for one in self.located(agent)}

    def process_of(self, agent: str) -> int:
        return int([one["process"] for one in self.located(agent) if "process" in one][-1]["pid"])


def requests(lab: Lab, words: tuple[str, ...]) -> list[str]:
    """What the model server was asked in conversations that have one of these phrases."""
    return [one.said for one in lab.server.conversation() if any(phrase in one.said for phrase in words)]


def times(request: str, agent: str) -> tuple[int, int]:
    """How often a request has the agent's prompt, and how often the order to continue."""
    return request.count(f"The word of {agent} is"), request.count("Continue where you were interrupted.")


def used_up() -> Fault:
    """A usage window of Claude that opens soon, counted from the request: programs start slowly on a busy machine."""
    return Fault(429, "rate_limit_error", f"Claude AI usage limit reached|{int(time.time()) + WINDOW_SECONDS}")
