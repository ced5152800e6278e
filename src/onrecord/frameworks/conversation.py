"""What the adapters share: one conversation of a framework, kept in one session.

**Order and head** come from positions in the log: no clock and no id of the framework decides what is newest.
**Writing** is optimistic. A batch of entries is one append that names the position its caller has read up to; if the
log has moved, the new events are folded and the batch is judged again. So processes may take turns with one
conversation, and none of them can overwrite another. Inside a `with` block the adapter also has the lease of its lane,
and a process that lost it is refused by the store.
**Conflicts.** A run that writes after another writer has added entries is refused, queued behind them or moved to a
fork, as the caller chose with `on_conflict`.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from onrecord import machine
from onrecord.errors import InvalidInput, LeaseHeld, LogMoved, NameTaken, SessionNotFound, StoreBusy
from onrecord.frameworks.others import said_by_others
from onrecord.frameworks.parsing import VENDOR, parser_of
from onrecord.frameworks.tool_calls import EFFECT_KINDS, ToolCalls
from onrecord.frameworks.writing import payload_of
from onrecord.log.events import tuple_new
from onrecord.log.names import check_name
from onrecord.log.readings import BEGINS, condense, is_unicode, rows_of, short_row
from onrecord.redaction.values import PLACEHOLDER_START
from onrecord.session.funnel import clean_records
from onrecord.session.session_store import SessionStore
from onrecord.views.effects import effect_id
from onrecord.views.transcript import SHARED_KINDS, TURN_KINDS, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from onrecord.frameworks.others import Said
    from onrecord.frameworks.tool_calls import Effect
    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session

REFUSE, QUEUE, FORK = "refuse", "queue", "fork"
POLICIES = (REFUSE, QUEUE, FORK)
"""What happens to a run that writes after another writer: it is refused, it is placed behind it, or it gets a fork."""
TRIES = 200
"""How often a batch is judged again because other writers were quicker."""
FORKS_LIMIT = 1_000
"""How many forks of one session get a name from it."""
_SLUG = 40
_DIGEST = 16
_KINDS = (*TURN_KINDS, *EFFECT_KINDS)
_ERASED = "payload.erased"


class Entry(NamedTuple):
    """One entry of a framework, as it is kept."""

    key: str
    position: int
    line: str
    """The entry as JSON text, word for word."""


def session_name(*parts: str) -> str:
    """The name of the session that keeps a framework's conversation: its id if that is a legal name."""
    if not parts or not all(isinstance(part, str) and part for part in parts):
        wrong = next((part for part in parts if not isinstance(part, str) or not part), None)
        raise InvalidInput(f"a conversation needs an id that is text, not {wrong!r:.100}")
    whole = parts[-1]
    if len(parts) == 1:
        try:
            return check_name(whole)
        except InvalidInput:
            pass
    slug = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in whole)[:_SLUG].strip("-")
    digest = sha256(json.dumps(parts).encode()).hexdigest()[:_DIGEST]
    return f"{slug or 'x'}-{digest}"


def check_store(store: object) -> SessionStore:
    """The store, or `InvalidInput` if it is something else."""
    if not isinstance(store, SessionStore):
        raise InvalidInput(
            f"an adapter takes a store, not {type(store).__name__}", hint="pass onrecord.connect() or connect(URL)"
        )
    return store


def check_type(value: Any, wanted: type | tuple[type, ...], what: str) -> None:
    """Refuse a value that a framework would not pass, before anything is made of it."""
    if not isinstance(value, wanted):
        raise InvalidInput(f"this takes {what}, not {type(value).__name__}")


def check_policy(on_conflict: str) -> str:
    """The policy, or `InvalidInput` if there is no such policy."""
    if on_conflict not in POLICIES:
        raise InvalidInput(f"on_conflict must be one of {', '.join(POLICIES)}, not {on_conflict!r:.100}")
    return on_conflict


