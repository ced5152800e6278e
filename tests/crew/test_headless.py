"""Teams without a terminal: real processes through the real wrapper, killed and resumed."""

import json
import os
import signal

import pytest

from onrecord.machine import started
from tests.crew.conftest import SESSION, belonging
from tests.waiting import until, until_gone


def test_a_team_does_its_work_and_is_on_record(squad):
    """All agents run through the wrapper under one name; finished agents are not started again."""
    squad.write(squad.agent("lead", "answer"), squad.agent("critic", "answer"))
    assert squad.up().wait(60) == 0, squad.told()
    rows = squad.rows()
    assert {name: (row["state"], row["starts"]) for name, row in rows.items()} == {
        "lead": ("finished", 1), "critic": ("finished", 1),
    }  # fmt: skip
    assert sorted(squad.prompts()) == ["You are critic.", "You are lead."]
    assert len({row["session_id"] for row in rows.values()}) == 2, "two agents of one vendor in one directory"
    assert squad.up().wait(60) == 0
    assert squad.rows()["lead"]["starts"] == 1


def test_doubtful_command_lines_are_warned_of_before_the_team_starts(squad):
    """`team up` names the agents with a command line that deserves a warning, before any agent runs (I27)."""
    doubtful = squad.agent("lead", "answer").replace('"claude"', '"claude --dangerously-skip-permissions"')
    squad.write(doubtful, squad.agent("critic", "answer"))
    assert squad.up().wait(60) == 0, squad.told()
    warning = "note: lead: claude --dangerously-skip-permissions asks once for consent before it starts\n"
    assert squad.told().startswith(warning)
    assert "critic: claude" not in squad.told()


def test_a_team_stops_when_its_budget_is_used_up(squad):
    """What one agent uses counts for the session: all agents are ended, none is started again, and the reason is said."""
    squad.ok("open", SESSION, "--budget", "tokens=100")
    squad.write(squad.agent("lead", "use 60"), squad.agent("critic", f"hang {squad.place}/critic.pid"))
    assert squad.up().wait(60) == 1, squad.told()
    rows = squad.rows()
    assert {name: (row["state"], row["starts"]) for name, row in rows.items()} == {
        "lead": ("stopped", 1), "critic": ("stopped", 1),
    }  # fmt: skip
    assert "the budget is spent" in rows["critic"]["why"]
    until_gone(squad.pid("critic.pid"))


def test_a_killed_supervisor_finds_its_agents_again(squad):
    """Agents outlive `kill -9` of their supervisor; the next supervisor neither ends them nor starts them twice."""
    squad.write(squad.agent("lead", f"hang {squad.place}/lead.pid"))
    first = squad.up()
    pid = squad.pid("lead.pid")
    first.kill()
    first.wait(90)
    assert started(pid) is not None
    second = squad.up()
    until(lambda: "lead: still running" in squad.told() or "lead: fresh" in squad.told())
    until(lambda: (squad.status()["supervisor"] or {}).get("pid") == second.pid)
    assert started(pid) is not None
    assert squad.rows()["lead"] | {"state": "working", "starts": 1} == squad.rows()["lead"]
    assert len(squad.joined("lead")) == 1


def test_a_crashed_agent_is_resumed_and_verified(squad):
    """A crashed agent is resumed in the same conversation, which does not get its first prompt again (I24, T23)."""
    squad.write(squad.agent("lead", "die", "answer"))
    assert squad.up().wait(60) == 0, squad.told()
    (link,) = squad.links(SESSION, "lead")
    assert squad.rows()["lead"]["how"] == "resumed (verified)"
    assert link["last"]["verified"] is True
    assert squad.prompts() == ["You are lead.", "Continue where you were interrupted."]
    assert [stop["cause"] for stop in squad.interruptions(SESSION)] == ["killed"], "it did not complete"


