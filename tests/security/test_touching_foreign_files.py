"""A mistake, or an attacker with a link, wants onrecord to change a file that is not its own."""

import os
import stat
from pathlib import Path

import pytest

import onrecord
from onrecord.errors import Conflict, OnrecordError, StoreUnsafe
from onrecord.stores.sqlite import SQLiteStore, safety
from onrecord.workspace.files import refuse_link, write
from tests.agents.conftest import Desk


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


READERS = (("list",), ("show", "x"), ("verify", "--all"), ("doctor",))


def test_reading_verbs_leave_a_foreign_file_alone(desk: Desk, tmp_path: Path):
    """With ONRECORD_STORE at a text file or another program's database, no byte, mode or neighbour of it changes."""
    import apsw

    folder = tmp_path / "mine"
    folder.mkdir()
    text, database = folder / "notes.txt", folder / "other.db"
    text.write_text("my notes\n" * 100)
    connection = apsw.Connection(str(database))
    connection.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    connection.close()
    for file in (text, database):
        file.chmod(0o644)
        before = (file.read_bytes(), mode_of(file), sorted(folder.iterdir()))
        for words in READERS:
            done = desk.run(*words, env={"ONRECORD_STORE": str(file)})
            assert done.code not in (0, 70), (words, done)
        assert (file.read_bytes(), mode_of(file), sorted(folder.iterdir())) == before


def test_an_empty_foreign_file_becomes_no_store(desk: Desk, tmp_path: Path):
    """An empty file that others may read was not made by onrecord: it is refused, and stays empty."""
    empty = tmp_path / "empty.txt"
    empty.touch(0o644)
    done = desk.run("list", env={"ONRECORD_STORE": str(empty)})
    assert "is an empty file that onrecord did not make" in done.err
    assert (empty.stat().st_size, mode_of(empty)) == (0, 0o644)
    begun = tmp_path / "begun.db"
    begun.touch(0o600)
    with onrecord.connect(str(begun)) as records:
        assert records.sessions() == [], "the control: a store that another process is about to make"


def test_a_store_of_ours_is_still_closed_to_others(tmp_path: Path):
    """The control: a store that others may read is tightened once it is known to be one."""
    path = tmp_path / "here.db"
    with onrecord.connect(str(path)) as records:
        records.create("work")
    path.chmod(0o644)
    with onrecord.connect(str(path)):
        assert mode_of(path) == 0o600


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A link of another user, and one that leads to nothing, is refused; a link of one's own to a store is followed."""
    sticky, target = tmp_path / "sticky", tmp_path / "target.db"
    sticky.mkdir()
    sticky.chmod(0o1777)
    SQLiteStore(str(target)).close()
    target.chmod(0o644)
    link, dangling = sticky / "store.db", sticky / "nowhere.db"
    link.symlink_to(target)
    dangling.symlink_to(tmp_path / "made-by-a-link.db")
    with pytest.raises(StoreUnsafe, match="a file that does not exist"):
        SQLiteStore(str(dangling))
    assert not (tmp_path / "made-by-a-link.db").exists()
    with monkeypatch.context() as as_other:
        as_other.setattr(os, "geteuid", lambda: 12_345)  # the link belongs to another user than this one
        mine = os.lstat
        as_other.setattr(os, "lstat", lambda path: os.stat_result((*mine(path)[:4], 999, *mine(path)[5:])))
        with pytest.raises(StoreUnsafe, match="that another user made"):
            safety.resolve(str(link))
    assert mode_of(target) == 0o644
    SQLiteStore(str(link)).close()


@pytest.mark.parametrize("what", ["fifo", "directory", "/dev/null", "/dev/zero"])
def test_devices_and_pipes_are_refused_at_once(tmp_path: Path, what: str):
    """A FIFO, a directory or a device under the store's name is refused by name, without opening it."""
    path = Path(what) if what.startswith("/") else tmp_path / "store.db"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    with pytest.raises(OnrecordError, match=r"not a regular file|belongs|other users|directory"):
        SQLiteStore(str(path))


def test_a_repository_cannot_move_the_note_outside(tmp_path: Path):
    """A `.onrecord` that is a link is refused; a real one gets a note that only its owner reads and git ignores."""
    outside, root = tmp_path / "outside", tmp_path / "repository"
    outside.mkdir()
    root.mkdir()
    (root / ".onrecord").symlink_to(outside)
    with pytest.raises(Conflict, match="is a symbolic link"):
        refuse_link(root / ".onrecord" / "NOTE.md")
    (root / ".onrecord").unlink()
    note = root / ".onrecord" / "NOTE.md"
    refuse_link(note)
    write(note, b"x")
    assert (mode_of(note), (note.parent / ".gitignore").read_text()) == (0o600, "*\n")
    note.chmod(0o644)
    write(note, b"y")
    assert mode_of(note) == 0o644, "what a person has allowed stays allowed"


def test_a_backup_replaces_nothing_unless_it_is_told_to(desk: Desk, tmp_path: Path):
    """`backup` refuses an existing file; with `--force` it replaces it, and says so."""
    desk.ok("open", "work", "--no-input")
    target = tmp_path / "copy.db"
    target.write_text("mine")
    done = desk.run("backup", str(target))
    assert (done.code != 0, target.read_text()) == (True, "mine"), done
    assert "in place of the file that was there" in desk.ok("backup", str(target), "--force")
    fresh = desk.ok("backup", str(tmp_path / "other.db"))
    assert "in place of" not in fresh


def test_doctor_tells_the_truth_about_memory(desk: Desk):
    """On tmpfs a power cut loses everything, and doctor says so; on a disk it does not."""
    place = Path("/dev/shm")
    if safety.file_system_of(str(place)) != "tmpfs" or not os.access(place, os.W_OK):
        pytest.skip("cannot run here: there is no tmpfs to write to")
    import tempfile

    with tempfile.TemporaryDirectory(dir=place) as folder:
        env = {"ONRECORD_STORE": f"{folder}/here.db"}
        desk.ok("open", "work", "--no-input", env=env)
        assert "everything: tmpfs is in memory" in desk.run("doctor", env=env).out
    desk.ok("open", "work", "--no-input")
    said = desk.run("doctor").out
    if safety.file_system_of(str(desk.store.parent)) != "tmpfs":
        assert "everything" not in said, said
