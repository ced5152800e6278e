"""Problems in hooks: lines in a small file beside the store, for `onrecord doctor`. An agent never sees it."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.vendors.hooks import HookCall

FILE = "hook-trouble.log"
FILE_BYTES = 64 * 1024
"""A larger file is emptied first."""
LINE_WIDTH = 400


def path() -> str:
    """Where the file is."""
    from onrecord.connection import data_directory

    return os.path.join(data_directory(), FILE)


def note(problem: str, call: HookCall | None, words: Sequence[str] = ()) -> None:
    """Add a line, if possible."""
    from onrecord.errors import OnrecordError
    from onrecord.views.render import one_line

    who = f"{call.vendor} {call.event or call.moment}" if call is not None else " ".join(words) or "hook"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = f"{now} {one_line(who, 80)}: {one_line(problem, LINE_WIDTH)}\n"
    try:
        file = os.open(
            path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600
        )
        try:
            if os.fstat(file).st_size > FILE_BYTES:
                os.ftruncate(file, 0)
            os.write(file, line.encode(errors="replace"))
        finally:
            os.close(file)
    except (OSError, OnrecordError):
        return


def last() -> str:
    """The newest line, "" if there is none."""
    try:
        with open(path(), "rb") as file:
            lines = file.read(2 * FILE_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