def test_a_killed_wrapper_takes_its_agent_along(squad):
    """The rest of an agent without its wrapper is ended before it is resumed: never two on one conversation."""
    squad.write(squad.agent("lead", f"hang {squad.place}/one.pid", f"hang {squad.place}/two.pid"))
    squad.up()
    pid = squad.pid("one.pid")
    os.kill(squad.joined("lead")[0]["process"]["pid"], signal.SIGKILL)
    until_gone(pid)
    squad.pid("two.pid")
    assert len(squad.links(SESSION, "lead")) == 1
    until(lambda: squad.joined("lead")[-1].get("resumes"))


def test_a_restart_on_purpose_begins_anew(squad):
    """`team restart` ends the agent and starts a new conversation with its first prompt (I24, T11)."""
    squad.write(squad.agent("lead", f"hang {squad.place}/one.pid", f"hang {squad.place}/two.pid"))
    squad.up()
    first = squad.pid("one.pid")
    assert "lead will start a new conversation" in squad.ok("team", "restart", "lead", "--session", SESSION)
    squad.pid("two.pid")
    until_gone(first)
    assert len(squad.links(SESSION, "lead")) == 2
    until(lambda: squad.prompts() == ["You are lead.", "You are lead."])


def test_after_five_restarts_it_is_left_alone_until_somebody_asks(squad):
    """An agent that keeps crashing is degraded; a new supervisor does not start it, a restart by hand does."""
    squad.write(squad.agent("lead", "refuse", more='restart = "fresh"'))
    assert squad.up().wait(90) == 1, squad.told()
    row = squad.rows()["lead"]
    assert (row["state"], row["starts"], row["restarts"]) == ("degraded", 6, 5)
    assert "restart it by hand" in row["why"]
    assert squad.up().wait(60) == 1
    assert squad.rows()["lead"]["starts"] == 6
    (need,) = squad.needs(SESSION)
    assert need["why"].startswith("lead keeps ending: 5 restarts in 120 s")
    assert need["command"] == f"onrecord team restart lead --session {SESSION}"
    squad.plan_of("lead", "answer")
    squad.ok("team", "restart", "lead", "--session", SESSION)
    assert squad.up().wait(60) == 0
    assert squad.rows()["lead"]["state"] == "finished"
    assert squad.needs(SESSION) == []


def test_a_limit_parks_it_until_its_reset(squad):
    """The supervisor waits for the reset on record, then resumes and issues the interrupted prompt once (G03, G10)."""
    squad.write(squad.agent("lead", "limit 6", "answer"))
    process = squad.up()
    until(lambda: squad.state("lead") == "limited")
    assert process.wait(90) == 0, squad.told()
    assert squad.rows()["lead"]["how"] == "resumed (verified)"
    assert squad.prompts() == ["You are lead.", "You are lead."], "the interrupted prompt is issued again, once"
    assert len(squad.links(SESSION, "lead")) == 1


def test_a_whole_team_is_resumed_under_one_name_with_one_command(squad):
    """After everything was killed, each agent is resumed, or reported as fresh or refused, with the reason (I20-I22)."""
    squad.write(
        squad.agent("lead", f"hang {squad.place}/lead.pid", "answer"),
        squad.agent("lost", f"hang {squad.place}/lost.pid", "answer"),
        squad.agent("new", f"hang {squad.place}/new.pid", "answer"),
    )
    squad.up()
    for name in ("lead", "lost", "new"):
        squad.pid(f"{name}.pid")
    until(lambda: len(squad.prompts()) == 3)
    for pid in belonging(squad.place):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not belonging(squad.place))
    squad.file.unlink()
    session = squad.session(SESSION)
    session.attempts.start("make")
    session.attempts.settle(1, "failed", error="it broke", seconds=3)
    session.attempts.start("make again")
    session.attempts.settle(2, "succeeded", seconds=4)
    lost = session.views.roster.agents["lost"]["links"][0]["id"]
    next(path for path in squad.transcripts() if lost in path.name).unlink()
    assert squad.team("resume", SESSION, "--fresh", "new").wait(60) == 0, squad.told()
    assert "2 attempts (1 failed, 7 s of runs)" in squad.told(), "what need not be done again is said"
    how = {name: row["how"] for name, row in squad.rows().items()}
    assert how["lead"] == "resumed (verified)"
    # Whether its transcript was seen before the kill depends on timing; the report says what happened.
    assert how["lost"].startswith(("fresh (its transcript is gone", "fresh (no transcript of it was ever seen")), how
    assert how["new"] == "fresh (it starts a new conversation)"
    prompts = squad.prompts()
    assert prompts.count("You are lead.") == 1, "a resumed conversation is not told its first prompt again"
    assert sum(text.endswith("You are lost.") for text in prompts) == 1, "one that starts a new conversation is"


