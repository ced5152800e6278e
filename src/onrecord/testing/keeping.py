"""The part of the store contract about leases, snapshots, search, erasure and copied logs."""

from __future__ import annotations

from onrecord import machine
from onrecord.errors import (
    Conflict,
    EventNotFound,
    IdReused,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    LogMoved,
    NameTaken,
    SessionErased,
    SessionHeld,
    SessionNotFound,
)
from onrecord.log import head as heads
from onrecord.log.store import Hit, Snapshot
from onrecord.testing.tools import Workbench, derived, raises

HOLDER = machine.identity() | {"handle": "one"}
OTHER = machine.identity() | {"handle": "two"}


class LeaseContract(Workbench):
    """What leases owe: one writer per lane, and no writes of those who lost it."""

    def test_a_lane_has_one_holder(self) -> None:
        """The second process to ask learns who holds the lease, since when and until when."""
        session = self.open()
        lease = self.store.acquire(session, "main", HOLDER)
        with raises(LeaseHeld) as raised:
            self.store.acquire(session, "main", OTHER)
        assert raised.error.holder == HOLDER
        assert (raised.error.since, raised.error.until) == (lease.since, lease.until)
        assert str(HOLDER["pid"]) in raised.error.message
        assert "takeover" in raised.error.hint
        assert self.store.acquire(session, "another lane", OTHER).epoch == 1

    def test_keys_are_the_stores_own(self) -> None:
        """A key for one purpose is the same each time, and says nothing about the key for another purpose."""
        first, second = self.store.key("marks"), self.store.key("other")
        assert self.store.key("marks") == first != second
        assert len(first) == len(second) == 32  # bytes

    def test_a_lane_of_an_unknown_session_cannot_be_taken(self) -> None:
        """A lease needs its session."""
        with raises(SessionNotFound):
            self.store.acquire("01ARZ3NDEKTSV4RRFFQ69G5FAV", "main", HOLDER)

    def test_a_silent_holder_loses_the_lane(self) -> None:
        """After its time a lease can be taken, and not a moment before."""
        session = self.open()
        self.store.acquire(session, "main", HOLDER, seconds=10)
        self.clock.advance(9.9)
        with raises(LeaseHeld):
            self.store.acquire(session, "main", OTHER)
        self.clock.advance(0.2)
        assert self.store.acquire(session, "main", OTHER).epoch == 2

    def test_a_dead_holder_is_replaced_at_once(self) -> None:
        """A lease is free as soon as its holder's process on this machine is gone."""
        session = self.open()
        self.store.acquire(session, "main", HOLDER | {"started": "at another time"})
        assert self.store.acquire(session, "main", OTHER).holder == OTHER

    def test_a_holder_on_another_machine_is_waited_for(self) -> None:
        """This machine cannot see whether a process of another machine still runs."""
        session = self.open()
        self.store.acquire(session, "main", HOLDER | {"host": "elsewhere", "pid": 1})
        with raises(LeaseHeld):
            self.store.acquire(session, "main", OTHER)

    def test_a_lane_can_be_taken_over(self) -> None:
        """With `takeover` the lane changes hands; the old holder's next append is refused as a whole."""
        session = self.open()
        old = self.store.acquire(session, "main", HOLDER)
        self.store.append(session, [self.draft()], lease=old)
        new = self.store.acquire(session, "main", OTHER, takeover=True)
        assert new.epoch > old.epoch
        with raises(LeaseLost):
            self.store.append(session, [self.draft(), self.draft()], lease=old)
        with raises(LeaseLost):
            self.store.renew(old)
        assert self.store.head(session).position == 2
        assert self.store.append(session, [self.draft()], lease=new)[0].position == 3

    def test_a_holder_joins_with_its_first_events(self) -> None:
        """Lease and events come together; the lane's earlier holder is refused from then on."""
        session = self.open()
        old = self.store.acquire(session, "main", HOLDER)
        drafts = [self.draft(), self.draft()]
        new, receipts = self.store.join(session, "main", OTHER, drafts, expect=1, takeover=True)
        assert (new.holder | OTHER, new.epoch) == (new.holder, old.epoch + 1)
        assert [receipt.position for receipt in receipts] == [2, 3]
        with raises(LeaseLost):
            self.store.append(session, [self.draft()], lease=old)
        assert self.store.append(session, [self.draft()], lease=new)[0].position == 4
        assert [lease.epoch for lease in self.store.leases(session)] == [new.epoch]

    def test_a_refused_join_changes_nothing(self) -> None:
        """A held lease, a log that has moved, a refused event: nothing is recorded, and the holder keeps its lane."""
        session = self.open()
        lease = self.store.acquire(session, "main", HOLDER)
        with raises(LeaseHeld):
            self.store.join(session, "main", OTHER, [self.draft()], expect=1)
        self.store.append(session, [self.draft()], lease=lease)
        with raises(LogMoved):
            self.store.join(session, "main", OTHER, [self.draft()], expect=1, takeover=True)
        with raises(LogMoved):
            self.store.join(session, "another lane", OTHER, [self.draft()], expect=1)
        known = self.store.read(session)[-1].id
        with raises(IdReused):
            self.store.join(session, "main", OTHER, [self.draft(), self.draft(id=known)], takeover=True)
        assert self.store.append(session, [self.draft()], lease=lease)[0].position == 3
        assert [one.lane for one in self.store.leases(session)] == ["main"]

    def test_a_lost_lease_still_learns_what_landed(self) -> None:
        """An event that was acknowledged before the lane was lost is answered, not refused."""
        session = self.open()
        draft = self.draft()
        lease = self.store.acquire(session, "main", HOLDER)
        self.store.append(session, [draft], lease=lease)
        self.store.acquire(session, "main", OTHER, takeover=True)
        assert not self.store.append(session, [draft], lease=lease)[0].new

    def test_events_without_a_lease_are_additive(self) -> None:
        """Anyone may append facts while a process has the lease of a lane."""
        session = self.open()
        self.store.acquire(session, "main", HOLDER)
        self.add(session, "worklog.written")
        assert self.store.head(session).position == 2

    def test_a_released_lane_is_free_and_epochs_never_repeat(self) -> None:
        """After a release the lane can be taken under a higher epoch, and the old lease writes nothing."""
        session = self.open()
        lease = self.store.acquire(session, "main", HOLDER)
        self.store.release(lease)
        assert self.store.leases(session) == []
        with raises(LeaseLost):
            self.store.append(session, [self.draft()], lease=lease)
        assert self.store.head(session).position == 1
        with raises(LeaseLost):
            self.store.renew(lease)
        again = self.store.acquire(session, "main", OTHER)
        assert again.epoch == lease.epoch + 1
        self.store.release(lease)
        assert self.store.leases(session) == [again]

    def test_renewing_gives_time(self) -> None:
        """A renewed lease ends later and keeps its epoch and its beginning."""
        session = self.open()
        lease = self.store.acquire(session, "main", HOLDER, seconds=10)
        self.clock.advance(8)
        renewed = self.store.renew(lease, 10)
        assert renewed == lease._replace(until=lease.since + 18_000_000)
        self.clock.advance(8)
        with raises(LeaseHeld):
            self.store.acquire(session, "main", OTHER)

    def test_appending_keeps_a_lease_alive(self) -> None:
        """A holder that keeps appending keeps its lease: every append extends it."""
        session = self.open()
        lease = self.store.acquire(session, "main", HOLDER, seconds=10)
        for _ in range(5):
            self.clock.advance(8)
            self.store.append(session, [self.draft()], lease=lease)
            with raises(LeaseHeld):
                self.store.acquire(session, "main", OTHER)

    def test_appending_gives_as_much_time_as_was_asked_for(self) -> None:
        """A lease taken for seconds is never extended to minutes: others may have read when it ends."""
        session = self.open()
        lease = self.store.acquire(session, "main", HOLDER, seconds=10)
        self.clock.advance(8)
        self.store.append(session, [self.draft()], lease=lease)
        (now,) = self.store.leases(session)
        assert now.until == lease.since + 18_000_000
        self.clock.advance(11)
        assert self.store.acquire(session, "main", OTHER).epoch > lease.epoch

    def test_an_expired_lease_that_nobody_took_still_writes(self) -> None:
        """Only another holder ends a lease: the epoch decides, not the clock."""
        session = self.open()
        lease = self.store.acquire(session, "main", HOLDER, seconds=10)
        self.clock.advance(60)
        assert [one.holder for one in self.store.leases(session)] == [HOLDER]
        assert self.store.append(session, [self.draft()], lease=lease)[0].new

    def test_leases_are_listed(self) -> None:
        """The leases of a session can be listed at any time."""
        session = self.open()
        taken = [self.store.acquire(session, lane, HOLDER) for lane in ("a", "b")]
        assert sorted(self.store.leases(session), key=lambda lease: lease.lane) == taken
        assert self.store.leases(self.open("other")) == []