class Conversation:
    """The entries of one framework in one session. Threads and event loops may share it."""

    KINDS: ClassVar[tuple[str, ...]] = _KINDS
    """The events that are folded."""
    FIELDS: ClassVar[tuple[str, ...]] = ("keys", "lines", "all")
    """What `fold` reads of the payloads of this framework."""

    def __init__(
        self, store: SessionStore, framework: str, id: str, *, name: str = "", agent: str = "main",
        on_conflict: str = REFUSE,
    ) -> None:  # fmt: skip
        self.store = check_store(store)
        self.framework = framework
        self.id = id
        self.name = name or session_name(id)
        self.agent = check_name(agent, "agent")
        self.on_conflict = check_policy(on_conflict)
        self.lock = RLock()
        self._session: Session | None = None
        self._taken: tuple[object, int] | None = None
        """Who has the lease, in which process: a child that was forked has it not."""
        self._forget()

    def _forget(self) -> None:
        self.position = 0
        self.changed_at = 0
        """Where an entry was last added or retracted."""
        self.entries: dict[str, Entry] = {}
        self.calls = ToolCalls(self.framework)
        self.has_gaps = False
        """Whether entries of any writer were erased from the session."""
        self._looked = 0
        """Up to where it is known which tool calls were answered."""
        self._others = Transcript()
        self._mixed = False

    # The session

    @property
    def session(self) -> Session:
        """The session; `SessionNotFound` while nothing was written."""
        with self.lock:
            found = self._found()
            if found is None:
                raise SessionNotFound(f"there is no session {self.name!r}")
            return found

    def _found(self) -> Session | None:
        """The session, if it is on record."""
        if self._session is None:
            found = self.located()
            self._session = self.store.handle(found.session, agent=self.agent) if found else None
        return self._session

    def located(self) -> Head | None:
        """The head of the session that has the name of this conversation."""
        return self.store.named(self.name)

    def open(self) -> Session:
        """The session; made now if it does not exist."""
        with self.lock:
            if self._found() is None:
                about = {"framework": self.framework, "conversation": self.id}
                with suppress(NameTaken):  # another process was quicker
                    self._session = self.store.create(self.name, agent=self.agent, metadata=about)
            return self.session

    def attach(self, session: Session) -> None:
        """Continue in another session, for instance a fork."""
        with self.lock:
            self._session, self.name = session, session.name
            self._forget()

    def take(self, who: object, *, fork: Callable[[], Self] | None = None, waits: bool = True) -> Self | None:
        """Try once to take the lease of the lane for a caller; None if it is taken and the caller should wait for it.

        With the policy `fork`, what `fork` makes has the lease; without one, this conversation continues in a fork.
        """
        with self.lock:
            try:
                self.claim(who)
            except LeaseHeld:
                if self.on_conflict == QUEUE and waits:
                    return None
                if self.on_conflict != FORK or (self._is_taken and fork is None):
                    raise
                found = fork() if fork else self
                if fork is None:
                    self.attach(self.fork(None))
                found.claim(who)
                return found
            return self

    def claim(self, who: object) -> None:
        """Take the lease of the lane for a caller, or raise `LeaseHeld`."""
        if self._is_taken:  # threads and tasks of one process are as much in each other's way as processes
            raise LeaseHeld(
                f"another task of this process has the lease of agent {self.agent!r} in session {self.name!r}",
                hint='wait until it ends, or choose on_conflict="queue"',
                name=self.name,
                holder={"pid": os.getpid()},
            )
        self.open().acquire(framework=self.framework)
        self._taken = who, os.getpid()
        self.catch_up()

    @property
    def _is_taken(self) -> bool:
        return self._taken is not None and self._taken[1] == os.getpid()

    def leave(self, who: object) -> None:
        """Release the lease, if this caller has it."""
        with self.lock:
            if self._taken is not None and self._taken[0] is who:
                self._taken = None
                if self._session is not None:
                    self._session.leave()

    def fork(self, at: int | None) -> Session:
        """A fork of the session under the next free name."""
        for number in range(1, FORKS_LIMIT):
            name = f"{self.name[: 64 - 10]}-fork-{number}"
            if self.store.named(name) is None:
                try:
                    return self.session.fork(name, at, agent=self.agent)
                except NameTaken:
                    continue
        raise InvalidInput(f"session {self.name!r} has {FORKS_LIMIT:,} forks", hint="give one of them another name")

    # Reading

    def catch_up(self) -> int:
        """Fold the events that were appended since, and return the position up to which everything is read."""
        with self.lock:
            head = self.located() if self._session is None else self._session.log.head()
            if head is None:
                return 0
            session = self._session = self._session or self.store.handle(head.session, agent=self.agent)
            if head.position > self.position:
                if not self._fold_upto(session, head.position):
                    self._forget()  # what was erased is not given to anyone again
                    self._fold_upto(session, head.position)
                self.position = head.position
            return self.position

    def _fold_upto(self, session: Session, upto: int) -> bool:
        """Fold the events up to a position; False if payloads were erased, perhaps of events that are folded."""
        apply = self._apply
        for event in session.log.decoded(self.parser(), (*self.KINDS, _ERASED), after=self.position, upto=upto):
            if event.kind != _ERASED:
                apply(event)
            elif self.position:
                return False
        return True

    def parser(self) -> Callable[[bytes], Any]:
        """What decodes payloads for `fold`: it makes only the fields that are read."""
        return parser_of(self.framework, self.FIELDS)

    def _apply(self, event: Event) -> None:
        kind, data = event.kind, event.data
        if type(data) is not dict:
            data = {}
        if kind in SHARED_KINDS and data.get(VENDOR) == self.framework:  # nearly all events of a conversation
            self.changed_at = event.position
            self.fold(event, data)
        elif kind in EFFECT_KINDS:
            self._apply_effect(event, data)
        else:
            if event.data is None and kind in SHARED_KINDS:
                self.has_gaps = True
            if kind not in ("agent.joined", "agent.left"):
                self._mixed = self._mixed or kind != "payload.kept" or "reading" in data
            self._others.fold([event])

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this framework; adapters with more than a list of entries extend it."""
        if event.kind == "payload.kept":
            lines = data.get("lines") or []
            for key, line in zip(data.get("keys") or [], lines, strict=False):
                self.entries[key] = tuple_new(Entry, (key, event.position, line))
        elif data.get("all"):
            self.entries.clear()
        else:
            for key in data.get("keys") or ():
                self.entries.pop(key, None)

    def _apply_effect(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one end of a tool call."""
        self.calls.apply(event, data)

    def of_others(self) -> list[tuple[int, list[Item]]]:
        """The committed turns that other writers added to the session: position and well-formed items of each."""
        return [(turn.position, turn.items) for turn in self.turns_of_others()]

    def turns_of_others(self) -> list[Said]:
        """The same, with what copies of a turn are recognised by."""
        return said_by_others(self._others, self.session) if self._mixed else []

    # Writing

    def write(self, make: Callable[[], Sequence[Draft]]) -> list[Event]:
        """Append what `make` returns in one durable step, after it has judged the newest entries.

        If other writers were quicker, their events are folded and `make` is called again.
        """
        with self.lock:
            session = self.open()
            if not self.position:
                self.catch_up()
            for number in range(TRIES):
                drafts = make()
                if not drafts:
                    return []
                try:
                    events = session.log.append(*drafts, expect=self.position, fenced=session.lease is not None)
                except LogMoved:
                    if number:
                        time.sleep(min(number, 20) * 0.001)
                    self.catch_up()
                    session = self.session
                    continue
                for event in events:
                    if event.position > self.position:
                        self._apply(event)
                        self.position = event.position
                return events
        raise StoreBusy(f"other writers kept session {self.name!r} busy", name=self.name)

    def draft(self, kind: str, data: dict[str, Any], *, id: str | None = None) -> Draft:
        """Seal an event of this conversation."""
        return self.session.log.draft(kind, data, id=id, encode=payload_of)

    def kept(
        self, lines: Sequence[str], keys: Sequence[str], reading: Sequence[dict[str, Any] | list[Any]], **more: Any
    ) -> dict[str, Any]:
        """The payload of entries: their text word for word, their keys and what they say; the event says by whom."""
        data: dict[str, Any] = {
            "vendor": self.framework, "vendor_id": self.id, "lines": list(lines), "keys": list(keys),
            "reading": list(reading), **more,
        }  # fmt: skip
        if not self.entries:
            data["mark_before"] = [0]  # no turn of this conversation began before this event
        return data

    def retracted(self, keys: Iterable[str] = (), **more: Any) -> dict[str, Any]:
        """The payload that retracts entries."""
        return {"vendor": self.framework, "vendor_id": self.id, "keys": list(keys), **more}

    # What is saved again

    def recorded(self, lines: Sequence[str]) -> list[str]:
        """Lines in the form in which they are recorded, without secrets: in one store, it is always the same one."""
        session = self.session
        return clean_records(session.funnel, lines, session.head.project)[0]

    def is_recorded(self, stored: str, line: str) -> bool:
        """Whether a stored line is what is recorded of another one."""
        return stored == line or (has_secret(stored) and self.recorded([line]) == [stored])

    # Tool calls

    def start_effect(
        self, call: str, name: str, arguments: Any, *, told: Collection[str] = (), answered: int | None = None
    ) -> Effect | None:
        """Record that a tool is about to run; return the effect instead if it happened, or may have happened.

        An id may come again with another call. It is the same call if its name and arguments are, and if the model has
        not seen its result: no entry has it, and its key is not in `told`, those whose results the run of the caller
        has. A caller that knows how many calls with this id the model saw `answered` says so.
        """
        with self.lock:
            self.catch_up()
            known: list[Effect] = []

            def start() -> list[Draft]:
                self._look_for_answers()
                open_ = self.calls.waiting(call) if answered is None else self.calls.uses(call)[answered:]
                same = (one for one in open_ if one.key not in told and self._is_same(one, name, arguments))
                known[:] = islice(same, 1)
                if known and not known[0].has_failed:
                    return []
                key, number = (known[0].key, known[0].number + 1) if known else (self.calls.next_key(call), 1)
                known.clear()
                return [self._beginning(key, number, call, name, arguments)]

            self.write(start)
            return known[0] if known else None

    def begin_effect(self, call: str, name: str, arguments: Any) -> None:
        """Record that a tool runs now, whatever is on record: for hooks that cannot prevent it."""
        with self.lock:
            self.catch_up()
            self.write(lambda: [self._beginning(self.calls.next_key(call), 1, call, name, arguments)])

    def finish_effect(self, call: str, arguments: Any, *, result: Any = None, error: str | None = None) -> str:
        """Record what the tool answered, and return the key of the effect; nothing if it has its result."""
        with self.lock:
            self.catch_up()
            running = [one for one in self.calls.uses(call) if one.outcome is None]
            if len(running) > 1:
                running = [one for one in running if self._is_same(one, one.name, arguments)] or running
            if not running:
                return ""
            known = running[-1]
            data = {"key": known.key, "ok": error is None, "result": result, "error": error}
            draft = self.draft("effect.finished", data, id=effect_id(known.key, "finished", known.number))
            self.open().log.append(draft)  # without the lease: a process that lost it knows what happened
            self.catch_up()
            return known.key

    def _beginning(self, key: str, number: int, call: str, name: str, arguments: Any) -> Draft:
        data = self.calls.beginning(key, call, name, arguments)
        return self.draft("effect.started", data, id=effect_id(key, "started", number))

    def _is_same(self, known: Effect, name: str, arguments: Any) -> bool:
        """Whether a call on record has this name and these arguments, as they would be recorded: without secrets."""
        session = self.session
        one, other = (self._beginning(known.key, 1, known.call, *said) for said in ((name, arguments), known[1:3]))
        (passed,), _found = session.funnel.passed([one], lambda: session.head.project)
        return bool(passed.payload == other.payload)

    def unanswered(self) -> list[Effect]:
        """The tool calls whose results were never among the entries: mostly those of a run that ended early."""
        self._look_for_answers()
        return list(self.calls.all_waiting())

    def _look_for_answers(self) -> None:
        """Note which calls the model saw answered: those whose results were ever among the entries."""
        if self._looked < self.position and any(self.calls.all_waiting()):
            parser = parser_of(self.framework, ("lines", "reading"))
            kept = self.session.log.decoded(parser, ("payload.kept",), after=self._looked, upto=self.position)
            for event in kept:
                if isinstance(event.data, dict) and event.data.get(VENDOR) == self.framework:
                    for item in (item for row in rows_of(event.data) for item in row.items if item["role"] == "tool"):
                        self.calls.answer(item["call"], event.position)
        self._looked = self.position


