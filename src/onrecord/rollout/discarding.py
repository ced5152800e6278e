"""Discarding: a request may replace generated turns, but not if it still has them in another form.

A turn is replaced on purpose by a request that leaves it out. If the turn comes again in another place, spelling or
role, as when an agent keeps only the last messages, it would be tokenized as text that the client wrote, and its
sampled ids would be lost without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import InvalidInput
from onrecord.rollout.matching import difference, spelling_hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.rollout.matching import Matching, Message

BRANCHES_HINT = "to keep both lines, serve rollouts with branches, or make a branch first (POST .../branches)"


class Discarding(NamedTuple):
    """What a request would discard."""

    messages: Sequence[Message]
    """The messages on record."""
    matching: Matching
    matched: int
    """How many of them the request repeats."""
    generated: Sequence[int]
    """The indexes of the generated messages that it would discard."""
    tokens: int
    """How many ids were sampled for them."""

    def repeats(self, message: Message) -> bool:
        """Whether a message of the request is one of those, in whatever role it comes back."""
        return any(self._is(index, {**message, "role": "assistant"}) for index in self.generated)

    def written(self) -> list[int]:
        """The indexes of the assistant messages that the client wrote itself, after those that are repeated."""
        rest = range(self.matched, len(self.messages))
        return [i for i in rest if i not in self.generated and self.messages[i].get("role") == "assistant"]

    def _is(self, index: int, message: Message) -> bool:
        return self.matching.length([message], index) == 1

    def unknown(self, rest: Sequence[Message]) -> bool:
        """Whether a request has an assistant message that the client did not write in the first prompt."""
        written = self.written()
        for message in rest:
            if message.get("role") == "assistant":
                known = next((index for index in written if self._is(index, message)), None)
                if known is None:
                    return True
                written.remove(known)
        return False


def refuse_repeated(discarding: Discarding, rest: Sequence[Message]) -> None:
    """Refuse a request whose messages from the first difference on, `rest`, may have a discarded turn among them."""
    if not any(map(discarding.repeats, rest)) and not discarding.unknown(rest):
        return
    matched = discarding.matched
    stored, given = discarding.messages[matched], rest[0]
    what, spelled = difference(stored, given), matched in discarding.generated
    raise InvalidInput(
        f"this request repeats a generated turn, but not as it was answered: message {matched} differs in {what}; "
        f"{discarding.tokens:,} sampled tokens would be lost",
        hint=f"{spelling_hint(stored, given)}; to replace the turn, send the messages before it"
        if spelled
        else f"send the conversation as it was answered; {BRANCHES_HINT}",
        matched=matched,
        differs=what,
    )
