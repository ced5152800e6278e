r"""How an event becomes bytes, and how its bytes are chained.

**Payload.** The data of an event is a JSON value in canonical form: UTF-8, keys sorted, no spaces, no NaN or
infinity, keys are strings. Numbers are what Python's `json` writes. A value that cannot be written this way is refused
before anything is written.

**Commitment.** `payload_hash = SHA-256("onrecord/payload/1\0" + salt + payload)` with 16 random bytes of salt.
Without the salt a short secret cannot be guessed from its hash, so payload and salt can be erased while the log still
verifies.

**Header.** The canonical JSON list `[session, position, id, kind, v, at, by, run, because]`.

**Chain.** `hash = SHA-256("onrecord/event/1\0" + previous hash + header length (4 bytes, big endian) + header +
payload_hash)`; the previous hash of position 1 is 32 zero bytes. A fork continues from the hash of the event it was
forked at.

**Versions.** `v` is the version of the payload. Older payloads are lifted on read by pure functions (`UPCASTERS`) and
never rewritten. A kind or version that is newer than this code passes through untouched.
"""

from __future__ import annotations

from collections.abc import Sequence

from onrecord import lean_json
from onrecord.errors import DamagedLog, InvalidInput, TooLarge
from onrecord.lean_typing import TYPE_CHECKING, Any
from onrecord.log import digest, names
from onrecord.log.events import KINDS, Draft, Event, Kind, Record, tuple_new
from onrecord.log.shapes import SHAPES, misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Header = tuple[str, int, str, str, int, int, str, int, int | None]
_HEADER_FIELDS = ("session", "position", "id", "kind", "v", "at", "by", "run", "because")
"""Session, position, id, kind, v, at, by, run, because."""

PAYLOAD_LIMIT = 64 * 1024 * 1024
"""The largest payload of one event, in bytes."""
BATCH_LIMIT = 10_000
"""The most events of one append."""
ID_LIMIT = names.ID_LIMIT
BY_LIMIT = 64
"""The longest actor, in characters."""
KIND_LIMIT = 64
"""The longest kind, in characters."""
AT_LIMIT = 253_402_300_799_999_999
"""The last moment an event may have, in microseconds since 1970: the end of the year 9999."""
NUMBER_LIMIT = 2**53 - 1
"""The largest version, run and position: every store and every JSON reader keeps it exactly."""
COMPARED_BELOW = 2_048
"""Payloads of fewer bytes are compared with their commitment whenever they are opened. Longer ones are kept compressed,
with a checksum: to hash them too would take a sixth of the time of reading a log."""
NESTING_LIMIT = 100
"""How deep lists and objects may be nested, so that a payload can be read at any depth of the call stack."""
SALT_BYTES = 16
GENESIS = bytes(32)

_PAYLOAD_TAG = b"onrecord/payload/1\0"
_EVENT_TAG = b"onrecord/event/1\0"


def encoder_of(
    escape: Callable[[str], str], default: Callable[[Any], Any] | None = None
) -> Callable[[Any, int], Iterable[str]]:
    """What `json.dumps` does for plain values, without a new encoder for every value: the text in pieces.

    It is called with the value and 0, and the pieces are joined where they are needed: a function for both would be
    one more call for every event and every header. `default` is called with what is no JSON; plain values need none.
    """
    make = lean_json.make_encoder
    if make is None:  # a Python without the accelerator
        from json import JSONEncoder

        is_ascii = escape is lean_json.encode_basestring_ascii
        return JSONEncoder(ensure_ascii=is_ascii, separators=(",", ":"), allow_nan=False).iterencode  # type: ignore[return-value]  # its second argument may be 0
    return make(None, default, escape, None, ":", ",", False, False, False)  # noqa: FBT003 - it takes no names


_ascii_pieces = encoder_of(lean_json.encode_basestring_ascii)
_pieces = encoder_of(lean_json.encode_basestring)
_decode = lean_json.loads
_scan = lean_json.scan
_ATOMS = frozenset({str, int, float, bool, type(None)})
_are_atoms = _ATOMS.issuperset
_are_texts = frozenset({str}).issuperset
_NEEDS = {name: frozenset(kind.needs.split()) for name, kind in KINDS.items()}
_join = "".join

