"""Search: the index of words lags behind the log, and every search first brings the part it needs up to date.

So appending never pays for search. Words are folded by `log/text.py` and reach PostgreSQL as they are: it neither
splits nor stems them. Where nothing can be written (a standby), the events that are not indexed yet are read and
compared one by one.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from onrecord.errors import OutcomeUnknown, SessionLocked, StoreBusy, StoreFull, StoreReadOnly
from onrecord.log.store import Hit
from onrecord.log.text import fits, words_in, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.log.events import Record
    from onrecord.stores.postgres.connections import Connections

BATCH_EVENTS = 200
"""The most events that are indexed in one transaction."""
WORD_CHARACTERS = 500
"""How much of a long word is in the index: PostgreSQL takes words of up to 2 KB."""
INDEXED_BYTES = 900_000
"""The most bytes of different words that are indexed for one event; PostgreSQL's limit is 1 MB. Others are read."""


class Searcher:
    """Answers queries from the index, and from the log where the index cannot follow."""

    def __init__(
        self, connections: Connections, read: Callable[..., list[Record]], writing: Callable[[], None]
    ) -> None:
        self._connections = connections
        self._read = read
        self._writing = writing
        """Raises if the login may only read."""
        # The index serves all tenants. A mark before each word keeps their parts of it apart.
        self._mark = blake2b(connections.tenant.encode(), digest_size=4).hexdigest()

    def search(self, query: str, project: str | None, session: str | None, limit: int) -> list[Hit]:
        """The newest events that have all words; the last word may be a prefix."""
        wanted = words_of(query)
        if not wanted or limit <= 0:
            return []
        where = {"project": project, "session": session}
        hits: set[Hit] = set()
        try:
            self._catch_up(where)
        except (StoreReadOnly, StoreFull, StoreBusy, OutcomeUnknown):
            hits.update(self._scan(wanted, where, keyed=False))
        hits.update(self._scan(wanted, where, keyed=True))
        sure = all(len(word) <= WORD_CHARACTERS for word in wanted)
        found = [Hit(*row) for row in self._ask(wanted, where, limit if sure else None)]
        hits.update(found if sure else self._checked(found, wanted))
        hits.update(self._checked((Hit(*row) for row in self._connections.ask("too_many_words", **where)), wanted))
        return sorted(hits, reverse=True)[:limit]

    def behind(self) -> int:
        """How many events are not indexed yet."""
        return sum(row[2] - row[1] for row in self._behind({"project": None, "session": None}, keyed=False))

    def _behind(self, where: dict[str, Any], *, keyed: bool) -> list[Any]:
        """The sessions that are not indexed yet: those with a key of their own (they never are), or the others."""
        return [row[:4] for row in self._connections.ask("behind", **where) if row[4] is keyed]

    def _ask(self, wanted: list[str], where: dict[str, Any], limit: int | None) -> list[Any]:
        # Words are letters and digits only, so quoting them is all it takes to keep them from being read as syntax.
        query = " & ".join(self._marked(word) for word in wanted) + ":*"
        return self._connections.ask("search", query=query, limit=limit, **where)

    def _marked(self, word: str) -> str:
        return f"'{self._mark}{word[:WORD_CHARACTERS]}'"

    def _catch_up(self, where: dict[str, Any]) -> None:
        self._writing()
        for session, start, end, scrubbed in self._behind(where, keyed=False):
            after, stamp = start, scrubbed
            while after < end:
                upto = self._index(session, after, end, stamp)
                if upto is not None:
                    after = upto
                    continue
                # Another process has indexed or erased something meanwhile: continue where it stopped.
                rows = self._behind({"project": None, "session": session}, keyed=False)
                _of, after, _end, stamp = rows[0] if rows else (session, end, end, 0)

    def _index(self, session: str, after: int, end: int, scrubbed: int) -> int | None:
        """Index some events; return the last position, or None if the session has changed since it was read."""
        records = self._own(session, after, end)
        upto = records[-1].position if records else end
        texts = [(record.position, self._text(words)) for record in records if (words := words_in(record.payload))]
        done = self._connections.ask(
            "index_words", session=session, after=after, upto=upto, scrubbed=scrubbed,
            positions=[position for position, _text in texts], words=[text for _position, text in texts],
        )  # fmt: skip
        return upto if done else None

    def _text(self, words: Iterable[str]) -> str | None:
        """The words in the text form of a TSVECTOR; None if there are too many."""
        marked = {self._marked(word) for word in words}
        if sum(len(word.encode()) for word in marked) > INDEXED_BYTES:
            return None
        return " ".join(marked)

    def _scan(self, wanted: list[str], where: dict[str, Any], *, keyed: bool) -> list[Hit]:
        hits: list[Hit] = []
        for session, start, end, _scrubbed in self._behind(where, keyed=keyed):
            with suppress(SessionLocked):  # without its key a session has no words
                hits += self._scan_one(wanted, session, start, end)
        return hits

    def _scan_one(self, wanted: list[str], session: str, start: int, end: int) -> list[Hit]:
        hits, after = [], start
        while after < end:
            records = self._own(session, after, end)
            hits += [Hit(session, one.position) for one in records if fits(words_in(one.payload), wanted)]
            after = records[-1].position if records else end
        return hits

    def _own(self, session: str, after: int, upto: int) -> list[Record]:
        return self._read(session, after=after, upto=upto, limit=BATCH_EVENTS)

    def _checked(self, found: Iterable[Hit], wanted: list[str]) -> list[Hit]:
        """The events that contain the words in full: the index keeps only the beginning of a long word."""
        return [
            hit
            for hit in found
            for record in self._read(hit.session, after=hit.position - 1, upto=hit.position)
            if fits(words_in(record.payload), wanted)
        ]
