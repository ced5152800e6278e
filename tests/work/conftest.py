"""A session on its own store, and a repository to work in."""

import subprocess
from pathlib import Path

import pytest

import onrecord


def git(place: Path, *words: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *words], cwd=place, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path) -> Path:
    """A repository with two files."""
    place: Path = tmp_path / "project"
    place.mkdir()
    git(place, "init", "-q")
    (place / "auth.py").write_text(
        "import os\n\n\ndef accept(invite):\n    return invite.row\n\n\nclass Invite:\n    def row(self):\n        return 1\n"
    )
    (place / "cache.py").write_text("TTL = 60\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "first")
    return place


@pytest.fixture
def session(tmp_path, root):
    with onrecord.connect(f"sqlite:///{tmp_path}/store.db", project=str(root)) as records:
        yield records.open("fix-invite-403", agent="main")
