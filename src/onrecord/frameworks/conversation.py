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
import time
from contextlib import suppress
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.errors import InvalidInput, LeaseHeld, LogMoved, NameTaken, OnrecordError, SessionNotFound, StoreBusy
from onrecord.log.names import check_name
from onrecord.log.readings import BEGINS, condense
from onrecord.views.effects import KEY_LIMIT, effect_id
from onrecord.views.transcript import TURN_KINDS, Transcript, well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from onrecord.log.events import Draft, Event
    from onrecord.log.items import Item
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

REFUSE, QUEUE, FORK = "refuse", "queue", "fork"
POLICIES = (REFUSE, QUEUE, FORK)
"""What happens to a run that writes after another writer: it is refused, it is placed behind it, or it gets a fork."""
TRIES = 200
"""How often a batch is judged again because other writers were quicker."""
QUEUE_SECONDS = 60.0
"""How long a queued writer waits for the lease of a lane."""
FORKS_LIMIT = 1_000
"""How many forks of one session get a name from it."""
_SLUG = 40
_DIGEST = 16
_WAIT = 0.05
_KINDS = (*TURN_KINDS, "effect.started", "effect.finished")
_OUTCOME_UNKNOWN = "started, outcome unknown: the process ended before {name} answered; check before you repeat it"


class Entry(NamedTuple):
    """One entry of a framework, as it is kept."""

    key: str
    position: int
    line: str
    """The entry as JSON text, word for word."""


class Effect(NamedTuple):
    """A tool call on record, whose entry may not have arrived yet."""

    call: str
    name: str
    arguments: Any
    position: int
    outcome: dict[str, Any] | None
    """None while its result is not on record."""
    number: int = 1
    """How often it was tried: a call that failed may be tried again."""


def session_name(*parts: str) -> str:
    """The name of the session that keeps a framework's conversation: its id if that is a legal name."""
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise InvalidInput(f"a conversation needs an id that is text, not {parts!r:.100}")
    whole = parts[-1]
    if len(parts) == 1:
        try:
            return check_name(whole)
        except InvalidInput:
            pass
    slug = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in whole)[:_SLUG].strip("-")
    digest = sha256(json.dumps(parts).encode()).hexdigest()[:_DIGEST]
    return f"{slug or 'x'}-{digest}"


