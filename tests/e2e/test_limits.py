import json
import os
import re
import signal
import sys
import time
from functools import partial
from typing import Any

from tests.e2e.lab import Lab
from tests.e2e.modelserver import Fault, patiently
from tests.e2e.suite import SESSION, Agent, Laboratory
from tests.e2e.terminal import Terminal

WINDOW_SECONDS = 30
TRIES = 2
"""How often the programs try before they give up, in the laboratory's settings."""
PATIENCE = 120.0
"""Five programs start at once, and a limit announced to the minute may take one longer."""
STOPPED = "interruption.recorded"
ONRECORD = [sys.executable, "-m", "onrecord"]


class TestLimitsOnATerminal(Laboratory):
    programs = ("claude",)

    def test_a_limit_in_a_terminal_is_seen_waited_for_and_outlived(self, lab: Lab):
        """A typed prompt hits a usage window: it is on record with its time, and is issued again, once, also after two deaths."""
        assert lab.onrecord("setup", "claude", "--user", "--no-tools", "--no-input").status == 0
        agent = Agent(lab, "claude")
        opens = int(time.time()) + WINDOW_SECONDS
        lab.server.fail(Fault(429, "rate_limit_error", f"Claude AI usage limit reached|{opens}"), TRIES, "is magenta")
        terminal = Terminal(lab, agent.command())
        terminal.shows("auto mode on")
        terminal.say("The word is magenta. [[say ochre]]", "usage limit reached")
        patiently(lambda: bool(stops_of(agent)), "the limit is on record")
        (stop,) = stops_of(agent)
        assert (stop["cause"], stop["resets_at"], stop["terminal"]) == ("usage_window", opens, True), stop
        shown = stop_of(lab, SESSION) or {}
        assert shown["cause"] == "usage_window", "a person can see it while the program is still open"
        lab.room.clear()

        terminal = Terminal(lab, [*ONRECORD, "resume", SESSION, "--wait"])
        terminal.shows("waiting until")
        patiently(lambda: "session.paused" in kinds_of(agent), "the session is parked")
        lab.room.clear()

        terminal = Terminal(lab, [*ONRECORD, "resume", SESSION, "--wait"])
        terminal.shows(r"(?m)^\W*ochre")
        assert time.time() > opens
        answered = [one for one in lab.server.conversation()[TRIES:] if "magenta" in one.said]
        assert len(answered) == 1
        assert len(stops_of(agent)) == 1

    def test_a_limit_of_an_adopted_agent_is_recorded_by_its_hook(self, lab: Lab):
        """An agent that onrecord did not start has no wrapper: its hook records the limit, and its next prompt ends that."""
        assert lab.onrecord("setup", "claude", "--user", "--no-tools", "--no-input").status == 0
        terminal = Terminal(lab, ["claude"])
        terminal.shows("auto mode on")
        terminal.say("The word is magenta. [[say violet]]", r"(?m)^\W*violet")
        everywhere = json.loads(lab.onrecord("adopt", "claude", "--json").out)[
            "data"
        ]  # also in other tests' directories
        (here,) = [one for one in everywhere if one["cwd"] == str(lab.project)]
        done = lab.onrecord("adopt", "claude", "--pid", str(here["pid"]), "--name", SESSION, "--json")
        assert done.status == 0, done
        name = json.loads(done.out)["data"]["name"]
        opens = int(time.time()) + 3600
        lab.server.fail(
            Fault(429, "rate_limit_error", f"Claude AI usage limit reached|{opens}"), TRIES, "And the next?"
        )
        terminal.say("And the next? [[say ochre]]", "usage limit reached")
        assert "open too" not in terminal.screen, "the shell that started it is no second writer"
        patiently(lambda: stop_of(lab, name) is not None, "the limit is on record")
        stop = stop_of(lab, name) or {}
        assert (stop["cause"], stop["resets_at"]) == ("usage_window", opens), stop
        terminal.say("Once more. [[say teal]]", r"(?m)^\W*teal")
        assert stop_of(lab, name) is None