class SnapshotContract(Workbench):
    """What snapshots owe: they are a cache."""

    def test_the_last_snapshot_of_a_view_is_kept(self) -> None:
        """One snapshot per session and view; saving again replaces it."""
        session, other = self.open(), self.open("other")
        self.add(session, "item.added")
        for position, body in ((1, b"old"), (2, bytes(range(256)) * 100)):
            self.store.save(session, Snapshot("note", position, bytes(32), body))
        self.store.save(session, Snapshot("roster", 1, bytes(32), b"{}"))
        assert self.store.snapshot(session, "note") == Snapshot("note", 2, bytes(32), bytes(range(256)) * 100)
        assert self.store.snapshot(session, "roster") == Snapshot("roster", 1, bytes(32), b"{}")
        assert self.store.snapshot(session, "missing") is None
        assert self.store.snapshot(other, "note") is None

    def test_snapshots_of_many_sessions_are_saved_and_found_together(self) -> None:
        """One call saves a view of many sessions, and one call finds it; a session without it is left out."""
        first, second, third = self.open(), self.open("second"), self.open("third")
        kept = {one: Snapshot("row", 1, bytes(32), one.encode()) for one in (first, second)}
        self.store.save_all(kept)
        assert self.store.snapshots("row", [first, second, third, "missing"]) == kept
        assert self.store.snapshots("row", [second]) == {second: kept[second]}
        assert self.store.snapshots("other", [first]) == self.store.snapshots("row", []) == {}

    def test_erasure_forgets_snapshots(self) -> None:
        """After an erasure, no snapshot of the session or its forks remains that could contain what was erased."""
        session = self.open()
        self.add(session, "item.added")
        child = self.fork(session, 2)
        for one in (session, child):
            self.store.save(one, Snapshot("note", self.store.head(one).position, bytes(32), b"secret"))
        self.store.erase(session, [2], self.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]}))
        assert self.store.snapshot(session, "note") is None
        assert self.store.snapshot(child, "note") is None

    def test_a_snapshot_from_before_an_erasure_is_not_kept(self) -> None:
        """A process that folded before an erasure cannot bring the erased content back by saving late."""
        session = self.open()
        self.add(session, "item.added")
        late = Snapshot("note", 2, self.store.head(session).hash, b"secret")
        receipt = self.store.erase(
            session, [2], self.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]})
        )
        self.store.save(session, late)
        assert self.store.snapshot(session, "note") is None
        fresh = Snapshot("note", receipt.position, receipt.hash, b"clean")
        self.store.save(session, fresh)
        assert self.store.snapshot(session, "note") == fresh


