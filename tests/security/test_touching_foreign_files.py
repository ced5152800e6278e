"""A mistake, or an attacker with a link, wants onrecord to change a file that is not its own."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import onrecord
from onrecord.errors import Conflict, OnrecordError, StoreUnsafe
from onrecord.machine.files import write_file
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
    assert mode_of(note) == 0o644, "the control: what a person has allowed stays allowed"


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


def test_force_replaces_files_and_nothing_else(desk: Desk, tmp_path: Path):
    """A file renamed to `/dev/null` would harm the whole machine: devices, pipes and sockets stay what they are."""
    desk.ok("open", "kept")
    pipe, place, file = tmp_path / "pipe", tmp_path / "socket", tmp_path / "file"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        for special in (pipe, place):
            for words in (("export", "kept", "--out"), ("checkpoint", "kept", "--out")):
                done = desk.run(*words, str(special), "--force")
                assert (done.code, f"{special} is not a regular file" in done.err) == (2, True), done
            with pytest.raises(OSError, match="not a regular file"):
                write_file(special, [b"x"])
            assert not stat.S_ISREG(special.stat().st_mode)
        file.write_text("old")
        desk.ok("export", "kept", "--out", str(file), "--force")
        assert file.read_bytes()[:4] != b"old", "the control"


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


ROOT = Path(__file__).resolve().parent.parent.parent
READ = (
    ("list",), ("show", "work"), ("log", "work"), ("note", "work"), ("search", "plain"), ("verify", "--all"),
    ("checkpoint", "work"), ("export", "work", "--format", "jsonl"), ("redact", "work", "--dry-run"),
)  # fmt: skip
WRITE = (("decide", "more"), ("title", "another"), ("run", "--", "true"), ("pause", "work"), ("open", "other"))
SAYS = {"list": "work", "verify": "verified", "checkpoint": '"position":2', "redact": ""}
"""What a reading verb prints of the store, where it is not the words of its decision."""


def mounted(how: str, place: Path, desk: Desk, *commands: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """What commands say of a store in a directory that is mounted so, for them alone: `ro` or `rw`."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("cannot run here: mounting a file system needs root on Linux")
    env = desk.environment | {"ONRECORD_STORE": str(place / "here.db"), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tests.security.read_only", how, str(place), json.dumps(commands)]
    done = subprocess.run(words, cwd=desk.project, env=env, capture_output=True, text=True, timeout=120, check=False)
    if "namespace of its own is refused" in done.stderr or "'mount'" in done.stderr:
        pytest.skip(f"cannot run here: no mounts allowed ({done.stderr.strip()[-80:]})")
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture
def kept(desk: Desk, tmp_path: Path) -> Path:
    """A directory with a store in it."""
    place = tmp_path / "kept"
    env = {"ONRECORD_STORE": str(place / "here.db")}
    desk.ok("open", "work", "--no-input", env=env)
    desk.ok("decide", "plain words", env=env)
    return place


def test_a_read_only_mount_is_read_and_never_written(desk: Desk, kept: Path):
    """On a real read-only mount every reading verb works, and a writing verb is one clear error; not so where it is writable."""
    before = {path.name: (path.read_bytes(), mode_of(path)) for path in kept.iterdir()}
    for words, (code, out, err) in zip((*READ, *WRITE), mounted("ro", kept, desk, *READ, *WRITE), strict=True):
        if words in READ:
            assert (code, SAYS.get(words[0], "plain words") in out) == (0, True), (words, out, err)
        else:
            assert (code, err.count("error: "), "Read-only file system" in err) == (1, 1, True), (words, err)
            assert "hint: check the permissions and the mount" in err
    assert {path.name: (path.read_bytes(), mode_of(path)) for path in kept.iterdir()} == before
    assert [code for code, _out, _err in mounted("rw", kept, desk, *WRITE)] == [0] * len(WRITE), "the control"


def test_doctor_tells_the_truth_where_nothing_can_be_written(desk: Desk, kept: Path):
    """On a real read-only mount doctor says that nothing can be written, or made; elsewhere, the control, it does not."""
    none = ("doctor", "--store", str(kept / "deep" / "none.db"))
    (code, said, _), (missing, told, _) = mounted("ro", kept, desk, ("doctor",), none)
    assert (code, missing) == (0, 1), (said, told)
    for words in ("not possible here: read-only", "that cannot be added to the index"):
        assert words in said
    if safety.file_system_of(str(kept)) != "tmpfs":
        assert "can lose nothing: the store can only be read here" in said
    assert f"nothing can be written to {kept}" in told
    (code, said, _), (missing, told, _) = mounted("rw", kept, desk, ("doctor",), none)
    assert (code, missing, "not possible here" in said, "onrecord open my-task" in told) == (0, 0, False, True)


def test_doctor_mends_only_a_store_of_ours(desk: Desk, tmp_path: Path):
    """`doctor --fix` leaves the mode of a text and of another program's database alone; that of a store, the control, it mends."""
    import apsw

    folder = tmp_path / "mine"
    folder.mkdir()
    text, database, store = folder / "notes.txt", folder / "other.db", folder / "here.db"
    text.write_text("my notes\n" * 100)
    connection = apsw.Connection(str(database))
    connection.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    connection.close()
    desk.ok("open", "work", "--no-input", env={"ONRECORD_STORE": str(store)})
    for file in (text, database, store):
        file.chmod(0o664)
        done = desk.run("doctor", "--fix", env={"ONRECORD_STORE": str(file)})
        assert (done.code, mode_of(file)) == ((0, 0o600) if file is store else (1, 0o664)), (file, done)
        assert ("chmod" in done.out, "not changed" in done.out) == (False, file is not store), done


@pytest.mark.parametrize("companion", ["-wal", "-shm", "-journal", ".lock"])
def test_a_pipe_beside_a_store_is_refused_before_one_is_made(tmp_path: Path, companion: str):
    """A named pipe in the place of a store's own file is named; no store appears. Without it, the control, one does."""
    pipe, store = tmp_path / f"here.db{companion}", tmp_path / "here.db"
    os.mkfifo(pipe)
    with pytest.raises(StoreUnsafe, match="is not a regular file"):
        SQLiteStore(str(store))
    assert list(tmp_path.iterdir()) == [pipe]
    pipe.unlink()
    SQLiteStore(str(store)).close()
    assert store.exists()


def test_a_left_over_log_is_never_replayed_onto_a_backup(desk: Desk, tmp_path: Path):
    """Beside a backup that someone opened is its write-ahead log: a new backup in its place must not get those pages."""
    target = tmp_path / "copy.db"
    desk.ok("open", "work", "--no-input")
    desk.ok("backup", str(target))
    desk.ok("open", "elsewhere", "--no-input", "--store", str(target))
    assert (tmp_path / "copy.db-wal").stat().st_size, "the control: the log is there"
    desk.ok("open", "later", "--no-input")
    desk.ok("backup", str(target), "--force")
    listed = desk.ok("list", "--store", str(target))
    assert ("later" in listed, "elsewhere" in listed) == (True, False), listed
    desk.ok("open", "elsewhere", "--no-input", "--store", str(target))
    target.unlink()
    done = desk.run("backup", str(target))
    assert (done.code, target.exists()) == (2, False), done
    assert "is left over from another database" in done.err
