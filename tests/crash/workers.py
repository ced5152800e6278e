"""What the worker processes of the crash tests do. Each function is a whole program: it opens the store afresh and speaks by pipe.

A worker acknowledges with the line `ack SESSION POSITION ID`, written after the append returned. Programs that are wrong on
purpose, for the negative controls, say so in their first line.
"""

import os
from itertools import count
from typing import Any

from onrecord.log.events import Event
from onrecord.session.handle import Session
from onrecord.session.records import Records
from onrecord.stores.sqlite import SQLiteStore, writer
from tests.crash.nursery import Pipes

LARGE = "large, and kept out of line " * 1_500


def acknowledge(pipes: Pipes, *events: Event) -> None:
    for event in events:
        pipes.say("ack", event.session, event.position, event.id)


def items_of(number: int) -> list[dict[str, Any]]:
    """A turn; now and then one with a payload that is kept compressed, or out of line."""
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
    handle = Records(SQLiteStore(path)).open(session, agent=agent)
    add = stream_turn if form == "streamed" else record_turn
    pipes.say("ready")
    for number in count():
        add(pipes, handle, number)


def write_turns_hastily(pipes: Pipes, path: str, session: str, agent: str, form: str) -> None:
    """Wrong on purpose: acknowledges each turn before it is committed."""
    handle = Records(SQLiteStore(path)).open(session, agent=agent)
    pipes.say("ready")
    for number in count():
        id_ = f"{agent}/{os.getpid()}/{number}"
        pipes.say("ack", handle.id, 0, id_)
        handle.record_turn(items_of(number), id=id_)


def write_and_checkpoint(pipes: Pipes, path: str, session: str, agent: str, form: str) -> None:
    """Add turns for ever; the store checkpoints after each of them, and every other time cuts the write-ahead log back."""
    checkpoint_always()
    write_turns(pipes, path, session, agent, form)


def checkpoint_always() -> None:
    """From now on every write of this process is followed by a checkpoint, some of which cut the write-ahead log back."""
    writer.CHECKPOINT_PAGES = 1
    writer.WAL_BYTES = 20 * writer.PAGE_SIZE


def cut_the_log_rudely(pipes: Pipes, path: str, session: str, agent: str, form: str) -> None:
    """Wrong on purpose: cuts the write-ahead log back without a lock and without asking whether it was copied."""
    pipes.say("ready")
    while True:
        os.truncate(f"{path}-wal", 0)
        pipes.order()
