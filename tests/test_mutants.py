"""The tests that `./dev mutants` runs are chosen by hand; this keeps the choice complete. No mutants run here."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "onrecord"
CHOSEN = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text())["selection"]


def test_every_module_of_the_chosen_rooms_has_its_tests():
    """Each module of views/ and log/, and rules.py, is in one selection of tools/mutants.toml, and nothing else is."""
    inside = [path for room in ("views", "log") for path in (PACKAGE / room).glob("*.py") if path.name != "__init__.py"]
    modules = sorted(path.relative_to(PACKAGE).as_posix() for path in [*inside, PACKAGE / "rules.py"])
    assert sorted(module for one in CHOSEN for module in one["modules"]) == modules


def test_the_tests_of_every_selection_are_there():
    """A test that was moved or renamed fails here, not when a person runs the mutants."""
    named = {name for one in CHOSEN for name in one["tests"]}
    assert {name for name in named if not (ROOT / name).exists()} == set()
