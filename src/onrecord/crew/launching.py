"""`python -m onrecord.crew.launching FILE`: become the command that a file describes; the file is removed first.

tmux takes only short command lines, and every user of the machine can read them; prompts are long, and an environment
has secrets.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord import machine

if TYPE_CHECKING:
    from onrecord.crew.hosts import Spawn


def describe(spawn: Spawn, file: Path) -> list[str]:
    """Write what to run to a file only its owner can read; the short command that runs it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        json.dump({"argv": list(spawn.argv), "env": dict(spawn.env), "cwd": spawn.cwd}, stream)
    return [*machine.own_program(__name__), str(file)]


def main(path: str) -> None:
    """Become it."""
    file = Path(path)
    found = json.loads(file.read_text(encoding="utf-8", errors="surrogateescape"))
    file.unlink()
    os.chdir(found["cwd"])
    terminal = {name: os.environ[name] for name in ("TERM", "TMUX", "TMUX_PANE") if name in os.environ}
    os.execvpe(found["argv"][0], found["argv"], found["env"] | terminal)  # noqa: S606 - an argument list, no shell


if __name__ == "__main__":
    main(sys.argv[1])
