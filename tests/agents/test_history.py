"""Importing what agents did before onrecord was set up: all vendors' real files, dated, named, and never twice."""

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import onrecord
from onrecord.agents.history import Past, import_past, past
from onrecord.vendors.port import vendor
from tests.vendors.homes import copied, opencode_database

VENDORS = ("claude", "codex", "copilot", "gemini", "opencode", "qwen")
COUNTS = {"claude": 2, "codex": 2, "copilot": 2, "gemini": 2, "opencode": 7, "qwen": 2}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the files of six real programs."""
    for name in VENDORS:
        if name != "opencode":
            copied(name, tmp_path / f".{name}")
    opencode_database(tmp_path / ".local" / "share" / "opencode" / "opencode.db", rows=True)
    return tmp_path


def found(home: Path, records: onrecord.SessionStore, since: float = 0.0, directory: str | None = None) -> list[Past]:
    return past(records, [vendor(name) for name in VENDORS], {"HOME": str(home)}, directory, since)


def test_every_conversation_is_found_and_dated(home: Path):
    """Conversations of all vendors, with what the person said first and when; the oldest first."""
    with onrecord.connect("memory:", project="here") as records:
        ones = found(home, records)
    names = [one.of.name for one in ones]
    assert {name: names.count(name) for name in VENDORS} == COUNTS, names
    for one in ones:
        assert one.prompt
        assert not one.prompt.startswith(("<", "# AGENTS.md"))
        assert datetime.fromtimestamp(one.began, UTC).year == 2026, one
        assert one.began <= one.ended
    assert [one.began for one in ones] == sorted(one.began for one in ones)


def test_each_is_imported_once_as_a_session_of_its_own(home: Path):
    """Named and titled by its prompt, dated by when it happened, in the project where it happened; a second import finds none."""
    env = {"HOME": str(home)}
    with onrecord.connect("memory:", project="here") as records:
        ones = found(home, records)
        for one in ones:
            done = import_past(records, one, env)
            assert done.new
            assert done.mirrored.records > 0
            head = done.session.refresh().head
            day = time.strftime("%Y-%m-%d", time.localtime(one.began))
            assert re.search(rf"-{day}(-\d)?$", head.name)
            assert head.title
            assert head.project == one.location.cwd
            assert (head.opened_at, head.at) == (int(one.began * 1e6), int(one.ended * 1e6))
            assert done.session.agent == one.of.name
        assert records.project == "here"
        assert abs(records.clock() - time.time()) < 60
        assert len(records.sessions(project="")) == len(ones)
        assert found(home, records) == []
        assert not import_past(records, ones[0], env).new


def test_only_what_is_recent_and_here(home: Path):
    """Older conversations and those of other directories are left out; so is one in which nothing was said."""
    old = time.time() - 90 * 86_400
    for path in (home / ".claude").rglob("*.jsonl"):
        os.utime(path, (old, old))
    with onrecord.connect("memory:", project="here") as records:
        recent = found(home, records, since=old + 86_400)
        assert "claude" not in {one.of.name for one in recent}
        elsewhere = found(home, records, directory=str(home))
        assert elsewhere == []
        silent = next((home / ".codex").rglob("*.jsonl"))
        silent.write_text(silent.read_text().splitlines()[0] + "\n")
        assert [one.of.name for one in found(home, records)].count("codex") == 1
