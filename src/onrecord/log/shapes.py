"""Shapes: which type a field of a payload has, for the fields that views rely on.

An event with another type there is refused before it is written. Logs of older versions and bundles may have some: the
views leave such an event out and count it as a misfit, so that one wrong value never makes a session unreadable.
A field that is absent or null is fine unless its kind needs it; fields that are not named here are free.
"""

from __future__ import annotations

from onrecord.log.events import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAST_SECOND = 253_402_300_799
"""The last moment a payload may name, in seconds since 1970: the end of the year 9999."""
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What code raises that reads a payload of an unexpected form. A log from elsewhere may have one, and must be readable
all the same."""
_EXACT = 2**53

_REASON = "reason:text"
_JUDGED = "evidence:texts anchors:objects contradicts:texts why:text revision:revision"
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
    "attempt.started": "command:text signature:text process:object keeper:object cwd:text phase:text revision:revision",
    "attempt.settled": (
        "attempt:count outcome:text error:text fix:text reason:text metrics:object outputs:list revision_after:revision"
    ),
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
    "milestone.reached": "what:text finding:text evidence:texts revision:revision",
    "scratch.set": "key:text",
    "finding.stated": f"claim:text label:text {_JUDGED}",
    "finding.relabelled": f"finding:text label:text {_JUDGED}",
    "finding.challenged": "finding:text argument:text evidence:texts",
    "finding.upheld": "finding:text why:text evidence:texts",
    "hypothesis.chosen": "finding:text",
    "evidence.recorded": (
        "id:text kind:text argv:texts exit_code:number error:text output:text excerpt:text cwd:text revision:revision"
    ),
    "code.changed": "anchors:object revision:revision commits:objects",
    "budget.set": "limits:amounts",
    "budget.sliced": "limits:amounts child:text",
    "usage.recorded": "model:text cost:number input_tokens:number output_tokens:number counted:list",
    "gate.decided": "decision:text",
    "gate.overridden": "ground:text reason:text",
    "interruption.recorded": "cause:text message:text resets_at:moment vendor:text vendor_id:text agent:text",
    "secret.found": "found:objects",
    "tool.used": "tool:text paths:texts",
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


def _is_revision(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    changed = value.get("changed")
    named = all(value.get(name) is None or isinstance(value[name], str) for name in ("revision", "branch"))
    return named and (changed is None or _are_texts(changed))


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
    "revision": (_is_revision, "an object with revision and branch as texts, and changed as a list of texts"),
}
SHAPES = {
    kind: tuple((name, *_TESTS[of]) for name, _colon, of in (field.partition(":") for field in fields.split()))
    for kind, fields in _FIELDS.items()
}
"""By kind: the name of a field, how it is tested, and what it must be."""
_NEEDS = {kind: frozenset(KINDS[kind].needs.split()) for kind in SHAPES}


def misfit(kind: str, data: Any) -> str:
    """What is wrong with a payload; "" if all views can read it."""
    shape = SHAPES.get(kind)
    if shape is None or data is None:
        return ""
    if not isinstance(data, dict):
        return "the payload must be an object"
    for name, test, wanted in shape:
        value = data.get(name)
        if value is None and name in _NEEDS[kind]:
            return f"{name!r} must be {wanted}, and is missing"
        if value is not None and not test(value):
            return f"{name!r} must be {wanted}, not {value!r:.60}"
    return ""
