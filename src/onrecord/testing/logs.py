"""The part of the store contract about logs: creating, appending, reading, forking, listing."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from json import loads
from threading import Event, Thread, get_ident

from onrecord.errors import (
    Conflict,
    EventNotFound,
    IdReused,
    IllegalTransition,
    LogMoved,
    NameTaken,
    SessionClosed,
    SessionNotFound,
    SessionPaused,
    StoreBusy,
)
from onrecord.log import head as heads
from onrecord.log.events import NEW_RUN
from onrecord.log.scanning import Scanning
from onrecord.testing.tools import Workbench, derived, raises

HANDLED_APPENDS = 300
"""How many appends are interrupted by a signal handler."""


class AppendContract(Workbench):
    """What creating and appending owe."""

    def test_positions_are_dense_from_one(self) -> None:
        """Every event of a session gets the next position, beginning with 1."""
        session = self.open()
        receipts = self.store.append(session, [self.draft(), self.draft()])
        receipts += self.store.append(session, [self.draft()])
        assert [receipt.position for receipt in receipts] == [2, 3, 4]
        assert all(receipt.new for receipt in receipts)
        assert self.positions(session) == [1, 2, 3, 4]

    def test_the_handler_of_a_signal_is_served_or_refused(self) -> None:
        """A handler that appends in the middle of an append of its own thread never gets stuck, and harms nothing."""
        session, main, enough = self.open(), get_ident(), Event()
        served: list[str] = []
        refused: list[str] = []

        numbers = count()  # a handler may be interrupted by the next signal

        def append(*_details: object) -> None:
            id_ = f"handler-{next(numbers)}"
            try:
                self.store.append(session, [self.draft(id=id_)])
            except StoreBusy:
                refused.append(id_)
            else:
                served.append(id_)

        def send() -> None:
            while not enough.wait(0.0007):
                signal.pthread_kill(main, signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, append)
        sender = Thread(target=send)
        sender.start()
        try:
            for number in range(HANDLED_APPENDS):
                self.store.append(session, [self.draft(id=f"main-{number}")])
        finally:
            enough.set()
            sender.join()
            signal.signal(signal.SIGUSR1, before)
        records = self.store.read(session)
        assert [record.position for record in records] == list(range(1, len(records) + 1))
        assert sorted(record.id for record in records[1:]) == sorted(
            served + [f"main-{number}" for number in range(HANDLED_APPENDS)]
        )
        assert derived(records) == self.store.head(session).hash

    def test_sessions_do_not_share_positions(self) -> None:
        """Positions belong to one session each."""
        first, second = self.open("first"), self.open("second")
        self.add(first, "item.added")
        self.add(second, "item.added", "item.added")
        assert (self.positions(first), self.positions(second)) == ([1, 2], [1, 2, 3])

    def test_the_chain_can_be_derived_again(self) -> None:
        """The hashes are those of the codec: the head's hash follows from the events alone."""
        session = self.open()
        self.store.append(session, [self.draft(data={"text": "ü" * 3_000, "n": [1, None, 0.5]}) for _ in range(5)])
        records = self.store.read(session)
        assert derived(records) == self.store.head(session).hash == records[-1].hash

    def test_what_is_read_is_what_was_given(self) -> None:
        """Every field of an event comes back as it went in."""
        session = self.open()
        draft = self.draft("turn.recorded", {"items": [{"role": "user", "content": "hi\0\u2028 ✓"}]}, run=7)
        draft = draft._replace(because=1)
        (receipt,) = self.store.append(session, [draft])
        (record,) = self.store.read(session, after=1)
        assert record.session == session
        assert record[2:9] == (*draft[:5], 7, 1)
        assert (record.salt, record.payload, record.payload_hash) == draft[7:10]
        assert (record.position, record.run, record.hash) == receipt[:3]

    def test_an_empty_append_is_nothing(self) -> None:
        """Appending no events returns no receipts and moves nothing."""
        session = self.open()
        assert self.store.append(session, []) == []
        assert self.store.head(session).position == 1

    def test_a_known_id_is_answered_and_not_written_again(self) -> None:
        """Appending an event twice returns its position, run and hash, and says that it is not new."""
        session = self.open()
        draft = self.draft()
        (first,) = self.store.append(session, [draft])
        self.add(session, "item.added")
        (second,) = self.store.append(session, [draft])
        assert second == first._replace(new=False)
        assert self.store.head(session).position == 3

    def test_a_retry_may_be_sealed_anew(self) -> None:
        """The same content under the same id is the same event, whatever its salt and time."""
        session = self.open()
        draft = self.draft(data={"text": "same"}, id="request-1")
        (first,) = self.store.append(session, [draft])
        self.clock.advance(60)
        again = self.draft(data={"text": "same"}, id="request-1")._replace(salt=bytes(16))
        (second,) = self.store.append(session, [again])
        assert second == first._replace(new=False)

    def test_an_id_with_other_content_is_refused(self) -> None:
        """An idempotency key belongs to one event forever; a reuse writes nothing of its append."""
        session = self.open()
        self.store.append(session, [self.draft(data={"text": "one"}, id="same")])
        content, kind = (
            self.draft(data={"text": "two"}, id="same"),
            self.draft("payload.kept", {"text": "one"}, id="same"),
        )
        for other in (content, kind):
            with raises(IdReused):
                self.store.append(session, [self.draft(), other])
        assert self.store.head(session).position == 2

    def test_a_partly_known_batch_adds_the_rest(self) -> None:
        """In a batch, events on record get their receipts and new events are appended, in order."""
        session = self.open()
        known, new, newer = self.draft(), self.draft(), self.draft()
        self.store.append(session, [known])
        receipts = self.store.append(session, [new, known, newer])
        assert [(one.position, one.new) for one in receipts] == [(3, True), (2, False), (4, True)]

    def test_an_id_twice_in_one_batch_is_one_event(self) -> None:
        """The second mention of an id in a batch is answered with the first; other content is refused."""
        session = self.open()
        draft = self.draft(id="twin")
        receipts = self.store.append(session, [draft, draft])
        assert [(one.position, one.new) for one in receipts] == [(2, True), (2, False)]
        with raises(IdReused):
            self.store.append(session, [self.draft(data={"a": 1}, id="x"), self.draft(data={"a": 2}, id="x")])

    def test_ids_belong_to_a_session(self) -> None:
        """The same id in another session is another event."""
        first, second = self.open("first"), self.open("second")
        draft = self.draft(id="shared")
        assert self.store.append(first, [draft])[0].new
        assert self.store.append(second, [draft])[0].new

    def test_a_log_that_moved_is_told_with_both_positions(self) -> None:
        """`expect` refuses the append unless the log is at that position, and names the position it is at."""
        session = self.open()
        self.store.append(session, [self.draft()], expect=1)
        with raises(LogMoved) as raised:
            self.store.append(session, [self.draft()], expect=1)
        assert (raised.error.expected, raised.error.actual) == (1, 2)
        assert self.store.head(session).position == 2

    def test_a_known_event_is_answered_whatever_is_expected(self) -> None:
        """A retry of an acknowledged append succeeds although the log has moved and the session has ended."""
        session = self.open()
        draft = self.draft()
        self.store.append(session, [draft], expect=1)
        self.add(session, "session.closed")
        (receipt,) = self.store.append(session, [draft], expect=1)
        assert (receipt.position, receipt.new) == (2, False)

    def test_the_lifecycle_is_kept_inside_the_append(self) -> None:
        """A paused session takes no turns, a closed one takes no work, and a batch is refused as a whole."""
        session = self.open()
        self.add(session, "session.paused")
        with raises(SessionPaused):
            self.store.append(session, [self.draft("worklog.written"), self.draft("turn.begun")])
        with raises(IllegalTransition):
            self.add(session, "session.paused")
        self.add(session, "session.closed")
        with raises(SessionClosed):
            self.add(session, "worklog.written")
        assert self.store.head(session).position == 3
        assert self.store.head(session).status == heads.CLOSED

    def test_runs_are_numbered_by_the_store(self) -> None:
        """NEW_RUN asks for the next run of the session; a run that is given is kept."""
        session = self.open()
        (second,) = self.store.append(session, [self.draft("agent.joined", {"agent": "main"}, run=NEW_RUN)])
        (kept,) = self.store.append(session, [self.draft(run=1)])
        (third,) = self.store.append(session, [self.draft("agent.joined", {"agent": "main"}, run=NEW_RUN)])
        assert (second.run, kept.run, third.run) == (2, 1, 3)
        assert self.store.head(session).run == 3

    def test_nobody_appends_to_a_session_that_is_not_there(self) -> None:
        """An unknown id is an error everywhere."""
        for ask in (self.store.head, self.store.read, self.store.weigh):
            with raises(SessionNotFound):
                ask("01ARZ3NDEKTSV4RRFFQ69G5FAV")
        with raises(SessionNotFound):
            self.store.append("01ARZ3NDEKTSV4RRFFQ69G5FAV", [self.draft()])

    def test_a_name_belongs_to_one_session_of_a_project(self) -> None:
        """A taken name is refused at creation and at renaming; another project has its own names."""
        self.open("work")
        other = self.open("other")
        self.open("work", project="/elsewhere")
        with raises(NameTaken):
            self.open("work")
        with raises(NameTaken):
            self.store.append(other, [self.draft("session.renamed", {"name": "work"})])
        assert self.store.head(other).position == 1
        self.store.append(other, [self.draft("session.renamed", {"name": "renamed"})])
        assert self.store.head(other).name == "renamed"
        with raises(NameTaken):
            self.store.append(other, [self.draft("session.renamed", {"name": "work", "project": "/elsewhere"})])
        self.store.append(other, [self.draft("session.renamed", {"name": "renamed", "project": "/elsewhere"})])
        assert [head.session for head in self.store.heads(project="/elsewhere", name="renamed")] == [other]
        self.open("renamed")

    def test_an_id_is_never_given_twice(self) -> None:
        """A session's id is taken for good, and a refused creation leaves nothing behind."""
        session = self.open("work")
        with raises(Conflict):
            self.open("another", id=session)
        assert self.store.heads(name="another") == []
        with raises(NameTaken):
            self.open("work", id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
        with raises(SessionNotFound):
            self.store.head("01ARZ3NDEKTSV4RRFFQ69G5FAV")

    def test_threads_never_share_a_position(self) -> None:
        """Appends from many threads are recorded once each, without gaps, and in the order of each thread."""
        sessions = [self.open("one"), self.open("two")]
        drafts = [[self.draft() for _ in range(20)] for _ in range(8)]

        def write(mine: int) -> list[int]:
            return [self.store.append(sessions[mine % 2], [draft])[0].position for draft in drafts[mine]]

        with ThreadPoolExecutor(8) as threads:
            written = list(threads.map(write, range(8)))
        for positions in written:
            assert positions == sorted(positions)
        for number, session in enumerate(sessions):
            taken = sorted(position for positions in written[number::2] for position in positions)
            assert taken == list(range(2, 82))
            assert derived(self.store.read(session)) == self.store.head(session).hash

    def test_threads_that_expect_take_turns(self) -> None:
        """Of many threads that expect the same position, one succeeds and the others get `LogMoved`."""
        session = self.open()
        drafts = [self.draft() for _ in range(8)]

        def attempt(number: int) -> bool:
            try:
                self.store.append(session, [drafts[number]], expect=1)
            except LogMoved:
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(attempt, range(8))) == 1
        assert self.store.head(session).position == 2


