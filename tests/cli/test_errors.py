"""An error is reported once, on stderr, with a hint and an exit code from one table."""

import json
import os
import subprocess
import sys

import pytest

import onrecord.errors
from onrecord.errors import OnrecordError
from onrecord.surfaces.cli.shared import exits

pytestmark = pytest.mark.every_store


def tree(kind):
    yield kind
    for below in kind.__subclasses__():
        yield from tree(below)


def test_every_error_has_an_exit_code():
    """Every error code of the library is in the table, and every code of the table belongs to an error."""
    codes = {kind.code for kind in tree(OnrecordError) if kind.__module__.startswith("onrecord")}
    assert codes - set(exits.BY_ERROR) == set()
    assert set(exits.BY_ERROR) - codes - {"internal", "system"} == set()
    assert set(exits.BY_ERROR.values()) <= set(exits.EXIT_CODES)


def test_retryable_errors_are_busy():
    """Every transient error exits with 7, and no other does."""
    for kind in tree(OnrecordError):
        if kind.__module__ == onrecord.errors.__name__:
            assert (exits.BY_ERROR[kind.code] == exits.BUSY) is kind.retryable, kind


@pytest.mark.on_file
@pytest.mark.parametrize(
    "words",
    [["show"], ["log", "x"], ["verify"], ["decide", "x"], ["pause", "x"], ["search", "x"], ["export", "x"],
     ["checkpoint"], ["backup", "b.db"], ["sweep"]],
)  # fmt: skip
def test_reading_without_a_store_is_not_initialised(command, words):
    """A verb that needs a store exits with 3 when there is none, says how to start, and creates no file."""
    error = command.error(*words, code=3, kind="not_initialised")
    assert "onrecord open" in error["hint"]
    assert not command.store.parent.exists()


@pytest.mark.parametrize(
    ("words", "code", "named", "hint"),
    [
        (["show", "nothing"], 4, "session_not_found", "onrecord list"),
        (["at", "999"], 4, "event_not_found", "onrecord log"),
        (["finding", "relabel", "f9", "open"], 4, "not_found", "f1"),
        (["shwo"], 2, "usage", "onrecord show"),
        (["status"], 2, "usage", "onrecord show"),
        (["list", "--stauts", "open"], 2, "usage", "--status"),
        (["list", "--status", "asleep"], 2, "usage", "onrecord help list"),
        (["list", "--limit", "many"], 2, "usage", "onrecord help list"),
        (["list", "--json=yes"], 2, "usage", "onrecord help list"),
        (["decide"], 2, "usage", "onrecord decide"),
        (["decide", "two", "words"], 2, "usage", "quote"),
        (["log", "--kind"], 2, "usage", "onrecord help log"),
        (["log", "--kind", "decison.made"], 2, "invalid_input", "decision.made"),
        (["finding", "state", "x", "--label", "verified"], 2, "invalid_input", "--evidence ID"),
        (["hold"], 2, "usage", "onrecord hold"),
        (["record"], 2, "usage", "onrecord record"),
        (["record", "--tool", "no equals sign"], 2, "usage", "onrecord help record"),
        (["open", "../outside"], 2, "invalid_name", "start with a letter or digit"),
        (["diff", "9", "1"], 2, "invalid_input", "earlier position first"),
        (["completion", "tcsh"], 2, "usage", "onrecord completion bash"),
        (["rename", "fix-invite-403", "other"], 10, "name_taken", "another name"),
        (["archive", "other"], 10, "illegal_transition", "onrecord close other"),
        (["decide", "x", "--session", "ended"], 10, "session_closed", "--reopen"),
        (["record", "--user", "x", "--session", "paused"], 10, "session_paused", "onrecord resume paused"),
        (["resume", "ended"], 10, "illegal_transition", "--reopen"),
        (["list", "--store", "mysql://x/y"], 2, "invalid_input", "postgresql://"),
        (["export", "--to", "x"], 2, "usage", "onrecord help export"),
        (["import", "missing.bundle"], 2, "usage", "onrecord help import"),
        (["start", "claude", "--name", "../x"], 2, "invalid_name", "start with a letter or digit"),
    ],
)  # fmt: skip
def test_errors_have_code_and_hint(crowd, words, code, named, hint):
    """Each refusal has its exit code, a stable kind, and a hint that names the next step where there is one."""
    env = {"ONRECORD_SESSION": "fix-invite-403"}
    assert hint in crowd.error(*words, code=code, kind=named, env=env)["hint"]


