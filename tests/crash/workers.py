"""What the worker processes of the crash tests do. Each function is a whole program: it opens the store afresh and speaks by pipe.
A `path` is a file, or the URL of any store.

A worker acknowledges with the line `ack SESSION POSITION ID`, written after the append returned. Programs that are wrong on
purpose, for the negative controls, say so in their first line.
"""

import ctypes
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event as Told
from threading import Thread
from typing import Any

import apsw

from onrecord.connection import open_store
from onrecord.errors import LeaseLost, OnrecordError, StoreError, StoreFull
from onrecord.log.events import Event
from onrecord.log.store import Receipt
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores import statements
from onrecord.stores.sqlite import SQLiteStore, connection, wal
from onrecord.stores.sqlite.restore import restore
from onrecord.stores.sqlite.write_lock import WriteLock
from tests.crash.dying import dying_at
from tests.crash.ledger import Ack, complaints_about
from tests.crash.nursery import Pipes
from tests.crash.script import Forgetful, Player

CLONE_NEWNS = 0x00020000
NOBODY = 65534
LARGE = "large, and kept out of line " * 1_500


def acknowledge(pipes: Pipes, *events: Event) -> None:
    for event in events:
        pipes.say("ack", event.session, event.position, event.id)


def items_of(number: int) -> list[dict[str, Any]]:
    """A turn; some have a payload that is stored compressed, or out of line."""
    content = LARGE + str(number) if number % 11 == 10 else f"message {number} " * (1 + number % 40)
    return [{"role": "user", "content": content}, {"role": "assistant", "content": "Looking."}]


def stream_turn(pipes: Pipes, session: Session, number: int) -> None:
    """One turn in the streamed form, every step acknowledged; every seventh is aborted."""
    turn = session.turn(id=f"{session.agent}/{os.getpid()}/{number}")
    pipes.say("ack", session.id, turn.position, f"{session.agent}/{os.getpid()}/{number}")
    for item in items_of(number):
        acknowledge(pipes, turn.add(item, format="neutral"))
    acknowledge(pipes, turn.abort("changed my mind") if number % 7 == 6 else turn.commit())


def record_turn(pipes: Pipes, session: Session, number: int) -> None:
    """One turn in the recorded form."""
    acknowledge(pipes, session.record_turn(items_of(number), id=f"{session.agent}/{os.getpid()}/{number}"))


def write_turns(pipes: Pipes, path: str, session: str, agent: str, form: str) -> None:
    """Open the session and add turns for ever, streamed or recorded."""
    handle = SessionStore(open_store(path)).open(session, agent=agent)
    add = stream_turn if form == "streamed" else record_turn
    pipes.say("ready")
    for number in count():
        add(pipes, handle, number)


def write_turns_hastily(pipes: Pipes, path: str, session: str, agent: str, form: str) -> None:
    """Wrong on purpose: acknowledges each turn before it is committed."""
    handle = SessionStore(open_store(path)).open(session, agent=agent)
    pipes.say("ready")
    for number in count():
        id_ = f"{agent}/{os.getpid()}/{number}"
        pipes.say("ack", handle.id, 0, id_)
        handle.record_turn(items_of(number), id=id_)


def write_and_checkpoint(pipes: Pipes, path: str, session: str, agent: str, form: str) -> None:
    """Add turns for ever; the store runs a WAL checkpoint after each of them, and every other one cuts the write-ahead log back."""
    checkpoint_always()
    write_turns(pipes, path, session, agent, form)


def checkpoint_always() -> None:
    """From now on a WAL checkpoint follows every write of this process, and some of them cut the write-ahead log back."""
    wal.CHECKPOINT_BYTES = wal.LOOK_EVERY = 1
    wal.WAL_BYTES = 20 * connection.PAGE_SIZE  # type: ignore[attr-defined]  # where the writer looks it up


def cut_the_log_rudely(pipes: Pipes, path: str, session: str, agent: str, form: str) -> None:
    """Wrong on purpose: cuts the write-ahead log back without a lock and without checking whether it was copied."""
    pipes.say("ready")
    while True:
        os.truncate(f"{path}-wal", 0)
        pipes.order()


def try_turns(pipes: Pipes, path: str, session: str, turns: int) -> None:
    """Wait for an order, then record turns with known ids; report each as acknowledged or refused, and wait to be killed."""
    handle = SessionStore(open_store(path)).open(session, takeover=True)
    handle.record_turn([{"role": "user", "content": "before"}])
    pipes.say("ready")
    pipes.order()
    for number in range(turns):
        try:
            acknowledge(pipes, handle.record_turn(known_turn(number), id=f"turn-{number}"))
        except OnrecordError as problem:
            pipes.say("refused", problem.code, f"turn-{number}")
    pipes.say("done")
    pipes.order()


