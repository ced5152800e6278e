"""Names and ids: what a session, an agent and an event may be called."""

from __future__ import annotations

from onrecord.errors import InvalidInput, InvalidName

NAME_LIMIT = 64
"""The longest name of a session or agent, in characters."""

ID_LIMIT = 200
"""The longest event id, in characters."""
LINK_PREFIX = "link/"
"""Events whose id begins like this can be found without knowing their session: `Store.linked`."""
MIRROR_PREFIX = "mirror/"
"""How the ids of the parts of a mirrored conversation begin; the rest names the conversation and the part."""
BESIDE = "+"
"""What the name of a further file of a conversation begins with, in the id of a part."""

_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _CROCKFORD for b in _CROCKFORD]
ULID_LENGTH = 26


def check_name(name: str, what: str = "session") -> str:
    """Return the name if it is a legal one. Legal names are safe as file names, arguments and tmux targets."""
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= NAME_LIMIT
        or not _ALPHABET.issuperset(name)
        or not name[0].isalnum()
        or ".." in name
        or name.endswith(".")
    ):
        raise InvalidName(f"{name!r:.100} is not a valid {what} name")
    if what == "session" and is_ulid(name.upper()):
        raise InvalidName(f"{name!r} looks like an id, so it cannot be a name", hint="choose another name")
    return name


def make_ulid(milliseconds: int, randomness: bytes) -> str:
    """26 characters that sort by time: 48 bits of time and 80 bits of the 10 random bytes."""
    number = (milliseconds << 80) | int.from_bytes(randomness)
    pairs = _PAIRS
    return "".join([pairs[number >> shift & 1023] for shift in range(120, -1, -10)])


def make_event_id(milliseconds: int, randomness: bytes) -> str:
    """26 characters that sort by time: 48 bits of time and 56 random ones, for an id that is unique within one log."""
    return (milliseconds.to_bytes(6) + randomness).hex()


def is_ulid(text: str) -> bool:
    """Whether a text has the form of an onrecord id."""
    return len(text) == ULID_LENGTH and all(letter in _CROCKFORD for letter in text)


def link_id(vendor: str, vendor_id: str) -> str:
    """The id of the event that records a vendor's conversation; `Store.linked` finds sessions by it."""
    id_ = f"{LINK_PREFIX}{vendor}/{vendor_id}"
    if not vendor or "/" in vendor or not vendor_id or len(id_) > ID_LIMIT or not id_.isprintable():
        raise InvalidInput(f"{vendor_id!r:.80} is not a conversation id", hint="use the vendor's own session id")
    return id_
