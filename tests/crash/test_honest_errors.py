"""Errors are honest. Whatever fails, the caller gets a typed error, and a retry with the same id leaves one copy (P20)."""

import errno
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from onrecord.errors import OnrecordError, OutcomeUnknown
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore, connection, wal
from tests.crash.disks import ANY, DELETE, KEPT, LOST, READ, SYNC, TRUNCATE, WRITE, Disk, Step, images
from tests.crash.ledger import Ack, acks_in, complaints_about
from tests.crash.nursery import Nursery, Worker
from tests.crash.workers import known_turn

TURNS = 4
Problem = tuple[type[apsw.Error], int, int]
PROBLEMS: dict[str, tuple[tuple[str, ...], Problem]] = {
    "sync EIO": ((SYNC,), (apsw.IOError, apsw.SQLITE_IOERR_FSYNC, errno.EIO)),
    "write EIO": ((WRITE,), (apsw.IOError, apsw.SQLITE_IOERR_WRITE, errno.EIO)),
    "write ENOSPC": ((WRITE,), (apsw.FullError, apsw.SQLITE_FULL, errno.ENOSPC)),
    "sync ENOSPC": ((SYNC,), (apsw.IOError, apsw.SQLITE_IOERR_FSYNC, errno.ENOSPC)),
    "truncate EIO": ((TRUNCATE, DELETE), (apsw.IOError, apsw.SQLITE_IOERR_TRUNCATE, errno.EIO)),
    "read EIO": ((READ,), (apsw.IOError, apsw.SQLITE_IOERR_READ, errno.EIO)),
}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory where the machine has a memory file system: these tests have a disk of their own that fails."""
    with tempfile.TemporaryDirectory(prefix="onrecord-test-") as place:
        yield Path(place)


@pytest.fixture(autouse=True)
def checkpoints_among_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A WAL checkpoint every few turns, so that its writes, syncs and truncations fail too; few writes that only make room."""
    monkeypatch.setattr(wal, "CHECKPOINT_BYTES", 12 * connection.PAGE_SIZE)
    monkeypatch.setattr(wal, "LOOK_EVERY", 1)
    monkeypatch.setattr(wal, "WAL_BYTES", 24 * connection.PAGE_SIZE)
    monkeypatch.setattr(wal, "FIRST_ROOM", 16 * connection.PAGE_SIZE)


class Nth:
    """Makes the Nth step of some kinds fail, and as many after it as `times` says."""

    def __init__(self, kinds: tuple[str, ...], problem: Problem, number: int, times: int) -> None:
        self._kinds = kinds
        self._problem = problem
        self._range = range(number, number + times)
        self.seen = 0
        self.healed = False

    def __call__(self, step: Step) -> BaseException | None:
        if step.what not in self._kinds or self.healed:
            return None
        self.seen += 1
        if self.seen not in self._range:
            return None
        kind, code, _errno = self._problem
        problem = kind(f"the disk fails at {step.what} {self.seen}")
        problem.extendedresult = code  # type: ignore[attr-defined]  # apsw reads it, its stub does not tell
        return problem


def attempt(session: Session, number: int, id_: str) -> tuple[Ack | None, OnrecordError | None]:
    """Try a turn once. Anything but an event or an error of ours is a failure of the test."""
    try:
        event = session.record_turn(known_turn(number), id=id_)
    except OnrecordError as problem:
        return None, problem
    return Ack(event.session, event.position, event.id), None


def copies(session: Session) -> list[str]:
    """Turns that are there more or less often than once, by their content."""
    times = Counter(
        item["content"]
        for event in session.events(kinds=["turn.recorded", "item.added"])
        for item in _items(event.data)
    )
    wanted = [known_turn(number)[0]["content"] for number in range(TURNS)]
    return [f"{text[:20]!r} is there {times[text]} times" for text in wanted if times[text] != 1]


