"""Arguments of a tool, checked against its schema: wrong ones become one sentence that names the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.surfaces.mcp.schemas import LIST_LENGTH, TEXT_WIDTH

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST_NUMBER = 2**53
"""The largest whole number that every JSON reader keeps exact."""


def check(name: str, given: Mapping[str, Any] | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without those that are null. `InvalidInput` names the first wrong one."""
    fields: Mapping[str, Any] = schema["properties"]
    found = {field: value for field, value in (given or {}).items() if value is not None}
    for field in found:
        if field not in fields:
            raise InvalidInput(f"`{name}` has no argument {field!r:.60}", hint=f"its arguments are {', '.join(fields)}")
    for field in schema.get("required", ()):
        if field not in found:
            raise InvalidInput(f"`{name}` needs the argument `{field}`", hint=f"`{field}` is {_kind(fields[field])}")
    for field, value in found.items():
        _check(field, value, fields[field])
    return found


def _check(field: str, value: Any, wanted: Mapping[str, Any]) -> None:
    kind = wanted["type"]
    if kind == "array":
        if not isinstance(value, list):
            raise InvalidInput(f"`{field}` must be a list", hint=f"write it like {_example(wanted)}")
        if len(value) > LIST_LENGTH:
            raise InvalidInput(
                f"`{field}` has {len(value):,} entries; the limit is {LIST_LENGTH}", hint="make several calls"
            )
        for one in value:
            _check(field, one, wanted["items"])
        return
    # A bool is an int in Python, and not in JSON.
    right: Any = {"string": str, "integer": int, "boolean": bool}[kind]
    if not isinstance(value, right) or (kind == "integer" and isinstance(value, bool)):
        raise InvalidInput(
            f"`{field}` must be {_kind(wanted)}, not {type(value).__name__}", hint=f"write it like {_example(wanted)}"
        )
    if kind == "string":
        _check_text(field, value, wanted)
    elif kind == "integer" and not wanted.get("minimum", 0) <= value <= LARGEST_NUMBER:
        raise InvalidInput(
            f"`{field}` must be {_kind(wanted)}, not {value!r:.30}", hint=f"write it like {_example(wanted)}"
        )


def _check_text(field: str, value: str, wanted: Mapping[str, Any]) -> None:
    if "enum" in wanted and value not in wanted["enum"]:
        raise InvalidInput(f"`{field}` must be {_kind(wanted)}, not {value!r:.60}", hint="use one of these words")
    if len(value) > TEXT_WIDTH:
        raise InvalidInput(f"`{field}` has {len(value):,} characters; the limit is {TEXT_WIDTH:,}", hint="shorten it")
    if not value.strip():
        raise InvalidInput(f"`{field}` is empty", hint="leave it out, or write something")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"`{field}` contains a lone surrogate, which is not valid Unicode", hint="remove it"
        ) from None


def _example(wanted: Mapping[str, Any]) -> str:
    """A value of the right kind, as JSON."""
    if "enum" in wanted:
        return f'"{wanted["enum"][0]}"'
    return {"integer": "3", "string": '"some text"', "boolean": "true", "array": '["some text"]'}[wanted["type"]]


def _kind(wanted: Mapping[str, Any]) -> str:
    if "enum" in wanted:
        return f"one of {', '.join(wanted['enum'])}"
    if wanted["type"] == "integer":
        return f"a whole number from {wanted.get('minimum', 0)} up"
    return {"string": "text", "boolean": "true or false", "array": "a list of texts"}[wanted["type"]]
