"""A small TOML file: read without the parser where its lines are plain, and changed in place by one setting at a time.

Every hook reads the user's settings, and importing the parser takes longer than the rest of a plain allow.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SPECIAL = ("\\", "\r", "\x7f", "'", "{", '"""')
"""With one of these in it, a text is left to the parser."""
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_STARTS = frozenset('"[0123456789tf-')


def loads(text: str) -> dict[str, Any]:
    """The content of a TOML text; ValueError if it is none."""
    found = plain(text)
    if found is not None:
        return found
    import tomllib

    return tomllib.loads(text)


def plain(text: str) -> dict[str, Any] | None:
    """The content, if every line is empty, a comment, a [header] or `name = value` on one line; None for the parser.

    Such values are written alike in TOML and in JSON.
    """
    if any(one in text for one in _SPECIAL):
        return None
    whole: dict[str, Any] = {}
    table = whole
    for line in text.split("\n"):
        line = line.strip(" \t")  # noqa: PLW2901 - the same line
        if not line:
            continue
        if not line.isprintable():
            return None
        if line[0] == "#":
            continue
        if line[0] == "[":
            name = line[1:-1]
            if line[-1] != "]" or not name or not _BARE.issuperset(name) or name in whole:
                return None
            table = whole[name] = {}
            continue
        name, equals, value = line.partition("=")
        name, value = name.rstrip(" \t"), value.lstrip(" \t")
        if not equals or not name or not _BARE.issuperset(name) or name in table or value[:1] not in _STARTS:
            return None
        try:
            table[name] = _value(value)
        except (ValueError, RecursionError):
            return None
    return whole


def _value(text: str) -> Any:
    """A value that TOML and JSON write alike: a text, a number, a truth value, or a list of them."""
    found = json.loads(text, parse_constant=_refuse)
    for one in found if isinstance(found, list) else (found,):
        if not isinstance(one, str | int | float):
            raise ValueError(f"not a plain value: {text}")  # noqa: TRY004 - it is the text that is wrong
    return found


def _refuse(word: str) -> None:
    raise ValueError(f"not a number: {word}")


def with_setting(text: str, name: str, value: Any) -> str:
    """The text with this top-level setting; None removes it. Everything else stays byte for byte as it is.

    ValueError if the text is no TOML, or has the setting in a form that cannot be changed by replacing its line.
    """
    import tomllib

    before = tomllib.loads(text)
    lines = text.splitlines(keepends=True)
    end = next((number for number, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    at = next((number for number in range(end) if lines[number].partition("=")[0].strip() == name), None)
    new = [] if value is None else [f"{name} = {json.dumps(value, ensure_ascii=False)}\n"]
    if at is not None:
        lines[at : at + 1] = new
    else:
        if new and end and not lines[end - 1].endswith("\n"):
            lines[end - 1] += "\n"
        lines[end:end] = new
    after = "".join(lines)
    wanted = {key: one for key, one in before.items() if key != name} | ({} if value is None else {name: value})
    if tomllib.loads(after) != wanted:
        raise ValueError(f"the setting {name} does not fit on its line")
    return after