class SearchContract(Workbench):
    """What search owes: everything acknowledged, all words, and user text is never syntax."""

    def found(self, query: str, **filters: object) -> set[Hit]:
        """What a search returns, without its order."""
        return set(self.store.search(query, **filters))  # type: ignore[arg-type]  # any filter

    def test_all_words_must_be_there(self) -> None:
        """Every word counts, in any order and case; the last one may be a prefix; keys are not content."""
        session = self.open("work")
        self.store.append(session, [self.draft(data={"text": "The quick brown FOX", "deep": [{"note": "jumps Über"}]})])
        self.store.append(session, [self.draft(data={"text": "a slow fox"})])
        assert self.found("fox") == {Hit(session, 2), Hit(session, 3)}
        assert self.found("FOX quick") == {Hit(session, 2)}
        assert self.found("über qui") == {Hit(session, 2)}
        assert self.found("qui fox") == set()
        assert self.found("deep") == set()
        assert self.found("note") == set()
        assert self.found("") == self.found("  ?! ") == set()

    def test_what_was_just_acknowledged_is_found(self) -> None:
        """There is no delay: each append can be found as soon as it returned."""
        session = self.open()
        for number in range(5):
            self.store.append(session, [self.draft(data={"text": f"needle{number} straw"})])
            assert self.found(f"needle{number}") == {Hit(session, number + 2)}
        assert len(self.found("straw")) == 5
        assert len(self.store.search("straw", limit=3)) == 3

    def test_search_can_be_narrowed(self) -> None:
        """To a project or to one session's own events."""
        here, there = self.open("here"), self.open("there", project="/elsewhere")
        for session in (here, there):
            self.store.append(session, [self.draft(data={"text": "needle"})])
        child = self.fork(here, 2)
        assert self.found("needle") == {Hit(here, 2), Hit(there, 2)}
        assert self.found("needle", project="/elsewhere") == {Hit(there, 2)}
        assert self.found("needle", session=here) == {Hit(here, 2)}
        assert self.found("needle", session=child) == set()

    def test_queries_are_data(self) -> None:
        """No character of a query is an operator."""
        session = self.open()
        self.store.append(session, [self.draft(data={"text": "drop table AND NOT near"})])
        hostile = ('"', "'", '" OR text:*', "NEAR(", "-drop", "drop -table", "text : drop", "*", "^drop", "a\0b", "{")
        for query in (*hostile, "\ud800"):
            self.found(query)
        assert self.found("-drop (table)") == {Hit(session, 2)}
        assert self.found("AND not NEAR") == {Hit(session, 2)}
        assert self.found("drop OR") == set()

    def test_words_of_any_script_are_found(self) -> None:
        """Folding is the same for text and query, whatever the script, and nothing is folded further than that."""
        session = self.open()
        self.store.append(session, [self.draft(data={"text": "Straße naïve 東京都 x²y Ǆ snake_case ¼"})])
        for query in ("STRASSE", "naïve", "東京", "x²y", "ǆ", "case snake", "¼"):
            assert self.found(query) == {Hit(session, 2)}, query
        assert self.found("naive") == set()


