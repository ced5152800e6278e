"""Strands on our log. Upstream's 51 repository tests are run by `./dev frameworks strands`."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import onrecord
from onrecord.frameworks.strands import OnrecordRepository
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "strands_refund.py"


def said(number: int, text: str, role: str = "user") -> Any:
    return SessionMessage(message={"role": role, "content": [{"text": text}]}, message_id=number)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as found:
        ours = OnrecordRepository(found)
        ours.create_session(Session(session_id="s", session_type=SessionType.AGENT))
        ours.create_agent("s", SessionAgent(agent_id="default", state={"k": 1}, conversation_manager_state={}))
        yield found


def test_two_workers_cannot_overwrite_each_other(store):
    """A number that another worker has used is refused with our code; the same call again changes nothing."""
    one, two = OnrecordRepository(store), OnrecordRepository(store)
    first = said(0, "mine")
    one.create_message("s", "default", first)
    one.create_message("s", "default", first)
    with pytest.raises(SessionException, match=r"another worker wrote it \[conflict\]; load the session again"):
        two.create_message("s", "default", said(0, "yours"))
    two.create_message("s", "default", said(1, "yours", "assistant"))
    assert [one.message["content"][0]["text"] for one in one.list_messages("s", "default")] == ["mine", "yours"]
    assert len(list(store.get("s").events())) == 5


def test_a_redacted_message_is_replaced_for_every_reader(store):
    """After redaction, the repository and the transcript show the replacement; bytes in a message survive."""
    ours: Any = OnrecordRepository(store)
    ours.create_message("s", "default", said(0, "my number is 555"))
    image = {"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}
    ours.create_message("s", "default", SessionMessage(message={"role": "user", "content": [image]}, message_id=1))
    changed = ours.read_message("s", "default", 0)
    changed.redact_message = {"role": "user", "content": [{"text": "[redacted]"}]}
    ours.update_message("s", "default", changed)
    again: Any = OnrecordRepository(store)
    assert again.read_message("s", "default", 0).to_message()["content"][0]["text"] == "[redacted]"
    assert again.read_message("s", "default", 1).message["content"] == [image]
    assert [item["content"] for turn in store.get("s").transcript().provisional for item in turn.items] == [
        "[redacted]"
    ]


def test_what_does_not_exist_is_said(store):
    """Unknown sessions, agents and messages are None for readers and an error of Strands for writers."""
    ours = OnrecordRepository(store)
    assert ours.read_session("nope") is None
    assert ours.read_agent("s", "nope") is None
    assert ours.read_message("s", "default", 7) is None
    assert ours.list_messages("nope", "default") == []
    for call in (
        lambda: ours.create_agent("nope", SessionAgent("a", {}, {})),
        lambda: ours.update_agent("s", SessionAgent("nope", {}, {})),
        lambda: ours.update_message("s", "default", said(7, "x")),
        lambda: ours.create_message("s", "nope", said(0, "x")),
    ):
        with pytest.raises(SessionException, match=r"does not exist.*\[not_found\]; create it first"):
            call()
    assert store.named("nope") is None


def test_a_killed_tool_is_on_record_as_unknown_and_does_not_run_again(tmp_path):
    """Killed inside the tool: the next run continues, the ledger has the call with an unknown outcome, one payment."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=100)
    assert killed.returncode == -9, killed.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "on record: 2 messages; outcome unknown: ['strands/call-1']" in done.stdout
    assert "the agent says: I will check with the bank before I pay again." in done.stdout
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"
