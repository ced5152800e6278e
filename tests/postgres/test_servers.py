"""The test servers themselves: they come with the dev dependencies, and leave nothing behind."""

import os
import signal

from tests.postgres.servers import Server, Site


def test_a_server_survives_a_kill_and_leaves_nothing_behind():
    """A cluster can be created as root or not; after kill -9 it restarts with all commits; then it is removed."""
    site = Site()
    server = Server(site, "one")
    try:
        server.start()
        ((version,),) = server.execute("SHOW server_version")
        assert int(str(version).split(".", maxsplit=1)[0]) >= 16
        server.execute("CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")
        server.kill()
        server.start()
        assert server.execute("SELECT n FROM kept") == [(1,)]
        pid = server.pid
    finally:
        server.stop()
        site.close()
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        gone = True
    else:
        gone = False
    assert gone
    assert not site.place.exists()


def test_a_server_runs_from_a_copy():
    """The server's user cannot read root's home: the copied binaries work."""
    site = Site()
    try:
        site.copy()
        assert site.binaries.is_relative_to(site.place)
        server = Server(site, "two")
        server.start()
        assert server.execute("SELECT 1") == [(1,)]
        server.stop()
    finally:
        site.close()
