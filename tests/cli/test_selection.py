"""Which session and which project: by name, by part of a name, by the environment, or the only live one."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.every_store


def test_the_only_live_session_is_meant(working):
    """Without a name a verb uses the project's only live session, however many have ended."""
    working.ok("open", "over")
    working.ok("close", "over")
    assert working.data("show", kind="session")["name"] == "fix-invite-403"


def test_two_live_sessions_are_ambiguous(working):
    """With two live sessions a verb that needs one lists both and changes nothing."""
    working.ok("open", "another")
    error = working.error("decide", "x", code=4, kind="ambiguous_name")
    assert "another (open)" in error["message"]
    assert "fix-invite-403 (active)" in error["message"]
    assert "--session" in error["hint"]


def test_a_team_verb_means_a_session_with_a_team(working):
    """However many sessions are live, none without a team is meant; the error says how to form one."""
    working.ok("open", "another")
    error = working.error("team", "status", code=4, kind="not_found")
    assert error["message"] == "no live session of this project has a team"
    assert error["hint"] == "`onrecord team up team.toml` forms one"


@pytest.mark.parametrize("verb", ["start", "setup", "adopt"])
def test_a_mistyped_agent_gets_the_likely_name(working, verb):
    """Every verb that takes a coding agent says which one may be meant."""
    error = working.error(verb, "clade", code=2, kind="usage")
    assert (error["message"], error["hint"]) == ("unknown coding agent 'clade'", "did you mean claude?")


def test_a_program_typed_as_a_verb_is_explained(working):
    """`onrecord claude` names the two ways to have Claude Code on record."""
    hint = working.error("claude", code=2, kind="usage")["hint"]
    assert (
        hint
        == "`onrecord start claude` starts it in a session; after `onrecord setup`, plain `claude` is recorded, too"
    )
    assert working.error("instal", code=2, kind="usage")["hint"] == "did you mean `onrecord setup`?"


def test_no_live_session_names_the_others(working):
    """Without a live session the error names those that have ended."""
    working.ok("close", "--anyway", "its note is of no use to this test")
    assert "fix-invite-403" in working.error("show", code=4, kind="session_not_found")["hint"]


def test_session_and_agent_come_from_the_environment(working):
    """ONRECORD_SESSION and ONRECORD_AGENT replace --session and --agent; the options win over them."""
    working.ok("open", "another")
    env = {"ONRECORD_SESSION": "another", "ONRECORD_AGENT": "reviewer"}
    working.ok("decide", "by the environment", env=env)
    working.ok("decide", "by option", "--session", "fix-invite-403", "--agent", "lead", env=env)
    assert "\treviewer\tdecision.made\tby the environment" in working.ok("log", "another")
    assert "\tlead\tdecision.made\tby option" in working.ok("log", "fix-invite-403")


def test_part_of_a_name_or_id_is_enough(working):
    """The beginning of a name or id finds the session, and a note on stderr shows the full name."""
    whole = working.data("show", kind="session")
    done = working.run("show", "fix")
    assert done.code == 0
    assert done.err == f"note: 'fix' matches fix-invite-403 ({whole['id']})\n"
    for part in (whole["id"][:12], whole["id"][:12].lower()):
        assert working.run("log", part).err.startswith("note: ")
    assert working.run("show", whole["id"].lower()).err == ""
    assert working.run("show", "fix-invite-403").err == ""
    assert working.run("show", "fix", "--quiet").err == ""


def test_a_part_that_fits_two_lists_both(working):
    """A beginning that matches two sessions is refused, and the error names both."""
    working.ok("open", "fix-other")
    error = working.error("show", "fix", code=4, kind="ambiguous_name")
    assert "fix-invite-403" in error["message"]
    assert "fix-other" in error["message"]


def test_worktrees_of_a_repository_are_one_project(command):
    """A session opened in a repository is found from its linked worktree and from its subdirectories."""
    working = command
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(working.project)]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["worktree", "add", "-q", "../linked"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    working.project.joinpath("deep", "down").mkdir(parents=True)
    working.project = working.project / "deep" / "down"
    working.ok("open", "in-the-repository")
    names = [session["name"] for session in working.data("list", kind="sessions")]
    assert "in-the-repository" in names
    working.project = working.place / "linked"
    assert [session["name"] for session in working.data("list", kind="sessions")] == names


def test_another_projects_session_is_found_by_name(working, tmp_path):
    """An exact name finds a session of another project; the only live one is searched in this project alone."""
    working.project = tmp_path
    assert working.data("show", "fix-invite-403", kind="session")["name"] == "fix-invite-403"
    assert working.error("show", code=4, kind="session_not_found")


def test_the_default_store_is_in_the_users_data_directory(command):
    """Without ONRECORD_STORE the store is one file below XDG_DATA_HOME, for its owner alone."""
    command.environment.pop("ONRECORD_STORE")
    command.environment["XDG_DATA_HOME"] = str(command.place / "xdg")
    command.ok("open", "x")
    file = command.place / "xdg" / "onrecord" / "onrecord.db"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_sessions_that_need_a_person_come_first(working):
    """A bare `onrecord` lists a session with an open turn of a dead process before a newer one."""
    code = (
        "import onrecord, os\n"
        "session = onrecord.connect().open('broken-off', agent='main')\n"
        "turn = session.turn()\n"
        "turn.user('half a')\n"
        "session.effects.start('charge-card')\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=working.project, env=working.environment, check=False)
    working.ok("open", "newest")
    sessions = working.data(kind="overview")["sessions"]
    assert [session["name"] for session in sessions] == ["broken-off", "newest", "fix-invite-403"]
    assert sessions[0]["needs"] == [
        "effect charge-card may have happened",
        "turn 1 of main was interrupted: its process has ended",
    ]
    assert working.ok().splitlines()[0].split("\t")[:3] == ["broken-off", "active", "needs-you"]
    whole = working.data("show", "broken-off", kind="session")
    assert whole["leases"][0]["process_is_gone"]
    assert [turn["status"] for turn in whole["provisional"]] == ["running"]
    assert list(whole["unknown_effects"]) == ["charge-card"]
    assert working.data("record", "--user", "on", "--session", "broken-off", kind="turn")["state"] == "recorded"


def test_an_old_session_that_needs_a_person_is_not_missed(working):
    """However many newer sessions there are, one that waits for a person is shown, and first."""
    working.ok("finding", "state", "No access to the logs", "--label", "blocked")
    for number in range(4):
        working.ok("open", f"newer-{number}")
    names = [session["name"] for session in working.data("--limit", "2", kind="overview")["sessions"]]
    assert names == ["fix-invite-403", "newer-3"]


def test_a_refused_turn_leaves_nothing_behind(crowd):
    """A turn that a paused session refuses appends no event."""
    before = crowd.data("show", "paused", kind="session")["position"]
    crowd.error("record", "--user", "x", "--session", "paused", code=10, kind="session_paused")
    assert crowd.data("show", "paused", kind="session")["position"] == before
