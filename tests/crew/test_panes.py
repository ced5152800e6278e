"""Teams in tmux: their own server, a terminal for each agent, and the prompts on its screen."""

import shutil
import signal
import subprocess

import pytest

from onrecord.agents.waiting import CONTINUE
from onrecord.crew.members import asked_on
from onrecord.crew.panes import Pane, panes_of
from onrecord.machine import started
from onrecord.vendors.port import vendor
from tests.crew.conftest import SESSION, Squad, belonging
from tests.waiting import until, until_gone

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="cannot run here: tmux is not installed")

GROUP = """
[[group]]
id = "worker"
count = 2
layout = "tiled"
command = "claude"
prompt = "You are {{ agent }}."
"""


def up(squad: Squad) -> "subprocess.Popen[str]":
    return squad.team("up", str(squad.file))


def tmux(squad: Squad, *words: str) -> str:
    """Query the team's own tmux, by the socket that `attach` names."""
    command = squad.data("team", "attach", "--session", SESSION, kind="command")["argv"]
    done = subprocess.run(
        [*command[:3], *words], env=squad.environment, check=True, capture_output=True, text=True, timeout=90
    )
    return done.stdout


def pane_of(squad: Squad, agent: str) -> str:
    words: list[str] = squad.data("team", "attach", agent, "--session", SESSION, kind="command")["argv"]
    return words[words.index("select-pane") + 2]


def typed(squad: Squad, agent: str, text: str) -> None:
    pane = pane_of(squad, agent)
    tmux(squad, "send-keys", "-t", pane, "-l", "--", text)
    tmux(squad, "send-keys", "-t", pane, "Enter")


def test_everybody_has_a_terminal_and_its_first_prompt(squad):
    """An agent has a window, a group has one with a layout; typed text reaches the agent; attach opens it."""
    squad.write(squad.agent("lead", "talk"), GROUP)
    up(squad)
    until(lambda: sorted(squad.prompts()) == ["You are lead.", "You are worker-1.", "You are worker-2."])
    until(lambda: len({row["session_id"] for row in squad.rows().values()} - {None}) == 3)
    shape = tmux(squad, "list-windows", "-a", "-F", "#{window_name} #{window_panes}").splitlines()
    assert sorted(shape) == ["lead 1", "worker 2"]
    typed(squad, "worker-2", "-t $(touch out) ; 'x'")
    until(lambda: "-t $(touch out) ; 'x'" in squad.prompts())
    assert not (squad.project / "out").exists(), "a text is typed, not run"
    until(lambda: "HEARD" in squad.ok("team", "logs", "worker-2", "--session", SESSION))
    assert squad.ok("team", "attach", "lead", "--session", SESSION).startswith("tmux -L onrecord-")


def test_panes_outlive_their_supervisor_and_end_with_the_team(squad):
    """`kill -9` of the supervisor leaves the panes; the next one finds them; `team stop` leaves no tmux and no agent."""
    squad.write(squad.agent("lead", "talk"))
    first = up(squad)
    until(lambda: squad.prompts() == ["You are lead."])
    until(lambda: squad.rows()["lead"]["state"] == "working")
    first.kill()
    first.wait(90)
    (link,) = squad.links(SESSION, "lead")
    pid = until(lambda: squad.links(SESSION, "lead")[0]["last"].get("process"))["pid"]
    second = up(squad)
    until(lambda: (squad.status()["supervisor"] or {}).get("pid") == second.pid)
    assert started(pid) is not None
    assert (squad.rows()["lead"]["starts"], squad.rows()["lead"]["session_id"]) == (1, link["id"])
    assert squad.data("team", "stop", SESSION, kind="team")["left"] == []
    until_gone(pid)
    assert second.wait(90) == 0
    assert belonging(squad.place) == []


def test_a_killed_agent_comes_back_in_its_pane_without_its_first_prompt(squad):
    """An agent that crashes in its turn is resumed in its pane and told to continue, once; /exit is not a crash (T23)."""
    squad.write(squad.agent("lead", "talk"))
    supervisor = up(squad)
    until(lambda: squad.prompts() == ["You are lead."])
    process = until(lambda: squad.links(SESSION, "lead")[0]["last"].get("process"))
    subprocess.run(["kill", f"-{signal.SIGKILL}", str(process["pid"])], check=True)
    until(lambda: len(squad.joined("lead")) == 2)
    (link,) = squad.links(SESSION, "lead")
    assert squad.joined("lead")[1]["resumes"] == link["id"]
    until(lambda: link["id"] in squad.ok("team", "logs", "lead", "--session", SESSION))
    typed(squad, "lead", "more")
    until(lambda: squad.rows()["lead"]["how"] == "resumed (verified)")
    assert squad.prompts() == ["You are lead.", CONTINUE, "more"]
    typed(squad, "lead", "exit")
    assert supervisor.wait(60) == 0, squad.told()
    assert squad.rows()["lead"]["state"] == "finished"


def test_what_a_screen_asks_of_a_person_is_shown(squad):
    """A permission prompt on an agent's screen is on record and in the status while it is there."""
    squad.write(squad.agent("lead", "talk"))
    up(squad)
    until(lambda: squad.prompts() == ["You are lead."])
    typed(squad, "lead", "Do you want to proceed?")
    until(lambda: squad.rows()["lead"]["needs"] == "Do you want to proceed?")
    assert "lead needs a person: Do you want to proceed?" in squad.told()
    tmux(squad, "send-keys", "-t", pane_of(squad, "lead"), "-R")
    until(lambda: squad.rows()["lead"]["needs"] is None)


def test_a_pane_without_a_process_is_read():
    """A newer tmux reports no process for a pane with an ended program: the supervisor must see that it is dead."""
    lines = ["%0\t@0\t\t1\tlead", "%1\t@1\t4711\t0\tworker-1", "no pane of ours", "%2\t@1\t4712\t1\tworker-2"]
    assert panes_of(lines) == {
        "lead": Pane("%0", "@0", 0, dead=True),
        "worker-1": Pane("%1", "@1", 4711, dead=False),
        "worker-2": Pane("%2", "@1", 4712, dead=True),
    }


def test_without_tmux_one_clear_error(squad):
    """Where tmux is missing, nothing is recorded or started; the error says what to do."""
    squad.write(squad.agent("lead", "talk"))
    only = squad.place / "only"
    only.mkdir()
    (only / "claude").symlink_to(squad.place / "bin" / "claude")
    squad.environment["PATH"] = str(only)
    problem = squad.error("team", "up", str(squad.file), code=1, kind="tmux_missing")
    assert "--headless" in problem["hint"]
    assert not squad.runtime.exists()


def test_a_question_above_the_place_for_a_prompt_was_answered():
    """A program that draws again, as when a person attaches, leaves its old question on the screen; it does not count."""
    asks = ["? Shell echo 1 > a.txt", "Allow execution of [Shell]?", "1. Allow once"]
    ready = ["done", ">   Type your message or @path/to/file"]
    assert asked_on(asks, vendor("gemini")) == "Allow execution of [Shell]?"
    assert asked_on([*asks, *ready], vendor("gemini")) == ""
    assert asked_on([*ready, *asks], vendor("gemini")) == "Allow execution of [Shell]?"


def test_an_agent_without_a_prompt_is_idle_until_somebody_says_something(squad):
    """Its program is open and waits: nothing is in progress."""
    squad.write('[[agent]]\nid = "lead"\ncommand = "claude"\n')
    up(squad)
    until(lambda: squad.rows().get("lead", {}).get("session_id"))
    until(lambda: squad.rows()["lead"]["state"] == "idle")
