"""The hidden verb by which a team's supervisor starts a program that no vendor module supports."""

from __future__ import annotations

import sys

from onrecord.connection import connect
from onrecord.crew.plain_member import run_plain
from onrecord.views.render import visible


def run_member(words: list[str]) -> int:
    """`SESSION AGENT COMMAND...`: run the command as the agent."""
    session_id, agent, *command = words
    with connect() as records:
        ended = run_plain(records.get(session_id, agent=agent), command)
    if ended.problem:
        sys.stderr.write(f"error: {visible(ended.problem)}\n")
    return 128 - ended.status if ended.status < 0 else ended.status