class Conversation:
    """The entries of one framework in one session. Threads and event loops may share it."""

    def __init__(
        self, store: SessionStore, framework: str, id: str, *, name: str = "", agent: str = "main",
        on_conflict: str = REFUSE,
    ) -> None:  # fmt: skip
        if on_conflict not in POLICIES:
            raise InvalidInput(f"on_conflict must be one of {', '.join(POLICIES)}, not {on_conflict!r:.100}")
        self.store = store
        self.framework = framework
        self.id = id
        self.name = name or session_name(id)
        self.agent = check_name(agent, "agent")
        self.on_conflict = on_conflict
        self.lock = RLock()
        self._session: Session | None = None
        self._forget()

    def _forget(self) -> None:
        self.position = 0
        self.changed_at = 0
        """Where an entry was last added or retracted."""
        self.entries: dict[str, Entry] = {}
        self.effects: dict[str, Effect] = {}
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
            found = self.store.named(self.name)
            self._session = self.store.get(found.session, agent=self.agent) if found else None
        return self._session

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

    def acquire(self) -> None:
        """Take the lease of the lane, as the policy says: refuse, wait for it, or continue in a fork."""
        session = self.open()
        until = time.monotonic() + QUEUE_SECONDS
        while True:
            try:
                session.acquire(framework=self.framework)
            except LeaseHeld:
                if self.on_conflict == FORK:
                    self.attach(self.fork(None))
                    session = self.session
                elif self.on_conflict == REFUSE or time.monotonic() > until:
                    raise
                time.sleep(_WAIT)
            else:
                self.catch_up()
                return

    def leave(self) -> None:
        """Release the lease, if there is one."""
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
            session = self._found()
            if session is None:
                return 0
            head = session.log.head()
            if head.position > self.position:
                for event in session.events(self.position, head.position, _KINDS):
                    self._apply(event)
                self.position = head.position
            return self.position

    def _apply(self, event: Event) -> None:
        kind = event.kind
        data: Any = event.data if isinstance(event.data, dict) else {}
        if kind in ("effect.started", "effect.finished"):
            self._apply_effect(event, data)
        elif kind in ("payload.kept", "payload.retracted") and data.get("vendor") == self.framework:
            self.changed_at = event.position
            self.fold(event, data)
        else:
            if kind not in ("agent.joined", "agent.left"):
                self._mixed = self._mixed or kind != "payload.kept" or "reading" in data
            self._others.fold([event])

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this framework; adapters with more than a list of entries extend it."""
        if event.kind == "payload.kept":
            lines = data.get("lines") or []
            for key, line in zip(data.get("keys") or [], lines, strict=False):
                self.entries[key] = Entry(key, event.position, line)
        elif data.get("all"):
            self.entries.clear()
        else:
            for key in data.get("keys") or ():
                self.entries.pop(key, None)

    def _apply_effect(self, event: Event, data: dict[str, Any]) -> None:
        call = _call_of(str(data.get("key", "")), self.framework)
        known = self.effects.get(call)
        if not call:
            return
        if event.kind == "effect.started":
            number = known.number + 1 if known else 1
            self.effects[call] = Effect(
                call, str(data.get("name", "")), data.get("arguments"), event.position, None, number
            )
        elif known:
            self.effects[call] = known._replace(outcome=data)

    def of_others(self) -> list[tuple[int, list[Item]]]:
        """The committed turns that other writers added to the session: position and well-formed items of each."""
        if not self._mixed:
            return []
        return [(turn.ended or turn.begun, well_formed(turn.items)) for turn in self._others.committed]

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

    def kept(
        self, lines: Sequence[str], keys: Sequence[str], reading: Sequence[dict[str, Any]], **more: Any
    ) -> dict[str, Any]:
        """The payload of entries: their text word for word, their keys and what they say."""
        data: dict[str, Any] = {
            "vendor": self.framework, "vendor_id": self.id, "agent": self.agent, "lines": list(lines),
            "keys": list(keys), "reading": list(reading), **more,
        }  # fmt: skip
        if not self.entries:
            data["mark_before"] = [0]  # no turn of this conversation began before this event
        return data

    def retracted(self, keys: Iterable[str] = (), **more: Any) -> dict[str, Any]:
        """The payload that retracts entries."""
        return {"vendor": self.framework, "vendor_id": self.id, "agent": self.agent, "keys": list(keys), **more}

    # Tool calls

    def start_effect(self, call: str, name: str, arguments: Any) -> Effect | None:
        """Record that a tool is about to run; return the effect instead if it happened, or may have happened."""
        key = effect_key(self.framework, call)
        with self.lock:
            self.catch_up()
            known = self.effects.get(_call_of(key, self.framework))
            if known is not None and not _has_failed(known):
                return known
            number = known.number + 1 if known else 1
            session = self.open()
            data = {"key": key, "name": name, "arguments": arguments}
            draft = session.log.draft("effect.started", data, id=effect_id(key, "started", number))
            event = session.log.append(draft, fenced=session.lease is not None)[0]
            self.catch_up()
            # Another process may have started it first: then the event on record is not ours.
            mine = event.payload_hash == draft.payload_hash
            return None if mine else self.effects.get(_call_of(key, self.framework))

    def finish_effect(self, call: str, *, result: Any = None, error: str | None = None) -> None:
        """Record what the tool answered."""
        key = effect_key(self.framework, call)
        data = {"key": key, "ok": error is None, "result": result, "error": error}
        with self.lock:
            known = self.effects.get(_call_of(key, self.framework))
            id_ = effect_id(key, "finished", known.number if known else 1)
            session = self.open()
            session.log.append(session.log.draft("effect.finished", data, id=id_))
            self.catch_up()


def _has_failed(effect: Effect) -> bool:
    return effect.outcome is not None and not effect.outcome.get("ok")


def effect_key(framework: str, call: str) -> str:
    """The key of a tool call in the effect ledger."""
    key = f"{framework}/{call}"
    if len(key) <= KEY_LIMIT and key.isprintable():
        return key
    return f"{framework}/{sha256(call.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _call_of(key: str, framework: str) -> str:
    prefix = f"{framework}/"
    return key.removeprefix(prefix) if key.startswith(prefix) else ""


def said_of(effect: Effect) -> str:
    """What the record says about the result of a tool call."""
    if effect.outcome is None:
        return _OUTCOME_UNKNOWN.format(name=effect.name or "the tool")
    if effect.outcome.get("ok"):
        result = effect.outcome.get("result")
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return f"failed: {effect.outcome.get('error')}"


def as_line(record: Any) -> str:
    """An entry as JSON text, in the order of its keys; lone surrogates stay escaped."""
    try:
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(record, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidInput(
            f"the entry cannot be recorded as JSON: {problem}", hint="use strings, numbers, lists and dicts"
        ) from None
    return text


def row(line: int, key: str, record: Any, items: list[Item], *, lane: str = "") -> dict[str, Any]:
    """What one entry says; a user's message begins a turn."""
    made: dict[str, Any] = {"line": line, "id": key, "items": condense(record, _printable(items))}
    if any(item["role"] == "user" for item in items):
        made["turn"] = BEGINS
    if lane:
        made["lane"] = lane
    return made


def _printable(items: list[Item]) -> list[Item]:
    """The items; a lone surrogate, which no event can have, is shown as its escape."""
    text = json.dumps(items, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        found: list[Item] = json.loads(text.encode("utf-8", "replace").decode())
        return found
    return items


def new_keys(count: int) -> list[str]:
    """Keys for entries, unique in their conversation."""
    prefix = machine.entropy(6).hex()
    return [f"{prefix}.{number}" for number in range(count)]


def theirs(problem: OnrecordError, base: type[Exception]) -> Exception:
    """The same error as the framework's own type: code, hint and message are ours, and both types catch it."""
    bases: tuple[type, ...] = (type(problem), base)
    mixed: Any = type(type(problem).__name__, bases, {"__str__": _told, "__module__": __name__})
    made: Exception = mixed.__new__(mixed)
    made.__dict__.update(problem.__dict__)
    made.args = problem.args
    return made


def _told(self: OnrecordError) -> str:
    hint = f"; {self.hint}" if self.hint else ""
    return f"{self.message} [{self.code}]{hint}"