def test_a_program_that_is_missing_is_refused_with_its_reason(squad):
    """`team resume` says why an agent did not come up, with the error of its wrapper."""
    squad.write(squad.agent("lead", "answer", more='restart = "never"').replace('"claude"', '"codex"'))
    squad.environment["PATH"] = os.pathsep.join(
        part for part in squad.environment["PATH"].split(os.pathsep) if not os.access(f"{part}/codex", os.X_OK)
    )
    assert squad.up().wait(60) == 1
    assert "lead: refused (OpenAI Codex is not installed: no program 'codex' is on PATH)" in squad.told(), squad.told()


def test_a_directory_that_is_gone_refuses_one_agent_and_not_the_team(squad):
    """When the directory of one agent is missing, that agent is refused with the reason, and the others keep working."""
    squad.write(
        squad.agent("lead", "answer"), squad.agent("lost", "answer", more='directory = "none"\nrestart = "never"')
    )
    assert squad.up().wait(60) == 1
    rows = squad.rows()
    assert (rows["lead"]["state"], rows["lost"]["state"]) == ("finished", "stopped")
    assert rows["lost"]["how"].startswith("refused (lost: "), rows
    assert rows["lost"]["how"].endswith("none is not a directory)")


def test_a_team_from_another_machine_is_shown_before_it_runs(squad):
    """Commands in a record from another machine are shown, and run only if a person agrees; then the team continues here."""
    squad.write(squad.agent("lead", "answer"))
    assert squad.up().wait(60) == 0
    squad.ok("export", SESSION, "--out", str(squad.place / "team.onrecord"))
    squad.project.rename(squad.place / "old")
    squad.project.mkdir()
    squad.store.rename(squad.place / "old.db")
    squad.project, squad.runtime = squad.place / "new", squad.place / "new" / "runtime"
    squad.project.mkdir()
    (squad.place / "project").rmdir()
    squad.ok("import", str(squad.place / "team.onrecord"))
    problem = squad.error("team", "resume", SESSION, code=2, kind="usage")
    assert "It runs lead: " in problem["message"]
    assert squad.team("resume", SESSION, "--yes").wait(60) == 0, squad.told()
    assert squad.rows()["lead"]["how"].startswith(("resumed", "fresh"))
    assert (squad.runtime / "state.json").exists()


def test_supervising_can_be_left_to_a_process_of_its_own(squad):
    """`--detach` answers once it is known how each agent started; the supervisor keeps running and has a log file."""
    squad.write(squad.agent("lead", f"hang {squad.place}/lead.pid"))
    data = squad.data("team", "up", str(squad.file), "--headless", "--detach", kind="team")
    assert data["agents"]["lead"]["how"] == "fresh (it is new)"
    supervisor = squad.status()["supervisor"]["pid"]
    assert started(supervisor) is not None
    assert "lead is started (fresh)" in squad.ok("team", "logs", "crew", "--session", SESSION)
    squad.ok("team", "stop", SESSION)
    until_gone(supervisor)


