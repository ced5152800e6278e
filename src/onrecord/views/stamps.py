"""What every value on record has: who, when, where in the log; and the words for JSON and revisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypedDict

from onrecord.log.item_values import Json

Revision: TypeAlias = Mapping[str, Json]
"""Which state of the code: revision, branch and dirty, a hash of what differs from the revision."""


class Stamp(TypedDict):
    """Where, when and by whom something was recorded."""

    position: int
    at: int
    """Microseconds since 1970."""
    by: str
