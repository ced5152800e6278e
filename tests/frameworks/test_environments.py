"""Tests that are not run here are named, with the command that runs them."""

import tomllib
from pathlib import Path

from tests.frameworks.environments import FOLDER, NEEDED, left_out, notice
from tests.test_running import ROOT, run_tests


def test_a_run_names_the_tests_of_frameworks_that_are_not_installed():
    """One line at the end of the run, in one process or several; a run of other tests has none."""
    wanted = notice([str(FOLDER)])
    assert all(name in wanted for name in left_out())
    for workers in ("0", "1"):
        done = run_tests("tests/frameworks", "-n", workers, "-k", "lists", "--ignore-glob=*/test_[a-kl-z]*", cwd=ROOT)
        assert [line for line in done.stdout.splitlines() if line == wanted] == [wanted], done.stdout + done.stderr
    assert notice([str(FOLDER / "test_mcp_events.py")]) == notice([str(ROOT / "tests" / "laws")]) == ""


def test_each_of_them_is_run_by_the_command():
    """Every file that may be left out is run by `./dev frameworks` in an environment of its own."""
    known = tomllib.loads((ROOT / "tools" / "frameworks.toml").read_text())
    files = (file for about in known.values() if about["environment"] != "core" for file in about["ours"].split())
    run = {Path(file).name for file in files}
    assert run == set(NEEDED)
