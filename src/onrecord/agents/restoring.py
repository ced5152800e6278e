"""Restoring: the record's copy of a conversation is written back where the vendor's program can resume it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.agents.generations import generations, has_gaps, kept, standing
from onrecord.agents.reading import says_something
from onrecord.agents.resuming import origin_of, plan, put_back
from onrecord.agents.surroundings import environment_for
from onrecord.errors import Conflict, NotFound

if TYPE_CHECKING:
    from onrecord.agents.resuming import Plan
    from onrecord.session.handle import Session
    from onrecord.vendors.port import Location


def plan_restore(session: Session, agent: str, here: str, cwd: str | None, *, generation: int | None = None) -> Plan:
    """What would be written where; an error if there is no whole copy, or the vendor has the conversation already."""
    planned = plan(session, agent, environment_for(session, here), here)
    planned = planned._replace(cwd=str(Path(cwd or planned.cwd).resolve()), generation=generation)
    planned = planned._replace(copy_from_elsewhere=origin_of(session, agent).conversation)
    if not standing(session, planned.of.name, planned.vendor_id).position:
        raise NotFound(
            f"the record has no copy of {planned.vendor_id}",
            hint="mirror it first",
            step="mirror_it",
            name=session.name,
        )
    known = generations(session, planned.of.name, planned.vendor_id)
    if generation is not None and generation not in known:
        raise NotFound(
            f"the record has no generation {generation} of {planned.vendor_id}",
            hint=f"it has {'only ' if len(known) == 1 else ''}generation {', '.join(map(str, known))}",
        )
    if has_gaps(session, planned.of.name, planned.vendor_id, generation=generation):
        raise Conflict(
            "the record's copy is not whole: some of it was erased",
            hint="resume the vendor's own copy, or start a new conversation",
            step="resume_session",
            name=session.name,
        )
    there = planned.of.find(planned.vendor_id, planned.env)
    if there is not None and not says_something(planned.of, there):
        there = None  # a file without a message is not the conversation
    if there is not None and (planned.of.capabilities.resumes_elsewhere or there.cwd == planned.cwd):
        raise Conflict(
            f"{planned.of.title} has this conversation already, in {there.path}",
            hint="nothing was replaced; resume it there",
            step="resume_agent",
            name=session.name,
            agent=agent,
        )
    return planned


def replaced_in(session: Session, planned: Plan) -> dict[str, int]:
    """How many secrets of each kind the copy has placeholders for."""
    from onrecord.redaction.values import PLACEHOLDER

    found: dict[str, int] = {}
    for one in kept(session, planned.of.name, planned.vendor_id, generation=planned.generation):
        for match in re.finditer(PLACEHOLDER, one.raw):
            found[match[1]] = found.get(match[1], 0) + 1
    return found


def restore_copy(session: Session, planned: Plan) -> Location:
    """Write the copy and record where it is now. The session must be opened as the conversation's agent."""
    location = put_back(session, planned, planned.cwd)
    session.agents.locate(
        planned.of.name, planned.vendor_id, cwd=planned.cwd, home=location.home, transcript=location.path
    )  # fmt: skip
    return location
