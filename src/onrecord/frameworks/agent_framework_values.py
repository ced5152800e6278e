"""Values of agent-framework's checkpoints as data: JSON with tags, no pickle, and nothing that names a class to import.

A tag is a word of the tables below. Which class it becomes is decided by this module and by the `types` that the caller
gave, never by what is stored. What would not come back as it was is refused when it is written. Chat messages go to a
pool, each content once: a conversation costs a few bytes for each message in every further checkpoint.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from functools import partial, reduce
from hashlib import sha256
from operator import or_
from typing import TYPE_CHECKING, Any
from uuid import UUID

from onrecord.errors import DamagedLog, InvalidInput
from onrecord.frameworks.agent_framework_fields import (
    dumped,
    is_model,
    is_plain,
    is_secret,
    loaded,
    lost,
    model_of,
    model_of_dump,
    model_parts,
)
from onrecord.frameworks.conversation import check_type
from onrecord.frameworks.requiring import required
from onrecord.frameworks.writing import as_line

with required("agent-framework", "agent_framework", "1.23"):
    from agent_framework import (
        AgentExecutorRequest,
        AgentExecutorResponse,
        AgentResponse,
        AgentSession,
        ChatResponse,
        Content,
        Message,
        SubWorkflowRequestMessage,
        SubWorkflowResponseMessage,
        WorkflowErrorDetails,
        WorkflowEvent,
        WorkflowEventSource,
        WorkflowMessage,
        WorkflowRunState,
    )
    from agent_framework._workflows._runner_context import MessageType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TAG, VALUE = "@", "v"
DEPTH_LIMIT = 80
"""How deep a value may be nested."""
_POOLED = "message"
_DIGEST = 24
_BY_DICT: dict[str, Any] = {
    "content": Content, "agent-response": AgentResponse, "chat-response": ChatResponse, "session": AgentSession,
}  # fmt: skip
_BY_FIELDS: dict[str, Any] = {
    "workflow-message": WorkflowMessage, "request": AgentExecutorRequest, "response": AgentExecutorResponse,
    "sub-request": SubWorkflowRequestMessage, "sub-response": SubWorkflowResponseMessage,
    "error": WorkflowErrorDetails,
}  # fmt: skip
_FILLED: dict[str, Any] = {**_BY_FIELDS, "event": WorkflowEvent}
_ENUMS: dict[str, Any] = {
    "message-type": MessageType, "run-state": WorkflowRunState, "event-source": WorkflowEventSource,
}  # fmt: skip
_LISTS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque,
}  # fmt: skip
_TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "duration": (
        timedelta,
        lambda value: f"{value.days} {value.seconds} {value.microseconds}",
        lambda text: timedelta(*map(int, text.split(" "))),
    ),
    "complex": (complex, repr, complex),
    "decimal": (Decimal, str, Decimal),
    "uuid": (UUID, str, UUID),
    "bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
}
_READERS: dict[str, Callable[[str], Any]] = {
    "int": int, "float": float, "seconds": lambda text: timedelta(seconds=float(text)),  # of earlier versions
    **{tag: read for tag, (_of, _write, read) in _TEXTS.items()},
}  # fmt: skip
_TEXT_TAGS = {of: tag for tag, (of, _to, _from) in _TEXTS.items()}
_PLAIN: dict[str, type] = {
    one.__name__: one for one in (str, int, float, bool, bytes, dict, list, tuple, set, object, type(None))
}
_MAPPINGS: dict[type, str] = {OrderedDict: "ordered", Counter: "counter"}
_FACTORIES: dict[str, type] = {one.__name__: one for one in (list, dict, set, int, float, str, bool, tuple, bytes)}
"""What a defaultdict may make."""


class Messages(dict[str, str]):
    """The messages of checkpoints as JSON, by digest; if some were erased, one that is missing says so."""

    def __init__(self, has_gaps: Callable[[], bool]) -> None:
        super().__init__()
        self._has_gaps = has_gaps

    def __missing__(self, digest: str) -> str:
        if not self._has_gaps():
            raise KeyError(digest)
        return as_line(Message("user", ["[erased]"]).to_dict())


class Codec:
    """Encodes and decodes values; `types` are the classes of the caller that may be in them."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        check_type(types, Iterable, "types as a list of classes")
        self._own: dict[str, type] = {}
        for one in types:
            if not isinstance(one, type) or not _is_kept(one):
                raise InvalidInput(f"types are dataclasses, enums, NamedTuples and pydantic models, not {one!r:.100}")
            name = f"{one.__module__}:{one.__qualname__}"
            if self._own.setdefault(name, one) is not one:
                raise InvalidInput(f"two of the types are called {name}", hint="give one of them another name")
        self._names: dict[type, str] = {of: name for name, of in self._own.items()}
        self._dicts = {of: tag for tag, of in _BY_DICT.items()}
        self._fields = {of: tag for tag, of in _BY_FIELDS.items()}
        self._enums = {of: tag for tag, of in _ENUMS.items()}
        self._lists = {of: tag for tag, of in _LISTS.items() if isinstance(of, type)}
        self._classes = {**_PLAIN, **_BY_DICT, **_BY_FIELDS, "message": Message, **self._own}

    # To data

    def encode(self, value: Any, pool: dict[str, str], depth: int = 0) -> Any:
        """The value as JSON; messages go into the pool, by digest."""
        if depth > DEPTH_LIMIT:
            raise InvalidInput(f"a value is nested more than {DEPTH_LIMIT} deep", hint="keep flatter state")
        of = type(value)
        if value is None or of in (str, bool):
            return value
        if of is int:
            return value if abs(value) < 2**53 else {TAG: "int", VALUE: str(value)}
        if of is float:
            return value if math.isfinite(value) else {TAG: "float", VALUE: repr(value)}
        if of is list:
            return [self.encode(one, pool, depth + 1) for one in value]
        if of is dict or of in _MAPPINGS:
            return self._mapping(value, _MAPPINGS.get(of, ""), pool, depth)
        if of is defaultdict:
            return self._defaults(value, pool, depth)
        if of in self._lists and getattr(value, "maxlen", None) is None:
            return {TAG: self._lists[of], VALUE: [self.encode(one, pool, depth + 1) for one in value]}
        if of in _TEXT_TAGS:
            text = _TEXTS[_TEXT_TAGS[of]][1](value)
            if of is time and value.tzinfo is not None and value.utcoffset() is None:
                raise InvalidInput("a time of day in a time zone cannot be kept in a checkpoint", hint="use a datetime")
            return {TAG: _TEXT_TAGS[of], VALUE: text}
        return self._object(value, pool, depth)

    def _mapping(self, value: Mapping[Any, Any], tag: str, pool: dict[str, str], depth: int) -> Any:
        if not tag and TAG not in value and all(type(key) is str for key in value):
            return {key: self.encode(one, pool, depth + 1) for key, one in value.items()}
        pairs = [[self.encode(key, pool, depth + 1), self.encode(one, pool, depth + 1)] for key, one in value.items()]
        return {TAG: tag or "dict", VALUE: pairs}

    def _defaults(self, value: Any, pool: dict[str, str], depth: int) -> Any:
        makes = next((name for name, of in _FACTORIES.items() if of is value.default_factory), "")
        if value.default_factory is not None and not makes:
            raise InvalidInput(
                f"a defaultdict of {value.default_factory!r:.100} cannot be kept in a checkpoint",
                hint=f"one of {', '.join(_FACTORIES)} can",
            )
        return {TAG: "defaults", VALUE: [makes, self._mapping(value, "dict", pool, depth)]}

    def _object(self, value: Any, pool: dict[str, str], depth: int) -> Any:
        of = type(value)
        if of is Message:
            line = as_line(value.to_dict())
            digest = sha256(line.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
            pool[digest] = line
            made = {TAG: _POOLED, VALUE: digest}
            return self._exact(value, made, lambda: Message.from_dict(json.loads(line)), pool, depth)
        if of in self._dicts:
            made = {TAG: self._dicts[of], VALUE: self.encode(value.to_dict(), pool, depth + 1)}
            return self._exact(value, made, lambda: self.decode(made, pool), pool, depth)
        if of is WorkflowEvent:
            return {TAG: "event", VALUE: self.encode(dict(vars(value)), pool, depth + 1)}
        if of in self._enums:
            return {TAG: self._enums[of], VALUE: value.value}
        if of in self._names:
            return self._own_object(value, f"own:{self._names[of]}", pool, depth)
        if of in self._fields:
            return {TAG: self._fields[of], VALUE: self.encode(_fields_of(value), pool, depth + 1)}
        if of is deque:
            return {TAG: "bounded", VALUE: [value.maxlen, self.encode(list(value), pool, depth + 1)]}
        if isinstance(value, type):
            return {TAG: "class", VALUE: self._class_name(value)}
        raise InvalidInput(
            f"a value of class {of.__module__}:{of.__qualname__} cannot be kept in a checkpoint", hint=_hint(of)
        )

    def _exact(
        self, value: Any, made: dict[str, Any], read: Callable[[], Any], pool: dict[str, str], depth: int
    ) -> dict[str, Any]:
        """An object of the framework as its own JSON, and beside that what its JSON would lose."""
        if is_plain(value):
            return made
        try:
            missing = lost(value, read())
        except (KeyError, TypeError, ValueError, AttributeError, DamagedLog) as problem:
            raise InvalidInput(
                f"a {type(value).__name__} cannot be kept in a checkpoint: {type(problem).__name__}: {problem}"
            ) from problem
        return {TAG: "with", VALUE: [made, self.encode(missing, pool, depth + 1)]} if missing else made

    def _own_object(self, value: Any, tag: str, pool: dict[str, str], depth: int) -> Any:
        """A value of one of the caller's classes."""
        if isinstance(value, Enum):
            said: Any = value.value if isinstance(value, Flag) else value.name
        elif is_model(type(value)):
            return self._model(value, tag, pool, depth)
        else:
            said = _fields_of(value) if is_dataclass(value) else list(value)
        return {TAG: tag, VALUE: self.encode(said, pool, depth + 1)}

    def _model(self, value: Any, tag: str, pool: dict[str, str], depth: int) -> Any:
        parts = model_parts(value)
        made: dict[str, Any] = {}
        for name, one in parts["fields"].items():
            try:
                made[name] = self.encode(one, pool, depth + 1)
            except InvalidInput as problem:
                try:
                    made[name] = {TAG: "dump", VALUE: dumped(type(value), name, one)}
                except InvalidInput:
                    raise problem from None
        rest = {name: self.encode(one, pool, depth + 1) for name, one in parts.items() if name != "fields"}
        return {TAG: f"model:{tag.removeprefix('own:')}", VALUE: {"fields": made, **rest}}

    def _class_name(self, value: type) -> str:
        for name, of in self._classes.items():
            if of is value:
                return name
        raise InvalidInput(
            f"class {value.__module__}:{value.__qualname__} is not known to this storage",
            hint=f"name it: OnrecordCheckpointStorage(store, types=[{value.__name__}])",
        )

    # And back

    def decode(self, data: Any, pool: Mapping[str, str]) -> Any:
        """The value again; `DamagedLog` if the data is not what `encode` makes."""
        if isinstance(data, list):
            return [self.decode(one, pool) for one in data]
        if not isinstance(data, dict):
            return data
        if TAG not in data:
            return {key: self.decode(one, pool) for key, one in data.items()}
        try:
            return self._tagged(str(data[TAG]), data[VALUE], pool)
        except InvalidInput:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise DamagedLog(f"a checkpoint cannot be read: {type(problem).__name__}: {problem}") from problem

    def _tagged(self, tag: str, value: Any, pool: Mapping[str, str]) -> Any:
        if tag == _POOLED:
            return Message.from_dict(json.loads(pool[value]))
        simple = {**_READERS, **_ENUMS, "class": self._classes.__getitem__}.get(tag)
        if simple is not None:
            return simple(value)
        if tag.startswith("model:"):
            return self._model_again(tag, value, pool)
        inner = self.decode(value, pool)
        make = _MAKERS.get(tag)
        return make(inner) if make else self._owned(tag, inner)

    def _owned(self, tag: str, inner: Any) -> Any:
        """A value of one of the caller's classes."""
        of = self._class_of(tag.removeprefix("own:"), known=tag.startswith("own:"))
        if issubclass(of, Enum):
            return _member(of, inner)
        if is_model(of):
            return model_of_dump(of, inner)
        return _instance(of, inner) if is_dataclass(of) else tuple.__new__(of, inner)

    def _model_again(self, tag: str, parts: dict[str, Any], pool: Mapping[str, str]) -> Any:
        of = self._class_of(tag.removeprefix("model:"))
        fields_ = {
            name: loaded(of, name, one[VALUE])
            if isinstance(one, dict) and one.get(TAG) == "dump"
            else self.decode(one, pool)
            for name, one in parts["fields"].items()
        }
        rest = {name: self.decode(one, pool) for name, one in parts.items() if name != "fields"}
        return model_of(of, {"fields": fields_, **rest})

    def _class_of(self, name: str, *, known: bool = True) -> Any:
        of = self._own.get(name) if known else None
        if of is None:
            raise InvalidInput(
                f"the checkpoint has a value of {name!r:.100}, which is not among the types of this storage",
                hint="name its class: OnrecordCheckpointStorage(store, types=[...])",
            )
        return of


def _is_kept(of: type) -> bool:
    """Whether a class may be among the types."""
    return (
        is_dataclass(of) or issubclass(of, Enum) or is_model(of) or (issubclass(of, tuple) and hasattr(of, "_fields"))
    )


def _hint(of: type) -> str:
    if is_secret(of):
        return "a log is no place for secrets: keep its name, and read it where it is used"
    if _is_kept(of):
        return f"name its class: OnrecordCheckpointStorage(store, types=[{of.__name__}])"
    return "keep what it holds in values of Python, or in a dataclass that is named in types"


def _fields_of(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value) if hasattr(value, one.name)}


