"""Search: the index of words lags behind the log; every search first updates the part it needs.

So appending never pays for search, and a store that is never searched has no index. Catching up happens in small
transactions, so that writers wait only moments. Where nothing can be written (a read-only directory, a full disk, a
busy store), the events that are not indexed yet are read and compared one by one: slower, and with the same answer.
"""

from __future__ import annotations

from contextlib import suppress
from json import dumps
from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import OutcomeUnknown, SessionLocked, StoreBusy, StoreFull, StoreReadOnly
from onrecord.log.store import Hit
from onrecord.log.text import fits, words_in, words_of
from onrecord.stores.sqlite.connection import QUERIES
from onrecord.stores.sqlite.readers import Readers, records_of
from onrecord.stores.sqlite.rows import POSITION_BITS, POSITION_MASK
from onrecord.stores.sqlite.writer import PendingWrite, Writer

if TYPE_CHECKING:
    import apsw

    from onrecord.stores.payloads import Payloads

BATCH_EVENTS = 100
"""The most events that are indexed in one transaction."""
BATCH_CHARACTERS = 1_000_000
"""No more events join a transaction that already indexes so much text."""


class Portion(NamedTuple):
    """Adjacent events of one session that must be indexed."""

    number: int
    after: int
    upto: int
    words: list[tuple[int, str]]
    """(key, words) of each event that has any."""


class Index(PendingWrite):
    """A write that adds the words of some events to the index."""

    __slots__ = ("_portions",)

    def __init__(self, portions: list[Portion]) -> None:
        super().__init__()
        self._portions = portions

    def work(self, cursor: apsw.Cursor) -> None:
        for number, after, upto, words in self._portions:
            progress = cursor.execute(QUERIES["progress"], (number,)).fetchone()
            if (after if progress is None else progress[0]) != after:
                continue  # another process has indexed it meanwhile
            # Payloads erased since they were read must not enter the index.
            keys = dumps([key for key, _text in words])
            erased = {key for (key,) in cursor.execute(QUERIES["erased_among"], (keys,)).fetchall()}
            cursor.executemany(QUERIES["add_words"], [pair for pair in words if pair[0] not in erased])
            cursor.execute(QUERIES["set_progress"], (number, upto))

    def recall(self, cursor: apsw.Cursor) -> bool:
        """An index that is further than it knows skips what it already has."""
        return False


class Searcher:
    """Answers queries from the index, and from the log where the index cannot follow."""

    def __init__(self, readers: Readers, writer: Writer, payloads: Payloads) -> None:
        self._readers = readers
        self._writer = writer
        self._payloads = payloads

    def search(self, query: str, project: str | None, session: str | None, limit: int) -> list[Hit]:
        """The newest events that have all words; the last word may be a prefix."""
        wanted = words_of(query)
        if not wanted or limit <= 0:
            return []
        try:
            self._catch_up(project, session)
            scanned: list[Hit] = []
        except (StoreReadOnly, StoreFull, StoreBusy, OutcomeUnknown):
            scanned = self._scan(wanted, self._behind(project, session, keyed=False))[:limit]
        scanned = (self._scan(wanted, self._behind(project, session, keyed=True)) + scanned)[:limit]
        # Words are letters and digits only, so quotes are enough to keep them from being parsed as syntax.
        match = " ".join(f'"{word}"' for word in wanted) + "*"
        if session is None:
            rows = self._readers.ask("search", (match, project, limit))
        else:
            found = self._readers.ask("head", (session,))
            base = found[0][0] << POSITION_BITS if found else 0
            rows = self._readers.ask("search_session", (match, project, limit, base, base + POSITION_MASK))
        return (scanned + [Hit(*row) for row in rows])[:limit]

    def _behind(self, project: str | None, session: str | None, *, keyed: bool) -> list[tuple[int, str, int, int]]:
        """The sessions that are not indexed yet: those with a key of their own (they never are), or the others."""
        rows = self._readers.ask("behind", (project, session))
        return [(row[0], row[1], row[2], row[3]) for row in rows if bool(row[4]) is keyed]

    def _catch_up(self, project: str | None, session: str | None) -> None:
        portions: list[Portion] = []
        events = characters = 0
        for number, id_, start, end in self._behind(project, session, keyed=False):
            after = start
            while after < end:
                portion = self._portion(number, id_, after, end, BATCH_EVENTS - events)
                if portion.upto == after:
                    break  # the head names events that are not there: verification reports that
                portions.append(portion)
                events += portion.upto - after
                characters += sum(len(text) for _key, text in portion.words)
                after = portion.upto
                if events >= BATCH_EVENTS or characters >= BATCH_CHARACTERS:
                    self._writer.run(Index(portions))
                    portions, events, characters = [], 0, 0
        if portions:
            self._writer.run(Index(portions))

    def _portion(self, number: int, id_: str, after: int, end: int, limit: int) -> Portion:
        base = number << POSITION_BITS
        words: list[tuple[int, str]] = []
        upto = after
        for position, found in self._texts(number, id_, after, end, limit):
            upto = position
            if found:
                words.append((base | position, " ".join(set(found))))
        return Portion(number, after, upto, words)

    def _texts(self, number: int, id_: str, after: int, end: int, limit: int) -> list[tuple[int, list[str]]]:
        base = number << POSITION_BITS
        rows = self._readers.ask("events", (base | after, base | end, limit))
        return [(record.position, words_in(record.payload)) for record in records_of(id_, rows, self._payloads)]

    def _scan(self, wanted: list[str], behind: list[tuple[int, str, int, int]]) -> list[Hit]:
        hits: list[Hit] = []
        for number, id_, start, end in behind:
            with suppress(SessionLocked):  # without its key a session has no words
                hits += self._scan_one(wanted, number, id_, start, end)
        return hits[::-1]

    def _scan_one(self, wanted: list[str], number: int, id_: str, start: int, end: int) -> list[Hit]:
        hits, after = [], start
        while after < end:
            texts = self._texts(number, id_, after, end, BATCH_EVENTS)
            if not texts:
                break
            after = texts[-1][0]
            hits += [Hit(id_, position) for position, words in texts if fits(words, wanted)]
        return hits
