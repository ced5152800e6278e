"""A proxy that dies by SIGKILL at a chosen step: before or after the n-th append to its store, joins included.

python -m tests.rollout.server.dying N before|after [words of `onrecord ...`]
"""

import os
import signal
import sys

from onrecord.stores.sqlite import SQLiteStore
from onrecord.surfaces.cli.main import main


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: int, when: str) -> None:
    """Let this process die at a step."""
    done = [0]

    def counting(write):
        def counted(self, *args, **options):
            done[0] += 1
            here = done[0] == step
            if here and when == "before":
                die()
            try:
                return write(self, *args, **options)
            finally:
                if here and when == "after":
                    die()

        return counted

    for name in ("append", "join"):
        setattr(SQLiteStore, name, counting(getattr(SQLiteStore, name)))


if __name__ == "__main__":
    arm(int(sys.argv[1]), sys.argv[2])
    sys.exit(main(sys.argv[3:]))