UPCASTERS: dict[tuple[str, int], Callable[[Any], Any]] = {}
"""(kind, version) -> a pure function to the next version's payload."""


def encode_payload(data: object) -> bytes:
    """The canonical bytes of a payload, or one clear error."""
    return encode_plain(as_read(data))


def as_read(data: object) -> Any:
    """A payload as every reader will get it."""
    try:
        return plain(data, NESTING_LIMIT)
    except (TypeError, ValueError) as problem:
        raise _no_json(problem) from None


def encode_plain(value: Any) -> bytes:
    """The canonical bytes of a payload that has the form every reader will get."""
    try:
        # Most payloads are plain ASCII. For those both encoders write the same bytes, and this one takes half the time.
        text = _join(_ascii_pieces(value, 0))
        if "\\" in text and "\\u" in text:  # the search for one character is quicker, and usually decides
            text = _join(_pieces(value, 0))
    except ValueError as problem:
        raise _no_json(problem) from None
    try:
        payload = text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            "the text contains a lone surrogate, which is not valid Unicode",
            hint="decode bytes with errors='replace' first",
        ) from None
    return within_limit(payload)


def within_limit(payload: bytes) -> bytes:
    """The bytes of a payload, or `TooLarge`."""
    if len(payload) > PAYLOAD_LIMIT:
        raise TooLarge(f"the payload has {len(payload):,} bytes; the limit is {PAYLOAD_LIMIT:,}")
    return payload


def _no_json(problem: Exception) -> InvalidInput:
    hint = "record strings, numbers, lists and dicts"
    return InvalidInput(f"the value cannot be recorded as JSON: {problem}", hint=hint)


def plain(value: Any, room: int) -> Any:
    """A copy with sorted keys and JSON types only, so that the caller cannot change it afterwards.

    `room` is how deep it may be nested.
    """
    kind = type(value)
    if kind is dict and room:
        copy = dict(sorted(value.items()))
        if not _are_texts(map(type, copy)):
            copy = _with_plain_keys(copy)
        if not _are_atoms(map(type, copy.values())):
            for key, part in copy.items():
                if type(part) not in _ATOMS:
                    copy[key] = plain(part, room - 1)
        return copy
    if kind is list and room:
        return [part if type(part) in _ATOMS else plain(part, room - 1) for part in value]
    return value if kind in _ATOMS else _plain_of_another(value, room)


def _with_plain_keys(value: dict[Any, Any]) -> dict[str, Any]:
    """The same with keys that are exactly text; a subclass, for instance an enum, is recorded as its plain value."""
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"a key is text, not {key!r:.80}")
    return {str.__str__(key): part for key, part in value.items()}


def _plain_of_another(value: Any, room: int) -> Any:
    """The same for a value that is not exactly of a JSON type."""
    if isinstance(value, dict | list | tuple):
        if room == 0:
            raise ValueError(f"it is nested more than {NESTING_LIMIT} deep")
        return plain(dict(value) if isinstance(value, dict) else list(value), room)
    # A subclass, for instance an enum, is recorded as its plain value:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def commit_to(salt: bytes, payload: bytes) -> bytes:
    """The salted commitment to a payload."""
    return digest.sha256(_PAYLOAD_TAG + salt + payload).digest()


def seal(  # noqa: PLR0917  # on the hottest path, where names cost time
    kind: str, data: Any, id: str, at: int, by: str, run: int, salt: bytes, because: int | None = None,
    plain: bool = False,  # noqa: FBT001, FBT002  # as above
    encode: Callable[[Any], bytes] = encode_plain,
) -> Draft:  # fmt: skip
    """Check an event and turn it into a draft that a store can place.

    Data that is `plain` has the form that every reader will get, and no caller can change it afterwards. `encode`
    returns what `encode_plain` does, perhaps sooner.
    """
    if not isinstance(id, str) or not 0 < len(id) <= ID_LIMIT or not id.isprintable():
        raise InvalidInput(f"an event id has 1 to {ID_LIMIT} printable characters, not {id!r:.300}")
    if not by or len(by) > BY_LIMIT or not by.isprintable():
        raise InvalidInput(f"an actor has 1 to {BY_LIMIT} printable characters, not {by!r}")
    return seal_own(kind, data, id, at, by, run, salt, because, plain, encode)


