"""A project is known by its repository: folders, clones, worktrees and ways to fetch it make no difference."""

import os
import subprocess

import pytest

from onrecord.work import project
from onrecord.work.people import person, written
from onrecord.work.project import normalised, project_at, remember_directory, remember_link
from tests.work.conftest import git


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("git@github.com:Ada/Engine.git", "github.com/ada/engine"),
        ("https://github.com/ada/engine", "github.com/ada/engine"),
        ("https://ada:secret@github.com/ada/engine.git/", "github.com/ada/engine"),
        ("ssh://git@ssh.github.com:443/ada/engine.git", "github.com/ada/engine"),
        ("git://git.example.org/Team/Engine.git", "git.example.org/Team/Engine"),
        ("ssh://git@git.example.org:2222/Team/Engine", "git.example.org/Team/Engine"),
        ("ssh://git@[::1]:22/team/engine.git", "[::1]/team/engine"),
        ("https://dev.example.org/a/_git/engine?version=1", "dev.example.org/a/_git/engine"),
        ("/srv/git/engine.git", ""),
        ("../engine", ""),
        ("file:///srv/git/engine.git", ""),
        ("C:\\git\\engine", ""),
        ("", ""),
    ],
)
def test_a_remote_has_one_name(url, expected):
    """Protocol, login, port and ending make no difference, a password is never part of it, and a path is no remote."""
    assert normalised(url) == expected


def test_a_moved_folder_a_clone_and_a_worktree_are_one_project(root, tmp_path):
    """Without a remote the first commit counts: for the folder moved, its clone, its worktree, and after a rewrite."""
    first = git(root, "rev-parse", "HEAD")
    known = project_at(str(root / "."))
    assert (known.key, known.also, known.root) == (f"first-commit/{first}", (str(root),), str(root))
    git(root, "worktree", "add", "-q", "../linked")
    assert project_at(str(tmp_path / "linked")).names == known.names
    subprocess.run(["git", "clone", "-q", str(root), str(tmp_path / "clone")], check=True)
    assert project_at(str(tmp_path / "clone")).key == known.key
    moved = root.rename(tmp_path / "moved")
    git(moved, "commit", "-q", "--amend", "-m", "rewritten")
    assert project_at(str(moved)).names == (known.key, str(moved))


def test_a_remote_goes_before_the_first_commit(root):
    """A repository that gets a remote keeps its earlier names, so that earlier sessions are found."""
    before = project_at(str(root))
    git(root, "remote", "add", "fork", "https://example.org/b/engine")
    assert project_at(str(root)).key == "example.org/b/engine"
    git(root, "remote", "add", "origin", "git@example.org:ada/engine.git")
    assert project_at(str(root)).names == ("example.org/ada/engine", before.key, str(root))
    subprocess.run(["git", "clone", "-q", str(root), str(root.parent / "clone")], check=True)
    assert project_at(str(root.parent / "clone")).key == "example.org/ada/engine"


def test_git_is_asked_once(root, monkeypatch):
    """The first commit is remembered in git's directory; a remote or an empty repository needs no git at all."""
    empty = root.parent / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    project_at(str(root))
    monkeypatch.setenv("PATH", "/nowhere")
    assert project_at(str(root)).key.startswith("first-commit/")
    assert project_at(str(empty)).names == (str(empty),)


def test_a_link_is_not_cloned(root, tmp_path):
    """A person's link counts first; it is in git's own directory, so a repository cannot bring one along."""
    file = remember_link(str(root), "example.org/ada/engine")
    assert file == str(root / ".git" / "onrecord-project")
    assert project_at(str(root)).key == "example.org/ada/engine"
    (root / ".onrecord").mkdir()
    (root / ".onrecord" / "project").write_text("example.org/somebody/else\n")
    assert project_at(str(root)).key == "example.org/ada/engine"
    remember_link(str(root), "example.org/ada/other")
    assert project_at(str(root)).key == "example.org/ada/other"


def test_a_directory_outside_a_repository_keeps_its_id(tmp_path):
    """A marker file is the project's name, wherever the directory is moved; a nonsense one is ignored."""
    place = tmp_path / "my notes"
    place.mkdir()
    assert project_at(str(place)).names == (str(place),)
    known = remember_directory(str(place))
    assert known.key.startswith("directory/my-notes-")
    assert remember_directory(str(place)).key == known.key
    moved = place.rename(tmp_path / "moved")
    assert project_at(str(moved)).names == (known.key, str(moved))
    assert project_at(str(tmp_path)).names == (str(tmp_path),)
    (moved / ".onrecord" / "project").write_text("a\x1bb\n")
    assert project_at(str(moved)).names == (str(moved),)
    assert (moved / ".onrecord" / "project").stat().st_mode & 0o77 == 0


def test_a_large_or_slow_history_leaves_the_path(root, tmp_path, monkeypatch):
    """If git does not answer in time, the path is the project's name, and nothing is remembered."""
    slow = tmp_path / "slow" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o700)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(project, "GIT_SECONDS", 0.05)
    assert project_at(str(root)).names == (str(root),)
    assert not (root / ".git" / "onrecord-project").exists()


def test_people_have_names(root, tmp_path, monkeypatch):
    """The author of commits, else the user, else the server's login; never the name of an agent."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("onrecord.work.people._user", lambda: "root")
    assert person(str(root), "postgresql://ada:secret@db.example.org/onrecord") == "ada"
    assert person(str(root)) == "root"
    monkeypatch.setattr("onrecord.work.people._user", lambda: "claude")
    assert person(str(root)) == "claude-person"
    (tmp_path / ".gitconfig").write_text('[user]\n\tname = "Ada Lovelace"\n\temail = ada@example.org\n')
    assert person(str(root), "postgresql://shared@db/x") == "Ada-Lovelace"
    git(root, "config", "user.name", "Grace Hopper")
    assert person(str(root)) == "Grace-Hopper"
    monkeypatch.setenv("GIT_AUTHOR_NAME", "李雷")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "lei.li@example.org")
    assert person(str(root)) == "lei.li"
    assert written(" José ..Núñez (he/him)") == "Jose-.Nunez-he-him"
