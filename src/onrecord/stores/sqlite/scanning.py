"""Events of a whole log one by one, as a resume reads them: fetched in pages, unpacked and decoded when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.log.codec import UPCASTERS, is_damaged, lifted, parse_record, unreadable
from onrecord.log.events import Event, tuple_new
from onrecord.stores.payloads import OUT_OF_LINE
from onrecord.stores.sqlite.readers import as_json
from onrecord.stores.sqlite.rows import POSITION_BITS, POSITION_MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from onrecord.log.events import Record
    from onrecord.stores.payloads import Payloads
    from onrecord.stores.sqlite.readers import Readers, Row

SCAN_PAGE = 200
"""How many events one query of a scan fetches."""
_ENCODING = 8
_NO_HASH = b""


def scan(
    read: Callable[..., list[Record]], readers: Readers, payloads: Payloads, parse: Callable[[bytes], Any], *,
    lines: list[Row], bounds: tuple[int, int], kinds: Collection[str] | None,
) -> Iterator[Event]:  # fmt: skip
    """The events of a session and its ancestors (`lines`, oldest first) within `bounds`; `read` is the store's."""
    wanted = as_json(kinds)
    for number, of, low, high in lines:
        first, last = max(low, bounds[0]), min(high, bounds[1])
        base = number << POSITION_BITS
        while first < last:
            rows = readers.ask("scanned_events", (base + first, base + last, SCAN_PAGE, wanted))
            end = rows[-1][0] & POSITION_MASK if len(rows) == SCAN_PAGE else last
            if any(row[_ENCODING] > OUT_OF_LINE for row in rows):  # under a key of its own: salts are needed
                for record in read(of, after=first, upto=end, kinds=kinds):
                    yield parse_record(record, parse)
            else:
                yield from _events_of(of, rows, payloads, parse)
            first = end


def _events_of(session: str, rows: list[Row], payloads: Payloads, parse: Callable[[bytes], Any]) -> Iterator[Event]:
    decompressor = payloads.borrow()  # of this generator alone, also while its caller does something else
    decompress = decompressor.decompress
    for key, id_, kind, v, at, by, run, because, encoding, payload, salt, payload_hash in rows:
        data = None
        if payload is not None:
            if not encoding and is_damaged(payload, salt, payload_hash):
                raise unreadable(key & POSITION_MASK)
            try:
                data = parse(decompress(payload) if encoding else payload)
            except Exception as problem:  # zstd's error class is not worth its import
                if isinstance(problem, ValueError) or type(problem).__name__ == "ZstdError":
                    raise unreadable(key & POSITION_MASK) from None
                raise
            if UPCASTERS:
                v, data = lifted(kind, v, data)  # noqa: PLW2901  # of this event only
        yield tuple_new(
            Event,
            (session, key & POSITION_MASK, id_, kind, v, at, by, run, because, data, _NO_HASH, _NO_HASH),
        )
    payloads.give_back(decompressor)
