"""The worker processes of the rollout's crash tests, with the nursery and the pipes of `tests/crash`."""

import os

from onrecord.session.session_store import SessionStore
from onrecord.stores.sqlite import SQLiteStore
from tests.crash.dying import dying_at
from tests.crash.nursery import Pipes
from tests.rollout.crash_script import Hasty, RolloutPlayer


def play_a_rollout(pipes: Pipes, path: str, kill_at: int, level: str, hasty: bool) -> None:
    """Play the script of a rollout; die by SIGKILL at the k-th SQL statement, or at the k-th write or sync of the disk."""
    with dying_at(kill_at, level) as seen:
        (Hasty if hasty else RolloutPlayer)(SessionStore(SQLiteStore(path))).play(
            lambda number: pipes.say("done", number)
        )
        pipes.say("steps", seen())
        os._exit(0)