def _member(of: Any, said: Any) -> Any:
    """A member of an enum; earlier versions wrote combined flags by name."""
    if not issubclass(of, Flag):
        return of[said]
    return reduce(or_, (of[name] for name in said.split("|"))) if isinstance(said, str) else of(said or 0)


def _filled_mapping(of: Any, pairs: Any) -> Any:
    made = of()
    for key, one in pairs:
        made[key] = one
    return made


def _filled(made: Any, values: dict[str, Any]) -> Any:
    """An object with these attributes; no code of its class runs."""
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _instance(of: Any, values: dict[str, Any]) -> Any:
    return _filled(object.__new__(of), values)


_MAKERS: dict[str, Callable[[Any], Any]] = {
    **_LISTS,
    **{tag: of.from_dict for tag, of in _BY_DICT.items()},
    **{tag: partial(_instance, of) for tag, of in _FILLED.items()},
    "dict": partial(_filled_mapping, dict),
    "ordered": partial(_filled_mapping, OrderedDict),
    "counter": partial(_filled_mapping, Counter),
    "defaultdict": partial(_filled_mapping, defaultdict),  # of earlier versions, which did not keep what it makes
    "defaults": lambda said: defaultdict(_FACTORIES[said[0]] if said[0] else None, said[1]),
    "bounded": lambda said: deque(said[1], said[0]),
    "with": lambda said: _filled(*said),
}
"""What makes a value of the decoded data under a tag."""
