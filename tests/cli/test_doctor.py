"""`doctor` reports the true state of the store, exits with 1 when something is wrong, and `--fix` does what is safe."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onrecord.stores.sqlite.connection import SCHEMA_VERSION
from tests.scratch import on_disk

pytestmark = pytest.mark.on_file  # tests/postgres/test_command.py tests the report about PostgreSQL


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory on disk: the doctor reports what a power cut loses, and in memory that is everything."""
    with on_disk() as place:
        yield place


def checks(command, *words, code=0):
    data = command.data("doctor", *words, kind="doctor", code=code)
    assert data["ok"] is (code == 0)
    return {check["name"]: check for check in data["checks"]}, data


def test_a_healthy_store(working):
    """The report on a healthy store has versions, durability, permissions, sizes, chain, search and environment."""
    found, data = checks(working)
    assert {check["state"] for check in found.values()} <= {"ok", "info"}
    assert "full" in found["durability"]["value"]
    assert found["a power cut"]["value"] == "can lose nothing that was acknowledged"
    assert found["chain"]["value"] == "verified 1 session, newest first"
    assert "ONRECORD_STORE=" in found["environment"]["value"]
    assert str(working.store) in found["store"]["value"]
    assert "will index" in found["search"]["value"]
    assert data["store"]["sessions"] == 1
    assert data["store"]["schema_version"] == SCHEMA_VERSION
    assert tuple(map(int, data["store"]["sqlite"].split("."))) >= (3, 51, 3)


def test_no_store_is_nothing_wrong(command):
    """Before the first session there is no store; the doctor says so and creates none."""
    found, _data = checks(command)
    assert "does not exist yet" in found["file"]["value"]
    assert not command.store.exists()


def test_fast_durability_is_named(working):
    """With durability=fast the doctor says what a power cut can lose."""
    found, _data = checks(working, "--store", f"sqlite:///{working.store}?durability=fast")
    assert "fast" in found["durability"]["value"]
    assert "commits" in found["a power cut"]["value"]


def test_wide_permissions_are_wrong_and_fixed(working):
    """A store that other users can write is refused; the doctor names it, and --fix narrows the mode."""
    working.store.chmod(0o666)
    working.store.parent.chmod(0o777)
    working.error("list", code=10, kind="store_unsafe")
    found, _data = checks(working, code=1)
    assert found["permissions"]["state"] == "wrong"
    assert found["opening"]["state"] == "wrong"
    done = working.run("doctor")
    assert done.code == 1
    assert "chmod" in done.out
    found, _data = checks(working, "--fix")
    assert working.store.stat().st_mode & 0o777 == 0o600
    assert working.store.parent.stat().st_mode & 0o022 == 0
    assert found["permissions"]["state"] == "ok"
    assert working.data("list", kind="sessions")


def test_readable_by_others_is_wrong(working):
    """A store that other users can read is reported before opening it narrows the mode."""
    working.store.chmod(0o644)
    found, _data = checks(working, code=1)
    assert "0644" in found["permissions"]["value"]


def test_fix_empties_the_write_ahead_log_and_keeps_everything(working):
    """`--fix` copies the write-ahead log into the store and drops snapshots; nothing recorded changes."""
    before = working.data("log", kind="log")
    found, _data = checks(working, "--fix")
    assert found["write-ahead"]["state"] == "fixed"
    log = working.store.with_name("store.db-wal")
    assert not log.exists() or log.stat().st_size == 0
    assert working.data("log", kind="log") == before
    assert checks(working)[1]["store"]["snapshots"] == 0


def test_damage_is_wrong(working):
    """When a log does not verify, the doctor exits with 1 and names the session."""
    change = (
        "import apsw, sys; apsw.Connection(sys.argv[1]).execute('UPDATE events SET by = ? WHERE key & 7 = 2', ['x'])"
    )
    subprocess.run([sys.executable, "-c", change, str(working.store)], check=True)
    found, _data = checks(working, code=1)
    assert "fix-invite-403" in found["chain"]["value"]


def test_a_file_that_is_no_store_is_wrong(command):
    """A store that cannot be opened is reported; the doctor does not raise."""
    command.store.parent.mkdir(mode=0o700)
    command.store.write_bytes(b"no database " * 1000)
    command.store.chmod(0o600)
    found, _data = checks(command, code=1)
    assert found["opening"]["state"] == "wrong"


def test_lanes_of_dead_processes_are_told(working):
    """A lane of a dead process is named, and is not a problem: it is free to take."""
    code = "import onrecord, os; onrecord.connect().open('fix-invite-403'); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], cwd=working.project, env=working.environment, check=False)
    found, _data = checks(working)
    assert "their process has ended: fix-invite-403/main" in found["lanes"]["value"]


@pytest.mark.parametrize(
    ("text", "named"),
    [("retension = 3", "retension"), ("[notify]\ncommand = 'bell'", "notify"), ("[retention]\nerase = 3", "retention")],
)
def test_bad_settings_are_wrong(working, text, named):
    """A setting that is unknown, or has the wrong type, is reported as wrong, also in a table that is rarely read."""
    settings = working.place / "config.toml"
    settings.write_text(f"{text}\n")
    working.environment["ONRECORD_CONFIG"] = str(settings)
    found, _data = checks(working, code=1)
    assert named in found["settings"]["value"]


def test_what_was_found_of_secrets_is_counted_and_never_shown(working):
    """The doctor names the policy, and how often which rule replaced or kept a secret; a wrong policy is wrong."""
    token = "ghp_" + "x7Kq2mZp9Rt4Vw8Yb3Nc6Hd1Jf5Ls0GaQeUi"
    assert checks(working)[0]["secrets"]["value"].startswith("policy redact")
    working.ok("decide", f"the token is {token}")
    found, _data = checks(working)
    assert found["secrets"]["value"].endswith("; 1 secret replaced in 1 session: github-token 1")
    settings = working.place / ".config" / "onrecord" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('[secrets]\npolicy = "keep"\n')
    working.ok("decide", f"the token was {token}")
    data = working.data("doctor", kind="doctor")
    said = [check for check in data["checks"] if check["name"] == "secrets"]
    assert said[0]["value"].startswith("policy keep")
    assert said[1]["value"] == "1 secret kept: github-token 1"
    assert "`onrecord redact" in said[1]["advice"]
    assert token not in working.ok("doctor")
    settings.write_text('[secrets]\npolicy = "shout"\n')
    (wrong,) = [
        check for check in working.data("doctor", kind="doctor", code=1)["checks"] if check["name"] == "secrets"
    ]
    assert wrong["state"] == "wrong"
