"""Queries to stores and their answers, where two stores are compared."""

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
"""What may come between turns: additive events, lifecycle steps, what lists show, and a kind of a newer version."""


def outcome(call: Callable[[], Any]) -> Any:
    """The outcome: the answer, or the code of the refusal."""
    try:
        return call()
    except OnrecordError as refusal:
        return refusal.code
