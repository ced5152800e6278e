"""Cursor's program is not available here: these are its documented forms, and the adapter says so."""

import json
import os
import sys
from pathlib import Path

import pytest

from onrecord.testing import VendorContract
from onrecord.vendors.hooks import HookAnswer
from onrecord.vendors.port import LaunchOptions, vendor
from tests.vendors.homes import recorded, wanted

CURSOR = vendor("cursor")
CHAT = "3f1d0c5e-6a3b-4a52-9d0e-8f4b7a2c1d90"
TRANSCRIPT = (
    {"role": "user", "message": {"content": [{"type": "text", "text": "Remember FIG"}]}},
    {"role": "assistant", "message": {"content": [{"type": "text", "text": "I will"}]}},
    {"role": "assistant", "message": {"content": [{"type": "tool_use", "id": "t1", "name": "Shell", "input": {"command": "ls"}}]}},
    {"role": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a file"}]}},
    {"role": "assistant", "message": {"content": [{"type": "text", "text": "it is FIG"}]}},
)  # fmt: skip


class TestCursor(VendorContract):
    name = "cursor"
    conversation = CHAT
    says = ("Remember FIG", "I will", "a file", "it is FIG")
    stream = (json.dumps({"type": "system", "subtype": "init", "session_id": CHAT}),)
    stream_id = CHAT
    puts_back = False

    def make_home(self, folder):
        path = folder / ".cursor" / "projects" / "home-dev-proj" / "agent-transcripts" / CHAT / f"{CHAT}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in TRANSCRIPT))
        return {"HOME": str(folder)}

    def payloads(self):
        return recorded("cursor")


def test_it_does_not_claim_to_be_proven():
    """The adapter says that it was built from documentation."""
    assert CURSOR.capabilities.verified is False


@pytest.mark.parametrize(
    ("script", "expected"), [(f"echo hello; echo {CHAT}", CHAT), ("echo no id", None), ("exit 1", None)]
)
def test_an_id_is_what_create_chat_prints(tmp_path, script, expected):
    """`create-chat` prints the id of a new chat; any other output is no id."""
    program = tmp_path / "cursor-agent"
    program.write_text(f'#!/bin/sh\n[ "$1" = create-chat ] || exit 9\n{script}\n')
    program.chmod(0o755)
    assert CURSOR.obtain_id(LaunchOptions(str(tmp_path), env=os.environ, program=str(program))) == expected


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["cursor", "--resume", CHAT], "opens the editor"),
        (["cursor-agent", "-p", "x"], "--trust"),
        (["agent", "--resume", "-1"], "resume by id"),
        (["agent", "--continue"], "resume by id"),
    ],
)
def test_doubtful_commands_are_named(command, part):
    """Flags that open the editor, stop or use another chat cause a warning (I27)."""
    assert any(part in said for said in CURSOR.warnings(command, {}))


def test_sound_commands_have_no_warning():
    """`cursor agent` and a trusted headless run cause no warning."""
    assert CURSOR.warnings(["cursor", "agent", "--resume", CHAT], {}) == []
    assert CURSOR.warnings(["cursor-agent", "-p", "x", "--trust"], {}) == []


def test_permissions_are_answered_as_documented():
    """`permission` refuses shell commands and tools; a stop gets a further message."""
    shell = {"hook_event_name": "beforeShellExecution", "conversation_id": CHAT, "command": "rm -r x", "cwd": "/p"}
    call = CURSOR.parse_hook(shell, {})
    assert wanted(CURSOR, call).commands == (("rm", "-r", "x"),)
    assert json.loads(CURSOR.reply(call, HookAnswer(decision="ask", reason="r")).stdout)["permission"] == "ask"
    stop = CURSOR.parse_hook({"hook_event_name": "stop", "conversation_id": CHAT}, {})
    assert json.loads(CURSOR.reply(stop, HookAnswer(decision="deny", reason="r")).stdout) == {"followup_message": "r"}


def test_the_program_is_found_under_both_names(tmp_path):
    """A start names the agent's program, not the editor's."""
    assert CURSOR.start(LaunchOptions(str(tmp_path), prompt="x")).argv[0] == "cursor-agent"
    assert sys.executable
    assert Path(CURSOR.home({"HOME": "/h"})) == Path("/h/.cursor")