def seal_own(  # noqa: PLR0917  # as above
    kind: str, data: Any, id: str, at: int, by: str, run: int, salt: bytes, because: int | None,
    plain: bool,  # noqa: FBT001  # as above
    encode: Callable[[Any], bytes] = encode_plain,
) -> Draft:  # fmt: skip
    """The same with an id that we made and an actor that was checked before."""
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is not None:
        version = known.version
        if type(data) is not dict or not _NEEDS[kind] <= data.keys():
            check_payload(known, data)
        if kind in SHAPES and (problem := misfit(kind, data)):
            raise InvalidInput(f"{kind}: {problem}")
    else:
        version = 1
        if not isinstance(kind, str) or not 0 < len(kind) <= KIND_LIMIT or not kind.isprintable():
            raise InvalidInput(f"an event kind has 1 to {KIND_LIMIT} printable characters, not {kind!r:.100}")
    if because is not None:
        check_because(because)
    if not plain:
        data = as_read(data)  # views keep parts of it, so it must not contain the caller's own objects
    payload = encode(data)
    digest = commit_to(salt, payload)
    return tuple_new(Draft, (id, kind, version, at, by, run, because, salt, payload, digest, data))


class SealOnRead(Sequence[Draft]):
    """A batch of one draft, sealed when it is first read. To a store it is a sequence of drafts like any other.

    A batch leader that seals the drafts of other threads, one after the other, takes half the time that those threads
    would take, each waking up in turn. So another thread may call `make`: it must not block, and must raise only our
    own errors.
    """

    __slots__ = ("_drafts", "_make")

    def __init__(self, make: Callable[[], Draft]) -> None:
        self._make = make
        self._drafts: tuple[Draft, ...] = ()

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return self.sealed()[index]

    def __iter__(self) -> Iterator[Draft]:
        return iter(self.sealed())

    def sealed(self) -> tuple[Draft, ...]:
        """The draft, the same each time."""
        if not self._drafts:
            self._drafts = (self._make(),)
        return self._drafts


def is_simple(data: object) -> bool:
    """Whether it is a dict of atoms: sealing it runs none of the caller's code."""
    return type(data) is dict and _are_atoms(map(type, data.values()))


def check_payload(kind: Kind, data: Any) -> None:
    """Refuse a payload that lacks a field its kind needs."""
    if not isinstance(data, dict):
        raise InvalidInput(f"the payload of {kind.name} is a JSON object, not {type(data).__name__}")
    if kind.needs and not _NEEDS[kind.name] <= data.keys():
        missing = next(field for field in kind.needs.split() if field not in data)
        raise InvalidInput(f"{kind.name} needs {missing!r}", hint=f"its payload has {kind.needs.replace(' ', ', ')}")


def check_header(header: Header) -> None:
    """Refuse a header that a store could not return exactly as it was hashed. Every event of every store passes here.

    The hash would cover `1.0` or `True`, and a column returns `1`; a moment after the year 9999 can be shown by no
    reader. So every field must have exactly its type, and be within its limits.
    """
    _session, position, id_, kind, v, at, by, run, because = header
    if not (
        type(id_) is type(kind) is type(by) is str
        and type(position) is type(v) is type(at) is type(run) is int
        and 0 <= at <= AT_LIMIT
        and 0 < len(id_) <= ID_LIMIT
        and 0 < len(by) <= BY_LIMIT
        and 0 < len(kind) <= KIND_LIMIT
        and 0 < v <= NUMBER_LIMIT
        and 0 <= run <= NUMBER_LIMIT
        and 0 < position <= NUMBER_LIMIT
        and id_.isprintable()
        and by.isprintable()
        and kind.isprintable()
    ):
        raise _misfit(header)
    if because is not None:
        check_because(because)


def check_because(because: object) -> None:
    """Refuse what is not exactly an integer that a store keeps."""
    if type(because) is not int or not 0 <= because <= NUMBER_LIMIT:
        raise InvalidInput(f"`because` is the position of an event, a whole number, not {because!r:.100}")


