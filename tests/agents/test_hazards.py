"""A hazard to a conversation is found before it is resumed, and a user's file is changed only with consent."""

import json
from pathlib import Path

import pytest

from onrecord import connect
from onrecord.agents.mirroring import kept
from onrecord.agents.resuming import plan, prepare
from onrecord.errors import NotRestored
from onrecord.vendors.port import vendor

ID = "aaaaaaaa-0000-4000-8000-000000000001"


class Qwen:
    """A conversation of Qwen Code, which searches for it in one directory only and appends to a torn line."""

    def __init__(self, place: Path) -> None:
        self.cwd = place / "project"
        self.cwd.mkdir()
        self.env = {"QWEN_HOME": str(place / "qwen"), "HOME": str(place), "PATH": "/usr/bin:/bin"}
        folder = "".join(letter if letter.isalnum() else "-" for letter in str(self.cwd))
        self.path = place / "qwen" / "projects" / folder / "chats" / f"{ID}.jsonl"
        self.path.parent.mkdir(parents=True)
        self.session = connect(str(place / "x.db"), project=str(self.cwd)).create("fix", agent="qwen")
        self.session.agents.locate(
            "qwen", ID, reason="startup", cwd=str(self.cwd), home=str(place / "qwen"), transcript=str(self.path)
        )
        self.asked: list[str] = []

    def write(self, text: str, end: str = "\n") -> None:
        record = {
            "uuid": f"u-{text}", "parentUuid": None, "sessionId": ID, "type": "user", "cwd": str(self.cwd),
            "timestamp": "2026-11-15T06:48:00.000Z", "message": {"role": "user", "parts": [{"text": text}]},
        }  # fmt: skip
        with self.path.open("a") as file:
            file.write(json.dumps(record) + end)

    def prepare(self, *, agree: bool, here: Path | None = None):
        def consent(hazard):
            self.asked.append(hazard.code)
            return agree

        planned = plan(self.session, "qwen", self.env, str(here or self.cwd))
        return prepare(self.session, planned, consent)


@pytest.fixture
def qwen(tmp_path) -> Qwen:
    found = Qwen(tmp_path)
    found.write("one")
    return found


def test_a_torn_tail_is_mended_with_consent_and_never_without(qwen):
    """Qwen would lose history at the second resume: without consent the conversation is not resumed."""
    with qwen.path.open("a") as file:
        file.write('{"uuid": "u2", "sessio')
    torn = qwen.path.read_bytes()
    with pytest.raises(NotRestored, match="unfinished"):
        qwen.prepare(agree=False)
    assert qwen.path.read_bytes() == torn
    _planned, mended = qwen.prepare(agree=True)
    assert len(mended) == 1
    assert qwen.asked == ["torn_tail", "torn_tail"]
    assert qwen.path.read_bytes().endswith(b"}\n")
    assert [one.raw for one in kept(qwen.session, "qwen", ID)] == qwen.path.read_text().splitlines()


def test_a_program_that_looks_in_one_directory_gets_the_conversation_there(qwen, tmp_path):
    """When its directory is gone, the record's copy is written for the new directory, and the old file is renamed."""
    qwen.prepare(agree=True)
    here = tmp_path / "moved"
    qwen.cwd.rename(here)
    with pytest.raises(NotRestored):
        qwen.prepare(agree=False, here=here)
    assert qwen.path.exists()
    planned, _mended = qwen.prepare(agree=True, here=here)
    assert planned.cwd == str(here)
    assert planned.location is not None
    assert "moved" in planned.location.path
    assert planned.location.path != str(qwen.path)
    assert not qwen.path.exists()
    assert qwen.path.with_name(f"{qwen.path.name}.onrecord-moved").exists()
    found = vendor("qwen").find(ID, qwen.env)
    assert found is not None
    assert found.path == planned.location.path


def test_a_plan_changes_nothing(qwen):
    """Planning only reads: the record and the vendor's files are unchanged."""
    position, content = qwen.session.head.position, qwen.path.read_bytes()
    planned = plan(qwen.session, "qwen", qwen.env, str(qwen.cwd))
    assert planned.location is not None
    assert qwen.session.refresh().head.position == position
    assert qwen.path.read_bytes() == content
