"""The command as a user runs it: the installed script's entry point, in a separate process, on a separate store.

Tests marked `every_store` run on a SQLite file and on PostgreSQL. With `--full` every test does, unless it is marked
`on_file`: then it is about the file. A command on PostgreSQL takes several times as long to start, so not every module is
marked.
"""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import forking
from tests.forking import SCRIPT, Done

if TYPE_CHECKING:
    from tests.postgres.servers import Stores

PATIENCE = 90


def as_json(words: tuple[str, ...]) -> list[str]:
    """The same words with --json; the words after two dashes belong to another command."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], "--json", *words[end:]]


class Command:
    """Runs `onrecord` against one store and one project."""

    def __init__(self, place: Path, bytecode: Path, project: Path | None = None, url: str = "") -> None:
        self.place = place
        self.store = place / "data" / "store.db"
        self.url = url or str(self.store)
        self.project = project or place / "project"
        self.project.mkdir(exist_ok=True)
        keep = {
            name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ
        }
        self.environment = keep | {
            "HOME": str(place),
            "ONRECORD_STORE": self.url,
            "COLUMNS": "100",
            "TERM": "xterm-256color",
            "ONRECORD_FOLLOW": "0",
        }
        if sys.dont_write_bytecode:
            self.environment["PYTHONPYCACHEPREFIX"] = str(bytecode)

    def started(self, *words: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SCRIPT, *words], cwd=self.project, env=self.environment | (env or {}), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
        )  # fmt: skip

    def run(self, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        environment = self.environment | (env or {})
        if not forking.needs_its_own_interpreter(environment):
            return forking.run(words, environment, self.project, stdin.encode(), PATIENCE)
        with self.started(*words, env=env, stdin=subprocess.PIPE) as process:
            out, err = process.communicate(stdin, timeout=PATIENCE)
        return Done(process.returncode, out, err)

    def data(self, *words: str, kind: str, code: int = 0, stdin: str = "") -> Any:
        """The data of a --json answer; the envelope is checked on the way."""
        done = self.run(*as_json(words), stdin=stdin)
        assert done.code == code, done
        envelope = json.loads(done.out)
        assert list(envelope) == ["schema_version", "kind", "data"], done.out
        assert (envelope["schema_version"], envelope["kind"]) == (1, kind)
        assert done.err == ""
        return envelope["data"]

    def ok(self, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        done = self.run(*words, stdin=stdin, env=env)
        assert done.code == 0, done
        return done.out

    def error(self, *words: str, code: int, kind: str, env: dict[str, str] | None = None) -> dict[str, Any]:
        """The error of a failing command, as JSON and as text; stdout stays empty both times."""
        plain = self.run(*words, env=env)
        done = self.run(*as_json(words), env=env)
        assert (done.code, plain.code) == (code, code), (done, plain)
        assert (done.out, plain.out) == ("", "")
        envelope = json.loads(done.err)
        assert (envelope["schema_version"], envelope["kind"]) == (1, "error")
        error: dict[str, Any] = envelope["error"]
        assert sorted(error) == ["hint", "kind", "message", "retryable"]
        assert error["kind"] == kind, error
        assert "error: " in plain.err
        assert ("hint: " in plain.err) is bool(error["hint"])
        assert "Traceback" not in plain.err + done.err
        return error

    def on_terminal(self, *words: str, columns: int = 100, keys: str = "", env: dict[str, str] | None = None) -> Done:
        """Run on a terminal of its own; `out` is what it shows. The overview asks which session to resume: none."""
        environment = self.environment | {"COLUMNS": str(columns), "LINES": "60"} | (env or {})
        terminal, theirs = pty.openpty()
        if not words and not keys:
            keys = "q"
            settings = termios.tcgetattr(theirs)
            settings[3] &= ~termios.ECHO  # what is typed before the question would be shown between the lines
            termios.tcsetattr(theirs, termios.TCSANOW, settings)
        server = forking.server()
        server.start(words, environment, self.project, (theirs, theirs, theirs), terminal=True)
        os.close(theirs)
        if keys:
            os.write(terminal, keys.encode())
        shown = b""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.5)[0]:
                try:
                    chunk = os.read(terminal, 65_536)
                except OSError:
                    break
                if not chunk:
                    break
                shown += chunk
        os.close(terminal)
        return Done(server.wait(), shown.decode(), "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    find = metafunc.definition.get_closest_marker
    if "store_kind" in metafunc.fixturenames:
        # Every test says which store: a session fixture that only some tests vary would keep the value of the last one.
        everywhere = find("every_store") or metafunc.config.getoption("--full")
        kinds = ["sqlite", "postgres"] if everywhere and not find("on_file") else ["sqlite"]
        metafunc.parametrize("store_kind", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def store_kind(request: pytest.FixtureRequest) -> str:
    """The kind of the store."""
    return getattr(request, "param", "sqlite")


@pytest.fixture(scope="session")
def stores(store_kind: str, request: pytest.FixtureRequest) -> "Stores | None":
    """The database server, if the stores are not files."""
    return request.getfixturevalue("postgres") if store_kind == "postgres" else None


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory) -> Path:
    """Compiled modules, if none may be beside their source: the tests start hundreds of processes."""
    place: Path = tmp_path_factory.mktemp("bytecode")
    return place


@pytest.fixture
def command(tmp_path, bytecode, stores) -> Command:
    return Command(tmp_path, bytecode, url=stores.empty_store() if stores else "")


@pytest.fixture(scope="session")
def template(tmp_path_factory, bytecode, stores) -> Command:
    """A store created once; the tests work on copies of it."""
    url = stores.empty_store() if stores else ""
    command = Command(tmp_path_factory.mktemp("template"), bytecode, url=url)
    command.ok("open", "fix-invite-403", "--objective", "Fix intermittent 403")
    command.ok("record", "--user", "Why the 403?", "--assistant", "Looking.", "--tool", "pytest=3 failed")
    command.ok("decide", "Reproduce before touching the middleware", "--why", "two fixes failed")
    command.ok("finding", "state", "The middleware is the cause", "--label", "rejected", "--because", "3")
    return command


def copied(template: Command, place: Path, bytecode: Path, stores: "Stores | None") -> Command:
    """The same project with a copy of the store."""
    if stores:
        return Command(place, bytecode, template.project, stores.copy_of(template.url))
    shutil.copytree(template.store.parent, place / "data")
    return Command(place, bytecode, template.project)


@pytest.fixture
def working(template, tmp_path, bytecode, stores) -> Command:
    """A store with one live session that has a turn, a decision and a finding."""
    return copied(template, tmp_path, bytecode, stores)


@pytest.fixture(scope="session")
def crowd(template, tmp_path_factory, bytecode, stores) -> Command:
    """The same store with more sessions in other states; for tests that change nothing."""
    command = copied(template, tmp_path_factory.mktemp("crowd"), bytecode, stores)
    for words in (["open", "other"], ["open", "ended"], ["close", "ended"], ["open", "paused"], ["pause", "paused"]):
        command.ok(*words)
    return command
