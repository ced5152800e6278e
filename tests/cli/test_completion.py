"""Shells complete verbs, options and session names; a broken or missing store never spoils a prompt."""

import shutil
import subprocess

import pytest

from tests.forking import SCRIPT


@pytest.fixture
def shell(working):
    working.environment["PATH"] = f"{SCRIPT.parent}:{working.environment['PATH']}"
    return working


def offered(working, *words):
    return working.ok("__complete", *words).split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sho"], ["show"]),
        (["show", ""], ["fix-invite-403"]),
        (["show", "fix"], ["fix-invite-403"]),
        (["show", "other"], []),
        (["--json", "pa"], ["pause"]),
        (["decide", "x", "--session", ""], ["fix-invite-403"]),
        (["list", "--stat"], ["--status"]),
        (["list", "--status", "p"], ["paused"]),
        (["export", "--format", "m"], ["messages", "markdown"]),
        (["log", "--kind", "decision"], ["decision.made"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["help", "dem"], ["demo"]),
        (["nonsense", ""], []),
        (["export", "--out", ""], []),
    ],
)
def test_candidates(working, words, expected):
    """The fast path offers what matches, and nothing for what it cannot know."""
    assert offered(working, *words) == expected


def test_no_store_is_made_for_completion(command):
    """Asking for session names without a store offers none and creates no file."""
    assert offered(command, "show", "") == []
    assert not command.store.parent.exists()


def test_a_damaged_store_offers_nothing(command):
    """A damaged store is a matter for the doctor, not for the prompt."""
    command.store.parent.mkdir(mode=0o700)
    command.store.write_bytes(b"no database" * 1000)
    done = command.run("__complete", "show", "")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_bash_completes(shell):
    """In a real bash, the script completes verbs, names and options."""
    script = """
        eval "$(onrecord completion bash)"
        ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _onrecord; printf '%s\\n' "${COMPREPLY[@]}"; }
        ask onrecord verif
        ask onrecord show fix
        ask onrecord list --status pau
        complete -p onrecord
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=shell.project, env=shell.environment, capture_output=True, text=True,
        check=False, timeout=90,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "verify", "fix-invite-403", "paused", "complete -o bashdefault -o default -F _onrecord onrecord",
    ]  # fmt: skip


def test_zsh_completes(shell):
    """In a real zsh, the script is accepted and offers verbs and names."""
    if shutil.which("zsh") is None:
        pytest.skip("cannot run here: there is no zsh")
    script = """
        autoload -U compinit && compinit -u -D
        source =(onrecord completion zsh)
        compadd() { shift; print -l -- "$@" }
        words=(onrecord show fix) CURRENT=3; _onrecord
        words=(onrecord verif) CURRENT=2; _onrecord
        print -- $_comps[onrecord]
    """
    done = subprocess.run(
        ["zsh", "-f", "-c", script], cwd=shell.project, env=shell.environment, capture_output=True, text=True,
        check=False, timeout=90,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["fix-invite-403", "verify", "_onrecord"]


def test_fish_completes(shell):
    """In a real fish, the script is accepted and offers verbs and names."""
    if shutil.which("fish") is None:
        pytest.skip("cannot run here: there is no fish")
    script = "onrecord completion fish | source; complete -C 'onrecord show fix'; complete -C 'onrecord verif'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], cwd=shell.project, env=shell.environment, capture_output=True, text=True,
        check=False, timeout=90,
    )  # fmt: skip
    assert done.stdout.split() == ["fix-invite-403", "verify"], done.stderr


def test_completion_answers_as_json_too(command):
    """`completion SHELL --json` gives the script in the envelope."""
    assert command.data("completion", "bash", kind="completion")["script"] == command.ok("completion", "bash")
