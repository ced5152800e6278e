"""What is read from a vendor's transcript: where it is, its records, what they say and count, and how far it was read.

These are part of the port; hooks that copy a transcript load this module instead of the whole port.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.item_values import Item


class Location(NamedTuple):
    """Where a conversation is kept."""

    vendor_id: str
    path: str
    """The file (or database) that contains it."""
    home: str
    """Its config home."""
    cwd: str = ""
    """The directory it started in, if its path or head says so."""


class Mark(NamedTuple):
    """A cursor in a transcript. Only the vendor module interprets it; it consists of JSON values."""

    offset: int = 0
    """Bytes for files, a row key for databases."""
    extra: Any = None
    """What identifies the file as the same one, grown: size and a digest of the first bytes, for instance."""


class Usage(NamedTuple):
    """What one model call used, as the vendor wrote it: the same meaning of every number for all vendors."""

    call: str
    """The vendor's id of the call; a copy of the record has the same one. Empty: no call, see `model`."""
    model: str = ""
    """Empty: the model that was named last. Without a call: the model of the calls that follow."""
    input_tokens: int = 0
    """All input, whether or not it came from a cache."""
    cache_read_tokens: int = 0
    """The part of the input that was read from a cache."""
    cache_write_tokens: int = 0
    """The part of the input that was written to a cache."""
    output_tokens: int = 0
    """All output, reasoning included."""
    reasoning_tokens: int = 0
    cost: float | None = None
    """In US dollars, if the vendor says so."""
    again: bool = False
    """The record may repeat calls from anywhere before it in the conversation."""
    local: bool = False
    """The id means something only within the conversation."""
    total: bool = False
    """No call, but the sum of all calls to the model so far, as far as the vendor's program knows them."""


class Entry(NamedTuple):
    """One record of a vendor's transcript."""

    raw: str
    """The record word for word; restoring writes this."""
    kind: str
    """The vendor's own record type."""
    id: str = ""
    parent: str = ""
    at: str = ""
    items: Sequence[Item] = ()
    """Its items in neutral form (see log/items.py); none for control records and unknown ones."""
    known: bool = True
    usage: Sequence[Usage] = ()
    """The model calls that this record counts."""


class Said(NamedTuple):
    """What a record says in the conversation, for the reading that is kept beside it (see log/readings.py)."""

    items: Sequence[Item]
    """In neutral form; thinking is marked `thinking`, the summary of a compaction `summary`."""
    id: str = ""
    """The vendor's id of it: a later record with the same id replaces it."""
    parent: str = ""
    """The id of the record that it continues, where the vendor keeps a tree."""
    turn: str = ""
    """`readings.BEGINS` if it is a prompt, MAY_BEGIN if it is one only if it is answered, ABORTS if it ends a turn."""
    lane: str = ""
    """The subagent that said it; empty: the agent itself."""
    weak: bool = False
    """It repeats an earlier record, and does not replace it."""


class Chunk(NamedTuple):
    """The result of one read."""

    entries: list[Entry]
    mark: Mark
    torn: int = 0
    """Lines that are cut off or not JSON: skipped, counted, never rewritten. An unfinished last line does not count."""
    rewritten: bool = False
    """The file is not the one that the mark belongs to: reading started over."""
