"""One process per agent that copies its conversation while it grows: a hook starts it, unless it runs already.

It is wanted where no process of ours wraps the agent. A lock that it has while it runs says that it is there; the lock
ends with it, however it ends. A hook that finds it there touches the lock file, and it looks at the record again.
"""

from __future__ import annotations

import os
import sys

from onrecord.environment import AGENT_VARIABLE, MEMBER_VARIABLE, SESSION_VARIABLE, SPAWN_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.session.handle import Session

FOLDER = "following"
"""The folder of the lock files, in the directory of this user's state on this machine."""
MODULE = "onrecord.surfaces.hook.follower"
"""What the process runs; session and agent follow."""
_LEFT_OUT = (SESSION_VARIABLE, AGENT_VARIABLE, SPAWN_VARIABLE, MEMBER_VARIABLE)
"""What it does not inherit: it is not one of the agent's processes, and is not ended with them."""
_NOTHING = "/dev/null"


def begin(session: Session) -> None:
    """Start it, unless it runs, a process of ours wraps the agent, or the person does not want it.

    A failure here costs the agent nothing: its hooks copy the conversation at the end of every turn.
    """
    if os.environ.get(SPAWN_VARIABLE) and os.environ.get(AGENT_VARIABLE) == session.agent:
        return
    from onrecord.connection import is_following

    if not is_following():
        return
    try:
        if not _is_there(lock_path(session.id, session.agent)):
            _start(session.id, session.agent)
    except OSError as problem:
        from onrecord.surfaces.trouble import note

        note(f"the conversation cannot be followed: {problem}", None)


def lock_path(session_id: str, agent: str) -> str:
    """The lock file of the process that follows an agent; its folder exists afterwards."""
    from onrecord.connection import state_directory

    folder = os.path.join(state_directory(), FOLDER)
    os.makedirs(folder, 0o700, exist_ok=True)
    return os.path.join(folder, f"{session_id}.{agent}")


def lock(path: str) -> int | None:
    """Take the lock; its file descriptor, or None if another process has it, or this system has no locks (ENOLCK)."""
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _is_there(path: str) -> bool:
    """Whether the process runs; then the touched file shows it that a hook was called."""
    file = lock(path)
    if file is not None:
        os.close(file)
        return False
    try:
        os.utime(path)
    except FileNotFoundError:
        return False  # it ended just now
    return True


def _start(session_id: str, agent: str) -> None:
    """Start it in a session of its own, without our standard streams: nothing waits for it, no signal reaches it."""
    env = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    streams = [(os.POSIX_SPAWN_OPEN, number, _NOTHING, os.O_RDWR, 0) for number in range(3)]
    from onrecord import machine

    words = [*machine.own_program(MODULE), session_id, agent]
    os.posix_spawn(sys.executable, words, env, file_actions=streams, setsid=True)