def test_stopping_leaves_nobody_behind(squad):
    """A stopped team leaves no process, not even one that has its own session and lost its parent (T12)."""
    squad.write(squad.agent("lead", f"tool-then-hang {squad.place}/tool.pid"), squad.agent("critic", "hang"))
    supervisor = squad.up()
    tool = squad.pid("tool.pid")
    assert squad.data("team", "stop", SESSION, kind="team")["left"] == []
    until_gone(tool)
    assert supervisor.wait(90) == 0
    assert belonging(squad.place) == []
    assert {row["state"] for row in squad.rows().values()} == {"stopped"}


def test_stopping_works_without_a_supervisor_too(squad):
    """After `kill -9` of the supervisor, `team stop` ends the team itself, tools included."""
    squad.write(squad.agent("lead", f"tool-then-hang {squad.place}/tool.pid"))
    supervisor = squad.up()
    tool = squad.pid("tool.pid")
    supervisor.kill()
    supervisor.wait(90)
    assert squad.data("team", "stop", SESSION, kind="team")["left"] == []
    until_gone(tool)
    assert belonging(squad.place) == []


def test_the_second_supervisor_is_told_who_the_first_is(squad):
    """One team has one supervisor: a second one is refused at once, and the agents run once."""
    squad.write(squad.agent("lead", f"hang {squad.place}/lead.pid"))
    first = squad.up()
    squad.pid("lead.pid")
    problem = squad.error("team", "up", str(squad.file), "--headless", code=7, kind="lease_held")
    assert f"process {first.pid} " in problem["message"]
    assert len(squad.joined("lead")) == 1


def test_a_group_grows_and_shrinks_with_stable_names(squad):
    """The only member of a group is already `worker-1`; growing to two does not change it, nor does shrinking (T04, T05)."""
    squad.plan_of("worker", "hang")
    squad.write(
        f'[[group]]\nid = "worker"\ncommand = "claude"\nprompt = "You are {{{{ agent }}}}."\n'
        f'environment = {{ PRETENDER_PLAN = "{squad.place}/worker.plan" }}\n'
    )
    squad.up()
    until(lambda: squad.state("worker-1") == "working" and squad.joined("worker-1"))
    squad.ok("team", "scale", "worker", "2", "--session", SESSION)
    until(lambda: squad.state("worker-2") == "working" and squad.joined("worker-2"))
    squad.ok("team", "scale", "worker", "1", "--session", SESSION)
    until(lambda: not (squad.runtime / "pids" / "worker-2.session.json").exists())
    until(lambda: not squad.session(SESSION).views.roster.agents["worker-2"]["here"])
    assert len(squad.joined("worker-1")) == 1
    assert list(squad.rows()) == ["worker-1"]
    assert squad.error("team", "scale", "warker", "2", "--session", SESSION, code=2, kind="invalid_input")


def test_an_unknown_program_runs_as_it_is(squad):
    """A program that is not a known vendor knows its session and agent and is on record, and its failure is a failure (I16)."""
    squad.write(
        '[[agent]]\nid = "watch"\ncommand = "sh -c \'env > seen; exit 3\'"\nrestart = "never"\n',
        squad.agent("lead", "answer"),
    )
    assert squad.up().wait(60) == 1
    assert "sh is not a known agent" in squad.told()
    seen = dict(line.split("=", 1) for line in (squad.project / "seen").read_text().splitlines() if "=" in line)
    (joined,) = squad.joined("watch")
    assert (seen["ONRECORD_AGENT"], seen["ONRECORD_SPAWN"]) == ("watch", joined["spawn"])
    assert seen["ONRECORD_SESSION"] == squad.session(SESSION).id
    assert squad.rows()["watch"]["state"] == "stopped"
    assert [stop["cause"] for stop in squad.interruptions(SESSION)] == ["crash"]


