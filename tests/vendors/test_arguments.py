"""The user's own arguments of an agent's program: used again, replaced by those given now, and never a secret."""

import pytest

from onrecord.session.funnel import Funnel
from onrecord.vendors.arguments import FLAGS, again, recordable, taken_out
from onrecord.vendors.port import VENDORS


@pytest.mark.parametrize(
    ("vendor", "recorded", "given", "expected"),
    [
        ("gemini", "--yolo --model X", "", "--yolo --model X"),
        ("gemini", "--yolo --model X", "-m Y", "--yolo -m Y"),
        ("gemini", "--yolo", "--approval-mode default", "--approval-mode default"),
        ("gemini", "--yolo prompt --debug", "", "--yolo --debug"),
        ("gemini", "-i prompt -e one two --debug", "", "-e one two --debug"),
        ("claude", "--allowedTools Bash Edit --model opus", "--model haiku", "--allowedTools Bash Edit --model haiku"),
        ("claude", "--add-dir /a", "--add-dir /b", "--add-dir /a --add-dir /b"),
        ("claude", "--add-dir /a", "--add-dir /a", "--add-dir /a"),
        ("claude", "--model=opus prompt -- another", "--verbose", "--model=opus --verbose"),
        ("claude", "--dangerously-skip-permissions", "--permission-mode plan", "--permission-mode plan"),
        ("codex", "-c model=a -c b=1", "-c model=z", "-c b=1 -c model=z"),
        ("codex", "--dangerously-bypass-hook-trust -i shot.png -m X", "", "--dangerously-bypass-hook-trust -m X"),
        (
            "copilot",
            "--allow-tool shell write --yolo",
            "--deny-tool x",
            "--allow-tool shell write --yolo --deny-tool x",
        ),
        ("opencode", "-m a/b --prompt hello", "", "-m a/b"),
        ("qwen", "-y --max-session-turns -1", "", "-y --max-session-turns -1"),
        ("unheard-of", "--flag value --other", "--flag new", "--other --flag new"),
    ],
)
def test_arguments_are_used_again(vendor, recorded, given, expected):
    """Flags of the last run stay, those of the same meaning are replaced, prompts and attachments are not repeated."""
    assert again(vendor, recorded.split(), given.split()) == expected.split()


def test_a_flag_is_left_out_where_the_program_does_not_know_it():
    """Flags for runs without a terminal are not passed on a terminal, and the other way round."""
    recorded = ["--json", "-a", "never", "-m", "X"]
    assert again("codex", recorded, headless=True) == ["--json", "-m", "X"]
    assert again("codex", recorded, headless=False) == ["-a", "never", "-m", "X"]
    assert again("codex", recorded, ["-a", "never"], headless=True) == ["--json", "-m", "X", "-a", "never"]


def test_secrets_and_prompts_are_not_recorded():
    """A key given as an argument, in whichever form, is not in the log; neither is a prompt."""
    words = ["--openai-api-key", "sk-1", "--model", "X", "--openai-api-key=sk-2", "--max-tool-calls", "5", "a prompt"]
    assert recordable("qwen", words) == ["--model", "X", "--max-tool-calls", "5"]
    secret = ["-c", "model_providers.x.experimental_bearer_token=sk-3", "-c", "model=X", "--json"]
    assert recordable("codex", secret) == ["-c", "model=X", "--json"]


@pytest.mark.parametrize(
    "words",
    [["--mcp-config", '{"mcpServers":{"x":{"env":{"GITHUB_TOKEN":"TOKEN"}}}}'], ["--settings", '{"env":{"K":"TOKEN"}}'],
     ["--append-system-prompt", "push with TOKEN"], ["--header", "Authorization: Bearer TOKEN"],
     ["--url=https://me:TOKEN@example.org/x"]],
)  # fmt: skip
def test_a_flag_whose_value_has_a_secret_is_not_recorded(words):
    """The name of the flag does not tell: its value passes the rules for secrets, and is left out as a whole."""
    funnel = Funnel(lambda: b"key")
    dirty = [word.replace("TOKEN", "ghp_" + "a1B2c3" * 6) for word in words]
    assert recordable("claude", [*dirty, "--model", "X"], funnel.has_secret) == ["--model", "X"]
    clean = [word.replace(":TOKEN@", "@").replace("TOKEN", "a word") for word in words]
    assert recordable("claude", [*clean, "--model", "X"], funnel.has_secret) == [*clean, "--model", "X"], "the control"


def test_flags_are_taken_out_with_their_values():
    """Flags that belong elsewhere on the command line are found with their values."""
    words = ["-m", "X", "-s", "read-only", "--json", "--add-dir=/a", "prompt"]
    assert taken_out("codex", words, {"-s", "--add-dir"}) == (
        ["-s", "read-only", "--add-dir=/a"], ["-m", "X", "--json", "prompt"],
    )  # fmt: skip


def test_every_vendor_has_its_flags():
    """The flags of every supported program are listed."""
    assert set(VENDORS) == set(FLAGS)