class ErasureContract(Workbench):
    """What erasure owes: content is removed, the record of it stays."""

    def test_erased_payloads_are_gone_and_the_chain_stands(self) -> None:
        """Payload and salt are removed, header and hashes stay, and the event that says so is appended."""
        session = self.open()
        self.add(session, "item.added", "item.added", "item.added")
        before = self.store.read(session)
        draft = self.draft("payload.erased", {"scope": "positions", "ranges": [[2, 3]]})
        receipt = self.store.erase(session, [2, 3], draft)
        assert receipt.position == 5
        records = self.store.read(session)
        for record in records[1:3]:
            assert (record.salt, record.payload) == (None, None)
        assert [record._replace(salt=None, payload=None) for record in records[:4]] == [
            record._replace(salt=None, payload=None) for record in before
        ]
        assert derived(records) == self.store.head(session).hash
        assert [weight.position for weight in self.store.weigh(session)] == [1, 4, 5]
        found = self.store.find(session, before[1].id)
        assert found is not None
        assert found.payload is None

    def test_erased_words_are_not_found(self) -> None:
        """Search knows nothing of an erased payload, whether it was searched before or not."""
        session = self.open()
        for word in ("canary", "sparrow"):
            self.store.append(session, [self.draft(data={"text": f"{word} bird"})])
        assert self.store.search("canary") == [Hit(session, 2)]
        self.store.erase(session, [2], self.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]}))
        assert self.store.search("canary") == []
        assert self.store.search("bird") == [Hit(session, 3)]

    def test_a_known_id_survives_the_erasure_of_its_payload(self) -> None:
        """An erased event is still on record: its id is answered, not written again."""
        session = self.open()
        draft = self.draft()
        self.store.append(session, [draft])
        self.store.erase(session, [2], self.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]}))
        (receipt,) = self.store.append(session, [draft])
        assert (receipt.position, receipt.new) == (2, False)

    def test_erasing_again_is_harmless(self) -> None:
        """An erasure can be retried with the same event, and positions may be erased twice."""
        session = self.open()
        self.add(session, "item.added")
        draft = self.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]})
        first = self.store.erase(session, [2], draft)
        assert self.store.erase(session, [2], draft) == first._replace(new=False)
        assert (
            self.store.erase(
                session, [2], self.draft("payload.erased", {"scope": "again", "ranges": [[1, 999_999]]})
            ).position
            == 4
        )

    def test_a_hold_protects(self) -> None:
        """In a session with a hold, an erasure erases nothing and appends nothing."""
        session = self.open()
        self.add(session, "item.added", "session.held")
        with raises(SessionHeld):
            self.store.erase(
                session, [2], self.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]})
            )
        assert self.store.read(session, after=1, upto=2)[0].payload is not None
        assert self.store.head(session).position == 3

    def test_only_own_events_can_be_erased(self) -> None:
        """Inherited and unknown positions are refused, and nothing changes."""
        session = self.open()
        self.add(session, "item.added")
        child = self.fork(session, 2)
        for position, error in ((2, InvalidInput), (9, EventNotFound)):
            with raises(error):
                self.store.erase(
                    child, [3, position], self.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]})
                )
        assert self.store.head(child).position == 3
        assert all(record.payload is not None for record in self.store.read(child))

    def test_a_session_erased_as_a_whole_takes_no_more_work(self) -> None:
        """Scope `all` ends the session: its id stays taken and nothing can be appended."""
        session = self.open()
        self.store.erase(session, [1], self.draft("payload.erased", {"scope": "all", "ranges": [[1, 999_999]]}))
        head = self.store.head(session)
        assert (head.status, head.title) == (heads.ERASED, "")
        with raises(SessionErased):
            self.add(session, "item.added")
        with raises(Conflict):
            self.open("again", id=session)


