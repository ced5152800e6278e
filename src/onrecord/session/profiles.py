"""Profiles: a kind of work as data. Ordered phases, the required sections of each, the sections of STATE.md.

    name = "survey"
    about = "What it is for"
    instructions = "what an agent reads besides the rules of every profile"

    [[phases]]                      # in order; numbered from 0
    name = "Collect"
    goal = "What is reached when it is done"
    checkpoint = ["Sources"]        # the required sections: they must not be empty
    all_features = false            # true: every listed feature must pass

    [[sections]]                    # of STATE.md, in order
    name = "Sources"
    description = "one line; it cannot be edited in STATE.md"
    rule = "free"                   # free, append (it only grows) or generated (`from` says from what)

A profile is checked before it is recorded, and every error says where the problem is and what is allowed there.
"""

from __future__ import annotations

from onrecord.errors import InvalidInput
from onrecord.views.sections import SOURCES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from onrecord.views.values import Json, Phase, Profile, Section

RULES = ("free", "append", "generated")
PROFILE_NAME_LIMIT = 60
"""The longest name of a profile, phase or section, in characters."""
DESCRIPTION_LIMIT = 200
"""The longest description of a section or goal of a phase, in characters."""
INSTRUCTIONS_LIMIT = 2_000
"""The longest instructions of a profile, in characters: an agent reads them at every start."""
PHASES_LIMIT = 30
"""The most phases of a profile."""
SECTIONS_LIMIT = 40
"""The most sections of a profile."""
_PROFILE: dict[str, type] = {"name": str, "about": str, "instructions": str, "phases": list, "sections": list}
_PHASE: dict[str, type] = {"name": str, "number": int, "goal": str, "checkpoint": list, "all_features": bool}
_SECTION: dict[str, type] = {"name": str, "description": str, "rule": str, "from": str}


def check(profile: Json, where: str = "the profile") -> Profile:
    """The profile with its defaults filled in; an error says where it is wrong and what is allowed."""
    given = _table(profile, _PROFILE, where)
    name = _name(given, where)
    sections = [
        _section(one, f"{where}, section {number}")
        for number, one in enumerate(_list(given, "sections", SECTIONS_LIMIT, where), 1)
    ]
    _once([section["name"] for section in sections], f"{where}: section")
    phases = [
        _phase(one, number, sections, f"{where}, phase {number}")
        for number, one in enumerate(_list(given, "phases", PHASES_LIMIT, where))
    ]
    _once([phase["name"] for phase in phases], f"{where}: phase")
    return {
        "name": name,
        "about": _line(given, "about", where),
        "instructions": _text(given, "instructions", INSTRUCTIONS_LIMIT, where).strip(),
        "phases": phases,
        "sections": sections,
    }


def _phase(phase: Json, number: int, sections: list[Section], where: str) -> Phase:
    given = _table(phase, _PHASE, where)
    name = _name(given, where)
    if given.get("number", number) != number:
        raise InvalidInput(
            f"{where} ({name}): its number must be {number}, not {given['number']}",
            hint="phases are numbered in order, starting with 0; leave `number` out",
        )
    known = [section["name"] for section in sections]
    checkpoint = given.get("checkpoint", [])
    for section in checkpoint:
        if section not in known:
            raise InvalidInput(
                f"{where} ({name}): it requires the section {section!r:.80}, which does not exist",
                hint=f"the sections are {', '.join(known)}" if known else "add sections as [[sections]]",
            )
    return {
        "number": number, "name": name, "goal": _line(given, "goal", where), "checkpoint": list(checkpoint),
        "all_features": given.get("all_features", False),
    }  # fmt: skip


def _section(section: Json, where: str) -> Section:
    given = _table(section, _SECTION, where)
    name, rule = _name(given, where), given.get("rule", "free")
    if rule not in RULES:
        raise InvalidInput(f"{where} ({name}): rule must be one of {', '.join(RULES)}, not {rule!r:.80}")
    source = given.get("from")
    if (rule == "generated") is (source is None):
        raise InvalidInput(
            f"{where} ({name}): "
            + ("a generated section needs `from`" if source is None else "only a generated section may have `from`"),
            hint=f"`from` must be one of {', '.join(SOURCES)}",
        )
    if source is not None and source not in SOURCES:
        raise InvalidInput(
            f"{where} ({name}): unknown source {source!r:.80}", hint=f"`from` must be one of {', '.join(SOURCES)}"
        )
    made: Section = {"name": name, "description": _line(given, "description", where), "rule": rule}
    if source:
        made["from"] = source
    return made


def _table(value: Any, fields: dict[str, type], where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where} is not a table", hint=f"its fields are {', '.join(fields)}")
    for name, content in value.items():
        if name not in fields:
            raise InvalidInput(f"{where} has an unknown field {name!r:.80}", hint=f"its fields are {', '.join(fields)}")
        if not isinstance(content, fields[name]) or (fields[name] is int and isinstance(content, bool)):
            raise InvalidInput(f"{where}: {name} must be {_word(fields[name])}, not {content!r:.80}")
    return value


def _word(kind: type) -> str:
    return {str: "text", int: "a whole number", bool: "true or false", list: "a list"}[kind]


def _list(given: dict[str, Any], field: str, limit: int, where: str) -> list[Any]:
    found = given.get(field)
    if not found:
        raise InvalidInput(f"{where} has no {field}", hint=f"add them as [[{field}]]")
    if len(found) > limit:
        raise InvalidInput(f"{where} has {len(found)} {field}; the limit is {limit}")
    return list(found)


def _name(given: dict[str, Any], where: str) -> str:
    name = given.get("name", "")
    good = name == " ".join(name.split()) and name.isprintable() and not set(name) & set("<>#|`*\\")
    if not name or len(name) > PROFILE_NAME_LIMIT or not good:
        raise InvalidInput(
            f"{where}: {name!r:.80} is not a valid name",
            hint=f"use 1 to {PROFILE_NAME_LIMIT} visible characters on one line, without < > # | ` * and backslash",
        )
    return str(name)


def _line(given: dict[str, Any], field: str, where: str) -> str:
    text = _text(given, field, DESCRIPTION_LIMIT, where)
    if text and (not text.isprintable() or "<!--" in text):
        raise InvalidInput(f"{where}: {field} must be one line of visible text without comments")
    return text


def _text(given: dict[str, Any], field: str, limit: int, where: str) -> str:
    text = str(given.get(field, ""))
    if len(text) > limit:
        raise InvalidInput(f"{where}: {field} has {len(text):,} characters; the limit is {limit:,}")
    return text


def _once(names: list[str], where: str) -> None:
    folded = [name.casefold() for name in names]
    for name in names:
        if folded.count(name.casefold()) > 1:
            raise InvalidInput(f"{where} {name!r} appears twice")
