"""Starting and stopping the two servers of a rollout as separate processes: the mock engine and the proxy."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

HERE = Path(__file__).resolve().parent
ADDRESS = re.compile(r"http://[\w.:\[\]]+:\d+")
STOP_SECONDS = 40


class Server:
    """A server process. Its first line has its address; leaving the block stops it."""

    def __init__(self, *command: str, log: Path | None = None, environment: dict[str, str] | None = None) -> None:
        with open(log or os.devnull, "ab") as errors:  # noqa: PTH123  # the null device has no Path of ours
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = ADDRESS.search(said)
        if found is None:
            self.kill()
            told = log.read_text(encoding="utf-8") if log else ""
            raise RuntimeError(f"the server did not start: {said}{told}")
        self.url = found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _problem: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop, and wait until it has."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.wait()

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait until it has ended; returns its exit status."""
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()


def engine(tokenizer: Path, *options: str, log: Path | None = None) -> Server:
    """The mock engine."""
    return Server(str(HERE / "engine.py"), "--tokenizer", str(tokenizer), *options, log=log)


def proxy(
    store: Path, upstream: str, tokenizer: Path, *options: str, log: Path | None = None, **environment: str
) -> Server:
    """The recording proxy, started as a user starts it."""
    chosen = () if "--port" in options else ("--port", "0")
    return Server(
        "-m", "onrecord", "rollout", "serve", "--store", str(store), "--upstream", upstream, "--tokenizer",
        str(tokenizer), *chosen, *options, log=log, environment=environment,
    )  # fmt: skip
