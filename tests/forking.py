"""The command in a process of its own, without the start of an interpreter: forked from a process that has imported everything.

Most of a short command's time is Python's start and its imports. A fork server imports once and forks for each command; the child gets
its own arguments, environment, directory and streams, runs the installed script's entry point and exits as a script does, but for one
step: it does not take the interpreter apart. That would write to every page the child shares with the server, and costs six times as
much as a short command. What is about the start itself (imports, the locale, Python's own variables) starts the script instead.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import selectors
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

SCRIPT = Path(sys.executable).with_name("onrecord")
IMPORTED = ("onrecord.surfaces", "onrecord.stores", "onrecord.vendors", "onrecord.agents", "onrecord.crew")
"""The server imports these and everything below them."""
LEFT_OUT = ("onrecord.surfaces.mcp.", "onrecord.surfaces.cli.sessions.framework_files")
"""But not these: few commands need them, and every fork would copy the tables of what they import (half of its memory)."""
NEEDED_LATER = (
    "onrecord.session.attempts", "onrecord.session.findings", "onrecord.session.log_access", "onrecord.session.unwritten",
    "onrecord.redaction.known", "onrecord.work.dotenv", "onrecord.work.history", "onrecord.work.people", "pwd",
)  # fmt: skip
"""What commands import when they first need it."""
_LENGTH = struct.Struct("!I")
_READ_AT_START = ("PYTHON", "LC_", "LANG")
"""An interpreter reads variables that begin like this when it starts."""
_HARMLESS = ("PYTHONPYCACHEPREFIX",)


class Done(NamedTuple):
    code: int
    out: str
    err: str


def needs_its_own_interpreter(environment: Mapping[str, str]) -> bool:
    """Whether the environment has something that only the start of an interpreter takes into account."""
    names = {name for name in environment if name.startswith(_READ_AT_START)}
    return any(environment[name] != os.environ.get(name) for name in names.difference(_HARMLESS))


class ForkServer:
    """A test's side: it starts the server with the first command and ends it with itself."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forking", str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], cwd: Path, streams: Sequence[int], *, terminal: bool
    ) -> int:
        """Run a command; return its process id."""
        about = {"words": list(words), "environment": dict(environment), "cwd": str(cwd), "terminal": terminal}
        message = json.dumps(about).encode()
        socket.send_fds(self._socket, [_LENGTH.pack(len(message))], list(streams))
        self._socket.sendall(message)
        return int(_LENGTH.unpack(self._receive())[0])

    def wait(self) -> int:
        """The exit status of the command, like `Popen.returncode`."""
        return os.waitstatus_to_exitcode(_LENGTH.unpack(self._receive())[0])

    def _receive(self) -> bytes:
        found = self._socket.recv(_LENGTH.size, socket.MSG_WAITALL)
        assert len(found) == _LENGTH.size, "the fork server died"
        return found

    def __del__(self) -> None:
        self._socket.close()
        self._process.wait()


_servers = threading.local()


def server() -> ForkServer:
    """The server of this thread: commands of several threads run at the same time."""
    if not hasattr(_servers, "mine"):
        _servers.mine = ForkServer()
    mine: ForkServer = _servers.mine
    return mine


def run(words: Sequence[str], environment: Mapping[str, str], cwd: Path, stdin: bytes, seconds: float) -> Done:
    """Run a command and collect what it prints, like `subprocess.run`."""
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    ours_err, theirs_err = os.pipe()
    mine = server()
    pid = mine.start(words, environment, cwd, (theirs_in, theirs_out, theirs_err), terminal=False)
    for end in (theirs_in, theirs_out, theirs_err):
        os.close(end)
    try:
        out, err = _communicate(ours_in, stdin, (ours_out, ours_err), time.monotonic() + seconds)
    except TimeoutError:
        os.kill(pid, 9)
        mine.wait()
        raise subprocess.TimeoutExpired(list(words), seconds) from None
    return Done(mine.wait(), out.decode(), err.decode())


def _communicate(sink: int, rest: bytes, sources: tuple[int, int], deadline: float) -> tuple[bytes, bytes]:
    """Write the input and read both outputs until they end."""
    found = dict.fromkeys(sources, b"")
    os.set_blocking(sink, False)
    with selectors.DefaultSelector() as waits:
        for source in sources:
            waits.register(source, selectors.EVENT_READ)
        waits.register(sink, selectors.EVENT_WRITE)
        while waits.get_map():
            ready = waits.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                for open_end in list(waits.get_map().values()):
                    os.close(open_end.fd)
                raise TimeoutError
            for key, _events in ready:
                if key.fd == sink:
                    try:
                        rest = rest[os.write(sink, rest) :] if rest else b""
                    except BrokenPipeError:
                        rest = b""
                    ended = not rest
                else:
                    chunk = os.read(key.fd, 65_536)
                    found[key.fd] += chunk
                    ended = not chunk
                if ended:
                    waits.unregister(key.fd)
                    os.close(key.fd)
    return found[sources[0]], found[sources[1]]


# --- the server's side --------------------------------------------------------------------------------------


def _import_everything() -> None:
    for name in IMPORTED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.startswith(LEFT_OUT):
                importlib.import_module(module.name)
    for more in NEEDED_LATER:
        importlib.import_module(more)
    gc.collect()
    gc.freeze()  # A collection in a child would write to every page that it shares with the server.


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for every request until the test ends. In a child this returns the request."""
    while True:
        head, streams, _flags, _address = socket.recv_fds(connection, _LENGTH.size, 3)
        if not head:
            return None
        (length,) = _LENGTH.unpack(head)
        about: dict[str, Any] = json.loads(connection.recv(length, socket.MSG_WAITALL))
        pid = os.fork()
        if pid == 0:
            connection.close()
            return about | {"streams": streams}
        connection.sendall(_LENGTH.pack(pid))
        for stream in streams:
            os.close(stream)
        connection.sendall(_LENGTH.pack(os.waitpid(pid, 0)[1]))


def _become(about: dict[str, Any]) -> None:
    """Take over the arguments, the environment, the directory and the streams of a command."""
    if about["terminal"]:
        os.setsid()
        fcntl.ioctl(about["streams"][0], termios.TIOCSCTTY, 0)
    for number, stream in enumerate(about["streams"]):
        os.dup2(stream, number)
    for stream in set(about["streams"]):
        os.close(stream)
    os.environ.clear()
    os.environ.update(about["environment"])
    time.tzset()  # an interpreter reads TZ when it starts
    os.chdir(about["cwd"])
    sys.argv[:] = [str(SCRIPT), *about["words"]]
    encoding = sys.stdout.encoding
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding, closefd=False)  # type: ignore[misc] # noqa: SIM115  # streams of the process
    sys.stdout = sys.__stdout__ = open(1, "w", encoding=encoding, closefd=False)  # type: ignore[misc] # noqa: SIM115  # streams of the process
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc] # noqa: SIM115  # streams of the process
        2, "w", encoding=encoding, errors="backslashreplace", buffering=1, closefd=False
    )


def _exit(main: Callable[[], int]) -> NoReturn:
    """Run the entry point, then do what an interpreter does at its end: threads, exit functions, streams. Keep the objects."""
    status = main()  # An error takes the long way out: the interpreter prints it.
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter calls
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)  # The reader of the output is gone: the interpreter has a message and an exit status for that.


if __name__ == "__main__":
    _import_everything()
    from onrecord.surfaces.entry import main

    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        _become(request)
        _exit(main)
