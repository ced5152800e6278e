"""Writing a file: the old one or the new one, synced in the right order, never a part of it."""

import os
import stat

import pytest

from onrecord.machine.files import write_file


def test_a_file_is_replaced_whole(tmp_path):
    """The new content replaces the old one, and nothing else is left in the directory."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    write_file(path, [b"new ", b"content"])
    assert path.read_bytes() == b"new content"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path):
    """When the content cannot be produced, the old file is unchanged and no temporary file remains."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def pieces():
        yield b"half"
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - our own, raised above
        write_file(path, pieces())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_file_is_kept_where_replacing_is_forbidden(tmp_path):
    """Without `replace`, an existing file is an error and keeps its content; a missing one is written."""
    path = tmp_path / "a.txt"
    write_file(path, [b"first"], replace=False)
    with pytest.raises(FileExistsError):
        write_file(path, [b"second"], replace=False)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_synced_before_the_name_and_the_directory_after(tmp_path, monkeypatch):
    """The order that survives a power failure: sync the content, rename, sync the directory."""
    steps = []
    path = tmp_path / "a.txt"
    real = os.fsync

    def fsync(descriptor):
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append(("directory" if is_directory else "content", path.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_file(path, [b"x"])
    assert steps == [("content", False), ("directory", True)]
    steps.clear()
    write_file(path, [b"y"], durable=False)
    assert steps == []


def test_modes_are_private_unless_said(tmp_path):
    """A file is for its owner alone by default; an exact mode is set whatever the umask says."""
    path = tmp_path / "a.txt"
    write_file(path, [b"x"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_file(path, [b"x"], exact_mode=0o664)
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


def test_a_left_over_of_a_killed_process_is_no_obstacle(tmp_path):
    """A temporary file of an earlier process with our process id is replaced, even if it is a link to another file."""
    path = tmp_path / "a.txt"
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / f".a.txt.part-{os.getpid()}").symlink_to(victim)
    write_file(path, [b"x"])
    assert path.read_bytes() == b"x"
    assert victim.read_bytes() == b"mine"