def _misfit(header: Header) -> InvalidInput:
    limits = {"id": ID_LIMIT, "kind": KIND_LIMIT, "by": BY_LIMIT}
    numbers = {"at": AT_LIMIT, "v": NUMBER_LIMIT, "run": NUMBER_LIMIT, "position": NUMBER_LIMIT}
    values: dict[str, Any] = dict(zip(_HEADER_FIELDS, header, strict=True))
    for name, limit in limits.items():
        text = values[name]
        if type(text) is not str or not 0 < len(text) <= limit or not text.isprintable():
            return InvalidInput(f"`{name}` of an event has 1 to {limit} printable characters, not {text!r:.100}")
    for name, most in numbers.items():
        if type(values[name]) is not int or not 0 <= values[name] <= most:
            return InvalidInput(f"`{name}` of an event is a whole number up to {most:,}, not {values[name]!r:.100}")
    return InvalidInput("`v` and `position` of an event begin with 1")


def link(previous: bytes, header: Header, payload_hash: bytes) -> bytes:
    """The hash of an event at its position."""
    encoded = _join(_pieces(header, 0)).encode()
    return digest.sha256(b"".join((_EVENT_TAG, previous, len(encoded).to_bytes(4), encoded, payload_hash))).digest()


def link_record(previous: bytes, record: Record) -> bytes:
    """The hash a kept event should have after `previous`."""
    return link(previous, record[:9], record.payload_hash)


def decode_payload(text: str) -> Any:
    """What `json.loads` returns. A payload has nothing around its value, so most of what that does is not needed."""
    try:
        value, end = _scan(text, 0)
    except (StopIteration, SystemError):  # as in `lean_json.loads`
        return _decode(text)
    return value if end == len(text) else _decode(text)


def open_record(record: Record) -> Event:
    """Decode a kept event; an erased payload reads as None."""
    return parse_record(record, _decoded)


def _decoded(payload: bytes) -> Any:
    return decode_payload(payload.decode())


def parse_record(record: Record, parse: Callable[[bytes], Any]) -> Event:
    """The same by another parser, which returns what `json.loads` does, or the part that its caller needs."""
    payload = record.payload
    if payload is None:
        return _event(record, None)
    if is_damaged(payload, record.salt, record.payload_hash):
        raise unreadable(record.position)
    try:
        data = parse(payload)
    except ValueError:
        raise unreadable(record.position) from None
    return _event(record, data)


def is_damaged(payload: bytes, salt: bytes | None, payload_hash: bytes) -> bool:
    """Whether a short payload is not the one that was committed to."""
    return len(payload) < COMPARED_BELOW and commit_to(salt or b"", payload) != payload_hash


def unreadable(position: int) -> DamagedLog:
    """What to say about a payload that cannot be decoded."""
    return DamagedLog(f"the log is damaged at position {position}: its payload is not what was recorded")


def open_header(record: Record) -> Event:
    """The same without its payload."""
    return _event(record, None)


def open_records(records: Iterable[Record]) -> list[Event]:
    """Decode many kept events; the same as `open_record` for each."""
    return [open_record(record) for record in records]


def event_of(draft: Draft, session: str, position: int, run: int, digest: bytes) -> Event:
    """The event that a draft became, without decoding what was just encoded."""
    id_, kind, v, at, by, _run, because, _salt, _payload, payload_hash, data = draft
    return tuple_new(Event, (session, position, id_, kind, v, at, by, run, because, data, payload_hash, digest))


def _event(record: Record, data: Any) -> Event:
    session, position, id_, kind, v, at, by, run, because, _salt, _payload, payload_hash, digest = record
    if UPCASTERS and data is not None:
        v, data = lifted(kind, v, data)
    return tuple_new(Event, (session, position, id_, kind, v, at, by, run, because, data, payload_hash, digest))


def lifted(kind: str, v: int, data: Any) -> tuple[int, Any]:
    """The version and payload of an event as this code knows them."""
    while lift := UPCASTERS.get((kind, v)):
        data = lift(data)
        v += 1
    return v, data
