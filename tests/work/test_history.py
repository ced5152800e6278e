"""The repository's history, recorded: what was committed since, once, and nothing where git has no answer."""

import subprocess

import pytest

from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.work.history import COMMITS_LIMIT, commits_between, record_commits

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]


def git(folder, *words: str) -> str:
    done = subprocess.run([*GIT, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def session():
    return SessionStore(MemoryStore(), project="/p").create("work", agent="main")


def test_commits_are_recorded_once(tmp_path, session):
    """The first look records where the code is; later ones the new commits, oldest first; looking again records nothing."""
    assert record_commits(session, tmp_path) is None, "no repository"
    git(tmp_path, "init", "-q")
    assert record_commits(session, tmp_path) is None, "no commit yet"
    for number in range(COMMITS_LIMIT + 4):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", f"step {number}")
        if number == 1:
            assert record_commits(session, tmp_path)
            assert session.views.code.commits == [], "what was there before is not the session's work"
    assert record_commits(session, tmp_path)
    assert record_commits(session, tmp_path) is None
    told = [one["subject"] for one in session.views.code.commits]
    assert told == [f"step {number}" for number in range(4, COMMITS_LIMIT + 4)], "the newest, oldest first"
    (tmp_path / "new.py").write_text("1\n")
    assert record_commits(session, tmp_path), "a changed file is news"
    assert session.views.code.files == ["new.py"]
    session.close()
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "later")
    assert record_commits(session, tmp_path) is None, "nothing is added to a closed session"


def test_an_unknown_revision_is_no_error(tmp_path):
    """A revision that this clone does not have, or that is none, gives no commits, and never an option to git."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "begin")
    now = git(tmp_path, "rev-parse", "HEAD")
    for since in ("f" * 40, "--output=x", "HEAD", ""):
        assert commits_between(tmp_path, since, now) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [".git"]
