"""`onrecord gate` as a harness calls it: exit codes, JSON, one line and the way out, and never an obstacle."""

import json
import shlex

import pytest

from tests.cli.test_cold_start import HEAVY, loaded

EDIT = ("gate", "--tool", "Edit", "--path", "src/auth.py")
RUN = ("gate", "--tool", "Bash", "--command", "pytest -k invite")


@pytest.fixture
def opened(command):
    command.ok("open", "invite-403")
    return command


def clear(command, *, env=None):
    """Run the command that the refusal names, to the letter."""
    words = shlex.split(command.data(*EDIT, kind="verdict", code=10)["clear"])
    assert words[0] == "onrecord"
    command.ok(*words[1:], env=env)


def test_a_plain_yes_is_one_word(opened):
    """An allowed call is exit 0 and `allow`; as JSON, a verdict with its session."""
    assert opened.ok(*EDIT) == "allow\n"
    verdict = opened.data(*EDIT, kind="verdict")
    assert (verdict["decision"], verdict["session"], verdict["note"]) == ("allow", "invite-403", "")


def test_a_refusal_is_exit_ten_with_the_way_out(opened):
    """A denied call is exit 10: one line with the reason, one line with the command that clears it."""
    opened.ok("pause", "--reason", "rate limit")
    done = opened.run(*EDIT)
    assert done == (10, "deny: session invite-403 is paused: rate limit\nto clear it: onrecord resume invite-403\n", "")


@pytest.mark.parametrize(
    ("before", "rule"),
    [
        ([["pause"]], "session_paused"),
        ([["attempt", "start", "--", "pytest", "-k", "invite"]], "unresolved_attempt"),
        ([["open", "invite-403", "--budget", "steps=1"], ["record", "--user", "x", "--agent", "a"]], "budget_spent"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_clearing_command_clears(opened, before, rule):
    """A refusal names a command that exists, works as written, and leads to `allow`."""
    for words in before:
        opened.ok(*words)
    assert opened.data(*EDIT, kind="verdict", code=10)["rule"] == rule
    clear(opened)
    assert opened.data(*EDIT, kind="verdict")["decision"] == "allow"


def test_a_phase_is_entered_by_the_command_it_names(command):
    """In a session with a profile, the first edit is refused until the phase is entered."""
    command.ok("open", "study", "--profile", "research")
    assert command.data(*EDIT, kind="verdict", code=10)["rule"] == "phase_not_entered"
    clear(command)
    command.ok(*EDIT)


def test_a_closed_session_is_reopened_by_the_command_it_names(opened):
    """A closed session that is named still refuses, and says how to continue."""
    session = opened.data("list", kind="sessions")[0]["id"]
    opened.ok("close", "invite-403", "--anyway", "nothing to hand over")
    env = {"ONRECORD_SESSION": session}
    done = opened.run(*EDIT, "--json", env=env)
    verdict = json.loads(done.out)["data"]
    assert (done.code, verdict["rule"]) == (10, "session_closed")
    opened.ok(*shlex.split(verdict["clear"])[1:])
    opened.ok(*EDIT, env=env)


def test_no_session_is_no_obstacle(command):
    """Without a store, without a session, or with two of them, everything is allowed and the note says why."""
    for before in ([], ["open", "one"], ["open", "two"]):
        if before:
            command.ok(*before)
        verdict = command.data(*EDIT, kind="verdict")
        assert verdict["decision"] == "allow"
        if before != ["open", "one"]:
            assert verdict["note"].startswith("no rules apply: ")
    assert not command.run(*EDIT, "--session", "three").code


def test_looking_makes_no_store(command):
    """A gate call where nothing was ever recorded creates nothing."""
    command.ok(*EDIT)
    assert not command.store.exists()


def test_a_broken_store_is_no_obstacle_unless_it_shall_be(opened):
    """When the gate itself fails, it allows and says so; --strict-gate, or its variable, denies."""
    for name in ("", "-wal", "-shm"):
        opened.store.with_name(opened.store.name + name).unlink(missing_ok=True)
    opened.store.write_bytes(b"not a database" * 1000)
    opened.store.chmod(0o600)
    done = opened.run(*EDIT)
    assert (done.code, done.out) == (0, "allow\n")
    assert "the gate itself failed" in done.err
    assert opened.data(*EDIT, "--strict-gate", kind="verdict", code=10)["rule"] == "gate_failed"
    assert opened.run(*EDIT, env={"ONRECORD_STRICT_GATE": "1"}).code == 10


def test_a_call_is_recorded_once(opened):
    """Two questions about the same call are one event."""
    opened.ok("pause")
    for _ in range(2):
        opened.run(*EDIT, "--call", "toolu_01")
    assert opened.ok("log", "--kind", "gate.decided").count("\n") == 1


def test_an_override_needs_a_reason_and_is_recorded(opened):
    """`gate override RULE --reason R` lifts the refusal in force."""
    opened.ok("pause")
    assert opened.run("gate", "override", "session_paused").code == 2
    assert "session_paused" in opened.ok("gate", "override", "session_paused", "--reason", "hotfix")
    opened.ok(*EDIT)
    assert "hotfix" in opened.ok("log", "--kind", "gate.overridden")


def test_own_commands_pass_a_paused_session(opened):
    """The command that clears a refusal is never refused itself."""
    opened.ok("pause")
    assert opened.ok("gate", "--tool", "Bash", "--command", "onrecord resume invite-403") == "allow\n"


def test_what_is_about_to_happen_must_be_said(opened):
    """A gate call without tool, path or command is a mistake in the harness."""
    opened.error("gate", code=2, kind="usage")


def test_paths_count_from_the_top_of_the_worktree(opened):
    """A path is the same file however it is written and in whatever directory the harness runs."""
    (opened.project / ".git").mkdir(exist_ok=True)
    (opened.project / "src").mkdir(exist_ok=True)
    opened.ok("open", "here")
    opened.ok("pause", "here")
    base = ("gate", "--tool", "Write", "--session", "here", "--path")
    assert opened.run(*base, str(opened.project / ".onrecord" / "NOTE.md")).code == 0
    assert opened.run(*base, "src/../STATE.md").code == 0
    assert opened.run(*base, "src/STATE.md").code == 10


def test_a_plain_yes_loads_next_to_nothing(opened):
    """A plain `allow` loads no typing, no compression and no session machinery: only the driver and JSON."""
    for words in (EDIT, RUN):
        modules = loaded(opened, *words, "--json")
        assert not modules & (HEAVY | {"typing", "contextlib", "threading", "hashlib"})
        assert "onrecord.session" not in modules
        assert "onrecord.stores.sqlite.writer" not in modules


def test_a_plain_yes_writes_nothing(opened):
    """The store's files have the same bytes before and after."""

    def files():
        return {
            path.name: path.read_bytes() for path in opened.store.parent.iterdir() if not path.name.endswith("-shm")
        }

    before = files()
    opened.ok(*EDIT)
    assert files() == before