def has_secret(stored: str) -> bool:
    """Whether a secret may have been left out of a stored text: only then is its recorded form compared."""
    return PLACEHOLDER_START in stored


def row(line: int, key: str, record: Any, items: list[Item], *, lane: str = "") -> dict[str, Any] | list[Any]:
    """What one entry says; a user's message begins a turn."""
    if not lane and (short := short_row(line, key, record, items)) is not None:
        return short
    return read_row(line, key, condense(record, _printable(items)), lane=lane)


def read_row(line: int, key: str, reading: list[Item], *, lane: str = "") -> dict[str, Any]:
    """The same of items that refer to their entry."""
    made: dict[str, Any] = {"line": line, "id": key, "items": reading}
    if any(item["role"] == "user" for item in reading):
        made["turn"] = BEGINS
    if lane:
        made["lane"] = lane
    return made


def _printable(items: list[Item]) -> list[Item]:
    """The items; a lone surrogate, which no event can have, becomes a question mark."""
    if _all_unicode(items):
        return items
    text = json.dumps(items, ensure_ascii=False)
    found: list[Item] = json.loads(text.encode("utf-8", "replace").decode())
    return found


def _all_unicode(values: Iterable[Any]) -> bool:
    """Whether no text among these values, or inside of them, has a lone surrogate."""
    for one in values:
        if isinstance(one, str):
            if not is_unicode(one):
                return False
        elif isinstance(one, dict):
            if not (_all_unicode(one) and _all_unicode(one.values())):
                return False
        elif isinstance(one, list) and not _all_unicode(one):
            return False
    return True


def new_keys(count: int) -> list[str]:
    """Keys for entries, unique in their conversation."""
    prefix = machine.portion()[:6].hex()
    return [f"{prefix}.{number}" for number in range(count)]