def _items(data: dict[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    return data["items"] if "items" in data else [data["item"]]  # type: ignore[list-item]  # one item is a dict


def live_through(path: str, fault: Nth, *, too_late: bool, errno_: int, new_ids: bool = False) -> Iterator[list[str]]:
    """Record turns on a failing disk, retry the failed ones after it heals and again after a power cut; return what is wrong."""
    acks: list[Ack] = []
    failed: dict[int, OnrecordError] = {}
    with Disk(too_late=too_late, errno_=errno_) as disk:
        store = SQLiteStore(path)
        session = SessionStore(store).open("errors")
        disk.fault = fault
        for number in range(TURNS):
            ack, problem = attempt(session, number, f"turn-{number}")
            acks += [ack] if ack else []
            failed |= {number: problem} if problem else {}
        fault.healed = True
        lies = [
            f"turn {number} is there, and its writer was told: {problem}"
            for number, problem in failed.items()
            if not isinstance(problem, OutcomeUnknown) and store.find(session.id, f"turn-{number}") is not None
        ]
        steps, before = list(disk.steps), list(acks)
        for number in failed:
            ack, problem = attempt(session, number, f"again-{number}" if new_ids else f"turn-{number}")
            assert ack, f"the disk has healed, and still: {problem}"
            acks.append(ack)
        yield lies + complaints_about(store, acks) + copies(session)
        store.close()
    yield from after_power_cut(steps, before, Path(path).parent, new_ids=new_ids)


def after_power_cut(steps: list[Step], acks: list[Ack], place: Path, *, new_ids: bool) -> Iterator[list[str]]:
    """The machine loses power right after the errors; the writer comes back and tries every turn again."""
    for image in images(steps, random.Random(len(steps)), (LOST, KEPT, ANY), first=len(steps) - 1):
        directory = place / "after"
        directory.mkdir(mode=0o700)
        store = SQLiteStore(image.write(directory))
        session = SessionStore(store).open("errors", takeover=True)
        again = []
        for number in range(TURNS):
            ack, problem = attempt(session, number, f"later-{number}" if new_ids else f"turn-{number}")
            assert ack, f"the disk has healed, and still: {problem}"
            again.append(ack)
        yield complaints_about(store, acks + again) + copies(session)
        store.close()
        shutil.rmtree(directory)


def steps_of(path: str, kinds: tuple[str, ...]) -> int:
    """How many steps of some kinds the turns take on a healthy disk."""
    fault = Nth(kinds, (apsw.IOError, 0, 0), number=1 << 30, times=1)
    assert all(found == [] for found in live_through(path, fault, too_late=False, errno_=0))
    return fault.seen


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PROBLEMS)
def test_errors_are_honest(tmp_path: Path, count: Callable[[int, int], int], name: str):
    """Whichever write, sync, truncation or read fails, once or for long: typed errors only, and each turn there once (P20)."""
    kinds, problem = PROBLEMS[name]
    total = steps_of(str(tmp_path / "healthy" / "log.db"), kinds)
    stride = count(max(1, total // 16), 1)
    for number in range(1, total + 1, stride):
        for times in (1, 3, 1 << 30):
            # A sync that fails may have reached the disk all the same; so may a write.
            for too_late in (False, True) if SYNC in kinds or WRITE in kinds else (False,):
                path = tmp_path / f"{number}-{times}-{too_late}" / "log.db"
                fault = Nth(kinds, problem, number, times)
                for found in live_through(str(path), fault, too_late=too_late, errno_=problem[2]):
                    assert found == [], f"{name}: step {number}, {times} times, too late: {too_late}"
                shutil.rmtree(path.parent)


def test_control_a_retry_under_a_new_id_is_caught(tmp_path: Path):
    """Control: a writer that takes an error for "not written" and retries under a new id records turns twice (P20)."""
    kinds, problem = PROBLEMS["sync EIO"]
    found = [
        line
        for number in range(1, 8)
        for lines in live_through(
            str(tmp_path / str(number) / "log.db"),
            Nth(kinds, problem, number, 1 << 30),
            too_late=True,
            errno_=problem[2],
            new_ids=True,
        )
        for line in lines
    ]
    assert any("is there 2 times" in line for line in found)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_store_that_cannot_be_made_says_so_and_can_be_made_later(tmp_path: Path, name: str):
    """Whichever step of creating a store fails, opening it raises a typed error, and works once the disk has healed (P20)."""
    kinds, problem = PROBLEMS[name]
    for number in range(1, 200):
        path = str(tmp_path / str(number) / "log.db")
        fault = Nth(kinds, problem, number, 1 << 30)
        with Disk(fault, errno_=problem[2]):
            try:
                SQLiteStore(path).close()
            except OnrecordError:
                pass
            else:
                # The planned faults ended before the steps of the store did.
                assert fault.seen < number or READ in kinds
            fault.healed = True
            store = SQLiteStore(path)
            session = SessionStore(store).open("later")
            ack, refused = attempt(session, 1, "turn-1")
            assert ack, refused
            assert complaints_about(store, [ack]) == []
            store.close()
        if fault.seen < number:
            break


@pytest.mark.parametrize("what", ["read", "find", "heads", "search", "leases", "weigh", "snapshot", "backup"])
def test_reading_from_a_failing_disk_raises_typed_errors(tmp_path: Path, what: str):
    """While reads fail, every query of a store is answered or raises a typed error; afterwards it is answered (P20)."""
    path = str(tmp_path / "store" / "log.db")
    kinds, problem = PROBLEMS["read EIO"]
    with Disk(errno_=problem[2]) as disk:
        store = SQLiteStore(path)
        session = SessionStore(store).open("reading")
        for number in range(TURNS):
            attempt(session, number, f"turn-{number}")
        questions: dict[str, Callable[[], object]] = {
            "read": lambda: store.read(session.id),
            "find": lambda: store.find(session.id, "turn-1"),
            "heads": store.heads,
            "search": lambda: store.search("known"),
            "leases": lambda: store.leases(session.id),
            "weigh": lambda: store.weigh(session.id),
            "snapshot": lambda: store.snapshot(session.id, "whole"),
            "backup": lambda: store.backup(str(tmp_path / f"copy-{len(list(tmp_path.iterdir()))}.db")),
        }
        refused = 0
        for number in range(1, 40):
            store.close()  # so that no answer comes from memory
            disk.fault = fault = Nth(kinds, problem, number, 1 << 30)
            try:
                questions[what]()
            except OnrecordError:
                refused += 1
            fault.healed = True
            questions[what]()
        assert refused
        store.close()


def inject(worker: Worker, call: str, error: str, number: int) -> subprocess.Popen[str]:
    """Make the operating system refuse the Nth system call of a worker."""
    command = [
        "strace",
        "-f",
        "-p",
        str(worker.pid),
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:error={error}:when={number}",
    ]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.kill()
        tracer.wait()
        worker.kill()
        pytest.skip(f"cannot run here: strace may not attach to a process ({said.strip()})")
    return tracer


@pytest.mark.timeout(600)
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_errors_of_the_system_are_honest(nursery: Nursery, tmp_path: Path, count: Callable[[int, int], int], call: str):
    """The Nth system call fails for real, the process is killed, and a retry under the same ids leaves one copy each (P20)."""
    if shutil.which("strace") is None:
        pytest.skip("cannot run here: strace is not installed")
    refused = 0
    for number in range(1, 24, count(4, 1)):
        for error in ("EIO", "ENOSPC", "EINTR"):
            path = str(tmp_path / f"{number}-{error}" / "log.db")
            worker = nursery.start("try_turns", path=path, session="errors", turns=TURNS)
            assert worker.line() == "ready"
            tracer = inject(worker, call, error, number)
            worker.order()
            lines: list[str] = []
            while not lines or lines[-1] != "done":
                lines.append(worker.line())
            worker.kill()
            tracer.communicate(timeout=60)
            refused += sum(line.startswith("refused") for line in lines)
            store = SQLiteStore(path)
            session = SessionStore(store).open("errors")
            again = [attempt(session, turn, f"turn-{turn}")[0] for turn in range(TURNS)]
            acks = acks_in(lines) + [ack for ack in again if ack]
            assert len(acks) >= TURNS
            assert complaints_about(store, acks) + copies(session) == []
            store.close()
    assert refused, "no injected error was noticed: nothing was tested"
