"""A primary and its standby: a failover swaps their roles, as often as a test wants, in the same two directories.

So a client keeps one URL with both hosts and finds the one that accepts writes.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from urllib.parse import quote

from tests.postgres.servers import OWNER, PATIENCE_SECONDS, Server, Site, Stores

_STANDBY = "standby"


class Pair:
    """Two servers, one of which is the primary at any time."""

    def __init__(self, site: Site, *, synchronous: bool = True) -> None:
        self.synchronous = synchronous
        self.primary = Server(site, "a")
        self.standby = Server(site, "b")
        self._both = (self.primary, self.standby)

    def start(self) -> None:
        self.primary.start()
        self.attach()

    def store(self) -> str:
        """An empty store. Its URL names both hosts: the client uses the one that accepts writes."""
        url = Stores(self.primary).fresh_database()
        hosts = ",".join(str(server.folder) for server in self._both)
        ports = ",".join(str(server.port) for server in self._both)
        return f"{url.partition('?')[0]}?host={quote(hosts, safe='')}&port={quote(ports)}"

    def attach(self, link: str | None = None) -> None:
        """Make the standby a fresh copy of the primary and let it follow, directly or over a link.

        With `synchronous`, commits wait for it from here on.
        """
        shutil.rmtree(self.standby.data, ignore_errors=True)
        if not self.standby.folder.exists():
            self.standby._make_folder()
        source = link or f"host={self.primary.folder} port={self.primary.port} user={OWNER}"
        self.standby.site.run(
            "pg_basebackup", "-D", str(self.standby.data), "-d", f"{source} application_name={_STANDBY}",
            "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--no-manifest",
        )  # fmt: skip
        self.standby.start(wait=False)
        self._until("streaming", "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")
        if self.synchronous:
            self.wait_for_standby()

    def wait_for_standby(self) -> None:
        """From now on commits wait for the standby."""
        self._set_synchronous(_STANDBY)
        self._until("synchronous", "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")

    def kill_primary(self) -> None:
        """As a machine dies: the server and all its processes, at once."""
        self.primary.kill()

    def promote(self) -> None:
        """The standby takes over without waiting; the other server becomes the next standby."""
        self.standby.wait()
        self.standby.execute("SELECT pg_promote(true, 60)")
        self.primary, self.standby = self.standby, self.primary
        if self.synchronous:
            self._set_synchronous("")

    def stop_sending(self) -> None:
        """From now on the primary sends nothing to its standby, as over a very slow link."""
        ((sender,),) = self.primary.execute("SELECT pid FROM pg_stat_replication")
        os.kill(int(str(sender)), signal.SIGSTOP)

    def stop(self) -> None:
        for server in self._both:
            server.kill()

    def _set_synchronous(self, names: str) -> None:
        self.primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'", "SELECT pg_reload_conf()")
        self._until("told", f"SELECT 1 WHERE current_setting('synchronous_standby_names') = '{names}'")

    def _until(self, what: str, question: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.primary.execute(question):
            assert time.monotonic() < deadline, f"the standby is not {what}: {self.standby.log()}"
            time.sleep(0.02)


@contextlib.contextmanager
def paired(*, synchronous: bool = True) -> Iterator[Pair]:
    """A primary and its standby, for the length of a block."""
    site = Site()
    pair = Pair(site, synchronous=synchronous)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        site.close()
