"""The laboratory: a home, a project, a model server and the real programs, without a way out and without leftovers."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests import forking
from tests.e2e.clis import CLIS, Cli
from tests.e2e.install import Installed, cache, ensure
from tests.e2e.modelserver import ModelServer, patiently
from tests.e2e.room import Room

RUN_SECONDS = 90.0
READING = (
    ("export",), ("list",), ("log",), ("note",), ("search",), ("show",), ("usage",), ("team", "logs"), ("team", "status"),
)  # fmt: skip
"""Commands that start no agent: they need no room and no interpreter of their own."""


class Done(NamedTuple):
    """A program that ended."""

    status: int
    out: str
    err: str


class Running:
    """A program that was started and may be killed. Its output goes to files, so it never waits for a reader."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: Path, err: Path) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds: float = RUN_SECONDS) -> Done:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"still running after {seconds} s: {self.process.args!r}\n{self.out}\n{self.err}"
            ) from None
        return Done(self.process.returncode, self.out, self.err)

    def kill(self) -> None:
        """What a power loss does to one program: its own processes end at once, tools in sessions of their own do not."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Lab:
    """One user's machine for the duration of one test."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.installed: dict[str, Installed] = {name: ensure(name) for name in names}
        self.root = root
        self.home = root / "home"
        self.project = root / "project"
        self.scratch = Path(
            tempfile.mkdtemp(prefix="lab-")
        )  # short: sockets are created here, and their paths are limited
        self._started: list[subprocess.Popen[bytes]] = []
        self.room = Room(uuid.uuid4().hex)
        self.server = ModelServer(self.room.listener)
        self.home.mkdir(parents=True)
        # Codex runs commands in a login shell, which resets PATH.
        (self.home / ".profile").write_text(f"export PATH={shlex.quote(self.environment['PATH'])}\n")
        self.add_project(self.project)
        for name in names:
            self.cli(name).settings(self.home, [self.project], self.server.url, self.installed[name])
            self.installed[name].furnish(self.home)

    @property
    def clis(self) -> list[Cli]:
        return [CLIS[name] for name in self.installed]

    def cli(self, name: str) -> Cli:
        return CLIS[name]

    def add_project(self, folder: Path) -> None:
        """A repository with one commit, as most work has."""
        folder.mkdir(parents=True)
        (folder / "README.md").write_text("# a project\n")
        identity = ["-c", "user.name=lab", "-c", "user.email=lab@example.org", "-c", "init.defaultBranch=main"]
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "begin"]):
            done = self.run(["git", *identity, *arguments], cwd=folder)
            assert done.status == 0, done.err

    @property
    def environment(self) -> dict[str, str]:
        tools = [str(path) for installed in self.installed.values() for path in installed.path]
        own = {
            "PATH": os.pathsep.join([*tools, str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "HOME": str(self.home), "TMPDIR": str(self.scratch), "LANG": "C.UTF-8", "TERM": "xterm-256color",
            "SHELL": "/bin/sh", "USER": "lab", "GIT_CONFIG_NOSYSTEM": "1", "TMUX_TMPDIR": str(self.scratch),
            # Node keeps compiled code: the programs start many times, from the same files.
            "NODE_COMPILE_CACHE": str(cache() / "node-compiled"),
        }  # fmt: skip
        passed = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        vendors = {key: value for cli in self.clis for key, value in cli.environment(self.server.url).items()}
        return self.room.environment({**passed, **own, **vendors})

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Running:
        """Start a program in the project (or in `cwd`), in a process group of its own, without a terminal."""
        out, err, given = (self.scratch / f"{len(self._started)}.{name}" for name in ("out", "err", "in"))
        given.write_text(stdin or "", encoding="utf-8")
        with out.open("wb") as to_out, err.open("wb") as to_err, given.open("rb") as read:
            process = subprocess.Popen(
                self.room.command(argv), cwd=cwd or self.project, env={**self.environment, **(env or {})},
                stdin=read, stdout=to_out, stderr=to_err, start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        return Running(process, out, err)

    def run(
        self, argv: Sequence[str], *, cwd: Path | None = None, stdin: str | None = None,
        env: Mapping[str, str] | None = None, seconds: float = RUN_SECONDS,
    ) -> Done:  # fmt: skip
        """Run a program to its end."""
        return self.start(argv, cwd=cwd, stdin=stdin, env=env).wait(seconds)

    def onrecord(self, *arguments: str, cwd: Path | None = None, seconds: float = RUN_SECONDS) -> Done:
        """Run our own command, as a user does."""
        if any(arguments[: len(words)] == words for words in READING):
            return Done(*forking.run(arguments, self.environment, cwd or self.project, b"", seconds))
        return self.run([sys.executable, "-m", "onrecord", *arguments], cwd=cwd, seconds=seconds)

    def appears(self, name: str, seconds: float = RUN_SECONDS) -> Path:
        """Wait for a file of the project; so a test knows that a tool is running."""
        path = self.project / name
        patiently(path.exists, f"{name} appears", seconds)
        return path

    def keeps(self, cli: Cli, vendor_id: str, phrase: str) -> None:
        """Wait until the program has written a phrase. Copilot runs a tool a moment before it writes the prompt."""

        def there() -> bool:
            files = (beside for path in cli.files(self.home, vendor_id) for beside in path.parent.glob(f"{path.name}*"))
            return any(phrase.encode() in path.read_bytes() for path in files)

        patiently(there, f"{cli.name} keeps {phrase!r}")

    def close(self) -> None:
        self.room.clear()
        for process in self._started:
            process.wait()
        self.server.close()
        self.room.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
