"""Changing a user's JSON file without touching what is the user's: insertions and deletions in its text.

Everything that we did not add stays byte for byte as it was: order, indentation, line ends, spaces. Our part can be
removed without a copy of the original, because the text itself shows what is ours: a container we made begins with a
line break; in an existing empty one, our part follows a single space. Our entries are known by the command they run.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Ours = Callable[[Any], bool]
    Edit = tuple[int, int, str]

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_INDENT = re.compile(r"\{\r?\n([ \t]+)\"")
BOM = "\ufeff"
DEFAULT_INDENT = "  "


class Node(NamedTuple):
    """A value in a text: its position, and its content."""

    start: int
    end: int
    value: Any
    items: list[Item] | None
    """The members or elements of a container; None for anything else."""


class Item(NamedTuple):
    """A member of an object (with its key) or an element of an array."""

    start: int
    key: str
    node: Node


def parse(text: str) -> Node:
    """The object in a settings file; an error says what it contains instead."""
    body = text.removeprefix(BOM)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as problem:
        said = "has comments" if _has_comments(body) else f"is not JSON ({problem})"
        raise InvalidInput(
            f"the file {said}; it was left as it is", hint="add the hooks by hand", step="print_setup"
        ) from None
    if not isinstance(value, dict):
        raise InvalidInput(
            "the file is not a JSON object; it was left as it is", hint="add the hooks by hand", step="print_setup"
        )
    return _node(text, _after_space(text, len(text) - len(body)))


def _has_comments(body: str) -> bool:
    outside = _STRING.sub("", body)
    return "//" in outside or "/*" in outside


def _node(text: str, start: int) -> Node:
    opening = text[start]
    if opening not in "{[":
        value, end = _DECODER.raw_decode(text, start)
        return Node(start, end, value, None)
    items: list[Item] = []
    at = _after_space(text, start + 1)
    while text[at] not in "}]":
        first, key = at, ""
        if opening == "{":
            key, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
        node = _node(text, at)
        items.append(Item(first, key, node))
        at = _after_space(text, node.end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    members = {item.key: item.node.value for item in items}
    return Node(start, at + 1, members if opening == "{" else [item.node.value for item in items], items)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def created(wanted: dict[str, Any]) -> str:
    """The text of a file that has only our part. Values that are not containers come last: that marks it as ours."""
    ordered = sorted(wanted.items(), key=lambda pair: not isinstance(pair[1], dict | list))
    return json.dumps(dict(ordered), indent=2, ensure_ascii=False) + "\n"


def merged(text: str, wanted: dict[str, Any], ours: Ours) -> str:
    """The text with our part as it should be; the same text if it has it."""
    present = _our_part(parse(text).value, ours)
    if present == _containers(wanted):
        return text
    if present and is_created(text, wanted, ours):
        return created(wanted)
    if present:
        text = without(text, ours)
    root = parse(text)
    edits: list[Edit] = []
    _put_in(text, root, _containers(wanted), 0, _style(text), edits)
    return _edited(text, edits)


def without(text: str, ours: Ours) -> str:
    """The text without our part."""
    edits: list[Edit] = []
    root = parse(text)
    if _take_out(text, root, ours, edits):
        edits = [(root.start + 1, root.end - 1, "")]
    return _edited(text, edits)


def is_created(text: str, wanted: dict[str, Any], ours: Ours) -> bool:
    """Whether we created the file and nothing was added to it."""
    root = parse(text)
    rest = parse(without(text, ours)).value
    only_ours = all(name in wanted and wanted[name] == value for name, value in rest.items())
    first = root.items[0] if root.items else None
    return only_ours and first is not None and first.key not in rest and text[root.start + 1] in "\r\n"


def with_member(text: str, wanted: dict[str, Any]) -> str:
    """The text with the members of `wanted` that it does not have yet; containers on the way are added too."""
    edits: list[Edit] = []
    _put_in(text, parse(text), wanted, 0, _style(text), edits)
    return _edited(text, edits)


def without_member(text: str, keys: Sequence[str]) -> str | None:
    """The text without a member, and without containers that we made for it; None if nothing of the file is left."""
    root = parse(text)
    chain, node = [root], root
    for key in keys:
        found = [item.node for item in node.items or () if item.key == key]
        if not found:
            return text
        node = found[-1]
        chain.append(node)
    for depth in range(len(keys) - 1, -1, -1):
        inside, goes = chain[depth], keys[depth]
        if len(inside.items or ()) > 1 or text[inside.start + 1] not in "\r\n":
            edits: list[Edit] = []
            _cut(inside, goes, edits)
            return _edited(text, edits)
    return None


def _cut(node: Node, key: str, edits: list[Edit]) -> None:
    """Delete one member of an object, with the comma that belongs to it."""
    items = node.items or []
    at = max(number for number, item in enumerate(items) if item.key == key)
    if at:
        edits.append((items[at - 1].node.end, items[at].node.end, ""))
    elif len(items) > 1:
        edits.append((items[0].start, items[1].start, ""))
    else:
        edits.append((node.start + 1, items[0].node.end, ""))


def has_any(text: str, ours: Ours) -> bool:
    """Whether the text has anything of ours."""
    return bool(_our_part(parse(text).value, ours))


def commands(text: str, ours: Ours) -> list[str]:
    """Every command of ours in the text, in order."""
    return [one for one in _strings(parse(text).value) if ours(one)]


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [one for item in value for one in _strings(item)]
    return [value] if isinstance(value, str) else []


def _containers(wanted: dict[str, Any]) -> dict[str, Any]:
    """What is added to an existing file. Single values in it are the user's, there or not."""
    return {name: value for name, value in wanted.items() if isinstance(value, dict | list)}


def is_mine(value: Any, ours: Ours) -> bool:
    """Whether an entry is wholly ours: it runs our command, or all entries under it do."""
    if not isinstance(value, dict):
        return False
    if any(isinstance(one, str) and ours(one) for one in value.values()):
        return True
    below = [entry for one in value.values() if isinstance(one, list) for entry in one if isinstance(entry, dict)]
    return bool(below) and all(is_mine(entry, ours) for entry in below)


def _our_part(value: Any, ours: Ours) -> Any:
    """Of a value only what is ours, in its containers."""
    if isinstance(value, dict):
        found = {name: _our_part(one, ours) for name, one in value.items()}
        return {name: one for name, one in found.items() if one}
    if isinstance(value, list):
        return [
            one if is_mine(one, ours) else part for one in value if is_mine(one, ours) or (part := _our_part(one, ours))
        ]
    return None


def _style(text: str) -> tuple[str, str]:
    """How one level is indented here, and how lines end."""
    found = _INDENT.search(text)
    return found[1] if found else DEFAULT_INDENT, "\r\n" if "\r\n" in text else "\n"


def _put_in(text: str, node: Node, wanted: Any, depth: int, style: tuple[str, str], edits: list[Edit]) -> None:  # noqa: PLR0917 - one step of a recursion
    if isinstance(wanted, list):
        if not isinstance(node.value, list):
            raise Conflict(
                "the file has another value where a list of hooks belongs",
                hint="add the hooks by hand",
                step="print_setup",
            )
        _add(node, [_shown(one, depth + 1, style) for one in wanted], depth, style, edits)
        return
    if not isinstance(node.value, dict):
        raise Conflict(
            "the file has another value where its hooks belong", hint="add the hooks by hand", step="print_setup"
        )
    missing = []
    for key, value in wanted.items():
        known = [item.node for item in node.items or () if item.key == key]
        if known:
            _put_in(text, known[-1], value, depth + 1, style, edits)
        else:
            missing.append(f"{json.dumps(key)}: {_shown(value, depth + 1, style)}")
    _add(node, missing, depth, style, edits)


def _add(node: Node, texts: Sequence[str], depth: int, style: tuple[str, str], edits: list[Edit]) -> None:
    if not texts:
        return
    indent, line_end = style
    gap = f"{line_end}{indent * (depth + 1)}"
    if node.items:
        at, put = node.items[-1].node.end, "".join(f",{gap}{one}" for one in texts)
    else:
        at, put = node.start + 1, " " + f",{gap}".join(texts)
    edits.append((at, at, put))


def _shown(value: Any, depth: int, style: tuple[str, str]) -> str:
    indent, line_end = style
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text.replace("\n", f"{line_end}{indent * depth}")


def _take_out(text: str, node: Node, ours: Ours, edits: list[Edit]) -> bool:
    """Collect the deletions inside a value; True if all of it is ours and is deleted."""
    items = node.items
    if not items:
        return False
    inside: list[Edit] = []
    is_list = isinstance(node.value, list)
    going = [(is_list and is_mine(item.node.value, ours)) or _take_out(text, item.node, ours, inside) for item in items]
    if all(going):
        if text[node.start + 1] in "\r\n":
            return True
        edits.append((node.start + 1, items[-1].node.end, ""))
        return False
    edits += inside
    kept_before = False
    for number, (item, goes) in enumerate(zip(items, going, strict=True)):
        if goes and kept_before:
            edits.append((items[number - 1].node.end, item.node.end, ""))
        elif goes:
            edits.append((item.start, items[number + 1].start, ""))
        kept_before = kept_before or not goes
    return False


def _edited(text: str, edits: list[Edit]) -> str:
    for start, end, put in sorted(edits, reverse=True):
        text = text[:start] + put + text[end:]
    return text
