"""Projects on the command line: the same one after a move, in a clone, under its old path; and whose work it is."""

import shutil
import subprocess

import pytest


@pytest.fixture
def repository(command):
    """A repository that has a remote, and a session from the time when a project was its path."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(command.project)]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    command.environment["ONRECORD_PROJECT"] = "/the/old/path"
    command.ok("open", "old-work")
    del command.environment["ONRECORD_PROJECT"]
    return command


def names(command):
    return {session["name"] for session in command.data("list", kind="sessions")}


def test_a_project_is_the_same_wherever_its_folder_is(repository):
    """Move the folder, clone it: the sessions are there; what is under an old path is merged in, with a new name if taken."""
    command, first = repository, repository.project
    command.ok("open", "old-work")
    command.ok("open", "new-work")
    key = command.data("show", "new-work", kind="session")["project"]
    assert key.startswith("first-commit/")
    merged = command.data("project", "merge", "/the/old/path", kind="project")
    assert [(one["was"], one["name"]) for one in merged["sessions"]] == [("old-work", "old-work-2")]
    assert names(command) == {"new-work", "old-work", "old-work-2"}
    subprocess.run(["git", "clone", "-q", str(first), str(command.place / "clone")], check=True)
    shutil.move(first, command.place / "moved")
    for place in ("moved", "clone"):
        command.project = command.place / place
        assert names(command) == {"new-work", "old-work", "old-work-2"}, place
    shown = command.data("project", "show", kind="project")
    assert (shown["project"], shown["known_by"], shown["directory"]) == (key, "its first commit", str(command.project))
    assert shown["sessions"][key] == {"all": 3, "live": 3}
    command.ok("verify", "--all")


def test_sessions_under_the_path_are_still_found(repository):
    """A session whose project is the path is listed, found, not opened twice, and can be moved to the key."""
    command = repository
    command.environment["ONRECORD_PROJECT"] = "made-before"
    command.ok("open", "before")
    del command.environment["ONRECORD_PROJECT"]
    command.ok("project", "link", "made-before")
    assert command.data("project", "show", kind="project")["project"] == "made-before"
    assert command.data("open", "before", kind="session")["state"] == "already_open"
    assert "is made-before already" in command.ok("project", "link", "made-before")
    assert "add `--yes`" in command.run("project", "link", "never-heard-of").err
    moved = command.data("project", "move", "old-work", kind="project")
    assert [one["from"] for one in moved["sessions"]] == ["/the/old/path"]
    assert names(command) == {"before", "old-work"}
    assert "already" in command.ok("project", "move", "old-work")
    assert "no session of the project" in command.run("project", "merge", "nowhere").err


def test_a_directory_without_a_repository_can_be_moved(command):
    """The first session gives it a marker file; moved elsewhere, it is the same project. --stealth writes nothing."""
    command.ok("open", "work", "--stealth")
    assert not (command.project / ".onrecord").exists()
    command.ok("open", "more")
    shutil.move(command.project, command.place / "moved")
    command.project = command.place / "moved"
    assert names(command) == {"more"}
    assert command.data("project", "show", kind="project")["known_by"] == "its marker file .onrecord/project"
    assert "work" in command.ok("list", "--all")


def test_two_people_are_told_apart(command):
    """Every event that a person causes has that person's name; an agent's events have the agent's."""
    command.environment["GIT_AUTHOR_NAME"] = "Ada Lovelace"
    command.ok("open", "work")
    command.environment["GIT_AUTHOR_NAME"] = "Grace Hopper"
    command.ok("decide", "Use a compiler", "--session", "work")
    command.ok("decide", "Use two", "--session", "work", "--agent", "claude")
    by = [event["by"] for event in command.data("log", "work", kind="log")["events"]]
    assert by == ["Ada-Lovelace", "Grace-Hopper", "claude"]
    assert "- Use a compiler (Grace-Hopper)\n- Use two (claude)" in command.ok("note", "work")
    assert "by Ada-Lovelace" in command.ok("show", "work")
    assert command.data("list", kind="sessions")[0]["people"][:2] == ["Ada-Lovelace", "Grace-Hopper"]


def test_a_missing_word_is_answered_with_an_example_of_the_same_action(command):
    """The hint has an example of the action that was typed, not of another one."""
    hint = command.error("project", "move", code=2, kind="usage")["hint"]
    assert hint == "for example: `onrecord project move fix-invite-403`"