def test_the_runtime_folder_tells_other_programs(squad):
    """The runtime folder has a file for each agent, one name for all ids, and each state, for its owner alone (I01-I07, I18, I31)."""
    squad.write(squad.agent("lead", "answer"))
    assert squad.up().wait(60) == 0
    (link,) = squad.links(SESSION, "lead")
    own = json.loads((squad.runtime / "pids" / "lead.session.json").read_text())
    assert sorted(own) == ["agent_id", "cli_command", "session_id", "session_name", "spawned_at"]
    assert (own["agent_id"], own["cli_command"], own["session_id"]) == ("lead", "claude", link["id"])
    (spawned,) = squad.session(SESSION).events(kinds=("agent.spawned",))
    assert own["spawned_at"] == spawned.at / 1e6
    assert (squad.runtime / ".gitignore").read_text() == "*\n"
    names = json.loads((squad.runtime / "sessions" / f"{SESSION}.json").read_text())
    assert names["agents"] == {"lead": link["id"]}
    state = json.loads((squad.runtime / "state.json").read_text())["agents"]["lead"]
    assert (state["session_name"], state["session_id"], state["state"]) == (f"{SESSION}:lead", link["id"], "finished")
    files = [path for path in squad.runtime.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}, files


def test_trouble_with_the_runtime_folder_ends_nobody(squad):
    """A file that cannot be written is reported; the record is the truth, and the team does its work (I25)."""
    squad.runtime.mkdir()
    (squad.runtime / "pids").write_text("in the way")
    squad.write(squad.agent("lead", "answer"))
    assert squad.up().wait(60) == 0
    assert squad.told().count("the runtime files are not up to date") == 1
    assert squad.rows()["lead"]["state"] == "finished"


def test_a_worktree_is_made_for_whoever_wants_one(squad):
    """Each agent with `worktree = true` works on its own branch, and continues there after a restart."""
    git = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "begin"]):
        squad.shell("git", *git, *words)
    squad.write(squad.agent("lead", "die", "answer", more="worktree = true"))
    assert squad.up().wait(60) == 0, squad.told()
    (link,) = squad.links(SESSION, "lead")
    assert link["last"]["cwd"] == str(squad.runtime / "worktrees" / "lead")
    assert link["last"]["branch"] == f"{SESSION}/lead"
    assert squad.rows()["lead"]["how"] == "resumed (verified)"


def test_what_cannot_be_done_is_said(squad):
    """Unknown sessions, agents and actions, an agent without a prompt and a team without terminals get a clear error."""
    squad.ok("open", "plain")
    squad.error("team", "status", "plain", code=4, kind="not_found")
    squad.error("team", "resume", "nowhere", code=4, kind="session_not_found")
    squad.error("team", "fly", code=2, kind="usage")
    squad.write('[[agent]]\nid = "idle"\ncommand = "claude"\n')
    assert (
        "has no prompt"
        in squad.error("team", "up", str(squad.file), "--headless", code=2, kind="invalid_input")["message"]
    )
    squad.write(squad.agent("lead", "answer"))
    assert squad.up().wait(60) == 0
    squad.error("team", "restart", "nobody", "--session", SESSION, code=4, kind="not_found")
    squad.error("team", "resume", SESSION, "--fresh", "nobody", code=4, kind="not_found")
    squad.error("team", "attach", "--session", SESSION, code=2, kind="invalid_input")
    done = squad.run("team", "restart", "lead", "--session", SESSION)
    assert "the team has no supervisor" in done.err, "it is on record, and done by the next supervisor"
    assert squad.team("up", "--session", SESSION).wait(60) == 0
    assert len(squad.links(SESSION, "lead")) == 2


@pytest.mark.parametrize("name", ["../out", "a b", "x;rm", "-t", "a/b", ""])
def test_hostile_names_are_refused_before_anything_starts(squad, name):
    """No agent name can leave the runtime folder or become an option; nothing is recorded or started."""
    squad.write(f'[[agent]]\nid = "{name}"\ncommand = "claude"\nprompt = "x"\n')
    squad.error("team", "up", str(squad.file), "--headless", code=2, kind="invalid_name")
    assert not squad.runtime.exists()
    assert not squad.store.exists()
