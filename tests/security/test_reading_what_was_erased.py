"""Someone has copies of a store and wants to read a session that was erased, or pretends that it was erased."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import zstandard

from onrecord.errors import InvalidInput, SessionErased, SessionHeld, SessionLocked, StoreLocked
from onrecord.log.codec import encode_payload
from onrecord.machine.session_keys import SessionKeys
from onrecord.session import bundle, erasure, kept_views
from onrecord.session.handle import Session
from onrecord.session.retention import erase_again
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.stores.postgres import PostgresStore, people
from onrecord.stores.postgres.address import address_of
from onrecord.stores.sqlite import SQLiteStore
from onrecord.stores.sqlite.glance import look
from tests.postgres.servers import APP, OWNER, Stores

PLANTED = "velvetquokka"
STORE_KEY = bytes(range(32))
SHORT = {"role": "user", "content": f"a {PLANTED} in one line"}
MIDDLE = {"role": "assistant", "content": f"{PLANTED} " * 300}
LARGE = {"role": "assistant", "content": "".join(f"{PLANTED}{number} " for number in range(8_000))}


def keys_at(place: Path, key: bytes = STORE_KEY) -> SessionKeys:
    return SessionKeys(str(place), lambda: key)


def opened(path: Path, keys: Path | None = None, key: bytes = STORE_KEY) -> SessionStore:
    """A store whose keys are in a directory; without one, they are beside the file."""
    store = SQLiteStore(str(path), session_keys=lambda beside: keys_at(keys or Path(beside), key))
    return SessionStore(store, project="/p")


def file_of(records: SessionStore) -> SQLiteStore:
    """The store below."""
    assert isinstance(records.store, SQLiteStore)
    return records.store


def key_state(session: Session) -> str:
    """Whether the session's own key is present, destroyed or missing; empty: it has none."""
    _key, state = session.log.key() or ("", "")
    return state


def worked(records: SessionStore, name: str = "leak") -> Session:
    """A session with the planted word in its title, in payloads of every form, in a fact, a snapshot and a listing."""
    session = records.create(name, objective=f"find the {PLANTED}")
    session.record_turn([SHORT, MIDDLE])
    session.record_turn([LARGE])
    session.decide(f"we keep the {PLANTED}")
    session.refresh()
    records.entries(records.sessions(project=""))
    return session


@pytest.fixture(autouse=True)
def _snapshots_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept_views, "SNAPSHOT_EVERY", 2)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[SessionStore]:
    with opened(tmp_path / "live" / "store.db") as found:
        assert file_of(found).use_session_keys()
        yield found


def readable(content: bytes) -> bool:
    """Whether the planted word can be found in some bytes, as they are or compressed."""
    wanted = PLANTED.encode()
    if wanted in content:
        return True
    for start in range(len(content)):
        if content[start : start + 4] == zstandard.FRAME_HEADER and wanted in _unpacked(content[start:]):
            return True
    return False


