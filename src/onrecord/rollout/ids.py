"""Ids: sequences of token ids, assembled from the deltas of turns."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from onrecord.errors import InvalidInput
from onrecord.rollout.turns import INJECTED, TEMPLATE, integers, spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.rollout.turns import Span, Tokenized, TurnRecord

_CHUNK = 4_096


def sequence(records: Sequence[TurnRecord], keep: int | None = None) -> array[int]:
    """The ids after these turns, all or the first `keep`."""
    ids: array[int] = array("i", (0,)) * max([record.length for record in records], default=0)
    for record in records:
        middle = record.keep + len(record.prompt)
        ids[record.keep : middle] = record.prompt
        ids[middle : record.length] = record.output
    del ids[(records[-1].length if records else 0) if keep is None else keep :]
    return ids


def last_ids(records: Sequence[TurnRecord], count: int) -> array[int]:
    """The last ids after these turns, without assembling all of them."""
    first = len(records)
    below = 0
    while first and below < count:
        first -= 1
        below = records[-1].length - records[first].keep
    # From a turn in the middle, `keep` counts ids that are not here: subtract the ids before it. No later turn keeps
    # fewer than that, or the search above would have continued.
    start = records[first].keep if first < len(records) else 0
    ids: array[int] = array("i")
    for record in records[first:]:
        del ids[record.keep - start :]
        ids.extend(record.prompt)
        ids.extend(record.output)
    return ids[-count:]


def marked(tokenized: Tokenized) -> tuple[array[int], tuple[Span, ...]]:
    """The ids of a tokenizer, checked, and the spans of their origins."""
    ids = integers(tokenized.ids, "the ids of a tokenizer")
    spanned: list[Span] = []
    end = 0
    for start, stop in tokenized.injected:
        if not end <= start <= stop <= len(ids):
            raise InvalidInput(f"injected spans must be in order within {len(ids)} ids, but one is {(start, stop)}")
        spanned += [(TEMPLATE, start - end), (INJECTED, stop - start)]
        end = stop
    return ids, spans([*spanned, (TEMPLATE, len(ids) - end)], len(ids), "origins")


def first_difference(one: array[int], other: array[int]) -> int:
    """The first index where two lists of ids differ; the shorter length if one is a prefix of the other."""
    shared = min(len(one), len(other))
    for start in range(0, shared, _CHUNK):
        stop = min(start + _CHUNK, shared)
        if one[start:stop] != other[start:stop]:
            return next(index for index in range(start, stop) if one[index] != other[index])
    return shared


def without(origins: Sequence[Span], count: int) -> list[Span]:
    """Spans without their first `count` ids."""
    left = []
    for mark, length in origins:
        gone = min(length, count)
        count -= gone
        left.append((mark, length - gone))
    return left
