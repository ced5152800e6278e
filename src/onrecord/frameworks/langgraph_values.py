"""Values of LangGraph's channels as data: JSON with tags, and nothing that names a class or a function.

A tag is a word of the table below; which class it becomes is decided by this module and by the `types` that the caller
gave, never by what is stored. A value of any other class is refused when it is written, so nothing is lost silently.

Long texts and the bodies of messages go to a *pool*, each content once, and are referred to by their number. So the
same message costs a few bytes in every further checkpoint.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from onrecord.errors import DamagedLog, InvalidInput
from onrecord.frameworks.conversation import check_type
from onrecord.frameworks.langgraph_types import EXTRA, FACTORIES, UNSET, factory_name, fields_of, named, refused, remade
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.requiring import required
from onrecord.frameworks.writing import as_line

with required("langgraph", "langgraph langchain_core", "1.2"):
    from langchain_core.documents import Document
    from langchain_core.messages import (
        AIMessage,
        AIMessageChunk,
        BaseMessage,
        ChatMessage,
        ChatMessageChunk,
        FunctionMessage,
        FunctionMessageChunk,
        HumanMessage,
        HumanMessageChunk,
        RemoveMessage,
        SystemMessage,
        SystemMessageChunk,
        ToolMessage,
        ToolMessageChunk,
    )
    from langgraph.checkpoint.serde.types import _DeltaSnapshot
    from langgraph.types import Command, Interrupt, Overwrite, Send

TAG, VALUE, POOLED = "@", "v", "m"
_TAGGED = f'"{TAG}":'
"""What a text with tags contains; a text that quotes it has a backslash between."""
POOLED_FROM = 64
"""Texts of at least so many characters are kept once, in the pool."""
ERASED = "[erased]"
"""What an erased text says."""
DEPTH_LIMIT = 80
"""How deep a value may be nested."""
MESSAGES: dict[str, type[BaseMessage]] = {
    "ai": AIMessage, "human": HumanMessage, "system": SystemMessage, "tool": ToolMessage, "function": FunctionMessage,
    "chat": ChatMessage, "remove": RemoveMessage, "ai+": AIMessageChunk, "human+": HumanMessageChunk,
    "system+": SystemMessageChunk, "tool+": ToolMessageChunk, "function+": FunctionMessageChunk,
    "chat+": ChatMessageChunk,
}  # fmt: skip
_MESSAGE_TAGS = {of: tag for tag, of in MESSAGES.items()}
_LISTS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque,
}  # fmt: skip
_LIST_TAGS: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset", deque: "deque"}
_DICTS: dict[str, Callable[[Iterable[tuple[Any, Any]]], Any]] = {
    "ordered": OrderedDict, "counter": lambda pairs: Counter(dict(pairs)),
    "defaultdict": lambda pairs: defaultdict(None, pairs),
}  # fmt: skip
_DICT_TAGS: dict[type, str] = {OrderedDict: "ordered", Counter: "counter", defaultdict: "defaultdict"}
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "datetime": datetime.fromisoformat, "date": date.fromisoformat, "time": time.fromisoformat, "uuid": UUID,
    "decimal": Decimal, "zone": ZoneInfo, "ip": ip_address, "network": ip_network, "interface": ip_interface,
    "float": float, "bytes": base64.b64decode, "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "path": Path, "posixpath": PurePosixPath, "windowspath": PureWindowsPath,
    "delta": lambda text: timedelta(*json.loads(text)),
    "utc": lambda text: timezone(timedelta(*json.loads(text))),
}  # fmt: skip
_PARTS: dict[str, Callable[[Any], Any]] = {
    "send": lambda parts: Send(*parts), "interrupt": lambda parts: Interrupt(*parts), "overwrite": Overwrite,
    "snapshot": _DeltaSnapshot, "command": lambda parts: Command(**parts),
    "document": lambda parts: Document(id=parts[0], page_content=parts[1], metadata=parts[2]),
}  # fmt: skip
_OWN: dict[type, tuple[str, Callable[[Any], Any]]] = {
    Overwrite: ("overwrite", lambda one: one.value), _DeltaSnapshot: ("snapshot", lambda one: one.value),
    Document: ("document", lambda one: [one.id, one.page_content, one.metadata]),
    Command: ("command", lambda one: {name: getattr(one, name) for name in ("graph", "update", "resume", "goto")}),
}  # fmt: skip
_PURE_PATHS: dict[type, str] = {PurePosixPath: "posixpath", PureWindowsPath: "windowspath"}
_MESSAGE = "message"
"""What the body of a message calls its kind; with it are the extra fields if one of them is `_TAKEN`."""
_TAKEN = frozenset({_MESSAGE, TAG})
"""Names that a body needs itself; logs of earlier versions have all extra fields among the others."""
_DROPPED = {"type", "id"}
_ATOMS = frozenset({str, int, float, bool, type(None)})
_NESTED = frozenset({dict, list})


def _setter(name: str) -> Callable[[BaseMessage, Any], None]:
    """What sets an attribute of a message past its checks; by its descriptor, if it has one, in a third of the time."""
    found = next((vars(of)[name] for of in BaseMessage.__mro__ if name in vars(of)), None)
    if found is not None and hasattr(found, "__set__"):
        by_descriptor: Callable[[BaseMessage, Any], None] = found.__set__
        return by_descriptor
    return lambda message, value: object.__setattr__(message, name, value)


_set_dict, _set_fields = _setter("__dict__"), _setter("__pydantic_fields_set__")
_set_extra, _set_private = _setter("__pydantic_extra__"), _setter("__pydantic_private__")
_DEFAULTS: dict[type, dict[str, Any]] = {
    of: {name: field.get_default(call_default_factory=True) for name, field in of.model_fields.items()}
    for of in _MESSAGE_TAGS
}
_MADE = {
    tag: (of, usual, [(name, one.copy) for name, one in usual.items() if type(one) in _NESTED])
    for tag, of in MESSAGES.items()
    for usual in (_DEFAULTS[of],)
}
"""How messages are made: the class, its defaults, and those of them that must not be shared."""
_CHANGEABLE = {of: [name for name in usual if name not in ("type", "id", "name")] for of, usual in _DEFAULTS.items()}

Ref = int | str
"""An element of a list: the number of a message in the pool, or a text."""
Keep = Callable[[str, "BaseMessage | None"], int]
"""Puts a text, or the body of a message, into the pool; -number - 1 for a message that has the id of its entry."""


class Pool:
    """Texts and bodies of messages by their number; an entry may belong to the message with one id."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._numbered = 0
        self._gone: set[int] = set()
        self.ids: dict[int, str] = {}
        self._known: set[str] | None = None
        self.prototypes: dict[int, BaseMessage] = {}
        """Messages that were decoded; what is handed out is a copy."""
        self.has_gaps = False
        """Texts were erased: each of them is an empty one, or not there."""

    def place(self, start: int, lines: list[str]) -> None:
        """Put texts where their numbers are; those between that are not there yet, or never, are empty."""
        self.texts += [""] * (start - len(self.texts))
        self.texts[start : start + len(lines)] = lines

    def at(self, number: int) -> str:
        """A text; an empty one if it was erased."""
        if self.has_gaps and not 0 <= number < len(self.texts):
            return ""
        return self.texts[number]

    def id_at(self, number: int) -> str:
        """The id of the message that an entry belongs to; one that was erased with the message is made up."""
        return self.ids.get(number, f"erased-{number}") if self.has_gaps else self.ids[number]

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each text; of equal texts, of the first one. Only writers need it."""
        for number in range(self._numbered, len(self.texts)):
            if number not in self._gone and self.texts[number]:
                self._numbers.setdefault(self.texts[number], number)
        self._numbered = len(self.texts)
        return self._numbers

    @property
    def known(self) -> set[str]:
        """The ids that have an entry which was not deleted. Only writers need it."""
        if self._known is None:
            self._known = {id_ for number, id_ in self.ids.items() if number not in self._gone}
        return self._known

    def let_go(self, numbers: Iterable[int]) -> None:
        """Note which texts were deleted with what they say: one that is said again is a new text."""
        self._gone.update(numbers)
        self._known = None
        for number in self._gone:
            if self._numbers.get(self.at(number)) == number:
                del self._numbers[self.at(number)]

    def claim(self, number: int, id_: str) -> None:
        """Note which message an entry belongs to."""
        self.ids[number] = id_
        if self._known is not None and number not in self._gone:
            self._known.add(id_)


_EMPTY = Pool()


class Values:
    """Encodes and decodes values; `types` are classes of the caller that may be kept besides those of LangGraph."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        check_type(types, Iterable, "types as a list of classes")
        self._types = named(types)

    def encode(self, value: Any, keep: Keep | None, room: int = DEPTH_LIMIT) -> Any:
        """The value as JSON; `keep` puts a text or the body of a message into the pool and returns its number."""
        kind = type(value)
        if kind is str:
            return {TAG: "text", VALUE: keep(value, None)} if keep and len(value) >= POOLED_FROM else value
        if value is None or kind is bool or kind is int:
            return value
        if kind is float:
            return value if math.isfinite(value) else {TAG: "float", VALUE: repr(value)}
        if room <= 0:
            raise InvalidInput(f"a value is nested more than {DEPTH_LIMIT} deep", hint="keep it flatter")
        if kind is list:
            return [self.encode(part, keep, room - 1) for part in value]
        if kind is dict:
            return self._encode_dict(value, keep, room)
        if isinstance(value, BaseMessage) and kind in _MESSAGE_TAGS:
            body = self._body(value, room)
            if keep is None:
                return {TAG: "message", VALUE: body, "id": value.id}
            number = keep(body, value)
            if number < 0:  # the pool knows that this body belongs to this id
                return {TAG: POOLED, VALUE: -number - 1}
            return {TAG: "message", VALUE: number, "id": value.id}
        return self._encode_other(value, keep, room)

    def _encode_dict(self, value: dict[Any, Any], keep: Keep | None, room: int) -> Any:
        if TAG not in value and all(type(key) is str for key in value):
            return {key: self.encode(part, keep, room - 1) for key, part in value.items()}
        pairs = [[self.encode(key, keep, room - 1), self.encode(part, keep, room - 1)] for key, part in value.items()]
        return {TAG: "map", VALUE: pairs}

    def _body(self, message: BaseMessage, room: int) -> str:
        """A message without its id, as text: the fields that differ from their defaults."""
        usual = _DEFAULTS[type(message)]
        extra = message.__pydantic_extra__ or {}
        tag: Any = _MESSAGE_TAGS[type(message)]
        if extra and not _TAKEN.isdisjoint(extra):
            tag, extra = [tag, self.encode(extra, None, room - 1)], {}
        said = {
            name: part if type(part) is str else self.encode(part, None, room - 2)
            for name, part in (*message.__dict__.items(), *extra.items())
            if name not in _DROPPED and not (name in usual and part == usual[name] and type(part) is type(usual[name]))
        }
        return as_line({_MESSAGE: tag, **said})

    def _encode_other(self, value: Any, keep: Keep | None, room: int) -> Any:
        def inner(part: Any) -> Any:
            return self.encode(part, keep, room - 1)

        kind = type(value)
        if kind in _LIST_TAGS:
            longest = {"longest": value.maxlen} if kind is deque and value.maxlen is not None else {}
            return {TAG: _LIST_TAGS[kind], VALUE: [inner(part) for part in value], **longest}
        if kind is Send:
            return {TAG: "send", VALUE: [value.node, inner(value.arg)]}
        if kind is Interrupt:
            return {TAG: "interrupt", VALUE: [inner(value.value), value.id]}
        if kind in _OWN:
            tag, parts_of = _OWN[kind]
            return {TAG: tag, VALUE: inner(parts_of(value))}
        if isinstance(value, BaseException):
            return repr(value)  # LangGraph shows errors as text, too
        text = _as_tagged_text(value)
        if text is not None:
            return text
        if kind in _DICT_TAGS:
            pairs = [[inner(key), inner(part)] for key, part in value.items()]
            of = {"of": factory_name(value)} if kind is defaultdict else {}
            return {TAG: _DICT_TAGS[kind], VALUE: pairs, **of}
        if self._types.get(kind.__name__) is kind:
            said, more = fields_of(value, inner)
            return {TAG: "type", "name": kind.__name__, VALUE: said, **more}
        raise refused(kind, self._types)

    def decode(self, value: Any, pool: Pool) -> Any:
        """The value that was encoded."""
        if type(value) is list:
            return [self.decode(part, pool) for part in value]
        if type(value) is not dict:
            return value
        if TAG not in value:
            return {key: self.decode(part, pool) for key, part in value.items()}
        try:
            return self._decode_tagged(value[TAG], value, pool)
        except (KeyError, IndexError, TypeError, ValueError) as problem:
            raise DamagedLog(f"a value of LangGraph cannot be read: {problem}") from None

    def _decode_tagged(self, tag: str, value: dict[str, Any], pool: Pool) -> Any:
        inner = value[VALUE]
        if tag == "text":
            return pool.at(inner) or ERASED
        if tag == POOLED:
            return self.message(pool.at(inner), pool.id_at(inner))
        if tag == "message":
            return self.message(inner if isinstance(inner, str) else pool.at(inner), value["id"])
        if tag == "map":
            return {self.decode(key, pool): self.decode(part, pool) for key, part in inner}
        if tag in _DICTS:
            found = _DICTS[tag]((self.decode(key, pool), self.decode(part, pool)) for key, part in inner)
            if tag == "defaultdict" and value["of"] is not None:
                found.default_factory = FACTORIES[value["of"]]
            return found
        if tag in _LISTS:
            parts = [self.decode(part, pool) for part in inner]
            return deque(parts, value["longest"]) if "longest" in value else _LISTS[tag](parts)
        if tag in _FROM_TEXT:
            return _FROM_TEXT[tag](inner)
        if tag == "regex":
            return re.compile(inner[0], inner[1])
        if tag in _PARTS:
            return _PARTS[tag](self.decode(inner, pool))
        return self._decode_type(tag, value["name"], value, pool)

    def _decode_type(self, tag: str, name: str, value: dict[str, Any], pool: Pool) -> Any:
        of: Any = self._types.get(name) if tag == "type" else None
        if of is None:
            raise InvalidInput(
                f"the record has a value of a class {name!r:.80} that was not named to this saver",
                hint="pass it again: OnrecordSaver(store, types=[...])",
            )
        return remade(of, self.decode(value[VALUE], pool), self.decode(value.get(EXTRA), pool), value.get(UNSET))

    def prototype(self, number: int, pool: Pool) -> BaseMessage:
        """The message that an entry of the pool belongs to; not to be handed out."""
        found = pool.prototypes.get(number)
        if found is None:
            try:
                found = self.message(pool.at(number), pool.id_at(number))
            except (KeyError, IndexError, TypeError, ValueError) as problem:
                raise DamagedLog(f"a message of LangGraph cannot be read: {problem}") from None
            pool.prototypes[number] = found
        return found

    def messages(self, numbers: list[Any], pool: Pool) -> list[BaseMessage]:
        """The messages that entries of the pool belong to."""
        texts, ids = pool.texts, pool.ids
        try:
            return [self.message(texts[number], ids[number]) for number in numbers]
        except (KeyError, IndexError, TypeError, ValueError) as problem:
            raise DamagedLog(f"a message of LangGraph cannot be read: {problem}") from None

    def message(self, body: str, id_: str | None) -> BaseMessage:
        """The message with this body; an empty one was erased."""
        if not body:
            return HumanMessage(ERASED, id=id_)
        said: dict[str, Any] = parsed(body)
        # The search for one character is much quicker, and mostly decides.
        if TAG in body and _TAGGED in body:
            said = self.decode(said, _EMPTY)
        tag = said.pop(_MESSAGE)
        if type(tag) is list:
            tag, apart = tag
            said |= apart
        of, usual, own = _MADE[tag]
        said["id"] = id_
        # It was checked when it was made. Pydantic's own way without checks takes five times as long.
        made: BaseMessage = object.__new__(of)
        whole = usual | said
        for name, make in own:
            if name not in said:
                whole[name] = make()
        extra: dict[str, Any] = {}
        if len(whole) > len(usual):
            extra = {name: whole.pop(name) for name in said if name not in usual}
        _set_dict(made, whole)
        _set_fields(made, set(said))
        _set_extra(made, extra)
        _set_private(made, None)
        return made