class TakingOverContract(Workbench):
    """What large payloads and installed logs owe."""

    def test_large_payloads_come_back_whole(self) -> None:
        """Any size up to the limit of the codec is kept, and the same content may be kept many times."""
        session = self.open()
        texts = ["x" * 100, "y" * 5_000, "z" * 40_000, "".join(str(n * n) for n in range(300_000)), "z" * 40_000]
        self.store.append(session, [self.draft(data={"text": text}) for text in texts])
        payloads = [record.payload or b"" for record in self.store.read(session, after=1)]
        assert [len(payload) for payload in payloads] == [len(text) + len('{"text":""}') for text in texts]
        assert payloads[2] == payloads[4]
        self.store.erase(session, [4], self.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]}))
        kept = self.store.read(session, after=3, upto=6)
        assert [record.payload for record in kept] == [None, payloads[3], payloads[4]]
        assert derived(self.store.read(session)) == self.store.head(session).hash
        assert all(weight.size > 0 for weight in self.store.weigh(session))

    def test_weights_can_be_asked_by_kind(self) -> None:
        """Only the named kinds are weighed; None means all."""
        session = self.open()
        self.add(session, "item.added", "worklog.written")
        assert [weight[:2] for weight in self.store.weigh(session, ["item.added"])] == [(2, "item.added")]
        assert [weight.position for weight in self.store.weigh(session)] == [1, 2, 3]
        assert self.store.weigh(session, []) == []

    def test_a_log_is_taken_over_as_it_is(self) -> None:
        """An installed log reads exactly as it did in its source, erased payloads included, and can be appended to."""
        session = self.open()
        self.add(session, "item.added", "item.added")
        self.store.erase(session, [2], self.draft("payload.erased", {"scope": "positions", "ranges": [[1, 999_999]]}))
        head, records = self.store.head(session), self.store.read(session)
        other = self.make_store()
        try:
            other.install(head, iter(records))
            assert other.read(session) == records
            assert other.head(session) == head
            (receipt,) = other.append(session, [self.draft()])
            assert receipt.position == head.position + 1
            assert (other.arrived(session), self.store.arrived(session)) == (head.position, 0)
            with raises(Conflict):
                other.install(head, iter(records))
            with raises(NameTaken):
                other.install(head._replace(session=self.new_id()), iter([]))
        finally:
            other.close()

    def test_an_installed_log_can_be_extended(self) -> None:
        """With `extend`, the events that came since are added after those that are here."""
        session = self.open()
        self.add(session, "item.added")
        other = self.make_store()
        try:
            other.install(self.store.head(session), iter(self.store.read(session)))
            self.add(session, "item.added", "session.closed")
            head = self.store.head(session)
            other.install(head, iter(self.store.read(session, after=2)), extend=True)
            assert other.read(session) == self.store.read(session)
            assert other.head(session) == head
            assert other.arrived(session) == head.position
        finally:
            other.close()

    def test_a_fork_is_installed_after_its_parent(self) -> None:
        """A fork's own events are copied alone and continue the parent's."""
        parent = self.open()
        self.add(parent, "item.added")
        child = self.fork(parent, 2)
        other = self.make_store()
        try:
            other.install(self.store.head(parent), iter(self.store.read(parent)))
            other.install(self.store.head(child), iter(self.store.read(child, after=2)))
            assert other.read(child) == self.store.read(child)
            assert [head.session for head in other.children(parent)] == [child]
        finally:
            other.close()
