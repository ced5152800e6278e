"""Why an agent of a team could not run: reported in fields, whatever is printed."""

from onrecord.crew.failures import read_failure, write_failure
from onrecord.errors import NotFound


def test_what_was_written_is_read(tmp_path):
    """The supervisor reads the sentence of the command's own error, without its hint."""
    file = tmp_path / "a.failure.json"
    write_failure(str(file), NotFound("no program 'x' is on PATH", hint="install it"))
    assert read_failure(file) == "no program 'x' is on PATH"
    write_failure(str(file), ValueError("error: what a program prints"))
    assert read_failure(file) == "error: what a program prints"


def test_nothing_said_is_nothing_read(tmp_path):
    """A missing or damaged file gives no reason, and a folder that is gone does not hide the command's own error."""
    assert read_failure(tmp_path / "missing") == ""
    for content in ("", "{", "[]", '{"code": "x"}'):
        (tmp_path / "damaged").write_text(content)
        assert read_failure(tmp_path / "damaged") == ""
    write_failure(str(tmp_path / "gone" / "file"), NotFound("x"))