def _unpacked(frame: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(frame)
    except zstandard.ZstdError:
        return b""


def found_in(directory: Path) -> set[str]:
    """The files in which the planted word can be found."""
    return {path.name for path in directory.rglob("*") if path.is_file() and readable(path.read_bytes())}


def values_of(path: Path) -> dict[str, list[Any]]:
    """Every value of every table, as a thief who opens the file sees it."""
    names = ("sessions", "events", "blobs", "snapshots", "meta")
    connection = apsw.Connection(str(path))
    found = {name: list(connection.execute(f"SELECT * FROM {name}")) for name in names}
    connection.close()
    return found


def is_readable(value: Any) -> bool:
    return readable(value.encode() if isinstance(value, str) else value) if isinstance(value, str | bytes) else False


def test_no_copy_of_the_store_has_the_content(records, tmp_path):
    """Not the file, the write-ahead log, the index of words, a snapshot or a backup; a plain store has it in each."""
    with opened(tmp_path / "plain" / "store.db") as plain:
        for kept, place in ((plain, tmp_path / "plain"), (records, tmp_path / "live")):
            worked(kept)
            assert len(kept.search(PLANTED, project="")) >= 4
            file_of(kept).backup(str(place / "backup.db"))
            Path(place / "copy").mkdir()
            for file in place.glob("store.db-wal"):
                shutil.copy(file, place / "copy" / "log")
        assert found_in(tmp_path / "plain") >= {"backup.db", "log"}, "the control"
        tables = values_of(tmp_path / "plain" / "backup.db")
        for table in ("sessions", "events", "blobs", "snapshots"):
            assert any(is_readable(value) for row in tables[table] for value in row), f"the control: {table}"
    assert found_in(tmp_path / "live") == set()
    for table, rows in values_of(tmp_path / "live" / "backup.db").items():
        assert not any(is_readable(value) for row in rows for value in row), table
    assert values_of(tmp_path / "live" / "backup.db")["snapshots"], "the control: there are snapshots"


def test_a_short_payload_cannot_be_guessed_from_its_hash(records, tmp_path):
    """Who guesses the payload right cannot confirm it: the salt is hidden with it. On a plain store it is confirmed."""

    def confirmed(path: Path) -> bool:
        guess = encode_payload(said.data)
        with apsw.Connection(str(path)) as connection:
            rows = list(connection.execute("SELECT salt, payload_hash FROM events WHERE kind = 'decision.made'"))
        parts = [salt[start : start + 16] for salt, _hash in rows for start in range(len(salt) - 15)]
        tried = {sha256(b"onrecord/payload/1\0" + part + guess).digest() for part in parts}
        return bool(tried & {digest for _salt, digest in rows})

    with opened(tmp_path / "plain" / "store.db") as plain:
        for kept, place in ((plain, tmp_path / "plain"), (records, tmp_path / "live")):
            said = kept.create("vote").decide("yes")
            file_of(kept).backup(str(place / "backup.db"))
    assert confirmed(tmp_path / "plain" / "backup.db"), "the control"
    assert not confirmed(tmp_path / "live" / "backup.db")


def test_destroying_the_key_erases_a_backup_that_was_made_before(records, tmp_path):
    """With the keys the backup reads as the store does; once the session is erased, it reads as erased."""
    session, backup, keys = worked(records), tmp_path / "backup.db", tmp_path / "live" / "store.db.keys"
    records.store.backup(str(backup))
    with opened(backup, keys) as before:
        assert len(before.search(PLANTED, project="")) >= 4
        assert before.find("leak").title == f"find the {PLANTED}", "the control: the keys open it"
    head = session.log.head()
    session.log.erase("asked by its author")
    assert session.verify().ok
    with opened(backup, keys) as after:
        old = Session(after.store, session.id)
        assert (old.log.head().hash, old.log.head().title) == (head.hash, "")
        assert [event.data for event in old.events()] == [None] * head.position
        assert old.verify()._replace(hash=b"") == (session.id, head.position, head.position, b"", head.position, [], 0)
        assert after.search(PLANTED, project="") == []
        with pytest.raises(SessionLocked, match="was destroyed on"):
            old.decide("go on")
        with pytest.raises(SessionLocked, match="nothing of its content is left to copy"):
            list(bundle.lines_of(old))
        assert erase_again(after.store, lambda id_: Session(after.store, id_)) == ["leak"]
        assert (after.store.head(session.id).status, old.verify().ok) == ("erased", True)


def test_without_the_keys_a_copy_shows_its_headers_only(records, tmp_path):
    """Lists and verification work and say what they could not read; who asks for content gets one clear error."""
    session = worked(records)
    records.store.backup(str(tmp_path / "copy" / "copy.db"))
    with opened(tmp_path / "copy" / "copy.db") as copy:
        (entry,) = copy.entries(copy.sessions(project=""))
        assert (entry.head.name, entry.head.title, entry.listing["prompt"]) == ("leak", "", "")
        report = Session(copy.store, session.id).verify()
        assert (report.ok, report.unread, report.erased) == (True, report.events, 0)
        assert copy.search(PLANTED, project="") == []
        with pytest.raises(SessionLocked, match=f"{session.id} is not in .*copy.db.keys") as caught:
            Session(copy.store, session.id).note()
        assert "[session_keys]" in caught.value.hint
        assert look(str(tmp_path / "copy" / "copy.db"), ("/p",), "leak") is None, (
            "a hook opens the store, which says so"
        )


def test_a_wrong_store_key_is_one_clear_error(records, tmp_path):
    """Nothing is written: neither to the store nor among the keys."""
    session = worked(records)
    keys = tmp_path / "live" / "store.db.keys"
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    with opened(tmp_path / "live" / "store.db", key=bytes(32)) as other:
        for use in (
            lambda: Session(other.store, session.id).note(),
            lambda: Session(other.store, session.id).decide("x"),
        ):
            with pytest.raises(StoreLocked, match="the store key does not open the key of session"):
                use()
    assert {path.name: path.read_bytes() for path in keys.iterdir()} == before
    assert session.refresh().log.head() == session.log.head()


def test_a_kill_leaves_a_whole_key_or_none(tmp_path):
    """At whichever step the destruction is killed, the state says which, and the next try ends it without a trace."""
    states = set()
    for step in range(40):
        keys, session = keys_at(tmp_path / str(step)), "01J9Z0000000000000000000AA"
        made = keys.make(session)
        wrapped = (Path(keys.directory) / f"{session}.key").read_bytes()
        killed = _killed_at(step, partial(keys.destroy, session))
        state = keys.state(session)
        states.add(state)
        if state == "present":
            assert keys.read(session) == made
        else:
            with pytest.raises(SessionLocked):
                keys.read(session)
        assert keys.destroy(session) > 0
        assert (keys.state(session), keys.ids()) == ("destroyed", {})
        secret = wrapped.partition(b'"wrapped": "')[2][:64]
        assert len(secret) == 64, "the control"
        assert not any(secret in path.read_bytes() for path in Path(keys.directory).iterdir())
        if not killed:
            break
    assert not killed, "the control: every step was tried"
    assert states == {"present", "destroying", "destroyed"}


def _killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do some work in a child that dies before its call number `step` to the file system; whether it died."""
    child = os.fork()
    if child == 0:
        left = [step]

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any, **options: Any) -> Any:
                if left[0] == 0:
                    os._exit(9)
                left[0] -= 1
                return call(*arguments, **options)

            return run

        for name in ("replace", "unlink", "fsync", "write", "open"):
            setattr(os, name, counted(getattr(os, name)))
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize("when", ["before the key", "after the key"])
def test_an_interrupted_erasure_is_ended_by_the_next_one(records, monkeypatch, when):
    """Erased here, but the key is whole, or nothing says that it is destroyed: no statement is made before that."""
    session, store = worked(records), records.store
    real = store.destroy_key

    def interrupted(id_: str) -> int:
        if when == "after the key":
            real(id_)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "destroy_key", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.log.erase("asked")
    monkeypatch.undo()
    assert session.log.head().status == "erased"
    with pytest.raises(SessionLocked, match=r"cannot be certified|does not say so yet"):
        session.log.certificate()
    session.log.erase("asked")
    assert all(finding.ok for finding in erasure.check(store, session.log.certificate()))
    with pytest.raises(SessionErased):
        session.log.erase("once more")


def test_a_hold_keeps_the_key(records):
    """Nothing is destroyed under a hold, nor while a fork needs the history."""
    session = worked(records)
    session.log.hold("incident 7")
    with pytest.raises(SessionHeld):
        session.log.erase("asked")
    assert key_state(session) == "present"
    session.log.release("understood")
    fork = session.fork("child", at=3)
    with pytest.raises(InvalidInput, match="shares the history"):
        session.log.erase("asked")
    assert key_state(session) == key_state(fork) == "present"
    assert fork.verify().ok
    fork.log.erase("asked")
    session.log.erase("asked")
    assert (key_state(session), key_state(fork)) == ("destroyed", "destroyed")


def test_a_false_statement_does_not_hold(records, tmp_path):
    """A key that was put back, a copy that was never encrypted, another log, another key: each is found."""
    session, keys = worked(records), tmp_path / "live" / "store.db.keys"
    lines = list(bundle.lines_of(session))
    shutil.copytree(keys, tmp_path / "copied")
    session.log.erase("asked")
    said = session.log.certificate()
    assert [finding.ok for finding in erasure.check(records.store, said)] == [True] * 5, "the control"

    def wrong(store: Any, said: dict[str, Any]) -> list[str]:
        return [finding.claim for finding in erasure.check(store, said) if not finding.ok]

    other = said | {"first": said["first"] | {"hash": "00" * 32}, "key": said["key"] | {"id": "00" * 8}}
    assert wrong(records.store, other) == ["the log", "the key"]
    assert wrong(records.store, said | {"last": said["last"] | {"hash": "00" * 32}}) == ["the erasure"]
    for false in (
        {"payloads": 0},
        {"reason": "a mistake"},
        {"by": "someone else"},
        {"at": "2020-01-01T00:00:00+00:00"},
        {"position": 1},
    ):
        assert wrong(records.store, said | {"erasure": said["erasure"] | false}) == ["the erasure"], false
    assert wrong(records.store, said | {"last": said["last"] | {"position": 999}}) == ["the erasure"], (
        "not an older copy"
    )
    assert wrong(records.store, said | {"key": said["key"] | {"destroyed_at": ""}}) == ["the erasure"]
    for odd in ({"session": "\x1b[31m"}, {"last": said["last"] | {"position": -1}}, {"erasure": None}, {"name": ["x"]}):
        with pytest.raises(InvalidInput, match="not a statement"):
            erasure.check(records.store, said | odd)
    with SessionStore(MemoryStore(), project="/p") as plain:
        bundle.take_in(plain, iter(lines))
        assert wrong(plain.store, said) == ["the key", "the content"]
    for file in (tmp_path / "copied").iterdir():
        shutil.copy(file, keys)
    assert wrong(records.store, said) == ["the key"]
    with pytest.raises(InvalidInput, match="not a statement"):
        erasure.check(records.store, {"format": "other"})


def test_what_is_copied_into_such_a_store_is_encrypted_there(records, tmp_path):
    """By a bundle and by a copy; the log stays the same, and its erasure elsewhere destroys the key here."""
    with opened(tmp_path / "plain" / "store.db") as plain:
        session = worked(plain)
        bundle.take_in(records, bundle.lines_of(session))
        assert Session(records.store, session.id).verify().hash == session.log.head().hash
        assert found_in(tmp_path / "live") == set()
        session.log.erase("asked")
        plain.copy("leak", records)
    assert Session(records.store, session.id).verify().ok
    assert key_state(Session(records.store, session.id)) == "destroyed"


def test_an_id_from_elsewhere_is_not_a_path(tmp_path):
    """The file of a key is named after its session, whose id may come from a bundle."""
    keys = keys_at(tmp_path / "keys")
    for id_ in ("../../etc/passwd", "a/b", "", "01J9Z0000000000000000000AA\n"):
        for use in (keys.state, keys.make, keys.destroy):
            with pytest.raises(InvalidInput):
                use(id_)


def test_a_directory_of_keys_that_others_may_use_is_refused(tmp_path):
    """The keys are for their owner alone, and so are their files."""
    place = tmp_path / "keys"
    keys = keys_at(place)
    keys.make("01J9Z0000000000000000000AA")
    assert [path.stat().st_mode & 0o777 for path in (place, *place.iterdir())] == [0o700, 0o600]
    place.chmod(0o755)
    with pytest.raises(SessionLocked, match="other users may use"):
        keys.make("01J9Z0000000000000000000AB")


@pytest.mark.parametrize("elsewhere", [False, True], ids=["by the same process", "by another one"])
def test_an_agent_ends_quietly_after_an_erasure(records, tmp_path, elsewhere):
    """Its goodbye is no error, and its lane is free; more work is refused as on any erased session."""
    agent = records.create("leak", agent="amy").acquire()
    agent.record_turn([SHORT])
    with opened(tmp_path / "live" / "store.db") as other:
        Session((other if elsewhere else records).store, agent.id).log.erase("asked")
    with pytest.raises(SessionErased, match="'leak' was erased"):
        agent.decide("go on")
    assert [lease.lane for lease in agent.log.leases()] == ["amy"], "the control"
    agent.leave()
    assert (agent.lease, agent.log.leases()) == (None, [])
    report = agent.verify()
    assert (report.ok, report.unread) == (True, 0)
    assert all(finding.ok for finding in erasure.check(records.store, agent.log.certificate()))


def test_postgresql_keeps_the_content_nowhere(postgres: Stores, tmp_path):
    """Not in rows, in what `pg_dump` writes, in data files or in its write-ahead log; a plain tenant has it in each."""
    dumps, raw = {}, {}
    for keyed in (False, True):
        url = postgres.empty_store()
        if keyed:
            people.use_session_keys(address_of(url.replace(f"//{APP}@", f"//{OWNER}@")))
        store = PostgresStore(url, session_keys=lambda: keys_at(tmp_path / "keys"))
        with SessionStore(store, project="/p") as records:
            word = f"{PLANTED}{'keyed' if keyed else 'plain'}"
            session = worked(records)
            session.decide(f"and a {word} of its own")
            assert len(records.search(PLANTED, project="")) >= 4
            dumps[keyed] = _dumped(postgres, url)
            raw[keyed] = _found_by_an_administrator(postgres, word)
            if keyed:
                agent = Session(store, session.id, agent="amy").acquire()
                session.log.erase("asked")
                agent.leave()
                assert "amy" not in [lease.lane for lease in agent.log.leases()]
                assert all(finding.ok for finding in erasure.check(store, session.log.certificate()))
                assert session.verify().ok
                with pytest.raises(SessionLocked):
                    store.session_keys.read(session.id)
    for table in ("sessions", "events", "blobs", "snapshots", "words"):
        assert any(is_readable(value) for row in dumps[False][table] for value in row), f"the control: {table}"
    for table, rows in dumps[True].items():
        assert not any(is_readable(value) for row in rows for value in row), table
    assert raw == {False: {"pg_dump", "data files", "write-ahead log"}, True: set()}, "the plain one is the control"


def _found_by_an_administrator(postgres: Stores, word: str) -> set[str]:
    """Where the administrator of the server can find a word: in a dump, in the files of tables, in the log of writes."""
    server = postgres.server
    server.execute("CHECKPOINT")
    dump = server.site.run("pg_dump", "--dbname", server.url(postgres.shared()))
    files = {"data files": server.data / "base", "write-ahead log": server.data / "pg_wal"}
    found = {
        name
        for name, place in files.items()
        if any(word.encode() in path.read_bytes() for path in place.rglob("*") if path.is_file())
    }
    return found | ({"pg_dump"} if word in dump or word.encode().hex() in dump else set())


def _dumped(postgres: Stores, url: str) -> dict[str, list[Any]]:
    tenant = address_of(url).tenant
    with psycopg.connect(postgres.server.url(postgres.shared())) as connection:
        return {
            name: connection.execute(
                f"SELECT t.* FROM onrecord.{name} AS t WHERE tenant = %s".encode(), [tenant]
            ).fetchall()
            for name in ("sessions", "names", "events", "blobs", "snapshots", "words", "leases")
        }
