"""What happens to a store in processes of their own: they write, read, die and fight."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.testing.torture.driver import Turn, driver_class

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier

_CALLS = frozenset(
    {"execute", "executemany", "executescript", "commit", "write", "replace", "rename", "fsync", "fdatasync", "pwrite"}
)
"""Calls from Python into a database or a file: where a process dies."""


class Death:
    """Kills this process at the n-th call into a database or a file after it is armed, in whichever thread."""

    def __init__(self) -> None:
        self._left = 0
        self.seen = 0
        """How many such calls there were."""
        sys.setprofile(self._look)
        threading.setprofile(self._look)

    def arm(self, calls: int = 1) -> None:
        """Die at the so many-th call from now on."""
        self._left = calls

    def disarm(self) -> None:
        """Live on."""
        self._left = 0

    def _look(self, frame: Any, event: str, function: Any) -> None:
        called = event == "c_call" and getattr(function, "__name__", "") in _CALLS
        # aiosqlite passes what it calls to a thread in a form that a profiler does not see; its own functions are seen.
        asked = event == "call" and frame.f_code.co_name in _CALLS and "aiosqlite" in frame.f_code.co_filename
        if called or asked:
            self.seen += 1
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def paid(ledger: str) -> str:
    """The side effect: one line in a file, which no crash takes back."""
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write("paid\n")
        file.flush()
        os.fsync(file.fileno())
    return "paid"


def write(pipe: Connection, path: str, directory: str, session: str, turns: list[Turn], clock: float | None) -> None:
    """Write turns and report each one that is saved; with a clock that has stopped."""
    if clock is not None:
        time.time = lambda: clock
        time.time_ns = lambda: int(clock * 1e9)
    driver = driver_class(path)(directory)
    for turn in turns:
        driver.write(session, turn)
        pipe.send(turn.key)
    driver.close()
    pipe.send("done")


def write_and_die(pipe: Connection, path: str, directory: str, session: str, turns: list[Turn], calls: int) -> None:
    """Write turns; die inside the last one, at its n-th call into a database or a file."""
    death = Death()
    driver = driver_class(path)(directory)
    for turn in turns:
        if turn is turns[-1]:
            death.arm(calls)
        driver.write(session, turn)
        pipe.send(turn.key)
    os.kill(os.getpid(), signal.SIGKILL)


def count_calls(pipe: Connection, path: str, directory: str, session: str, turns: list[Turn]) -> None:
    """Write turns; report how many calls into a database or a file the last one needs."""
    death = Death()
    driver = driver_class(path)(directory)
    before = 0
    for turn in turns:
        before = death.seen
        driver.write(session, turn)
    pipe.send(death.seen - before)
    driver.close()


def work(pipe: Connection, path: str, directory: str, session: str, ledger: str, dies: str) -> None:
    """Run an agent that dies inside its tool, or right after the tool, before anything is saved."""
    death = Death() if dies == "after" else None

    def tool() -> str:
        said = paid(ledger)
        if death is None:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            death.arm()
        return said

    driver_class(path)(directory).work(session, tool)
    if death:
        death.disarm()  # the report is a write too
    pipe.send("finished")
    os.kill(os.getpid(), signal.SIGKILL)


def go_on(pipe: Connection, path: str, directory: str, session: str, ledger: str) -> None:
    """Continue after a crash; report whether the model can read of the call."""
    driver = driver_class(path)(directory)
    driver.go_on(session, lambda: paid(ledger))
    pipe.send(driver.knows(session))
    driver.close()


def fight(
    pipe: Connection, start: Barrier, path: str, directory: str, session: str, turns: list[Turn]
) -> None:  # fmt: skip
    """Read a session, wait for the other writer, then write; report what was saved and what was refused."""
    driver = driver_class(path)(directory)
    refused: dict[str, str] = {}
    saved: list[str] = []
    try:
        driver.read(session)
    except Exception as problem:  # noqa: BLE001  # reported below, when the turns are refused too
        refused["read"] = repr(problem)
    start.wait()
    for turn in turns:
        try:
            driver.write(session, turn)
            saved.append(turn.key)
        except Exception as problem:  # noqa: BLE001  # any error is a refusal
            refused[turn.key] = repr(problem)
    pipe.send((saved, refused))
    start.wait()
    driver.close()


def open_first(pipe: Connection, start: Barrier, path: str, directory: str, session: str, turn: Turn) -> None:
    """Open a store that does not exist yet, at the same time as others."""
    kind = driver_class(path)
    start.wait()
    try:
        driver = kind(directory)
        driver.write(session, turn)
        driver.close()
        pipe.send("")
    except Exception as problem:  # noqa: BLE001  # it is the result
        pipe.send(repr(problem)[:200])


def cancel(pipe: Connection, path: str, directory: str, session: str, turns: list[Turn]) -> None:
    """Cancel writes at different moments, then write the same again under the same key."""

    async def main() -> None:
        kind = driver_class(path)
        driver = kind(directory)
        began = time.perf_counter()
        await driver.awrite(session, turns[0])
        took = time.perf_counter() - began
        for number, turn in enumerate(turns[1:], 1):
            task = asyncio.ensure_future(driver.awrite(session, turn))
            await asyncio.sleep(took * 1.2 * number / len(turns))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            driver.close()
            driver = kind(directory)  # a caller that does not know what was saved opens the session again
            with suppress(Exception):  # to refuse what is already there is right as well
                await driver.awrite(session, turn)
        driver.close()

    asyncio.run(main())
    pipe.send("done")


def read(pipe: Connection, path: str, directory: str, *sessions: str) -> None:
    """Read sessions in a fresh process."""
    driver = driver_class(path)(directory)
    pipe.send([text for session in sessions for text in driver.read(session)])


def check(pipe: Connection, path: str, directory: str) -> None:
    """Ask the store's own check; report its answer, which is None if there is no check."""
    pipe.send(driver_class(path)(directory).is_sound())


def listed(pipe: Connection, path: str, directory: str, limit: int) -> None:
    """List the newest sessions; report them and how long it took."""
    driver = driver_class(path)(directory)
    began = time.perf_counter()
    found = list(driver.sessions(limit))
    pipe.send((found, time.perf_counter() - began))


def reporting(pipe: Connection, target: Callable[..., None], *arguments: Any) -> None:
    """Run a child's work and report an error instead of printing it."""
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  # a child's last words go to its report
    try:
        target(pipe, *arguments)
    except NotImplementedError as missing:
        pipe.send(missing_of(missing))
    except Exception as problem:  # noqa: BLE001  # it is the result
        pipe.send(problem_of(problem))


def problem_of(problem: Exception) -> str:
    """An error as it is reported, with the line that raised it; `is_problem` recognises it."""
    last = traceback.extract_tb(problem.__traceback__)[-1]
    return f"\0{type(problem).__name__}: {problem} ({Path(last.filename).name}:{last.lineno})"[:400]


def missing_of(problem: NotImplementedError) -> str:
    """What a driver has not, as it is reported; `is_missing` recognises it."""
    return f"\1{problem}"


def is_problem(said: object) -> bool:
    """Whether a child reported an error."""
    return isinstance(said, str) and said.startswith("\0")


def is_missing(said: object) -> bool:
    """Whether a child reported that the driver has no such method."""
    return isinstance(said, str) and said.startswith("\1")
