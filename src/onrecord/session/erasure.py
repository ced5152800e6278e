"""Statements of erasure: what was erased for good, and how anyone who has a copy of the store can check it.

A statement can be made of a session that had a key of its own, was erased, and whose key is destroyed. It names the
log by the hashes of its first and last event and the key by its id. A reader with the store, or an older copy, can
check that the log is the one that is meant, that its chain is intact, that the key is not there, and that no content
can be read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import DamagedLog, InvalidInput, SessionLocked, SessionNotFound
from onrecord.log.codec import open_record
from onrecord.log.head import ERASED
from onrecord.log.keyed import Keyed
from onrecord.log.names import is_ulid
from onrecord.session.handle import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.events import Event, Record
    from onrecord.log.head import Head
    from onrecord.log.store import Store

FORMAT = "onrecord-erasure/1"
ALGORITHM = "AES-256-GCM"
PURPOSE = "identity of the store"
"""What the name of a store in statements is derived for."""
POSITION_LIMIT = 2**53
"""No position or count in a statement is as large."""
CHECK_PAGE = 1_000
"""How many events a check reads at a time."""
KEPT = ("payload.erased", "session.forked")
"""The kinds whose payloads an erasure keeps: what was erased, and what a fork continues."""


class Finding(NamedTuple):
    """One claim of a statement, checked."""

    claim: str
    ok: bool
    detail: str


def _holds(claim: str, detail: str) -> Finding:
    return Finding(claim, ok=True, detail=detail)


def _fails(claim: str, detail: str) -> Finding:
    return Finding(claim, ok=False, detail=detail)


def statement(session: Session, made_at: float) -> dict[str, Any]:
    """The statement of a session that is erased and whose key is destroyed."""
    store, head = session.store, session.store.head(session.id)
    key_id = store.key_id(session.id) if isinstance(store, Keyed) else None
    if key_id is None or head.status != ERASED or not isinstance(store, Keyed):
        raise InvalidInput(
            f"there is nothing to certify: session {head.name!r} is not erased, or it has no key of its own",
            hint="erase all content of a session with a key of its own first",
        )
    if (state := store.key_state(session.id)) != "destroyed":
        raise SessionLocked(
            f"the key of session {head.name!r} is {state}, so its destruction cannot be certified",
            hint="erase the session again to destroy its key",
        )
    by_scope = _erasures(store, head)
    if "key" not in by_scope:
        raise SessionLocked(
            f"the key of session {head.name!r} is destroyed, and its log does not say so yet",
            hint="erase the session again to record it",
        )
    whole, said = by_scope["all"], by_scope["key"]
    first = store.read(session.id, after=head.forked_at, upto=head.forked_at + 1, bodies=())[0]
    return {
        "format": FORMAT, "session": session.id, "name": head.name, "store": store.key(PURPOSE)[:16].hex(),
        "first": _point(first), "last": _point(said), "erasure": _told(whole),
        "key": {"id": key_id, "algorithm": ALGORITHM, "destroyed_at": _time(said.data["destroyed_at"])},
        "made_at": _time(int(made_at * 1e6)),
    }  # fmt: skip


def check(store: Store, said: dict[str, Any]) -> list[Finding]:
    """Check a statement against a store, or against an older copy of it."""
    wanted = _fields(said)
    try:
        head = store.head(wanted["session"])
    except SessionNotFound:
        return [_holds("the session", "is not in this store, so no content of it is")]
    key_id = store.key_id(head.session) if isinstance(store, Keyed) else None
    first = _at(store, head.session, wanted["first"]["position"])
    if first and first[0].hash.hex() == wanted["first"]["hash"]:
        found = [_holds("the log", "begins with the event that the statement names")]
    else:
        found = [_fails("the log", "begins with another event than the statement says")]
    found.append(_chain(store, head.session))
    found.append(_erasure(store, head, wanted))
    found.append(_key(store, head.session, key_id, wanted["key"]["id"]))
    found.append(_content(store, head.session, head.forked_at))
    return found


def _erasures(store: Store, head: Head) -> dict[str, Event]:
    """The erasures on record by their scope: `all` erased the content, `key` says that the key was destroyed."""
    found = store.read(head.session, after=head.forked_at, kinds=("payload.erased",))
    return {event.data["scope"]: event for event in map(open_record, found)}


def _told(whole: Event) -> dict[str, Any]:
    """What a statement says of an erasure."""
    return {
        "position": whole.position, "payloads": whole.data["count"], "at": _time(whole.at), "by": whole.by,
        "reason": whole.data["reason"],
    }  # fmt: skip


def _erasure(store: Store, head: Head, wanted: dict[str, Any]) -> Finding:
    """Whether the log says of the erasure what the statement says: when, by whom, why, of how much."""
    by_scope = _erasures(store, head)
    whole, said = by_scope.get("all"), by_scope.get("key")
    differs = _fails("the erasure", "is on record here in another way than the statement says")
    if whole is not None and _told(whole) != wanted["erasure"]:
        return differs
    if said is None:
        older = head.position < wanted["last"]["position"]
        return (
            _holds("the erasure", f"is not in this copy, which is older: it ends at {head.position}")
            if older
            else differs
        )
    same = _point(said) == wanted["last"] and _time(said.data["destroyed_at"]) == wanted["key"]["destroyed_at"]
    if not same or head.status != ERASED:
        return differs
    return _holds("the erasure", "is on record as the statement says")


def _chain(store: Store, session: str) -> Finding:
    report = Session(store, session).verify()
    if report.ok:
        return _holds("the hash chain", f"is intact up to position {report.position}")
    first = report.problems[0]
    return _fails("the hash chain", f"is damaged at position {first.position}: {first.detail}")


def _key(store: Store, session: str, key_id: str | None, wanted: str) -> Finding:
    if key_id is None or not isinstance(store, Keyed):
        return _fails("the key", "the session has no key of its own in this store")
    if key_id != wanted:
        return _fails("the key", f"has the id {key_id} here, not {wanted}")
    if store.has_key(wanted) or store.key_state(session) in ("present", "destroying"):
        return _fails("the key", "is still there: erase the session again to destroy it")
    return _holds("the key", f"{wanted} is not among the keys of this store")


def _content(store: Store, session: str, after: int) -> Finding:
    """Whether any payload of the session's own events can be read."""
    readable = 0
    try:
        for record in _own(store, session, after):
            readable += record.payload is not None and record.kind not in KEPT
    except (SessionLocked, DamagedLog):
        return _holds("the content", "cannot be read: it is encrypted, and its key is not there")
    if readable:
        return _fails("the content", f"of {readable} events can be read")
    return _holds("the content", "cannot be read: no event has any")


