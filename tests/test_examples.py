"""The worked examples really run, offline, and their READMEs show what they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
VARYING = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:]+Z|run-\d{4}-\d\d-\d\d-|\b[0-9A-Z]{26}\b|\b[0-9a-f]{64}\b|/\S*project|[\d.]+ s\b|\[[\d, ]+\]|=\d+"
)
STARTS = (
    "[",
    "    deny:",
    "    allow",
    "    to clear",
    "    note: attempt",
    "    f1",
    "    f2",
    "    numpy",
    "    test mse",
    "    3\t",
    "    the model reads",
    "    the agent says",
    "    killed",
)


def key_lines(text: str) -> list[str]:
    """The lines of the story, without what differs from run to run."""
    return [VARYING.sub("#", line.rstrip()) for line in text.splitlines() if line.startswith(STARTS)]


@pytest.mark.parametrize("name", ["experiment", "flaky", "loop", "rollout"])
def test_the_example_prints_what_its_readme_shows(name):
    """Every command of the example, every verdict and every outcome is in its README, in this order."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name / "run.py"], capture_output=True, text=True, check=True, timeout=60
    )
    shown = (EXAMPLES / name / "README.md").read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    assert key_lines(done.stdout) == key_lines(shown)
    assert len(key_lines(shown)) > 15


def test_rollouts_of_an_earlier_run_are_left_alone(tmp_path):
    """When an earlier run kept its files in the chosen folder, the rollout example says so and changes nothing."""
    (tmp_path / "rollouts.db").write_text("mine")
    command = [sys.executable, EXAMPLES / "rollout" / "run.py", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "an earlier run; name another directory" in done.stderr
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]