class ReadContract(Workbench):
    """What reading, forking and listing owe."""

    def test_a_range_is_open_below_and_closed_above(self) -> None:
        """`after < position <= upto`, at most `limit`, in order or newest first."""
        session = self.open()
        self.add(session, *["item.added"] * 9)
        assert self.positions(session, after=3, upto=6) == [4, 5, 6]
        assert self.positions(session, limit=2) == [1, 2]
        assert self.positions(session, backwards=True, limit=3) == [10, 9, 8]
        assert self.positions(session, after=3, upto=6, backwards=True) == [6, 5, 4]
        assert self.positions(session, after=10) == []
        assert self.positions(session, upto=0) == []
        assert self.positions(session, limit=0) == []

    def test_kinds_filter_events(self) -> None:
        """With `kinds`, only those come, and the limit counts only them."""
        session = self.open()
        self.add(session, "item.added", "worklog.written", "item.added", "decision.made", "item.added")
        assert self.positions(session, kinds=["item.added"]) == [2, 4, 6]
        assert self.positions(session, kinds={"worklog.written", "decision.made"}, limit=1) == [3]
        assert self.positions(session, kinds=["item.added"], backwards=True, limit=2) == [6, 4]
        assert self.positions(session, kinds=[]) == []

    def test_bodies_choose_payloads(self) -> None:
        """With `bodies`, other kinds come without their payload but keep their salt."""
        session = self.open()
        self.add(session, "item.added", "worklog.written")
        records = self.store.read(session, after=1, bodies=["worklog.written"])
        assert [record.payload is None for record in records] == [True, False]
        assert all(record.salt is not None for record in records)
        assert all(record.payload is None for record in self.store.read(session, bodies=[]))

    def test_an_event_is_found_by_its_id(self) -> None:
        """`find` returns the event with an id, or nothing."""
        session = self.open()
        self.store.append(session, [self.draft(id="wanted"), self.draft()])
        found = self.store.find(session, "wanted")
        assert found is not None
        assert (found.position, found.id) == (2, "wanted")
        assert self.store.find(session, "missing") is None

    def test_linked_events_are_found_without_their_session(self) -> None:
        """`linked` names every session whose own events have an id under the prefix, newest first, and no other."""
        first, second = self.open(), self.open("second")
        assert self.store.linked("link/claude/1") == []
        self.store.append(first, [self.draft(id="link/claude/1"), self.draft(id="plain"), self.draft(id="link/claude")])
        assert self.store.linked("link/claude/1") == [first]
        self.clock.advance(1)
        self.store.append(second, [self.draft(id="link/claude/1")])
        assert self.store.linked("link/claude/1") == [second, first]
        child = self.fork(first, 2)
        assert child not in self.store.linked("link/claude/1")
        assert self.store.linked("plain") == []

    def test_a_fork_inherits_history_without_copying_it(self) -> None:
        """A fork reads its parent's events up to the fork, then its own; each event stays its session's."""
        parent = self.open()
        self.add(parent, *["item.added"] * 4)
        child = self.fork(parent, 3)
        self.add(child, "item.added")
        self.add(parent, "item.added")
        records = self.store.read(child)
        assert [(record.session, record.position) for record in records] == [
            (parent, 1), (parent, 2), (parent, 3), (child, 4), (child, 5),
        ]  # fmt: skip
        assert derived(records) == self.store.head(child).hash
        assert [weight.position for weight in self.store.weigh(child)] == [4, 5]
        assert [head.session for head in self.store.children(parent)] == [child]
        assert self.store.children(child) == []

    def test_a_scan_says_what_a_read_says(self) -> None:
        """A store that can scan returns what it reads, decoded by the caller's parser, over forks, pages and ranges."""
        parent = self.open()
        noise = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))
        for text in ("x", "long " * 500, noise):
            self.store.append(parent, [self.draft("payload.kept", {"text": text}), self.draft()])
        child = self.fork(parent, 5, "child")
        self.add(child, *["item.added", "turn.begun"] * 150)
        scan = getattr(self.store, "scan", None)
        if scan is None:
            assert not isinstance(self.store, Scanning)
            return
        for session, kinds, after, upto in (
            (parent, None, 0, None), (child, None, 0, None), (child, ("item.added", "payload.kept"), 3, 180),
            (child, (), 0, None), (child, None, 4, 6), (child, None, 300, 200),
        ):  # fmt: skip
            records = self.store.read(session, kinds=kinds, after=after, upto=upto)
            found = list(scan(session, loads, kinds=kinds, after=after, upto=upto))
            expected = [(*record[:9], loads(record.payload or b"null")) for record in records]
            assert [event[:10] for event in found] == expected

    def test_a_fork_of_a_fork_reads_through_both(self) -> None:
        """Ranges and limits hold over any number of ancestors, even for a fork below its parent's own events."""
        first = self.open()
        self.add(first, *["item.added"] * 4)
        second = self.fork(first, 4, "second")
        self.add(second, "item.added")
        third = self.fork(second, 6, "third")
        low = self.fork(second, 2, "low")
        assert [record.session for record in self.store.read(third)] == [first] * 4 + [second] * 2 + [third]
        assert self.positions(third, after=3, upto=6) == [4, 5, 6]
        assert self.positions(third, backwards=True, limit=4) == [7, 6, 5, 4]
        assert self.positions(third, limit=5) == [1, 2, 3, 4, 5]
        assert [record.session for record in self.store.read(low)] == [first, first, low]
        assert derived(self.store.read(low)) == self.store.head(low).hash

    def test_inherited_ids_are_on_record(self) -> None:
        """What a fork inherited is found by id and not written again; what came later in the parent is not."""
        parent = self.open()
        inherited, later = self.draft(), self.draft()
        self.store.append(parent, [inherited])
        child = self.fork(parent, 2)
        self.store.append(parent, [later])
        found = self.store.find(child, inherited.id)
        assert found is not None
        assert found.session == parent
        assert self.store.find(child, later.id) is None
        assert not self.store.append(child, [inherited])[0].new
        assert self.store.append(child, [later])[0].new

    def test_a_fork_must_fit_its_parent(self) -> None:
        """A fork from a position or hash the parent does not have is refused, and leaves nothing behind."""
        parent = self.open()
        past = self.store.head(parent)
        beginning = self.draft("session.forked", {"name": "fork"})
        for wrong, error in (
            (past._replace(hash=bytes(32)), LogMoved),
            (past._replace(position=9), EventNotFound),
            (past._replace(session="01ARZ3NDEKTSV4RRFFQ69G5FAV"), SessionNotFound),
        ):
            with raises(error):
                self.store.create(heads.forked(wrong, self.new_id(), "fork"), [beginning])
        assert self.store.heads(name="fork") == []

    def test_sessions_are_listed_newest_first(self) -> None:
        """The order is by last activity; among equals by id; pages follow one another without gap or repeat."""
        sessions = []
        for number in range(12):
            sessions.append(self.open(f"s{number}"))
            self.clock.advance(0.05 if number % 3 else 0)
        self.clock.advance(5)
        self.add(sessions[4], "item.added")
        everything = self.store.heads()
        assert everything[0].session == sessions[4]
        keys = [(head.at, head.session) for head in everything]
        assert keys == sorted(keys, reverse=True)
        assert {head.session for head in everything} == set(sessions)
        paged, before = [], None
        while page := self.store.heads(limit=5, before=before):
            paged += page
            before = (page[-1].at, page[-1].session)
        assert paged == everything

    def test_lists_can_be_filtered(self) -> None:
        """By project, status, exact name, and the beginning of a name or id."""
        first, second = self.open("alpha"), self.open("alphabet")
        elsewhere = self.open("alpha", project="/elsewhere")
        self.add(second, "session.closed")

        def listed(**filters: object) -> set[str]:
            return {head.session for head in self.store.heads(**filters)}  # type: ignore[arg-type]  # any filter

        assert listed(project="/elsewhere") == {elsewhere}
        assert listed(statuses=[heads.CLOSED]) == {second}
        assert listed(statuses=[]) == set()
        assert listed(name="alpha") == {first, elsewhere}
        assert listed(name="alpha", project="/elsewhere") == {elsewhere}
        assert listed(prefix="alpha") == {first, second, elsewhere}
        assert listed(prefix="alphab") == {second}
        assert listed(prefix="ALPHA") == set()
        assert listed(prefix=first[:-1]) >= {first}
        assert listed(prefix=first.lower()) == {first}
        assert listed(prefix="alpha", project="/elsewhere", statuses=[heads.OPEN]) == {elsewhere}
        assert listed(prefix="%") == listed(prefix="_") == listed(name="a%") == set()

    def test_the_head_follows_the_log(self) -> None:
        """Name, title, status, hold and time of the head follow from the events."""
        session = self.open()
        self.clock.advance(3)
        self.store.append(session, [self.draft("objective.set", {"text": "Find the leak\nand fix it"})])
        self.store.append(session, [self.draft("session.held", {"reason": "audit"})])
        self.store.append(session, [self.draft("session.renamed", {"name": "leak"})])
        head = self.store.head(session)
        assert (head.name, head.title, head.held, head.status) == ("leak", "Find the leak", True, heads.OPEN)
        assert head.at - head.opened_at == 3_000_000
        assert self.store.heads(name="leak") == [head]

    def test_a_title_is_kept_though_a_turn_goes_on_in_the_same_append(self) -> None:
        """The parts of a turn change nothing in a list; other events of the same append may."""
        session = self.open()
        self.store.append(session, [self.draft("turn.begun", {})])
        self.store.append(session, [self.draft("objective.set", {"text": "Find it"}), self.draft("item.added", {})])
        assert [head.title for head in self.store.heads()] == ["Find it"]
