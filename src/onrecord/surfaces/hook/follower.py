"""The process that copies a conversation while it grows: `python -m onrecord.surfaces.hook.follower SESSION AGENT`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from onrecord.agents.following import Follower, Hooks
from onrecord.connection import connect, store_file
from onrecord.errors import NotFound, OnrecordError
from onrecord.log.names import check_name, is_ulid
from onrecord.surfaces.hook.following import lock, lock_path
from onrecord.surfaces.trouble import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.session.handle import Session

TRIES = 5
"""How often it begins again after a failure, for instance a store that is busy or cannot be reached."""
PAUSE_SECONDS = 10.0
"""How long it waits before that."""


def main(words: list[str]) -> int:
    """Follow one agent of one session to its end; the result is the exit status."""
    session_id, agent = words
    if not is_ulid(session_id):
        return 1
    path = lock_path(session_id, check_name(agent, "agent"))
    file = store_file()
    if file is None or os.path.isabs(file):
        os.chdir("/")  # the directory of the agent may be removed or unmounted while this runs
    while (held := lock(path)) is not None:
        try:
            seen = _follow(session_id, agent, held)
        finally:
            with suppress(OSError):
                os.unlink(path)
        touched = _touched(held)
        os.close(held)
        if touched == seen:
            return 0
        # A hook was called in the very moment in which this ended, and saw it running.
    return 0  # another one was faster


def _follow(session_id: str, agent: str, held: int) -> int:
    """Follow it; returns the last touch that was seen."""

    @contextmanager
    def opened() -> Iterator[Session]:
        with connect(project="") as records:
            yield records.get(session_id, agent=agent)

    hooks = Hooks(opened, lambda: _touched(held), _notify)
    for again in range(TRIES):
        try:
            return Follower(hooks, dict(os.environ)).run()
        except NotFound:
            break  # the session was moved or removed
        except (OnrecordError, OSError) as problem:
            note(f"the conversation is not followed: {type(problem).__name__}: {problem}", None, ("follow", agent))
            if again + 1 < TRIES:
                time.sleep(PAUSE_SECONDS)
    return _touched(held)


def _touched(held: int) -> int:
    return os.fstat(held).st_mtime_ns


def _notify(session: Session) -> None:
    from onrecord.connection import notify_settings

    if notify_settings():
        from onrecord.surfaces.notifying import tell_needs

        tell_needs(session)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