def _own(store: Store, session: str, after: int) -> Iterator[Record]:
    while page := store.read(session, after=after, limit=CHECK_PAGE):
        yield from page
        after = page[-1].position


def _at(store: Store, session: str, position: int) -> list[Record]:
    return store.read(session, after=position - 1, upto=position, bodies=())


def _fields(said: dict[str, Any]) -> dict[str, Any]:
    """A statement with the fields that a check needs, or one clear error."""
    try:
        erasure, key = said["erasure"], said["key"]
        texts = (
            said["session"],
            said["name"],
            erasure["at"],
            erasure["by"],
            erasure["reason"],
            key["id"],
            key["destroyed_at"],
        )
        numbers = said["first"]["position"], said["last"]["position"], erasure["position"], erasure["payloads"]
        hashes = said["first"]["hash"], said["last"]["hash"]
        fits = (
            said["format"] == FORMAT
            and all(isinstance(text, str) for text in (*texts, *hashes))
            and all(type(number) is int and 0 <= number < POSITION_LIMIT for number in numbers)
            and is_ulid(said["session"])
        )
    except (KeyError, TypeError):
        fits = False
    if not fits:
        raise InvalidInput("this is not a statement of an erasure", hint="name a file that `certify` wrote")
    return said


def _point(record: Record | Event) -> dict[str, Any]:
    return {"position": record.position, "hash": record.hash.hex()}


def _time(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1e6, UTC).isoformat(timespec="seconds")
