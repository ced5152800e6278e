"""The runtime folder: complete files for other programs, written again when they were damaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from onrecord.crew.runtime_files import RuntimeFiles
from onrecord.errors import InvalidInput


def row(session_id: str | None = None) -> dict[str, Any]:
    return {"command": "claude", "session_name": "s:a", "session_id": session_id, "spawned_at": 1.0, "state": "working"}


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_files_follow_the_team(tmp_path):
    """Folders are created, an id is filled in when it is known, and an agent that left has no file (I05, I26, I31)."""
    files = RuntimeFiles(tmp_path / "run")
    assert files.write("s", {"a": row(), "b": row("2")}) == []
    own = tmp_path / "run" / "pids" / "a.session.json"
    expected = {"agent_id": "a", "cli_command": "claude", "session_name": "s:a", "session_id": None, "spawned_at": 1.0}
    assert json.loads(own.read_text()) == expected
    files.write("s", {"a": row("1")})
    assert json.loads(own.read_text()) == expected | {"session_id": "1"}
    assert json.loads((tmp_path / "run" / "sessions" / "s.json").read_text())["agents"] == {"a": "1"}
    assert files_in(tmp_path / "run") == [".gitignore", "pids/a.session.json", "sessions/s.json", "state.json"]


def test_what_was_harmed_is_told_and_mended(tmp_path):
    """A missing or damaged file is reported and written again; its content is never used (I25)."""
    files = RuntimeFiles(tmp_path)
    files.write("s", {"a": row()})
    (tmp_path / "state.json").write_text("{")
    (tmp_path / "pids" / "a.session.json").unlink()
    told = files.write("s", {"a": row()})
    assert [line.rpartition("/")[2] for line in told] == [
        "a.session.json is gone, and is written again",
        "state.json is damaged, and is written again",
    ]
    assert files.write("s", {"a": row()}) == []
    assert json.loads((tmp_path / "state.json").read_text())["session"] == "s"


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    """A file that cannot be written is one clear error with its path; the supervisor reports it and continues (I25)."""
    (tmp_path / "pids").write_text("not a folder")
    with pytest.raises(InvalidInput, match="pids"):
        RuntimeFiles(tmp_path).write("s", {"a": row()})


def test_a_link_in_the_way_is_not_followed(tmp_path):
    """A link in place of a runtime file is not followed: its target keeps its content."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "state.json").symlink_to(victim)
    RuntimeFiles(tmp_path / "run").write("s", {"a": row()})
    assert victim.read_text() == "mine"
    assert not (tmp_path / "run" / "state.json").is_symlink()
