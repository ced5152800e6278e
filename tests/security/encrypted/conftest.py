"""Tests that need the apsw with ciphers. `tests/security/test_reading_a_stolen_store.py` runs them in a process that has it."""

from pathlib import Path

import apsw
import pytest

from tests.agents.conftest import bytecode
from tests.cli.conftest import Command

__all__ = ["bytecode"]

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))

collect_ignore_glob = [] if hasattr(apsw, "mc_version") else ["test_*.py"]


@pytest.fixture
def command(tmp_path: Path, bytecode: Path) -> Command:
    """The command line, with a key in the environment."""
    made = Command(tmp_path, bytecode)
    made.environment["ONRECORD_KEY"] = KEY.hex()
    return made


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder: content and mode."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode) for path in found}
