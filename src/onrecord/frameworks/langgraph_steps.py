"""A further step of a graph in a few bytes: the number of its shape, a time, and ids.

Which channels a step changed, which texts it added to them and what its tasks wrote is the same in every turn, if texts
are numbered from the first one that the step adds to the pool. So all of that is the *shape* of the step, a text of
the pool, and a payload has `step`: the number of its shape, how much later it was, the ids (of the checkpoint, of
tasks, of messages) as hexadecimal digits, and what does not fit. Now and then a step has the whole state, so that a
reader need not begin with the first one.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from onrecord.frameworks.langgraph_values import POOLED, TAG, VALUE
from onrecord.frameworks.writing import as_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onrecord.frameworks.langgraph_values import Ref

NEAR_BEFORE, NEAR_AFTER = 64, 64
"""A shape refers to texts that are so many before the first new one, or after it."""
TEMPLATE_LIMIT = 256
"""The longest text of a value that a shape repeats."""
WHOLE_EVERY = 64
"""One of so many checkpoints of a thread has the whole state."""
WHOLE_LIMIT = 4_096
"""The longest state that is repeated, in characters."""
HEX = 32
_REFERENCE = re.compile(rf'(\{{"{TAG}":"(?:text|message|{POOLED})","{VALUE}":)(-?\d+)')
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PLAIN = ("id", "later", "shape")


class Pooling(Protocol):
    """What adds texts to the pool, as far as it is needed here."""

    ids: dict[int, str]
    start: int
    """The number of the first text that it adds."""

    def keep_shape(self, text: str) -> int:
        """The number of a shape in the pool; a new one is added."""


def step_of(pooling: Pooling, put: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The payload of a checkpoint, and of the writes that go with it."""
    if not isinstance(put.get("shape"), dict):
        return {"put": put} | ({"writes": [pooled_writes(pooling, one) for one in writes]} if writes else {})
    start = pooling.start
    shape: dict[str, Any] = put["shape"]
    rest = {name: one for name, one in put.items() if name not in _PLAIN}
    digits: list[str] = []
    if _UUID.fullmatch(put["id"]):
        digits.append(put["id"])
    else:
        rest["id"] = put["id"]
        shape["named"] = 1
    _move_values(shape, rest, start)
    others = [pooled_writes(pooling, one) for one in writes if not _move_writes(put, digits, one, start)]
    for number, id_ in list(pooling.ids.items()):
        if _is_near(number - start) and _UUID.fullmatch(id_):
            shape.setdefault("ids", []).append(number - start)
            digits.append(id_)
            del pooling.ids[number]
    number = pooling.keep_shape(as_line(shape))
    step = [number, put.get("later"), "".join(digits).replace("-", "")]
    return {"step": [*step, rest] if rest else step} | ({"writes": others} if others else {})


def _is_near(distance: int) -> bool:
    return -NEAR_BEFORE <= distance < NEAR_AFTER


def _move_values(shape: dict[str, Any], rest: dict[str, Any], start: int) -> None:
    """Move new values of channels into the shape, if they refer to nearby texts only."""
    for channel, refs in list(rest.get("add", {}).items()):
        if all(type(one) is int and _is_near(one - start) for one in refs):
            shape.setdefault("add", {})[channel] = [one - start for one in rest["add"].pop(channel)]
    for channel, text in list(rest.get("set", {}).items()):
        template = _template(text, start)
        if template is not None:
            shape.setdefault("fill", {})[channel] = template
            del rest["set"][channel]
    for name in ("add", "set"):
        if name in rest and not rest[name]:
            del rest[name]


def _template(text: Any, start: int) -> str | None:
    """A text whose numbers of texts count from `start`; None if it refers to none, or would not repeat."""
    if not isinstance(text, str) or len(text) > TEMPLATE_LIMIT:
        return None
    found = [number - start for number in references(text)]
    if not found or not all(map(_is_near, found)):
        return None
    return _REFERENCE.sub(lambda one: f"{one[1]}{int(one[2]) - start}", text)


def filled(template: str, start: int) -> str:
    """The text that a template means."""
    return _REFERENCE.sub(lambda one: f"{one[1]}{int(one[2]) + start}", template)


def references(text: str) -> list[int]:
    """The numbers of the texts that a value refers to."""
    return [int(one[2]) for one in _REFERENCE.finditer(text)]


def _move_writes(put: dict[str, Any], digits: list[str], writes: dict[str, Any], start: int) -> bool:
    """Move the writes of a task into the shape; False if they do not fit."""
    if "id" in writes or writes.get("ns") != put.get("ns") or not _UUID.fullmatch(writes["task"]):
        return False
    path, *rows = writes["shape"]
    of = iter(writes.get("of", ()))
    made: list[list[Any]] = []
    for index, channel, *short in rows:
        value = short[0] if short else next(of)
        if isinstance(value, list):
            if not all(_is_near(one - start) for one in value):
                return False
            made.append([index, channel, [one - start for one in value]])
            continue
        template = value if short else _template(value, start)
        if template is None:
            return False
        made.append([index, channel, template])
    put["shape"].setdefault("writes", []).append([path, *made])
    digits.append(writes["task"])
    return True


def pooled_writes(pooling: Pooling, writes: dict[str, Any]) -> dict[str, Any]:
    """Writes that are kept by themselves: their shape is a text of the pool."""
    return writes | {"shape": pooling.keep_shape(as_line(writes["shape"]))}


def ids_of(digits: str) -> Iterator[str]:
    """The ids that were written as digits, one after the other."""
    for at in range(0, len(digits), HEX):
        one = digits[at : at + HEX]
        yield f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}"


# The whole state


def runs_of(refs: Sequence[Ref]) -> list[Any] | None:
    """Elements of a list as the first number of each run and its length; None if one of them is not a number."""
    if not all(type(one) is int for one in refs):
        return None
    numbers: list[int] = [one for one in refs if isinstance(one, int)]
    ends = [at for at, (one, after) in enumerate(pairwise(numbers), 1) if after != one + 1]
    edges = [0, *ends, len(numbers)]
    return [[numbers[first], last - first] for first, last in pairwise(edges)] if numbers else []


def from_runs(runs: Sequence[Sequence[int]]) -> list[Ref]:
    """The elements that `runs_of` shortened."""
    return [number for first, length in runs for number in range(first, first + length)]
