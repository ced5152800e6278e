"""A member of a team whose program we know nothing of: run as it is, on record from start to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from onrecord.agents import processes
from onrecord.agents.running import Stops
from onrecord.agents.wrapping import RENEW_SECONDS, environment, token
from onrecord.connect import connect
from onrecord.vendors.port import CRASH, KILLED

if TYPE_CHECKING:
    from onrecord.session.handle import Session

_GRACE = processes.END_SECONDS


def run_member(words: list[str]) -> int:
    """`SESSION AGENT COMMAND...`: join as the agent, run the command, say how it ended."""
    session_id, agent, *command = words
    with connect() as records:
        session = records.get(session_id, agent=agent)
        spawn = token()
        session.acquire(spawn=spawn, program=command[0])
        try:
            status, stopped_by = _run(session, command, environment(os.environ, session, spawn))
            if stopped_by or status:
                processes.end_spawned(spawn)
                cause = KILLED if stopped_by or status < 0 else CRASH
                session.agents.record_interruption(cause, f"{command[0]} ended with status {status}", status=status)
        finally:
            session.leave()
    return 128 - status if status < 0 else status


def _run(session: Session, command: list[str], env: dict[str, str]) -> tuple[int, int]:
    with Stops((signal.SIGTERM, signal.SIGHUP), (signal.SIGINT, signal.SIGQUIT)) as stops:
        try:
            child = subprocess.Popen(command, env=env)
        except OSError as problem:
            sys.stderr.write(f"error: {command[0]} cannot be run: {problem.strerror}\n")
            return 127, 0
        waited = 0.0
        while True:
            try:
                return child.wait(0.2), stops.signal
            except subprocess.TimeoutExpired:
                waited += 0.2
            if stops.signal:
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(_GRACE)
                except subprocess.TimeoutExpired:
                    child.kill()
            if waited > RENEW_SECONDS and session.lease is not None:
                waited = 0.0
                session.lease = session.store.renew(session.lease)