def fresh(message: BaseMessage) -> BaseMessage:
    """A copy of a message that shares nothing that can be changed; much quicker than pydantic's own."""
    kind = type(message)
    made: BaseMessage = object.__new__(kind)
    said = message.__dict__.copy()
    for name in _CHANGEABLE[kind]:
        part = said[name]
        if type(part) not in _ATOMS:
            said[name] = _copied(part)
    _set_dict(made, said)
    _set_fields(made, message.__pydantic_fields_set__.copy())
    _set_extra(made, _copied(message.__pydantic_extra__) if message.__pydantic_extra__ else {})
    _set_private(made, None)
    return made


def snapshot(message: BaseMessage) -> dict[str, Any]:
    """The fields of a message, safe from later changes of it."""
    return {name: part if type(part) in _ATOMS else _copied(part) for name, part in message.__dict__.items()}


def extra_of(message: BaseMessage) -> dict[str, Any]:
    """Its extra fields, safe in the same way."""
    extra = message.__pydantic_extra__
    copied: dict[str, Any] = _copied(extra) if extra else {}
    return copied


def _copied(part: Any) -> Any:
    kind = type(part)
    if kind is dict:
        return {name: one if type(one) in _ATOMS else _copied(one) for name, one in part.items()}
    if kind is list:
        return [one if type(one) in _ATOMS else _copied(one) for one in part]
    return deepcopy(part)


