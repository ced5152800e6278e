"""The context: what a model should see this turn, within a token budget. It is made from the log for each turn."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import InvalidInput
from onrecord.log.codec import encode_payload
from onrecord.log.items import without_verbatim
from onrecord.views.dialects import Messages, to_prompt
from onrecord.views.parts import is_media
from onrecord.views.render import clip
from onrecord.views.transcript import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.log.item_values import Item
    from onrecord.views.transcript import Turn

BYTES_PER_TOKEN = 4
"""The default counter's guess; give `context` your tokenizer's counter to be exact."""
IMAGE_TOKENS = 1_600
"""What an image counts: vendors count by its size in pixels, up to about this much, and not by its bytes."""
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
    brief_at: int
    """The position that the brief was made at."""
    left_out_steps: int = 0
    """How many older steps of the open turn did not fit."""
    bare: bool = False
    """Whether the brief is left out."""

    def messages(self, dialect: str = "neutral", *, system: str = "") -> Messages:
        """What to send to a model: system, brief and summary first, then the conversation, well formed.

        `system` is your own text for the system. Where an API takes the system's text apart, it is in `.system`.
        """
        texts = [system] if system else []
        if not self.bare or self.summary:
            texts.append(_known(self.brief, self.summary, self.brief_at))
        said: list[Item] = [{"role": "system", "content": "\n\n".join(texts)}] if texts else []
        made = to_prompt([*said, *self.items], dialect)
        made.tokens, made.left_out, made.position = self.tokens, self.left_out, self.position
        made.left_out_steps = self.left_out_steps
        return made


def _known(brief: str, summary: str | None, position: int) -> str:
    """Brief and summary as one text."""
    known = f"<record position={position}>\n{_inert(brief)}</record>"
    return f"{known}\n<summary>\n{_inert(summary)}\n</summary>" if summary else known


def _inert(text: str) -> str:
    """Text from the record is data: it cannot close the element around it."""
    return text.replace("<", "‹").replace(">", "›")


def assemble(
    brief: str, summary: str | None, turns: list[Turn], *, tokens: int, count: Callable[[str], int], position: int,
    committed: int, running: list[Item] | None = None, bare: bool = False, brief_at: int = 0, dialect: str = "neutral",
) -> Context:  # fmt: skip
    """Fit brief and summary, then groups of items from the newest back. A call is never separated from its result.

    What was said in the open turn (`running`) comes before committed turns, and its first words stay: without the
    question there is nothing to answer. `bare` leaves the brief out. Items count as they are sent in `dialect`.
    """
    cost = partial(cost_of, count=count, dialect=dialect)
    turns = [turn._replace(items=_said(turn.items)) for turn in turns]
    brief_at = brief_at or position
    if bare:
        brief = ""
    if summary and count(_known(brief, summary, brief_at)) > tokens:
        summary = None
    if not bare:
        brief = _fitted(brief, summary, brief_at, tokens=tokens, count=count)
    used = count(_known(brief, summary, brief_at)) if summary or not bare else 0
    now = _groups(well_formed(_said(running or [])))
    first = _opening(now)
    used += sum(cost(group) for group in now[:first])
    if used > tokens:
        raise InvalidInput(f"a context of {tokens:,} tokens is too small for the open turn", hint="allow more tokens")
    used, newest = _fill(now[first:], used, tokens, cost)
    if newest and newest == len(now) - first:
        raise InvalidInput(
            f"a context of {tokens:,} tokens is too small for the last step of the open turn",
            hint="allow more tokens: without its last step the model would do it again",
        )
    skipped = newest
    groups, oldest = _groups(well_formed(item for turn in turns for item in turn.items)), 0
    owners = [number for number, turn in enumerate(turns, 1) for item in turn.items if item["role"] != "tool"]
    if skipped:
        oldest = len(groups)
    else:
        used, oldest = _fill(groups, used, tokens, cost)
    whole_turns = len(turns) - (owners[oldest - 1] if oldest else 0)
    chosen = [*groups[oldest:], *now[:first], *now[first + newest :]]
    items = [item for group in chosen for item in group]
    return Context(brief, summary, items, used, committed - whole_turns, position, brief_at, skipped, bare)


def _said(items: list[Item]) -> list[Item]:
    return [item for item in items if not item.get("thinking")]


def cost_of(items: Iterable[Item], *, count: Callable[[str], int], dialect: str) -> int:
    """The tokens of items as they are sent in a dialect: one that came in this dialect goes back word for word."""
    used = 0
    for item in items:
        kept = item.get("verbatim")
        sent = kept["message"] if kept and kept.get("format") == dialect else without_verbatim(item)
        rest, images = _without_images(sent)
        used += count(encode_payload(rest).decode()) + images * IMAGE_TOKENS
    return used


def _without_images(value: object) -> tuple[object, int]:
    """The same value without its images, and how many it had."""
    if isinstance(value, dict):
        if is_media(value):
            return {}, 1
        made = {name: _without_images(one) for name, one in value.items()}
        return {name: rest for name, (rest, _images) in made.items()}, sum(images for _rest, images in made.values())
    if isinstance(value, list):
        parts = [_without_images(one) for one in value]
        return [rest for rest, _images in parts], sum(images for _rest, images in parts)
    return value, 0


def _fill(
    groups: list[list[Item]], used: int, tokens: int, cost_of_group: Callable[[list[Item]], int]
) -> tuple[int, int]:
    """Take groups from the newest back while they fit: the tokens used then, and the first group that is taken."""
    oldest = len(groups)
    while oldest:
        cost = cost_of_group(groups[oldest - 1])
        if used + cost > tokens:
            break
        used += cost
        oldest -= 1
    return used, oldest


def _opening(groups: list[list[Item]]) -> int:
    """How many groups the open turn begins with that are not the assistant's."""
    return next((number for number, group in enumerate(groups) if group[0]["role"] == "assistant"), len(groups))


def _fitted(brief: str, summary: str | None, position: int, *, tokens: int, count: Callable[[str], int]) -> str:
    """The brief, shortened if it is too long for the budget."""
    whole, size = brief, len(brief.encode())
    while count(_known(brief, summary, position)) > tokens:
        if not brief:
            raise InvalidInput(f"a context of {tokens:,} tokens is too small for the note", hint="allow more tokens")
        size = size * 3 // 4
        brief = clip(whole, size) if size >= SHORTEST_BRIEF else ""
    return brief


def _groups(items: list[Item]) -> list[list[Item]]:
    """An assistant's item and the results that answer its calls belong together."""
    groups: list[list[Item]] = []
    for item in items:
        if item["role"] == "tool":
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups
