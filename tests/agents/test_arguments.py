"""The arguments of an agent's program are on record, and every later run of it uses them again."""

import json

import pytest

from onrecord import machine


@pytest.fixture
def words_of(desk, tmp_path):
    """The command lines of the runs so far, without what onrecord adds for every run."""
    file = tmp_path / "words"
    desk.environment["PRETENDER_WORDS"] = str(file)

    def read() -> list[str]:
        own = ("-p", "--output-format", "stream-json", "--verbose")
        runs = [json.loads(line) for line in file.read_text().splitlines()]
        return [" ".join(word for word in words[words.index("--verbose") :] if word not in own) for words in runs]

    return read


def test_a_run_after_the_first_has_the_same_arguments(desk, words_of):
    """`--wait` and `resume` use the arguments of the start; arguments given to a resume replace and are kept."""
    desk.plan("limit 0.2", "answer")
    given = ("--", "--model", "X", "--permission-mode", "acceptEdits")
    desk.run("start", "claude", "--name", "fix", "-p", "Find the bug", "--wait", *given)
    desk.ok("resume", "fix", "-p", "Go on", "--", "--model", "Y", "--add-dir", "/tmp")
    desk.ok("resume", "fix", "-p", "Go on")
    desk.ok("resume", "fix", "-p", "Go on", "--policy", "never")
    desk.ok("resume", "fix", "-p", "Go on", "--fresh-arguments", "--", "--model", "Z")
    once, later = "--model X --permission-mode acceptEdits", "--permission-mode acceptEdits --model Y --add-dir /tmp"
    assert words_of() == [once, once, later, later, later, "--model Z"]
    assert "--model Z" in desk.ok("resume", "fix", "--print")


def test_arguments_from_another_machine_need_consent(desk, words_of):
    """Arguments that were recorded elsewhere, in a bundle for instance, are not passed on unless a person agrees."""
    desk.ok("start", "claude", "--name", "fix", "-p", "Find the bug", "--", "--permission-mode", "acceptEdits")
    with desk.records() as records:
        process = machine.identity() | {"host": "elsewhere"}
        records.get("fix", agent="claude").agents.record_start(process, vendor="claude", arguments=["--model", "Evil"])
    done = desk.run("resume", "fix", "-p", "Go on")
    assert done.code == 0
    assert "its arguments were given on elsewhere" in done.err
    desk.ok("resume", "fix", "-p", "Go on", "--yes")
    assert words_of()[1:] == ["", "--model Evil"]


def test_arguments_without_an_agent_are_refused(desk):
    """Words after -- are for an agent; a session without one refuses them."""
    desk.ok("open", "plain")
    assert "are for a coding agent" in desk.run("resume", "plain", "--", "--model", "X").err