def _as_tagged_text(value: Any) -> Any:
    """Values that are one text each; None for any other."""
    found: tuple[str, Any] | None = None
    if isinstance(value, datetime | date | time):
        kind = "datetime" if isinstance(value, datetime) else "date" if isinstance(value, date) else "time"
        found = kind, value.isoformat()
    elif isinstance(value, bytes | bytearray):
        found = "bytes" if isinstance(value, bytes) else "bytearray", base64.b64encode(value).decode()
    elif isinstance(value, UUID | Decimal):
        found = "uuid" if isinstance(value, UUID) else "decimal", str(value)
    elif isinstance(value, timedelta):
        found = "delta", json.dumps([value.days, value.seconds, value.microseconds])
    elif isinstance(value, timezone):
        offset = value.utcoffset(None)
        found = "utc", json.dumps([offset.days, offset.seconds, offset.microseconds])
    elif isinstance(value, ZoneInfo):
        found = "zone", value.key
    elif isinstance(value, PurePath):
        found = _PURE_PATHS.get(type(value), "path"), str(value)
    elif isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        found = "regex", [value.pattern, value.flags]
    elif isinstance(value, IPv4Address | IPv6Address) and type(value) in (IPv4Address, IPv6Address):
        found = "ip", str(value)
    elif isinstance(value, IPv4Network | IPv6Network | IPv4Interface | IPv6Interface):
        found = "network" if isinstance(value, IPv4Network | IPv6Network) else "interface", str(value)
    return None if found is None else {TAG: found[0], VALUE: found[1]}
