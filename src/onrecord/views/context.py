"""The context: what a model should see this turn, within a token budget. It is made anew each time, from the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log.codec import encode_payload
from onrecord.views.dialects import to_messages
from onrecord.views.transcript import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.items import Item
    from onrecord.views.transcript import Turn

BYTES_PER_TOKEN = 4
"""The default counter's guess; give `context` your tokenizer's counter to be exact."""


def count_tokens(text: str) -> int:
    """A rough count for when no tokenizer is at hand; it rather counts too many."""
    return len(text.encode()) // BYTES_PER_TOKEN + 1


class Context(NamedTuple):
    """Brief, summary and the most recent items, oldest first."""

    brief: str
    summary: str | None
    items: list[Item]
    tokens: int
    left_out: int
    """How many committed turns are not here as a whole: they stand in the summary, or did not fit."""
    position: int

    def messages(self, dialect: str = "neutral") -> list[dict[str, Any]]:
        """The context as messages: brief and summary as one system item, then the conversation, well formed."""
        known = f"<record position={self.position}>\n{_inert(self.brief)}</record>"
        if self.summary:
            known += f"\n<summary>\n{_inert(self.summary)}\n</summary>"
        return to_messages([{"role": "system", "content": known}, *self.items], dialect)


def _inert(text: str) -> str:
    """Text from the record is data: it cannot close the element it stands in."""
    return text.replace("<", "‹").replace(">", "›")


def assemble(
    brief: str, summary: str | None, turns: list[Turn], *, tokens: int, count: Callable[[str], int], position: int,
    committed: int,
) -> Context:  # fmt: skip
    """Fit brief and summary, then groups of items from the newest back. A call is never parted from its result."""
    used = count(brief)
    if summary and used + count(summary) <= tokens:
        used += count(summary)
    else:
        summary = None
    chosen: list[list[Item]] = []
    whole_turns = 0
    for turn in reversed(turns):
        groups = _groups(turn.items)
        costs = [sum(count(encode_payload(_spoken(item)).decode()) for item in group) for group in groups]
        while groups and used + costs[-1] <= tokens:
            used += costs.pop()
            chosen.append(groups.pop())
        if groups:
            break
        whole_turns += 1
    items = well_formed([item for group in reversed(chosen) for item in group])
    return Context(brief, summary, items, used, committed - whole_turns, position)


def _spoken(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != "verbatim"}


def _groups(items: list[Item]) -> list[list[Item]]:
    """An assistant's item and the results that answer its calls belong together."""
    groups: list[list[Item]] = []
    for item in items:
        if item["role"] == "tool" and groups:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups
