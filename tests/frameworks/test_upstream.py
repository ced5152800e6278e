"""Suites of frameworks that are quick enough for CI, run from the registry; `./dev frameworks` runs all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "frameworks.py"


@pytest.mark.parametrize(("name", "portable", "others"), [("openai-agents", 68, 18)])
def test_their_own_tests_pass_on_our_adapter(name, portable, others):
    """The portable part of a framework's own session tests, fetched by name and version, passes on our store."""
    done = subprocess.run([sys.executable, str(TOOL), "--here", name], capture_output=True, text=True, check=False)
    if "could not be fetched" in done.stderr:
        pytest.skip("cannot run here: the registry cannot be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"passed": portable, "deselected": others}