def test_a_lane_held_by_another_process_is_busy(working):
    """Recording into a lane of a living process exits with 7 and names the lease holder; --takeover takes it."""
    code = (
        "import onrecord, sys, time\n"
        "session = onrecord.connect().open('fix-invite-403', agent='main')\n"
        "print('here', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=working.project, env=working.environment,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        error = working.error("record", "--user", "x", code=7, kind="lease_held")
        assert str(holder.pid) in error["message"]
        assert error["retryable"]
        assert [session["working"] for session in working.data(kind="overview")["sessions"]] == [["main"]]
        assert working.data("record", "--user", "x", "--takeover", kind="turn")["state"] == "recorded"
        holder.kill()


@pytest.mark.on_file
def test_a_newer_store_is_a_version_mismatch(working):
    """A store of a newer version is refused with 6 and the advice to upgrade."""
    subprocess.run(
        [sys.executable, "-c", "import apsw, sys; apsw.Connection(sys.argv[1]).pragma('user_version', 999)",
         str(working.store)],
        check=True,
    )  # fmt: skip
    assert "upgrade" in working.error("list", code=6, kind="store_too_new")["hint"]


@pytest.mark.on_file
def test_a_file_that_is_no_store_is_damaged(command):
    """Another kind of file under the store's name is reported with 5 and left unchanged."""
    command.store.parent.mkdir(mode=0o700)
    command.store.write_bytes(b"this is no database, " * 500)
    command.store.chmod(0o600)
    before = command.store.read_bytes()
    command.error("list", code=5, kind="store_corrupt")
    assert command.store.read_bytes() == before


@pytest.mark.on_file
def test_damage_is_found_by_verify(working):
    """A changed payload makes `verify` exit with 1 and name position and cause."""
    change = "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.execute(sys.argv[2])"
    statement = "UPDATE events SET payload = CAST(replace(CAST(payload AS TEXT), 'Reproduce', 'Rewritten') AS BLOB) WHERE kind = 'decision.made'"
    subprocess.run([sys.executable, "-c", change, str(working.store), statement], check=True)
    (session,) = working.data("verify", kind="verification", code=1)["sessions"]
    assert [problem["cause"] for problem in session["problems"]] == ["payload"]
    done = working.run("verify")
    assert done.code == 1
    assert f"position {session['problems'][0]['position']}" in done.out


def test_an_unexpected_error_is_one_line(working):
    """A bug shows one line and how to get a traceback, which only ONRECORD_DEBUG=1 prints."""
    broken = working.place / "broken"
    (broken / "rich").mkdir(parents=True)
    stub = broken / "sitecustomize.py"
    stub.write_text(
        "import onrecord.connection\ndef fail(*_, **__): raise ZeroDivisionError('oops')\nonrecord.connection.connect = fail\n"
    )
    done = working.run("list", env={"PYTHONPATH": str(broken)})
    assert done.code == 70
    assert done.err.splitlines()[0] == "error: ZeroDivisionError: oops"
    assert "this is a bug" in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in working.run("list", env={"PYTHONPATH": str(broken), "ONRECORD_DEBUG": "1"}).err


def test_a_bad_settings_file_is_named(working):
    """A settings file that is not TOML is an error that names the file."""
    settings = working.place / "config.toml"
    settings.write_text("not toml at all [")
    env = {"ONRECORD_CONFIG": str(settings)}
    working.environment.pop("ONRECORD_STORE")
    assert str(settings) in working.error("list", code=2, kind="invalid_input", env=env)["message"]


@pytest.mark.on_file
@pytest.mark.skipif(os.geteuid() == 0, reason="cannot run here: root may write everywhere")
def test_a_read_only_place_is_named(command):
    """A store that cannot be created is an error with a hint, not a traceback."""
    command.place.joinpath("data").mkdir(mode=0o500)
    command.error("open", "x", code=1, kind="store_read_only")


def test_options_may_come_first(working):
    """`onrecord --json list` is `onrecord list --json`, and --store may come before the verb."""
    assert json.loads(working.ok("--json", "list")) == json.loads(working.ok("list", "--json"))
    assert working.ok("--store", working.url, "list") == working.ok("list")