def known_turn(number: int) -> list[dict[str, Any]]:
    """The turn that belongs to a number: every try of it has the same content."""
    text = f"known turn {number} " * 30 if number % 2 else LARGE + str(number)
    return [{"role": "user", "content": text}]


def fill_a_small_disk(pipes: Pipes, directory: str, size: str) -> None:
    """Mount a small file system that only this process sees, fill it with turns, make room, and continue in the same process."""
    see_mounts_alone()
    mount("-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", directory)
    store = SQLiteStore(f"{directory}/log.db")
    ballast = Path(directory, "ballast")
    ballast.write_bytes(bytes(1 << 20))
    session = SessionStore(store).open("small")
    acks = []
    try:
        for number in count():
            event = session.record_turn(noise(number), id=f"turn-{number}")
            acks.append(Ack(event.session, event.position, event.id))
    except StoreFull:
        pipes.say("full", len(acks))
    pipes.say("complaints while full", complaints_about(store, acks))
    ballast.unlink()
    event = session.record_turn(noise(len(acks)), id=f"turn-{len(acks)}")
    acks.append(Ack(event.session, event.position, event.id))
    pipes.say("complaints with room again", complaints_about(store, acks))


def live_on_a_read_only_mount(pipes: Pipes, directory: str) -> None:
    """Write on a mount that only this process sees, make it read-only, read and try to write, make it writable, and continue."""
    see_mounts_alone()
    mount("-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", directory)
    path = f"{directory}/log.db"
    store = SQLiteStore(path)
    with SessionStore(store).open("mounted") as session:
        first = session.record_turn(noise(0))
    store.close()
    mount("-o", "remount,ro", directory)
    store = SQLiteStore(path)
    pipes.say("reads", complaints_about(store, [Ack(first.session, first.position, first.id)]))
    try:
        SessionStore(store).open("mounted")
    except OnrecordError as problem:
        pipes.say("refused", problem.code)
    mount("-o", "remount,rw", directory)
    again = SessionStore(store).open("mounted").record_turn(noise(1))
    pipes.say("goes on", complaints_about(store, [Ack(e.session, e.position, e.id) for e in (first, again)]))


