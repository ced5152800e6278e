"""An agent in a worktree of its own, outside of teams: started there, its changes shown, and the worktree removed."""

import subprocess

import pytest


@pytest.fixture
def repository(desk):
    """A repository with one file, and its git command."""
    base = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]

    def git(*words, cwd=None):
        done = subprocess.run([*base, *words], cwd=cwd or desk.project, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    (desk.project / "src").mkdir()
    (desk.project / "src" / "a.py").write_text("one\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        git(*words)
    return git


def test_an_agent_works_on_a_branch_of_its_own(desk, repository):
    """`start --worktree` makes branch and worktree; diff shows commits, edits and new files; remove keeps the branch."""
    top, place = desk.project, desk.place / "project.worktrees" / "fix-login"
    desk.project = top / "src"
    desk.ok("start", "claude", "--worktree", "fix/login", "-p", "Find the bug")
    desk.project = top
    (link,) = desk.links("fix-login")
    assert (link["last"]["cwd"], link["last"]["branch"]) == (str(place / "src"), "fix/login")
    (place / "src" / "a.py").write_text("two\n")
    repository("commit", "-qam", "second", cwd=place)
    (place / "new.py").write_text("new\n")
    shown = desk.ok("worktree", "diff", "fix-login")
    assert "+two" in shown
    assert "+new" in shown
    assert desk.ok("worktree", "diff", "--session", "fix-login", "--files").split() == ["new.py", "src/a.py"]
    (row,) = desk.data("worktree", "list", "fix-login", kind="worktrees")
    assert (row["commits"], row["uncommitted"], row["there"]) == (1, ["new.py"], True)
    desk.ok("open", "another")
    assert desk.data("worktree", kind="worktrees") == [row], "of all live sessions, if none is named"
    desk.ok("close", "another")
    assert "not committed" in desk.run("worktree", "remove", "fix-login").err
    desk.ok("resume", "fix-login", "-p", "Go on")
    assert desk.links("fix-login")[-1]["last"]["cwd"] == str(place / "src")
    desk.ok("start", "claude", "--worktree", "fix/login", "-p", "Once more")  # the same worktree, the same session
    desk.ok("worktree", "remove", "fix-login", "--force", "--yes")
    assert not place.exists()
    assert "fix/login" in repository("branch", "--list", "fix/login")
    assert "was removed" in desk.run("worktree", "diff", "fix-login").err
    assert "removed the worktree" in desk.ok("log", "fix-login")


def test_a_worktree_that_cannot_be_is_refused_first(desk, repository):
    """A branch that is checked out here, or is no name, or no repository: one sentence, and nothing is on record."""
    for branch in ("main", "--upload-pack=x", "a..b", ""):
        assert desk.run("start", "claude", f"--worktree={branch}", "-p", "x").code != 0, branch
    desk.project = desk.place
    assert "git" in desk.run("start", "claude", "--worktree", "b", "-p", "x").err
    assert desk.data("list", "--all", kind="sessions") == []


def test_a_handoff_to_a_missing_program_writes_nothing(desk):
    """If the next program is not installed, the session is as it was: paused, without a new event."""
    desk.ok("start", "claude", "--name", "fix", "-p", "Find the bug")
    desk.ok("pause", "fix")
    position = desk.session("fix").head.position
    desk.environment["PATH"] = str(desk.place / "bin") + ":/usr/bin:/bin"
    done = desk.run("handoff", "fix", "--to", "codex", "-p", "Go on")
    assert (done.code != 0, "is not installed" in done.err) == (True, True), done
    assert desk.session("fix").head.position == position
