"""Real processes that work in a session until they get an order, or are suspended or killed."""

import os
import signal
import subprocess
import sys
from types import TracebackType
from typing import Self

PREAMBLE = """
import os, sys
import onrecord
from onrecord.errors import OnrecordError
records = onrecord.connect(sys.argv[1], project="/project")

def say(*words):
    print(*words, flush=True)

def listen():
    return sys.stdin.readline().strip()

"""


class Child:
    """A Python process that runs a few lines on a store: a test can read its output and order it to continue."""

    def __init__(self, url: str, code: str) -> None:
        environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + code, url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """The next line it prints; its error if it ends without one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(f"the child said nothing more: {self.process.stderr.read()}")
        return line

    def tell(self, line: str = "go on") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is tidied up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