class TestTeamsOnTerminals(Laboratory):
    programs = ("claude", "codex", "gemini")

    def test_every_state_is_told_apart_and_nobody_stalls(self, lab: Lab):
        """Limited, asking, idle and crashed agents have states of their own; the limited and the crashed continue, exactly once."""
        assert lab.onrecord("setup", "claude", "--user", "--no-tools", "--no-input").status == 0
        began = time.time()
        lab.server.fail(window, TRIES, "word of claude")
        lab.server.fail(reached, 1, "word of codex")
        spent = Fault(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota. Please retry in 3600s.")
        lab.server.fail(spent, 1, "word of gemini")
        busy = "test -e crashed.here || (touch crashed.here && sleep 600)"
        prompts = {
            "claude": "The word of claude is magenta. [[say magenta]]",
            "codex": "The word of codex is ochre. [[say ochre]]",
            "gemini": "The word of gemini is indigo. [[say indigo]]",
            "idle": "The word of idle is violet. [[say violet]]",
            "crashed": f"The word of crashed is sepia. [[shell {busy}]] [[say sepia]]",
            "asking": "The word of asking is umber. [[say umber]]",
        }
        more = {"asking": " --dangerously-skip-permissions", "crashed": " --permission-mode acceptEdits"}
        agents = [
            f"[[agent]]\nid = '{name}'\n"
            f"command = '{name if name in self.programs else 'claude'}{more.get(name, '')}'\n"
            f"prompt = '{prompt}'\n"
            for name, prompt in prompts.items()
        ]
        (lab.project / "team.toml").write_text("".join([f"[team]\nname = '{SESSION}'\n", *agents]))
        run = lab.start([*ONRECORD, "team", "up", "team.toml"])
        lab.appears("crashed.here")
        wanted = {
            "claude": "limited", "gemini": "limited", "idle": "idle", "crashed": "working", "asking": "needs_person",
        }  # fmt: skip
        seen: dict[tuple[str, str], dict[str, Any]] = {}
        try:
            patiently(lambda: wanted.items() <= look(lab, seen), "every state is seen", PATIENCE)
        except AssertionError:
            raise AssertionError(f"{wanted.items() - set(seen)} were not seen, but {seen}\n{run.err}") from None
        assert "Bypass Permissions" in seen["asking", "needs_person"]["needs"]
        assert seen["claude", "limited"]["until"] > began + WINDOW_SECONDS
        assert seen["gemini", "limited"]["until"] > began + WINDOW_SECONDS, "its screen says so, and nothing else does"
        os.kill(process_of(lab, "crashed"), signal.SIGKILL)
        for name, word in (("claude", "magenta"), ("codex", "ochre"), ("crashed", "sepia")):
            patiently(partial(says, lab, name, word), f"{name} goes on", PATIENCE)
        # Codex says its time without seconds: it may be over before anything looks. The log has it.
        stopped = {(event["by"], event["data"]["cause"]) for event in events_of(lab) if event["kind"] == STOPPED}
        assert ("codex", "usage_window") in stopped
        asked = {name: told(lab, name) for name in prompts}
        assert asked == {
            "claude": [(1, 0)] * TRIES + [(2, 0)], "codex": [(1, 0), (2, 0)], "gemini": [(1, 0)],
            "idle": [(1, 0)], "asking": [],
            "crashed": [(1, 0), (1, 1)],
        }, "the limited are asked again, once; the crashed is told to continue, once"  # fmt: skip
        assert lab.onrecord("team", "stop", SESSION).status == 0
        run.process.wait()
        assert lab.room.inhabitants() == []


def window() -> Fault:
    """A usage window of Claude that opens soon, counted from the request: programs start slowly on a busy machine."""
    return Fault(429, "rate_limit_error", f"Claude AI usage limit reached|{int(time.time()) + WINDOW_SECONDS + 1}")


def reached() -> Fault:
    """The same of Codex, which prints the time without its seconds."""
    about = {"resets_at": int(time.time()) + WINDOW_SECONDS}
    return Fault(429, "usage_limit_reached", "The usage limit has been reached", about=about)


def rows_of(lab: Lab) -> dict[str, dict[str, Any]]:
    done = lab.onrecord("team", "status", SESSION, "--json")
    assert done.status == 0, done
    found: dict[str, dict[str, Any]] = json.loads(done.out)["data"]["agents"]
    return found


def look(lab: Lab, seen: dict[tuple[str, str], dict[str, Any]]) -> set[tuple[str, str]]:
    """Every agent and state that was seen so far; `seen` has what was first said with each."""
    for name, row in rows_of(lab).items():
        seen.setdefault((name, row["state"]), row)
    return set(seen)


def events_of(lab: Lab) -> list[dict[str, Any]]:
    done = lab.onrecord("log", SESSION, "--json", "--limit", "0")
    found: list[dict[str, Any]] = json.loads(done.out)["data"]["events"]
    return found


def process_of(lab: Lab, agent: str) -> int:
    located = [
        event["data"] for event in events_of(lab)
        if event["kind"] == "agent.located" and event["by"] == agent
    ]  # fmt: skip
    return int([one["process"] for one in located if "process" in one][-1]["pid"])


def stop_of(lab: Lab, name: str) -> dict[str, Any] | None:
    """What a session shows as the reason why work stopped."""
    found: dict[str, Any] | None = json.loads(lab.onrecord("show", name, "--json").out)["data"]["interruption"]
    return found


def stops_of(agent: Agent) -> list[dict[str, Any]]:
    return [event["data"] for event in agent.events() if event["kind"] == "interruption.recorded"]


def kinds_of(agent: Agent) -> list[str]:
    return [event["kind"] for event in agent.events()]


def says(lab: Lab, agent: str, word: str) -> bool:
    shown = lab.onrecord("team", "logs", agent, "--session", SESSION).out
    return re.search(rf"(?m)^\W*{word}\s*$", shown) is not None


def told(lab: Lab, agent: str) -> list[tuple[int, int]]:
    """How often each request of an agent's conversation has its prompt, and how often the order to continue."""
    own = [one.said for one in lab.server.conversation() if f"word of {agent} is" in one.said]
    return [(text.count(f"word of {agent} is"), text.count("Continue where you were interrupted.")) for text in own]
