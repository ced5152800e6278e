"""The nursery: a process that has imported everything once and forks a fresh worker whenever a test wants one.

So a crash test pays a fork and not an interpreter. A worker is a real process: it opens the store itself, shares nothing with
the test but two pipes, and can be stopped, continued and killed by the signal a test chooses. The nursery is the workers' parent:
it alone reaps them, so that no process id means another process while a test still uses it.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ("tests.crash.workers", "tests.crash.forkers", "tests.postgres.workers")
"""The modules every nursery imports. They need no extra of onrecord; a nursery can be given further modules that do."""
PATIENCE_SECONDS = 60.0
"""No answer in this time is a failure of the test, never a result."""


class Pipes:
    """A worker's side: it reports lines and takes orders."""

    def __init__(self, orders: int, report: int) -> None:
        self._orders = os.fdopen(orders, "r", encoding="utf-8")
        self._report = report

    def say(self, *words: object) -> None:
        """Report one line; it is in the pipe when this returns, whatever happens to the process afterwards."""
        os.write(self._report, (" ".join(str(word) for word in words) + "\n").encode())

    def order(self) -> str:
        """The next order; empty when the test has ended."""
        return self._orders.readline().strip()


class Worker:
    """A test's side of one worker process."""

    def __init__(self, nursery: "Nursery", pid: int, orders: int, report: int) -> None:
        self._nursery = nursery
        self._orders = orders
        self._report = report
        self._rest = b""
        self._ended = False
        self.status: int | None = None
        self.pid = pid

    def order(self, text: str = "go") -> None:
        os.write(self._orders, f"{text}\n".encode())

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def lines(self, seconds: float = 0.0) -> list[str]:
        """What the worker reported, waiting at most so long for something new."""
        found = b""
        while not self._ended and select.select([self._report], [], [], 0.0 if found else seconds)[0]:
            part = os.read(self._report, 1 << 16)
            self._ended = not part
            found += part
        whole, _, self._rest = (self._rest + found).rpartition(b"\n")
        return whole.decode().splitlines() if whole else []

    def line(self) -> str:
        """The next line alone; the worker must report one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._ended and time.monotonic() < deadline:
            if not select.select([self._report], [], [], 1.0)[0]:
                continue
            letter = os.read(self._report, 1)
            if letter == b"\n":
                text, self._rest = self._rest.decode(), b""
                return text
            self._ended = not letter
            self._rest += letter
        raise AssertionError(f"worker {self.pid} reported nothing")

    def kill(self) -> list[str]:
        """Kill it without warning; return everything it had reported and the test had not read."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        return self.wait()

    def dismiss(self) -> list[str]:
        """Give no more orders, and wait for the end of the process that takes them: the worker, or a child it left behind."""
        os.close(self._orders)
        self._orders = -1
        return self.wait()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> list[str]:
        """Wait for its end; return everything it had reported and the test had not read."""
        found: list[str] = []
        deadline = time.monotonic() + seconds
        while not self._ended:
            found += self.lines(1.0)
            if time.monotonic() > deadline:
                raise AssertionError(f"worker {self.pid} does not end: {found[-3:]}")
        if self.status is None:
            self.status = self._nursery.reap(self.pid)
            if self._orders >= 0:
                os.close(self._orders)
            os.close(self._report)
        return found


class Nursery:
    """A test's side of the nursery."""

    def __init__(self, *more: str) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._program = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.crash.nursery", str(theirs.fileno()), *WORKERS, *more],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def start(self, job: str, **arguments: Any) -> Worker:
        """Fork a worker that runs the function `job` of one of the workers' modules."""
        orders_out, orders_in = os.pipe()
        report_out, report_in = os.pipe()
        message = json.dumps({"run": job, "with": arguments}).encode()
        socket.send_fds(self._socket, [len(message).to_bytes(4) + message], [orders_out, report_in])
        os.close(orders_out)
        os.close(report_in)
        return Worker(self, self._answer(), orders_in, report_out)

    def reap(self, pid: int) -> int:
        """Wait for a worker; return how it ended."""
        message = json.dumps({"reap": pid}).encode()
        self._socket.sendall(len(message).to_bytes(4) + message)
        return self._answer()

    def close(self) -> None:
        self._socket.close()
        self._program.wait(PATIENCE_SECONDS)

    def _answer(self) -> int:
        self._socket.settimeout(PATIENCE_SECONDS)
        answer = self._socket.recv(8, socket.MSG_WAITALL)
        if len(answer) < 8:
            raise AssertionError("the nursery has ended")
        return int.from_bytes(answer, signed=True)


def _messages(server: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    while True:
        start, files, _flags, _address = socket.recv_fds(server, 4, 2)
        if len(start) < 4:
            return
        yield json.loads(server.recv(int.from_bytes(start), socket.MSG_WAITALL)), files


def _live(modules: list[ModuleType], job: str, files: list[int], arguments: dict[str, Any]) -> NoReturn:
    """A worker's whole life."""
    pipes = Pipes(*files)
    status = 0
    try:
        (work,) = (vars(module)[job] for module in modules if job in vars(module))
        work(pipes, **arguments)
    except BaseException:  # noqa: BLE001  # whatever it is, the test must hear of it
        pipes.say("error", traceback.format_exc().strip().replace("\n", " | "))
        status = 1
    os._exit(status)


def main() -> None:
    server = socket.socket(fileno=int(sys.argv[1]))
    modules = [importlib.import_module(name) for name in sys.argv[2:]]
    alive: set[int] = set()
    for message, files in _messages(server):
        if "reap" in message:
            _pid, status = os.waitpid(message["reap"], 0)
            alive.discard(message["reap"])
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                server.close()
                _live(modules, message["run"], files, message["with"])
            alive.add(answer)
            for file in files:
                os.close(file)
        server.sendall(answer.to_bytes(8, signed=True))
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    server.close()


if __name__ == "__main__":
    main()
