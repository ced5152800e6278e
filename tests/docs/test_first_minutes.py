"""The first five minutes, typed as the guide has them. The part about coding agents is typed in tests/e2e, with a real one."""

from pathlib import Path

import pytest

from tests import forking
from tests.docs.first_minutes import commands_for, readers
from tests.forking import Done

TRAINING = """
import json, sys
rate = float(sys.argv[1])
if rate > 1:
    raise SystemExit("loss: nan at step 3")
json.dump({"loss": 1 - rate}, open("metrics.json", "w"))
"""


class Reader:
    """A person who types the guide's commands in a directory of their own."""

    def __init__(self, place: Path) -> None:
        self.project = place / "project"
        self.project.mkdir()
        self.environment = {"HOME": str(place), "PATH": f"{forking.SCRIPT.parent}:/usr/bin:/bin", "COLUMNS": "100"}

    def types(self, words: list[str]) -> Done:
        assert words[0] == "onrecord"
        return forking.run(words[1:], self.environment, self.project, b"", 60)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def test_every_part_is_typed_somewhere():
    """A part of the guide that no test types fails here."""
    assert readers() == {"agents", "experiments", "operators"}


def test_an_experiment(reader):
    """A failed run, its fix, a run that succeeds, and what the next process reads: all as the guide says."""
    (reader.project / "train.py").write_text(TRAINING)
    said = []
    for words, code in commands_for("experiments"):
        done = reader.types(words)
        assert done.code == code, (words, done)
        said.append(done.out)
    listed, continued, note = said[-3:]
    assert "loss: nan at step 3; fix: rates above 1 diverge: use 0.1" in listed
    assert "succeeded\tpython train.py 0.1\t0.9" in listed
    assert "Find a learning rate that converges" in continued
    assert "rates above 1 diverge" in note


def test_an_operator(reader, postgres):
    """A new database becomes the store of every command, and says what it could lose."""
    url = postgres.fresh_database()
    said = {}
    for words, code in commands_for("operators", {"DATABASE_URL": url}):
        if words[0] == "export":
            name, _, _value = words[1].partition("=")
            reader.environment[name] = url
            continue
        done = reader.types(words)
        if words[1] == "doctor":
            assert (
                "can lose anything, or the whole database (fsync is off)" in done.out
            )  # that is how tests run a server
            continue
        assert done.code == code, (words, done)
        said[words[1]] = done.out
    assert "rollout-42" in said["list"]
    assert "verified" in said["verify"]