def see_mounts_alone() -> None:
    """From now on this process's mounts are invisible to others."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNS):
        raise PermissionError(ctypes.get_errno(), "a mount namespace of its own is refused")
    mount("--make-rprivate", "/")


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def noise(number: int) -> list[dict[str, Any]]:
    """A turn that does not compress."""
    return [{"role": "user", "content": f"{number} " + random.Random(number).randbytes(10_000).hex()}]


def deliver(pipes: Pipes, *, path: str, mail: str, seed: int, deliveries: int, threads: int, forge: bool) -> None:
    """Append drafts that others append too, in any order and again and again, from some threads; report every receipt.

    With `forge`, wrong on purpose: each delivery gets an id of its own, as if a retry did not keep its id.
    """
    store = open_store(path)
    session, letters = pickle.loads(Path(mail).read_bytes())
    receipts: list[tuple[str, Receipt]] = []

    def go(number: int) -> None:
        chance = random.Random(seed * 1_000 + number)
        for step in range(deliveries // threads):
            batch = list(chance.choice(letters))
            # A client that lost an acknowledgement sends again at once; an impatient one sends a part again.
            for _ in range(chance.choice((1, 1, 1, 2))):
                if forge:
                    batch = [draft._replace(id=f"{seed}-{number}-{step}-{draft.id}") for draft in batch]
                receipts.extend(zip((draft.id for draft in batch), store.append(session, batch), strict=True))
            if len(batch) > 1 and chance.random() < 0.2:
                part = batch[chance.randrange(len(batch)) :]
                receipts.extend(zip((draft.id for draft in part), store.append(session, part), strict=True))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(go, range(threads)))
    store.close()
    report = Path(f"{mail}.{os.getpid()}")
    report.write_bytes(pickle.dumps(receipts))
    pipes.say("receipts", report)


def write_until_told(pipes: Pipes, path: str, session: str, write_lock: bool) -> None:
    """Wait for an order, add turns until the next one, and report how many, how many errors and the longest wait.

    Without `write_lock`, wrong on purpose: only SQLite's own lock keeps the writers apart.
    """
    if not write_lock:
        WriteLock.acquire = lambda *_arguments: False  # type: ignore[method-assign]  # taken out on purpose
    handle = SessionStore(open_store(path)).open(session)
    pipes.say("ready")
    pipes.order()
    done = errors = 0
    longest = 0.0
    told = Told()

    def listen() -> None:
        pipes.order()
        told.set()

    Thread(target=listen, daemon=True).start()
    while not told.is_set():
        begun = time.monotonic()
        try:
            handle.record_turn([{"role": "user", "content": f"turn {done}"}])
            done += 1
        except StoreError:
            errors += 1
        longest = max(longest, time.monotonic() - begun)
    pipes.say("done", done, errors, f"{longest:.3f}")


def read_and_stay(pipes: Pipes, path: str) -> None:
    """Wrong on purpose: begins to read and never ends, as a stuck reader does."""
    reader = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchall()
    pipes.say("reading")
    pipes.order()


def open_when_told(pipes: Pipes, path: str) -> None:
    """Wait for an order, open a store that may not exist yet, and record one fact in a session that all openers share."""
    pipes.say("ready")
    pipes.order()
    records = SessionStore(open_store(path))
    session = records.open("everybody", agent=f"agent-{os.getpid()}")
    acknowledge(pipes, session.decide(f"process {os.getpid()} was here"))


def hold_and_obey(pipes: Pipes, path: str, session: str, seconds: float) -> None:
    """Take the lane for some seconds; on each order add a turn and report it, or why not."""
    handle = SessionStore(open_store(path)).open(session, lease_seconds=seconds)
    pipes.say("holds", handle.run)
    while pipes.order():
        try:
            acknowledge(pipes, handle.record_turn([{"role": "user", "content": f"run {handle.run}"}]))
        except OnrecordError as problem:
            pipes.say("refused", problem.code)


def hold_and_write(pipes: Pipes, path: str, session: str, seconds: float) -> None:
    """Take the lane for some seconds and add turns as fast as possible until it is lost."""
    handle = SessionStore(open_store(path)).open(session, lease_seconds=seconds)
    pipes.say("holds", handle.run)
    try:
        for number in count():
            acknowledge(pipes, handle.record_turn([{"role": "user", "content": f"run {handle.run}, turn {number}"}]))
    except LeaseLost:
        pipes.say("lost the lane")


def play_the_script(pipes: Pipes, path: str, kill_at: int, level: str, forgetful: bool) -> None:
    """Play the script of turns; die by SIGKILL at the k-th SQL statement, or at the k-th write or sync of the disk."""
    with dying_at(kill_at, level) as seen:
        records = SessionStore(SQLiteStore(path))
        (Forgetful if forgetful else Player)(records).play(lambda number: pipes.say("done", number))
        pipes.say("steps", seen())
        os._exit(0)


def make_or_upgrade(
    pipes: Pipes, *, path: str, sql: str, version: int, kill_at: int, level: str, careless: bool
) -> None:
    """Open a store, with other SQL files if some are given; die by SIGKILL at the k-th statement or write of the disk.

    With `careless`, wrong on purpose: the steps of a migration are not one transaction.
    """
    if sql:
        use_schema(sql, version)
    if careless:
        connection._migrate = migrate_carelessly  # type: ignore[assignment]  # only the names of arguments differ
    with dying_at(kill_at, level) as seen:
        SQLiteStore(path)
        pipes.say("steps", seen())
        os._exit(0)


def migrate_carelessly(made: apsw.Connection, path: str) -> None:
    """Wrong on purpose: runs the steps of a migration one by one, each in its own transaction."""
    if not connection.is_current(made, path):
        reached = connection.versions(made)[1] + 1
        made.execute(statements.migration("sqlite", reached)).fetchall()
        made.execute(f"PRAGMA user_version = {reached}")


def use_schema(sql: str, version: int) -> None:
    """From now on this process is an onrecord with other SQL files, up to this version of the schema."""
    statements.SQL = sql
    connection.SCHEMA_VERSION = version


def open_as_nobody(pipes: Pipes, path: str) -> None:
    """Become a user without privileges, open the store, read it and try to write."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    try:
        records = SessionStore(SQLiteStore(path))
        pipes.say("reads", len(records.sessions()))
        records.open("here", takeover=True)
        pipes.say("writes")
    except OnrecordError as problem:
        pipes.say("refused", problem.code)


def restore_a_backup(pipes: Pipes, path: str, backup: str, kill_at: int) -> None:
    """Replace a store by a backup; die by SIGKILL at the k-th file that is opened, named, renamed or removed."""
    seen = 0

    def one_more(event: str, _details: object) -> None:
        nonlocal seen
        if event in {"open", "os.rename", "os.link", "os.remove", "os.truncate", "apsw"}:
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def count_statement(*_details: object) -> bool:
        one_more("apsw", None)
        return True

    apsw.connection_hooks.append(lambda made: made.set_exec_trace(count_statement))
    sys.addaudithook(one_more)
    restore(backup, path, lambda _copy: None)
    pipes.say("steps", seen)
