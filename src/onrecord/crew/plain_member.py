"""A member of a team whose program no vendor module supports: run unchanged, recorded from start to end."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from onrecord.agents import processes
from onrecord.agents.wrapping import RENEW_SECONDS, environment, token
from onrecord.machine.ending import end_child
from onrecord.machine.signals import NotedSignals
from onrecord.vendors.port import CRASH, KILLED

if TYPE_CHECKING:
    from onrecord.session.handle import Session

NOT_RUNNABLE = 127
"""The exit status when the program cannot be run, as shells give it."""
_LOOK = 0.2


class Ended(NamedTuple):
    """How the program ended."""

    status: int
    """Exit status; a signal as a negative number."""
    stopped_by: int = 0
    """The signal that this process was stopped with, if it was."""
    problem: str = ""
    """Why it could not be run."""


def run_plain(session: Session, command: list[str]) -> Ended:
    """Join as the agent, run the command, record how it ended. The session must be opened as the agent."""
    spawn = token()
    session.acquire(spawn=spawn, program=command[0])
    try:
        ended = _run(session, command, environment(os.environ, session, spawn))
        if ended.stopped_by or ended.status:
            processes.end_spawned(spawn)
            cause = KILLED if ended.stopped_by or ended.status < 0 else CRASH
            session.agents.record_interruption(
                cause, f"{command[0]} ended with status {ended.status}", status=ended.status
            )
    finally:
        session.leave()
    return ended


def _run(session: Session, command: list[str], env: dict[str, str]) -> Ended:
    with NotedSignals((signal.SIGTERM, signal.SIGHUP), (signal.SIGINT, signal.SIGQUIT)) as stops:
        try:
            child = subprocess.Popen(command, env=env)
        except OSError as problem:
            return Ended(NOT_RUNNABLE, problem=f"{command[0]} cannot be run: {problem.strerror}")
        waited = 0.0
        while True:
            try:
                return Ended(child.wait(_LOOK), stops.signal)
            except subprocess.TimeoutExpired:
                waited += _LOOK
            if stops.signal:
                return Ended(end_child(child), stops.signal)
            if waited > RENEW_SECONDS:
                waited = 0.0
                session.renew()
