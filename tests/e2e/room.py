"""A room without a way out: a network namespace with nothing but loopback, or the nearest thing this machine allows.

One process holds the namespace and hands its listening socket out to the tests, so that the model server runs in the test's
own process while the programs, inside, can reach it and nothing else. Whatever was started inside can be found again by its
namespace, however often it forked, and none of it outlives the room.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CLOSED_PORT = 9
"""The discard port, which has no listener. Where no namespace is available, proxies point here."""
ROOM_SECONDS = 90.0

HOLDER = """
import fcntl, os, socket, struct, sys
room = socket.socket(fileno=int(sys.argv[1]))
if sys.argv[2] == "inside":
    up = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(up, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
socket.send_fds(room, [b"here"], [listener.fileno()])
room.recv(1)
"""


class Room:
    """Run commands inside; `close` ends every one of them."""

    def __init__(self, token: str) -> None:
        self.token = token
        """In the environment of every program started here; so they are found without a namespace."""
        for entrance in entrances():
            try:
                self._open(entrance)
            except OSError:
                continue
            self.isolated = bool(entrance)
            return
        raise RuntimeError("not even a plain process could be started")

    def _open(self, entrance: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        place = "inside" if entrance else "plain"
        self._holder = subprocess.Popen(
            [*entrance, sys.executable, "-I", "-c", HOLDER, str(theirs.fileno()), place],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        ours.settimeout(ROOM_SECONDS)
        told, handles, _, _ = socket.recv_fds(ours, 16, 1)
        if told != b"here":
            ours.close()
            self._holder.kill()
            self._holder.wait()
            raise OSError(f"no room behind {entrance}")
        self._line = ours
        self.listener = socket.socket(fileno=handles[0])
        users = ["--user", "--preserve-credentials"] if "--user" in entrance else []
        self._enter = ["nsenter", f"--target={self._holder.pid}", "--net", *users, "--"] if entrance else []

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` in here. It becomes that program: same process id, same signals."""
        return [*self._enter, *argv]

    def environment(self, wanted: Mapping[str, str]) -> dict[str, str]:
        nowhere = f"http://127.0.0.1:{CLOSED_PORT}"
        away = {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost"}
        return {**({} if self.isolated else away), **wanted, "ONRECORD_LAB": self.token}

    def inhabitants(self) -> list[int]:
        """The processes in here, without zombies and the holder."""
        if self.isolated:
            space = Path(f"/proc/{self._holder.pid}/ns/net").readlink()
            found = (pid for pid in processes() if namespace(pid) == space)
        else:
            mark = f"ONRECORD_LAB={self.token}".encode()
            found = (pid for pid in processes() if mark in environment_of(pid))
        return [pid for pid in found if pid not in {self._holder.pid, os.getpid()}]

    def clear(self) -> None:
        """Kill every process in here, until none is left."""
        deadline = time.monotonic() + ROOM_SECONDS
        # A process that forks and ends while they are listed hides its child from one look, not from the next.
        while left := self.inhabitants() or self.inhabitants():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes {left} cannot be killed")
            time.sleep(0.02)

    def close(self) -> None:
        self.clear()
        self._line.close()
        self._holder.kill()
        self._holder.wait()


def entrances() -> Iterator[list[str]]:
    """Ways into a namespace, the best first; the last one has no namespace."""
    if os.geteuid() == 0:
        yield ["unshare", "--net"]
    yield ["unshare", "--user", "--map-current-user", "--keep-caps", "--net"]
    yield []


def processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208  # names, not paths


def namespace(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/ns/net").readlink()
    except OSError:
        return None


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
