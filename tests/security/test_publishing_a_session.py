"""Bad luck wants to publish a session: an agent commits everything, or another user reads the files in the worktree."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from onrecord.workspace import state_file
from onrecord.workspace.files import Paths
from tests.agents.conftest import Desk


def git(folder: Path, *words: str) -> str:
    told = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
    return subprocess.run(told, check=True, capture_output=True, text=True).stdout


def seen(folder: Path) -> list[str]:
    """What git would add of a worktree."""
    return sorted(git(folder, "status", "--short", "--untracked-files=all").split()[1::2])


@pytest.fixture
def repository(desk: Desk) -> Path:
    git(desk.project, "init", "-q")
    return desk.project


def test_no_commit_of_everything_has_a_session(desk: Desk, repository: Path):
    """Git ignores STATE.md, its copies and NOTE.md from the first on; another file of the user it lists."""
    desk.ok("open", "work", "--profile", "bugfix", "--no-input")
    (repository / "STATE.md").write_text((repository / "STATE.md").read_text() + "outside of the fences\n")
    desk.ok("state-file", "sync")
    desk.ok("state-file", "sync", "--fresh")
    desk.ok("note", "--write")
    names = {path.name for path in repository.iterdir()}
    assert {"STATE.md", "STATE.1.md", "STATE.kept-1.md", ".onrecord"} <= names
    (repository / "mine.md").touch()
    assert seen(repository) == ["mine.md"], "the control: git looks"
    git(repository, "add", "--all")
    git(repository, "commit", "-q", "-m", "everything")
    assert git(repository, "ls-files").split() == ["mine.md"]


def test_control_without_it_a_commit_has_the_session(desk: Desk, repository: Path, monkeypatch: pytest.MonkeyPatch):
    """A renderer that says nothing to git leaves STATE.md in every commit of everything."""
    monkeypatch.setattr(state_file, "ignore_state", lambda _git: None)
    with desk.records() as records:
        session = records.open("work")
        state_file.sync(session, Paths(repository / "STATE.md", repository / "NOTE.md", repository / ".git"))
    assert "STATE.md" in seen(repository)


def test_a_person_may_share_it(desk: Desk, repository: Path):
    """`git add --force` takes it. A line that a person commented out stays so, and the rest of the list stays as it is."""
    listed = repository / ".git" / "info" / "exclude"
    listed.write_text("*.log")
    listed.chmod(0o640)
    desk.ok("open", "work", "--profile", "bugfix", "--no-input")
    once = listed.read_text()
    desk.ok("decide", "again")
    assert (once.startswith("*.log\n# STATE.md"), listed.read_text(), stat.S_IMODE(listed.stat().st_mode)) == (
        True, once, 0o640,
    )  # fmt: skip
    git(repository, "add", "--force", "STATE.md")
    assert git(repository, "ls-files").split() == ["STATE.md"]
    git(repository, "rm", "--quiet", "--cached", "STATE.md")
    listed.write_text(once.replace("\n/STATE", "\n# /STATE"))
    desk.ok("decide", "and again")
    assert seen(repository) == ["STATE.md"]


def test_every_worktree_of_a_repository_is_meant(desk: Desk, repository: Path, tmp_path: Path):
    """A linked worktree has no list of its own: the one of its repository is used."""
    git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    beside = tmp_path / "beside"
    git(repository, "worktree", "add", "-q", str(beside))
    desk.project = beside
    desk.ok("open", "work", "--profile", "bugfix", "--no-input")
    assert ((beside / "STATE.md").exists(), seen(beside), seen(repository)) == (True, [], [])


def test_a_list_that_cannot_be_written_is_no_reason_to_stop(desk: Desk, repository: Path, tmp_path: Path):
    """A link in its place is not followed: STATE.md is written, and the command says that git does not ignore it."""
    shutil.rmtree(repository / ".git" / "info")
    (repository / ".git" / "info").symlink_to(tmp_path)
    done = desk.run("open", "work", "--profile", "bugfix", "--no-input")
    assert (done.code, (repository / "STATE.md").exists(), (tmp_path / "exclude").exists()) == (0, True, False)
    assert "git does not ignore" in done.err
    assert "is a symbolic link" in done.err
    (repository / ".git" / "info").unlink()
    assert "git does not ignore" not in desk.run("state-file", "sync").err, "the control"


def test_what_is_no_repository_gets_no_list(desk: Desk, tmp_path: Path):
    """A file `.git` that points to another folder does not decide where a list is written."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (desk.project / ".git").write_text(f"gitdir: {elsewhere}\n")
    desk.ok("open", "work", "--profile", "bugfix", "--no-input")
    assert (list(elsewhere.iterdir()), (desk.project / "STATE.md").exists()) == ([], True)


def test_files_in_a_worktree_are_for_their_owner(desk: Desk, repository: Path):
    """Under any umask STATE.md, its copies and NOTE.md are 0600; a plain file, the control, follows the umask."""
    before = os.umask(0o022)
    try:
        desk.ok("open", "work", "--profile", "bugfix", "--no-input")
        (repository / "STATE.md").write_text((repository / "STATE.md").read_text() + "outside of the fences\n")
        desk.ok("state-file", "sync")
        desk.ok("note", "--write")
        (repository / "plain").touch()
    finally:
        os.umask(before)
    files = ("STATE.md", "STATE.kept-1.md", ".onrecord/NOTE.md", "plain")
    modes = [stat.S_IMODE((repository / name).stat().st_mode) for name in files]
    assert modes == [0o600, 0o600, 0o600, 0o644]
