"""Where the tests write: into memory where the machine has a memory file system with room, because most tests sync often.

On a disk a sync takes milliseconds, in memory next to nothing, and nothing a test writes has to survive a power cut. Tests that are about
what a disk does ask for `DISK`. TMPDIR, if it is set, decides.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3
"""What must be free there: a whole run needs less than half of it."""
_ON_DISK = "ONRECORD_TESTS_ON_DISK"
"""For the workers of a run, which inherit TMPDIR: where the disk is."""


def has_room(place: Path) -> bool:
    """Whether tests can write and execute files there, and as much as they need."""
    try:
        facts = os.statvfs(place)
    except OSError:
        return False
    return (
        os.access(place, os.W_OK | os.X_OK)
        and not facts.f_flag & os.ST_NOEXEC
        and facts.f_bavail * facts.f_frsize > ROOM
    )


def use_memory() -> Path:
    """Let every temporary file be in memory, in this process and those it starts. Return the place on disk."""
    disk = os.environ.setdefault(_ON_DISK, tempfile.gettempdir())
    if "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    return Path(disk)


DISK = use_memory()


@contextmanager
def on_disk() -> Iterator[Path]:
    """A directory on disk, empty, for one test."""
    with tempfile.TemporaryDirectory(prefix="onrecord-test-", dir=DISK) as place:
        yield Path(place)
