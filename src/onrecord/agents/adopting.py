"""Adopting: link a conversation that is already running to a session, and mirror it from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.agents import processes
from onrecord.agents.importing import session_with, take_in
from onrecord.agents.sessions import find_named
from onrecord.errors import NotFound
from onrecord.log.head import LIVE
from onrecord.vendors.hooks import ADOPTED
from onrecord.vendors.port import Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.agents.importing import Imported
    from onrecord.session.session_store import SessionStore
    from onrecord.vendors.port import Vendor


class Candidate(NamedTuple):
    """A running program that could be adopted."""

    pid: int
    vendor_id: str | None
    """Its conversation, if lock and pid files name it."""
    cwd: str


class Running(NamedTuple):
    """A conversation to adopt, and what is known of the process that has it."""

    location: Location
    env: dict[str, str]
    about: dict[str, Any]


def candidates(of: Vendor, env: Mapping[str, str]) -> list[Candidate]:
    """Every running program of the vendor, each one once: not also the shell that started it."""
    found = _running(of, env)
    return [one for pid, one in found.items() if _program(pid, found) == pid]


def _running(of: Vendor, env: Mapping[str, str]) -> dict[int, Candidate]:
    return {
        pid: Candidate(pid, of.locate(pid, {**env, **processes.environment_of(pid)}), processes.directory_of(pid))
        for pid in processes.running(of)
    }


def _program(pid: int, among: Mapping[int, Candidate]) -> int:
    """The program itself, where a process is only the shell that started it: its child with the same conversation."""
    id_ = among[pid].vendor_id if pid in among else None
    same = (one for one in among if id_ and among[one].vendor_id == id_ and machine.program_of(one)[1] == pid)
    child = next(same, None)
    return pid if child is None else _program(child, among)


def find_running(of: Vendor, env: Mapping[str, str], *, pid: int | None, vendor_id: str | None) -> Running:
    """The conversation of a process, or of an id; `NotFound` if it cannot be identified with certainty."""
    whole, about = dict(env), {}
    if pid is not None:
        whole |= processes.environment_of(pid)
        vendor_id = _conversation_of(of, pid, whole, vendor_id)
        pid = _program(pid, _running(of, env))
        about = {"process": machine.identity_of(pid), "cwd": processes.directory_of(pid)}
    location = of.find(str(vendor_id), whole)
    if location is None and not about:
        raise NotFound(
            f"{of.title} has no conversation {vendor_id!r:.80}",
            hint="name a conversation that the vendor has",
            step="list_conversations",
            vendor=of.name,
        )
    if location is None:  # the vendor writes nothing before the first prompt
        location = Location(str(vendor_id), "", str(of.home(whole)), str(about["cwd"]))
    return Running(location, whole, {key: value for key, value in about.items() if value})


def _conversation_of(of: Vendor, pid: int, env: dict[str, str], wanted: str | None) -> str:
    if machine.started(pid) is None:
        raise NotFound(f"no process {pid} is running")
    found = of.locate(pid, env)
    if found is None or wanted not in (None, found):
        raise NotFound(
            f"process {pid} has no {of.title} conversation that can be identified with certainty",
            hint="name its conversation, or install the hook that reports it",
            step="name_conversation",
        )
    return found


def adopt(records: SessionStore, of: Vendor, running: Running, *, name: str | None, agent: str) -> Imported:
    """Link the conversation and mirror it: into the session that has it, the named one, or a new one."""
    location = running.location
    known = session_with(records, of, location.vendor_id)
    into = find_named(records, name, agent) if name is not None and known is None else None
    done = take_in(
        records, of, location, running.env, session=into, agent=agent, name=None if into else name, reason=ADOPTED
    )  # fmt: skip
    if done.session.refresh().status in LIVE:
        done.session.agents.locate(of.name, location.vendor_id, **running.about)
    return done
