"""The context: what a model should see this turn, within a token budget. It is made from the log for each turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import InvalidInput
from onrecord.log.codec import encode_payload
from onrecord.views.dialects import to_messages
from onrecord.views.render import clip
from onrecord.views.transcript import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.items import Item
    from onrecord.views.transcript import Turn
    from onrecord.views.values import Message

BYTES_PER_TOKEN = 4
"""The default counter's guess; give `context` your tokenizer's counter to be exact."""
SHORTEST_BRIEF = 32
"""The fewest bytes of a shortened brief that are worth showing."""


def count_tokens(text: str) -> int:
    """A rough count for when there is no tokenizer; it tends to count too many."""
    return len(text.encode()) // BYTES_PER_TOKEN + 1


class Context(NamedTuple):
    """Brief, summary and the most recent items, oldest first."""

    brief: str
    summary: str | None
    items: list[Item]
    tokens: int
    left_out: int
    """How many committed turns are missing here: the summary covers them, or they did not fit."""
    position: int

    def messages(self, dialect: str = "neutral") -> list[Message]:
        """The context as messages: brief and summary as one system item, then the conversation, well formed."""
        known = _known(self.brief, self.summary, self.position)
        return to_messages([{"role": "system", "content": known}, *self.items], dialect)


def _known(brief: str, summary: str | None, position: int) -> str:
    """Brief and summary as one text."""
    known = f"<record position={position}>\n{_inert(brief)}</record>"
    return f"{known}\n<summary>\n{_inert(summary)}\n</summary>" if summary else known


def _inert(text: str) -> str:
    """Text from the record is data: it cannot close the element around it."""
    return text.replace("<", "‹").replace(">", "›")


def assemble(
    brief: str, summary: str | None, turns: list[Turn], *, tokens: int, count: Callable[[str], int], position: int,
    committed: int,
) -> Context:  # fmt: skip
    """Fit brief and summary, then groups of items from the newest back. A call is never separated from its result."""
    turns = [turn._replace(items=[item for item in turn.items if not item.get("thinking")]) for turn in turns]
    if summary and count(_known(brief, summary, position)) > tokens:
        summary = None
    brief = _fitted(brief, summary, position, tokens=tokens, count=count)
    used = count(_known(brief, summary, position))
    groups = _groups(well_formed(item for turn in turns for item in turn.items))
    owners = [number for number, turn in enumerate(turns, 1) for item in turn.items if item["role"] != "tool"]
    oldest = len(groups)
    while oldest:
        cost = sum(count(encode_payload(_spoken(item)).decode()) for item in groups[oldest - 1])
        if used + cost > tokens:
            break
        used += cost
        oldest -= 1
    whole_turns = len(turns) - (owners[oldest - 1] if oldest else 0)
    items = [item for group in groups[oldest:] for item in group]
    return Context(brief, summary, items, used, committed - whole_turns, position)


def _fitted(brief: str, summary: str | None, position: int, *, tokens: int, count: Callable[[str], int]) -> str:
    """The brief, shortened if it is too long for the budget."""
    whole, size = brief, len(brief.encode())
    while count(_known(brief, summary, position)) > tokens:
        if not brief:
            raise InvalidInput(f"a context of {tokens:,} tokens is too small for the note", hint="allow more tokens")
        size = size * 3 // 4
        brief = clip(whole, size) if size >= SHORTEST_BRIEF else ""
    return brief


def _spoken(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != "verbatim"}


def _groups(items: list[Item]) -> list[list[Item]]:
    """An assistant's item and the results that answer its calls belong together."""
    groups: list[list[Item]] = []
    for item in items:
        if item["role"] == "tool":
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups
