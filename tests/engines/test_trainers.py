"""The forms of the trainers, handed to the frameworks' own types in an environment that has them."""

import json
import subprocess
from pathlib import Path

import pytest

import onrecord
from onrecord.rollout.recording import open_rollout
from onrecord.rollout.trainers import TRAINERS
from tests.engines.real import ROOT, python_of
from tests.rollout.world import aborted, begin, play

INSTALLED = ("verl", "skyrl", "areal", "openrlhf", "trl", "agent-lightning")
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Two sessions of a group: one completed, one aborted; rewards, and weights of two versions."""
    found = []
    with onrecord.connect(str(tmp_path_factory.mktemp("store") / "store.db"), project="p") as records:
        for name, reward in (("a", 1.0), ("b", 0.25)):
            rollout = open_rollout(records, name, metadata={"group": "g1", "env_name": "sums"})
            messages = play(rollout, 3)
            if name == "b":
                rollout.abort(begin(rollout, messages), aborted("ha", weight_versions=[("v1", 2)]))
            rollout.reward(reward)
            rollout.freeze()
            found += rollout.samples()
    for sample in found:
        sample.weight_versions = [("7", start, end) for _version, start, end in sample.weight_versions]
    return found


@pytest.fixture(scope="module")
def counts(pytestconfig):
    found: dict[str, object] = {}
    yield found
    file = pytestconfig.getoption("--engine-results")
    if file:
        Path(file).write_text(json.dumps(found, indent=1), encoding="utf-8")


@pytest.mark.parametrize("name", INSTALLED)
def test_the_trainers_own_types_accept_our_samples(samples, counts, tmp_path, name):
    """The framework's own type, check or trainer takes what we made, and finds in it what was sampled."""
    done = subprocess.run(
        [python_of("trainers"), str(ROOT / "tests" / "engines" / "trainer_types.py"), name],
        input=json.dumps(TRAINERS[name](samples)), capture_output=True, text=True, check=False, timeout=600,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    counts[name] = json.loads(done.stdout.splitlines()[-1])
