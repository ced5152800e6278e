"""The demo does what it shows: it kills a real process, loses nothing acknowledged, and another process continues."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def shown(tmp_path_factory, bytecode):
    """One run of the demo, as data."""
    from tests.cli.conftest import Command

    command = Command(tmp_path_factory.mktemp("demo"), bytecode)
    command.environment["TMPDIR"] = str(command.place)
    return command, command.data("demo", kind="demo")


def test_every_promise_is_kept(shown):
    """All checks pass: acknowledged events survived, the tail was provisional, the takeover immediate, the chain complete."""
    _command, data = shown
    assert data["ok"]
    assert [check["name"] for check in data["checks"] if not check["ok"]] == []
    assert len(data["checks"]) == 7
    assert data["worker"]["killed_by"] == signal.SIGKILL
    assert data["acknowledged"] > 25


def test_the_store_is_kept_and_says_the_same(shown):
    """The demo's store remains for exploring, and the command reads from it what the demo showed."""
    command, data = shown
    command.environment["ONRECORD_STORE"] = data["store"]
    assert command.data("verify", data["session"], kind="verification")["ok"]
    whole = command.data("show", data["session"], kind="session")
    assert {finding["label"] for finding in whole["findings"]} == {"rejected", "verified"}
    assert whole["reproduction"]["rate"] == "3/10"
    assert whole["provisional"] == []
    assert whole["unknown_effects"] == {}
    assert whole["lanes"]["main"]["interrupted"] == 1
    assert whole["needs"] == []
    runs = {event["run"] for event in command.data("log", data["session"], kind="log")["events"]}
    assert len(runs) == 2


def test_every_command_it_names_works(shown):
    """The commands that the demo prints for exploring run and succeed."""
    command, data = shown
    command.environment["ONRECORD_STORE"] = data["store"]
    for line in data["commands"]:
        if line.startswith("onrecord "):
            assert command.ok(*line.split()[1:])


def test_what_dev_demo_says_can_be_typed(tmp_path):
    """In a clone the command is not on PATH: what `./dev demo` prints works in the terminal it was typed in."""
    outside = [one for one in os.environ["PATH"].split(os.pathsep) if not (Path(one) / "onrecord").exists()]
    env = {**os.environ, "PATH": os.pathsep.join(outside), "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    told = subprocess.run([ROOT / "dev", "demo", "--json"], env=env, check=True, capture_output=True, text=True)
    commands = json.loads(told.stdout.splitlines()[-1])["data"]["commands"]
    typed = subprocess.run(["sh", "-ec", "\n".join(commands)], env=env, check=False, capture_output=True, text=True)
    assert typed.returncode == 0, typed.stderr


def test_it_is_plain_when_piped(command):
    """Piped, the demo is plain text that shows each step and ends with exit code 0."""
    command.environment["TMPDIR"] = str(command.place)
    out = command.ok("demo")
    assert "\x1b" not in out
    for part in (
        "kill -9",
        "What survived",
        "provisional",
        "taken over from dead process",
        "superseded",
        "Look around",
    ):
        assert part in out
    pids = re.findall(r"process \(?(\d+)", out)
    assert len(set(pids)) >= 2
    (kept,) = re.findall(r"rm -r (\S+)", out)
    directory = Path(kept)
    assert directory.parent == command.place
    assert directory.stat().st_mode & 0o777 == 0o700
    assert not command.store.exists()


def test_it_is_beautiful_on_a_terminal(command):
    """On a terminal the demo is coloured, and fits the window except for the lines meant for copying."""
    command.environment["TMPDIR"] = str(command.place)
    shown = command.on_terminal("demo", "--fast", columns=80)
    assert shown.code == 0
    assert "\x1b[32m" in shown.out
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.out).split("\r\n")
    copied = ("   export", "   rm -r")
    assert max(len(line) for line in lines if not line.startswith(copied)) <= 80


def test_keep_chooses_the_directory(command):
    """`--keep DIR` creates the store there and refuses a directory that has one."""
    target = command.place / "kept"
    assert command.data("demo", "--keep", str(target), kind="demo")["directory"] == str(target)
    assert (target / "demo.db").exists()
    command.error("demo", "--keep", str(target), code=2, kind="usage")


def test_a_missing_event_is_a_failure(command):
    """If an acknowledged event were missing, the demo would say so and exit with 1: an invented acknowledgement is caught."""
    lie = command.place / "lie"
    lie.mkdir()
    lie.joinpath("sitecustomize.py").write_text(
        "import sys\n"
        "if '__demo-worker' in sys.argv:\n"
        "    import onrecord.surfaces.cli.demo.worker as worker\n"
        "    tell = worker.Teller.tell\n"
        "    def lying(self, what, **about):\n"
        "        if about.get('position') == 9: about['id'] = 'never-written'\n"
        "        tell(self, what, **about)\n"
        "    worker.Teller.tell = lying\n"
    )
    command.environment |= {"TMPDIR": str(command.place), "PYTHONPATH": str(lie)}
    done = command.run("demo", "--json")
    assert done.code == 1
    failed = [check["name"] for check in json.loads(done.out)["data"]["checks"] if not check["ok"]]
    assert failed == ["acknowledged events survived", "everything acknowledged is on record"]
    assert "was not kept" in command.run("demo").out
