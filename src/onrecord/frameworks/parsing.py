"""JSON text of entries and payloads, read quickly: what a resume spends most of its time with."""

from __future__ import annotations

import json
from functools import cache, partial
from typing import TYPE_CHECKING, Any

try:
    from pydantic_core import SchemaValidator, from_json
    from pydantic_core.core_schema import any_schema, json_schema, list_schema, typed_dict_field, typed_dict_schema

    _quick = partial(from_json, cache_strings="keys")
except ImportError:  # every framework so far has it
    SchemaValidator = None  # type: ignore[assignment, misc]  # as above
    _quick = partial(json.loads)

if TYPE_CHECKING:
    from collections.abc import Callable

VENDOR = "vendor"
"""The field of a payload that names its framework."""
LINES, VALUES = "lines", "values"
"""The field that has entries as texts, and what a parser that reads these too returns in its place."""


def parsed(text: str | bytes) -> Any:
    """JSON text as `json.loads` reads it, in a third of the time."""
    try:
        return _quick(text)
    except ValueError:
        return json.loads(text)  # it also reads escaped lone surrogates, and a line may have some


@cache
def parser_of(framework: str, fields: tuple[str, ...]) -> Callable[[bytes], Any]:
    """A parser of payloads: of those of one framework, it makes only the named fields; of all others, everything.

    A payload also has what its entries say, for readers of the transcript: most of its objects, and an adapter that
    reads its own entries needs none of them. If `VALUES` is named, the texts of entries are parsed with their payload:
    then it has `VALUES`, or `LINES` if one of them is not what the quick parser reads.
    """
    if SchemaValidator is None:
        return parsed
    wanted = {name: typed_dict_field(any_schema(), required=False) for name in (*fields, VENDOR)}
    if VALUES in wanted:
        wanted[VALUES] = typed_dict_field(list_schema(json_schema()), required=False, validation_alias=LINES)
    parts = SchemaValidator(typed_dict_schema(wanted)).validate_json

    def parse(payload: bytes) -> Any:
        try:
            found = parts(payload)
        except ValueError:
            return parsed(payload)
        return found if found.get(VENDOR) == framework else parsed(payload)

    return parse
