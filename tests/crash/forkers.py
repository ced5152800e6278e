"""Workers that fork and workers that are interrupted; see `workers.py` for what a worker is."""

import os
import signal
import time
import warnings
from collections import Counter
from itertools import count, cycle
from pathlib import Path
from threading import Event as Told
from threading import Thread

from onrecord.errors import StoreBusy
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from tests.crash.nursery import Pipes

THREADS = 4
TURNS_OF_A_CHILD = 3


def start_adding_facts(pipes: Pipes, session: Session, enough: Told) -> Thread:
    """A thread that adds facts to a session as fast as it can, until it is stopped."""

    def add() -> None:
        while not enough.is_set():
            event = session.decide("meanwhile")
            pipes.say("ack", event.session, event.position, event.id)

    thread = Thread(target=add, daemon=True)
    thread.start()
    return thread


def fork_under_threads(pipes: Pipes, path: str, forks: int, patience: float, careless: bool) -> None:
    """Threads add facts as fast as they can while the main thread forks; parent and children continue with the same store.

    With `careless`, wrong on purpose: the store does not notice that it was forked.
    """
    if careless:
        SQLiteStore.pause = lambda *_arguments: None  # type: ignore[method-assign]  # taken out on purpose
        SQLiteStore.go_on = lambda *_arguments: None  # type: ignore[method-assign]  # taken out on purpose
        SQLiteStore.start_anew = lambda *_arguments: []  # type: ignore[method-assign]  # taken out on purpose
    store = SQLiteStore(path)
    enough = Told()
    sessions = [SessionStore(store).create(f"thread-{number}", agent="main") for number in range(THREADS)]
    threads = [start_adding_facts(pipes, session, enough) for session in sessions]
    for number in range(forks):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of exactly what is tested here
            child = os.fork()
        if child == 0:
            live_as_a_child(pipes, store, number)
        pipes.say("child", number, ended_within(child, patience))
    enough.set()
    for thread in threads:
        thread.join(patience)
        pipes.say("thread", "stuck" if thread.is_alive() else "ended")
    pipes.say("done")
    os._exit(0)


def live_as_a_child(pipes: Pipes, store: SQLiteStore, number: int) -> None:
    """Continue with the store that was open in the parent: new turns, in a lane of its own."""
    status = 1
    try:
        session = SessionStore(store).open(f"child-{number}")
        for turn in range(TURNS_OF_A_CHILD):
            event = session.record_turn([{"role": "user", "content": f"turn {turn}"}])
            pipes.say("ack", event.session, event.position, event.id)
        status = 0 if session.verify().ok else 2
        store.close()
    finally:
        os._exit(status)


def outlive_the_parent(pipes: Pipes, path: str) -> None:
    """Open a store, fork and end; the child continues with the same store and adds a turn for each order."""
    store = SQLiteStore(path)
    SessionStore(store).create("of-the-parent", agent="main")
    if os.fork():
        os._exit(0)
    session = SessionStore(store).open("of-the-child")
    pipes.say("orphaned")
    while pipes.order():
        event = session.record_turn([{"role": "user", "content": "still here"}])
        pipes.say("ack", event.session, event.position, event.id)
    os._exit(0)


def ended_within(child: int, seconds: float) -> str:
    """How a child ended; one that does not end in time is killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "well" if status == 0 else f"badly: {status}"
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "stuck"


def go_on_through_interrupts(pipes: Pipes, path: str, new_ids: bool) -> None:
    """Record turns although Ctrl-C is pressed again and again: each interrupted turn is tried again under its id.

    With `new_ids`, wrong on purpose: the worker assumes that an interrupted turn was not recorded, and sends it under a new id.
    """
    armed: list[bool] = []

    def press(*_details: object) -> None:
        if armed:
            armed.clear()
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, press)
    store = SQLiteStore(path)
    session = SessionStore(store).open("interrupted")
    others = SessionStore(store).create("others", agent="main")
    ended = Told()
    # Facts of another thread share transactions with the turns: the thread that is interrupted may lead them.
    thread = start_adding_facts(pipes, others, ended)
    pipes.say("ready")
    interrupts = 0
    for number in count():
        for attempt in count():
            id_ = f"turn-{number}" + (f"-{attempt}" if new_ids else "")
            try:
                armed.append(True)
                event = session.record_turn([{"role": "user", "content": f"turn {number}"}], id=id_)
                armed.clear()
                break
            except KeyboardInterrupt:
                interrupts += 1
        pipes.say("ack", event.session, event.position, event.id)
        if Path(f"{path}.enough").exists():
            break
    ended.set()
    thread.join(90)
    pipes.say("interrupts", interrupts, "stuck" if thread.is_alive() else "ended")
    os._exit(0)


class Preempted(Exception):
    """What a handler raises that is not a KeyboardInterrupt."""


def go_on_through_handlers(pipes: Pipes, path: str) -> None:
    """Record turns while signal handlers record too, or raise any exception, and other threads add facts."""
    armed: list[type[BaseException]] = []
    told: Counter[str] = Counter()

    def record(*_details: object) -> None:
        try:
            event = session.decide("told to stop")
        except StoreBusy:
            told["refused"] += 1
        else:
            told["recorded"] += 1
            pipes.say("ack", event.session, event.position, event.id)

    def throw(*_details: object) -> None:
        if armed:
            told["raised"] += 1
            raise armed.pop()

    store = SQLiteStore(path)
    session = SessionStore(store).open("handled")
    others = SessionStore(store).create("others", agent="main")
    ended = Told()
    threads = [start_adding_facts(pipes, others, ended) for _ in range(THREADS)]
    signal.signal(signal.SIGUSR1, record)
    signal.signal(signal.SIGUSR2, throw)
    pipes.say("ready")
    thrown = cycle((KeyboardInterrupt, Preempted, SystemExit))
    for number in count():
        while True:
            try:
                armed[:] = [next(thrown)]
                event = session.record_turn([{"role": "user", "content": f"turn {number}"}], id=f"turn-{number}")
                armed.clear()
                break
            except (KeyboardInterrupt, Preempted, SystemExit):
                told["caught"] += 1
        pipes.say("ack", event.session, event.position, event.id)
        if Path(f"{path}.enough").exists():
            break
    ended.set()
    for thread in threads:
        thread.join(90)
    stuck = sum(thread.is_alive() for thread in threads)
    pipes.say("handled", told["recorded"], told["refused"], told["raised"], told["caught"], stuck)
    os._exit(0)
