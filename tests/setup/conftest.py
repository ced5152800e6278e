"""`onrecord setup` as a user runs it, in a home and a project of its own."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Command, bytecode

__all__ = ["bytecode"]


class Setup(Command):
    """The command in a home where no agent is installed, and a project with a repository."""

    def __init__(self, place: Path, bytecode: Path) -> None:
        super().__init__(place, bytecode)
        (self.project / ".git").mkdir()

    def tree(self) -> dict[str, bytes]:
        """Every file of home and project; the launcher, which hooks of other projects may need, stays."""
        return {
            str(path.relative_to(self.place)): path.read_bytes()
            for path in sorted(self.place.rglob("*"))
            if path.is_file() and not {"data", ".local"} & set(path.parts)
        }

    def states(self, *words: str, code: int = 0) -> dict[str, str]:
        """What became of each file, by part."""
        data = self.data("setup", *words, kind="setup", code=code)
        return {f"{one['vendor']} {one['what']}": one["state"] for one in data["changes"]}


@pytest.fixture
def setup(tmp_path, bytecode) -> Setup:
    made = Setup(tmp_path, bytecode)
    made.environment["PATH"] = str(Path(shutil.which("git") or "/usr/bin/git").parent)
    return made
