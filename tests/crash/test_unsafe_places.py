"""Directories that cannot keep the promises are refused: foreign owners, wide permissions, network file systems."""

import grp
import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onrecord.errors import OnrecordError, StoreError, StoreUnsafe
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore, safety
from tests.crash.nursery import Nursery
from tests.crash.workers import NOBODY

NETWORKS = ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre", "fuse.rclone"]
LOCALS = ["ext4", "btrfs", "xfs", "tmpfs", "overlay", "zfs", "apfs", "fuse.encfs", ""]


@pytest.fixture
def made(path: str) -> str:
    """A store with something in it."""
    store = SQLiteStore(path)
    SessionStore(store).open("here").record_turn([{"role": "user", "content": "something"}])
    store.close()
    return path


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_file_system_is_refused(path: str, monkeypatch: pytest.MonkeyPatch, kind: str):
    """A store on a network file system is refused, the hint names PostgreSQL, and no file is created."""
    monkeypatch.setattr(safety, "file_system_of", lambda _directory: kind)
    with pytest.raises(StoreUnsafe) as refused:
        SQLiteStore(path)
    assert "PostgreSQL" in refused.value.hint
    assert not Path(path).exists()


@pytest.mark.parametrize("kind", LOCALS)
def test_a_local_file_system_is_accepted(path: str, monkeypatch: pytest.MonkeyPatch, kind: str):
    """Control: a store on a local file system is accepted, also when the system does not report its type."""
    monkeypatch.setattr(safety, "file_system_of", lambda _directory: kind)
    SQLiteStore(path).close()


def test_the_mount_table_is_read_as_the_system_writes_it():
    """The longest mount point wins, and of two on the same point the later; escaped spaces are decoded."""
    table = (
        b"21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        b"30 21 0:40 / /home rw - nfs4 server:/home rw\n"
        b"31 30 8:2 / /home/me/My\\040Disk rw - xfs /dev/sdb1 rw\n"
        b"32 21 0:41 / /mnt rw - ext4 /dev/sdc1 rw\n"
        b"33 32 0:42 / /mnt rw - cifs //server/share rw\n"
    )
    wanted = {
        b"/var/lib": "ext4", b"/home": "nfs4", b"/home/me": "nfs4", b"/homestead": "ext4",
        b"/home/me/My Disk/onrecord": "xfs", b"/mnt/x": "cifs",
    }  # fmt: skip
    assert {place: safety.kind_in_mounts(table, place) for place in wanted} == wanted


