"""Shapes: which type a field of a payload has, for the fields that views rely on.

An event with another type there is refused before it is written. Logs of older versions and bundles may have some: the
views leave such an event out and count it as a misfit, so that one wrong value never makes a session unreadable.
A field that is absent or null is fine unless its kind needs it; fields that are not named here are free.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAST_SECOND = 253_402_300_799
"""The last moment a payload may name, in seconds since 1970: the end of the year 9999."""
_EXACT = 2**53

_REASON = "reason:text"
_FIELDS = {
    "session.opened": "name:text project:text objective:text metadata:object budget:object parent:object place:text",
    "session.renamed": "name:text project:text place:text",
    "session.titled": "text:text",
    "session.forked": "name:text parent:object",
    "session.paused": _REASON,
    "session.resumed": _REASON,
    "session.closed": _REASON,
    "session.archived": _REASON,
    "session.held": _REASON,
    "session.released": _REASON,
    "agent.joined": "process:object vendor:text arguments:list spawn:text resumes:text lost:text person:text via:text",
    "agent.located": "vendor:text vendor_id:text cwd:text home:text transcript:text process:object branch:text",
    "attention.needed": "message:text",
    "team.formed": "team:object",
    "team.scaled": "group:text size:count",
    "agent.spawned": "agent:text mode:text refused:text",
    "agent.recalled": "agent:text",
    "turn.begun": "turn:count base:count",
    "turn.aborted": _REASON,
    "attempt.started": "command:text signature:text process:object keeper:object cwd:text phase:text",
    "attempt.settled": "attempt:count outcome:text error:text fix:text reason:text metrics:object outputs:list",
    "attempt.corrected": "attempt:count fix:text remark:text",
    "phase.entered": "phase:text",
    "phase.finished": "phase:text",
    "profile.chosen": "profile:object",
    "objective.set": "text:text",
    "next_action.set": "text:text command:text",
    "decision.made": "text:text why:text",
    "worklog.written": "text:text",
    "section.written": "section:text text:text",
    "feature.listed": "feature:text text:text",
    "feature.judged": "feature:text evidence:texts",
    "milestone.reached": "what:text finding:text evidence:texts",
    "scratch.set": "key:text",
    "finding.stated": "claim:text label:text evidence:texts anchors:objects contradicts:texts why:text",
    "finding.relabelled": "finding:text label:text evidence:texts anchors:objects contradicts:texts why:text",
    "finding.challenged": "finding:text argument:text evidence:texts",
    "finding.upheld": "finding:text why:text evidence:texts",
    "hypothesis.chosen": "finding:text",
    "evidence.recorded": "id:text kind:text argv:texts exit_code:number error:text output:text excerpt:text cwd:text",
    "code.changed": "anchors:object",
    "budget.set": "limits:amounts",
    "budget.sliced": "limits:amounts child:text",
    "usage.recorded": "model:text cost:number",
    "gate.decided": "decision:text",
    "gate.overridden": "ground:text reason:text",
    "interruption.recorded": "cause:text message:text resets_at:moment vendor:text vendor_id:text agent:text",
    "payload.erased": "count:count reason:text scope:text",
}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _EXACT


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _EXACT


def _is_moment(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= LAST_SECOND


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _are_texts(value: Any) -> bool:
    return _is_list(value) and all(isinstance(one, str) for one in value)


def _are_objects(value: Any) -> bool:
    return _is_list(value) and all(isinstance(one, dict) for one in value)


def _are_amounts(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_number(one) for one in value.values())


_TESTS = {
    "text": (_is_text, "text"),
    "number": (_is_number, "a number"),
    "count": (_is_count, "a whole number from 0 up"),
    "moment": (_is_moment, "a number of seconds since 1970, up to the year 9999"),
    "object": (_is_object, "an object"),
    "list": (_is_list, "a list"),
    "texts": (_are_texts, "a list of texts"),
    "objects": (_are_objects, "a list of objects"),
    "amounts": (_are_amounts, "an object of numbers"),
}
SHAPES = {
    kind: tuple((name, *_TESTS[of]) for name, _colon, of in (field.partition(":") for field in fields.split()))
    for kind, fields in _FIELDS.items()
}
"""By kind: the name of a field, how it is tested, and what it must be."""


def misfit(kind: str, data: Any) -> str:
    """What is wrong with a payload; "" if all views can read it."""
    shape = SHAPES.get(kind)
    if shape is None or data is None:
        return ""
    if not isinstance(data, dict):
        return "the payload must be an object"
    for name, test, wanted in shape:
        value = data.get(name)
        if value is not None and not test(value):
            return f"{name!r} must be {wanted}, not {value!r:.60}"
    return ""
