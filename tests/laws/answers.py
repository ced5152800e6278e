"""What stores are asked and answer, where two of them are compared."""

from collections.abc import Callable
from typing import Any

from onrecord.errors import OnrecordError

FACTS = (
    "decision.made",
    "objective.set",
    "session.paused",
    "session.resumed",
    "session.closed",
    "session.renamed",
    "x.y",
)
"""What may come between turns: what is only added, what moves the lifecycle, what lists show, and a kind of tomorrow."""


def outcome(call: Callable[[], Any]) -> Any:
    """What came of it: the answer, or the code of the refusal."""
    try:
        return call()
    except OnrecordError as refusal:
        return refusal.code