@pytest.mark.parametrize("companion", ["", "-wal", ".lock"])
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(made: str, companion: str, mode: int):
    """A file of the store that other users can write is refused, and the hint says what to do."""
    Path(made + companion).chmod(mode)
    with pytest.raises(StoreUnsafe) as refused:
        SQLiteStore(made)
    assert "chmod 600" in refused.value.hint


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_may_read_is_closed_to_them(made: str, mode: int):
    """A file that others may only read is made private, and the store opens."""
    Path(made).chmod(mode)
    SQLiteStore(made).close()
    assert Path(made).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_files_are_private_whatever_the_umask_says(path: str, mask: int):
    """Every file of a store is readable and writable by its owner alone, under any umask."""
    before = os.umask(mask)
    try:
        store = SQLiteStore(path)
        SessionStore(store).open("private").record_turn([{"role": "user", "content": "something"}])
        modes = {file.name: file.stat().st_mode & 0o777 for file in Path(path).parent.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert set(modes) == {"log.db", "log.db-wal", "log.db-shm", "log.db.lock"}
    assert set(modes.values()) == {0o600}
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_others_may_write_is_refused(made: str):
    """A directory that other users can write is refused, because they could replace the store; one like /tmp is accepted."""
    directory = Path(made).parent
    directory.chmod(0o777)
    with pytest.raises(StoreUnsafe):
        SQLiteStore(made)
    directory.chmod(0o1777)
    SQLiteStore(made).close()


def test_a_directory_of_ones_own_group_is_safe(made: str, monkeypatch: pytest.MonkeyPatch):
    """With umask 002 every folder is writable by its user's own group, which has no other member: it is accepted."""
    directory = Path(made).parent
    directory.chmod(0o770)
    me = pwd.getpwuid(os.geteuid())

    def open_with(group: str, members: list[str], first: int) -> None:
        user = pwd.struct_passwd((me.pw_name, "x", me.pw_uid, first, "", "/", "/bin/sh"))
        found = grp.struct_group((group, "x", directory.stat().st_gid, members))
        monkeypatch.setattr(pwd, "getpwuid", lambda _uid: user)
        monkeypatch.setattr(grp, "getgrgid", lambda _gid: found)
        SQLiteStore(made).close()

    own = directory.stat().st_gid
    open_with(me.pw_name, [], own)
    open_with(me.pw_name, [me.pw_name], own)
    for group, members, first in [("staff", [], own), (me.pw_name, ["eve"], own), (me.pw_name, [], own + 1)]:
        with pytest.raises(StoreUnsafe, match="other users may write"):
            open_with(group, members, first)
    directory.chmod(0o772)
    with pytest.raises(StoreUnsafe, match="other users may write"):
        open_with(me.pw_name, [], own)


LINKS: dict[str, Callable[[str, Path], None]] = {
    "the lock is a link": lambda path, other: Path(path + ".lock").symlink_to(other),
    "the log is a link": lambda path, other: Path(path + "-wal").symlink_to(other),
    "the database is a directory": lambda path, other: Path(path).mkdir(),
    "the database is a pipe": lambda path, other: os.mkfifo(path),
}


@pytest.mark.parametrize("what", LINKS)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, what: str):
    """A link, or anything that is not a file, is refused under the name of a store's file; the target is unchanged."""
    directory = tmp_path / "store"
    directory.mkdir(mode=0o700)
    other = tmp_path / "precious"
    other.write_bytes(b"precious")
    path = str(directory / "log.db")
    LINKS[what](path, other)
    with pytest.raises(OnrecordError):
        SQLiteStore(path)
    assert other.read_bytes() == b"precious"


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path):
    """Another program's database, or a text, is refused with a typed error, and not a byte of it changes."""
    directory = tmp_path / "store"
    directory.mkdir(mode=0o700)
    for content in (b"just some text, longer than the header of a database " * 50, b"SQLite format 3\0" + bytes(4_080)):
        file = directory / "log.db"
        file.write_bytes(content)
        file.chmod(0o600)
        with pytest.raises(StoreError):
            SQLiteStore(str(file))
        assert file.read_bytes() == content


def as_nobody(nursery: Nursery, job: str, **arguments: str) -> list[str]:
    if os.geteuid() != 0:
        pytest.skip("cannot run here: becoming another user needs root")
    return nursery.start(job, **arguments).wait()


@pytest.fixture
def public_place() -> Iterator[Path]:
    """A directory that every user can enter, unlike those that pytest creates."""
    place = Path(tempfile.mkdtemp(prefix="onrecord-public-"))
    place.chmod(0o711)
    yield place
    for folder, _folders, _files in os.walk(place):
        Path(folder).chmod(0o700)
    shutil.rmtree(place)


def store_in(place: Path, owner: int) -> str:
    """A store with content, owned by a user."""
    path = place / "store" / "log.db"
    store = SQLiteStore(str(path))
    SessionStore(store).open("here").record_turn([{"role": "user", "content": "something"}])
    store.close()
    for file in (path.parent, *path.parent.iterdir()):
        os.chown(file, owner, owner)
    return str(path)


def test_a_store_of_another_user_is_refused(nursery: Nursery, public_place: Path):
    """A store that belongs to another user is refused as unsafe, even where its permissions would let it be opened."""
    path = store_in(public_place, os.geteuid())
    Path(path).parent.chmod(0o755)
    Path(path).chmod(0o644)
    assert as_nobody(nursery, "open_as_nobody", path=path) == ["refused store_unsafe"]


def test_a_place_that_can_only_be_read_is_read(nursery: Nursery, public_place: Path):
    """A user who can read and not write opens the store for reading, and a write raises a typed error."""
    path = store_in(public_place, NOBODY if os.geteuid() == 0 else os.geteuid())
    for file in Path(path).parent.iterdir():
        file.chmod(0o400)
    Path(path).parent.chmod(0o500)
    assert as_nobody(nursery, "open_as_nobody", path=path) == ["reads 1", "refused store_read_only"]


def test_control_the_same_user_may_write_where_it_may(nursery: Nursery, public_place: Path):
    """Control: the same user reads and writes in a directory of its own."""
    path = store_in(public_place, NOBODY if os.geteuid() == 0 else os.geteuid())
    assert as_nobody(nursery, "open_as_nobody", path=path) == ["reads 1", "writes"]
