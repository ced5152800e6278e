"""Progress: whether the agent still makes progress, judged by its tool calls."""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, NamedTuple
from onrecord.log.codec import encode_payload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onrecord.log.item_values import Item

LOOK_BACK_TURNS = 24
"""How many of the last turns are compared."""
LONGEST_CYCLE = 4
"""The longest oscillation that is recognised, in calls."""


class Stuck(NamedTuple):
    """The same calls over and over."""

    cycle: int
    """1 for one call repeated; 2 for back and forth; and so on."""
    repeats: int
    calls: tuple[str, ...]

    def __str__(self) -> str:
        what = " -> ".join(self.calls)
        return (
            f"{what} made {self.repeats} times in a row"
            if self.cycle == 1
            else f"{what} went round {self.repeats} times"
        )


def stuck(items: Iterable[Item], repeats: int = 3) -> Stuck | None:
    """Whether the last calls repeat, with the same arguments and results, at least `repeats` times."""
    signatures, names = _signatures(items)
    for cycle in range(1, LONGEST_CYCLE + 1):
        count = _rounds(signatures, cycle)
        if count >= repeats:
            return Stuck(cycle, count, tuple(names[-cycle:]))
    return None


def _signatures(items: Iterable[Item]) -> tuple[list[bytes], list[str]]:
    """One signature per call: name, arguments and what came back. A changed result is progress."""
    signatures: list[bytes] = []
    names: list[str] = []
    places: dict[str, int] = {}
    """Where the newest call of an id is: calls of different answers may have the same id."""
    for item in items:
        for call in item.get("tool_calls") or ():
            places[call["id"]] = len(signatures)
            signatures.append(encode_payload([call["name"], call.get("arguments")]))
            names.append(call["name"])
        if item["role"] == "tool" and item["call"] in places:
            signatures[places.pop(item["call"])] += encode_payload(item.get("content"))
    return signatures, names


def _rounds(signatures: list[bytes], cycle: int) -> int:
    last = signatures[-cycle:]
    if len(last) < cycle or (cycle > 1 and len(set(last)) == 1):
        return 0
    count = 0
    for start in range(len(signatures) - cycle, -1, -cycle):
        if signatures[start : start + cycle] != last:
            break
        count += 1
    return count
