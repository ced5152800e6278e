"""Following: a conversation that nothing of ours wraps is copied while it grows, by one small process of its own.

Hooks start it (surfaces/hook/following.py), so that a turn is on record within a second of being written, wherever it
is read. It ends with its agent. While nothing happens it has no store open and only looks at the size of a file; a
touched lock file says that a hook was called. It also sees what no hook reports: a limit, and an agent that was killed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onrecord import machine
from onrecord.agents import noticing
from onrecord.agents.mirroring import location_of, mirror
from onrecord.agents.observing import SETTLING_SECONDS, Present, is_wrapped, note_stop
from onrecord.log.head import LIVE
from onrecord.vendors.port import FAILED, WORKING, vendor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from onrecord.session.handle import Session
    from onrecord.vendors.port import Location, Turn, Vendor
    from onrecord.views.values import Agent

TICK_SECONDS = 0.4
"""How often the file of the conversation is looked at."""
QUIET_SECONDS = 10.0
"""After so long without a new record the store is closed, until something happens."""
IDLE_SECONDS = 15 * 60.0
"""After so long without a new record between two turns it ends; the next prompt starts it again."""
WORKING_SECONDS = 24 * 3600.0
"""The same in the middle of a turn: a tool may run for hours."""
MIRROR_AT_MOST = 5.0
"""How long one mirroring takes at most; the next one continues."""
FILES_LOOKED_AT = 200
"""Of how many files beside a conversation the size is looked at."""


class Hooks(NamedTuple):
    """What the process that follows is given."""

    opened: Callable[[], AbstractContextManager[Session]]
    """Opens the session as the agent that is followed, and closes its store at the end."""
    touched: Callable[[], int]
    """A value that changes whenever a hook of the agent is called."""
    notify: Callable[[Session], None]
    """Notifies the person of what the session needs them for."""


class Follower:
    """Follows the present conversation of one agent, whichever that is."""

    def __init__(self, hooks: Hooks, env: Mapping[str, str]) -> None:
        self._hooks = hooks
        self._env = env
        self._over = False
        self._of: Vendor | None = None
        self._location: Location | None = None
        self._process: Mapping[str, object] | None = None
        self._looked: object = None
        """What the files of the conversation looked like before they were last copied."""
        self._touched = -1
        self._turn: Turn | None = None
        self._changed = self._turned = time.monotonic()
        """When the files last changed, and when the turn did."""
        self._told: Turn | None = None
        """The turn whose end by an error is on record."""

    def run(self) -> int:
        """Follow it until its process has ended, its session does not take events any more, or nothing happens.

        Returns the last touch that was seen.
        """
        while not self._over:
            with self._hooks.opened() as session:
                self._attend(session)
            if not self._over:
                self._wait()
        return self._touched

    def _attend(self, session: Session) -> None:
        """Copy what is new until nothing was, for a while."""
        present = Present(session, session.agent, self._env)
        began = time.monotonic()
        while not self._over and time.monotonic() - max(began, self._changed) < QUIET_SECONDS:
            touched = self._hooks.touched()
            if touched != self._touched:
                self._touched, self._location, self._looked = touched, None, None
                session.refresh()
                self._over = is_wrapped(session)  # that process copies it
            if not self._over:
                self._look(session, present)
            if not self._over:
                time.sleep(TICK_SECONDS)

    def _look(self, session: Session, present: Present) -> None:
        """Copy what is new, if anything is; record a limit; record the end of an agent that ended without a word."""
        agent = session.agents.get()
        if agent is None or not agent["links"] or session.head.status not in LIVE:
            self._over = True
            return
        link = agent["links"][-1]
        self._of = vendor(link["vendor"])
        self._process = link["last"].get("process") or agent["process"]
        self._location = self._location or location_of(link, self._env)
        gone, looks = self._is_gone(), self._looks()
        if gone or looks != self._looked:
            self._looked, self._changed = looks, time.monotonic()
            done = mirror(session.refresh(), link["vendor"], link["id"], self._env, location=self._location,
                          seconds=MIRROR_AT_MOST)  # fmt: skip
            if not done.complete:
                self._looked = None
            turn = present.look()
            if turn != self._turn:
                self._turn, self._turned = turn, time.monotonic()
        self._see_stop(session)
        if gone:
            self._end(session)
        elif self._process is None and not agent["here"]:
            self._over = True

    def _see_stop(self, session: Session) -> None:
        """Record that an error stopped the turn, unless its hook did; and that the agent works again after it."""
        turn = self._turn
        if turn is None or turn == self._told:
            return
        if turn.state == FAILED:
            if time.monotonic() - self._turned >= SETTLING_SECONDS:  # some programs try again at once
                self._told = turn
                if note_stop(session.refresh(), self._env) is not None:
                    self._hooks.notify(session)
        elif self._told is not None and not turn.error:
            self._told = None
            session.refresh().agents.record_going_on()

    def _end(self, session: Session) -> None:
        """The process has ended. If its last hook did not report that, record it."""
        self._over = True
        time.sleep(TICK_SECONDS)
        agent = session.refresh().agents.get()
        if agent is not None and agent["here"] and _is_same(agent, self._process):
            noticing.record_gone(session, agent["links"][-1], self._env)
            self._hooks.notify(session)

    def _is_gone(self) -> bool:
        return self._process is not None and machine.is_gone(self._process)

    def _wait(self) -> None:
        """Without the store: until a file changes, a hook is called, the process ends, or it waited long enough."""
        longest = WORKING_SECONDS if self._turn is not None and self._turn.state == WORKING else IDLE_SECONDS
        while self._looks() == self._looked and self._hooks.touched() == self._touched and not self._is_gone():
            if time.monotonic() - self._changed >= longest:
                self._over = True
                return
            time.sleep(TICK_SECONDS)

    def _looks(self) -> tuple[object, ...]:
        """Sizes and times of the conversation's files, and of the journal where a database has it."""
        location = self._location
        if location is None:
            return (int(time.monotonic() / QUIET_SECONDS),)  # not written yet: look for it now and then
        found: list[object] = [_facts(location.path), _facts(f"{location.path}-wal")]
        beside = self._of.beside(location) if self._of is not None else None
        for folder, _folders, names in os.walk(beside) if beside else ():
            found += [_facts(f"{folder}/{name}") for name in names]
            if len(found) > FILES_LOOKED_AT:
                break
        return tuple(found)


def _facts(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _is_same(agent: Agent, process: Mapping[str, object] | None) -> bool:
    """Whether an agent is still the run of a process; another one may have begun since."""
    there = agent["process"]
    return there is not None and process is not None and there["pid"] == process.get("pid")
