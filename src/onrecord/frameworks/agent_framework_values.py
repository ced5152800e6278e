"""Values of agent-framework's checkpoints as data: JSON with tags, no pickle, and nothing that names a class to import.

A tag is a word of the tables below. Which class it becomes is decided by this module and by the `types` that the caller
gave, never by what is stored. A value of any other class is refused when it is written. Chat messages go to a pool,
each content once: a conversation costs a few bytes for each message in every further checkpoint.
"""

from __future__ import annotations

import base64
import json
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import UUID

from onrecord.errors import DamagedLog, InvalidInput
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
    "seconds": (timedelta, lambda value: repr(value.total_seconds()), lambda text: timedelta(seconds=float(text))),
    "decimal": (Decimal, str, Decimal),
    "uuid": (UUID, str, UUID),
    "bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
}
_READERS: dict[str, Callable[[str], Any]] = {
    "int": int, "float": float, **{tag: read for tag, (_of, _write, read) in _TEXTS.items()},
}  # fmt: skip
_TEXT_TAGS = {of: tag for tag, (of, _to, _from) in _TEXTS.items()}
_PLAIN: dict[str, type] = {
    one.__name__: one for one in (str, int, float, bool, bytes, dict, list, tuple, set, object, type(None))
}
_MAPPINGS: dict[type, str] = {OrderedDict: "ordered", defaultdict: "defaultdict"}


class Codec:
    """Encodes and decodes values; `types` are the classes of the caller that may be in them."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        check_type(types, Iterable, "types as a list of classes")
        self._own: dict[str, type] = {}
        for one in types:
            if not isinstance(one, type) or not (
                is_dataclass(one) or issubclass(one, Enum) or hasattr(one, "model_validate")
            ):
                raise InvalidInput(f"types are dataclasses, enums and pydantic models, not {one!r:.100}")
            self._own[f"{one.__module__}:{one.__qualname__}"] = one
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
        if of in self._lists:
            return {TAG: self._lists[of], VALUE: [self.encode(one, pool, depth + 1) for one in value]}
        if of in _TEXT_TAGS:
            return {TAG: _TEXT_TAGS[of], VALUE: _TEXTS[_TEXT_TAGS[of]][1](value)}
        return self._object(value, pool, depth)

    def _mapping(self, value: Mapping[Any, Any], tag: str, pool: dict[str, str], depth: int) -> Any:
        if not tag and TAG not in value and all(type(key) is str for key in value):
            return {key: self.encode(one, pool, depth + 1) for key, one in value.items()}
        pairs = [[self.encode(key, pool, depth + 1), self.encode(one, pool, depth + 1)] for key, one in value.items()]
        return {TAG: tag or "dict", VALUE: pairs}

    def _object(self, value: Any, pool: dict[str, str], depth: int) -> Any:
        of = type(value)
        if of is Message:
            line = as_line(value.to_dict())
            digest = sha256(line.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
            pool[digest] = line
            return {TAG: _POOLED, VALUE: digest}
        if of in self._dicts:
            return {TAG: self._dicts[of], VALUE: self.encode(value.to_dict(), pool, depth + 1)}
        if of is WorkflowEvent:
            return {TAG: "event", VALUE: self.encode(dict(vars(value)), pool, depth + 1)}
        if of in self._enums:
            return {TAG: self._enums[of], VALUE: value.value}
        if of in self._fields or (of in self._names and is_dataclass(value)):
            found = {one.name: getattr(value, one.name) for one in fields(value) if hasattr(value, one.name)}
            return {TAG: self._fields.get(of) or f"own:{self._names[of]}", VALUE: self.encode(found, pool, depth + 1)}
        if of in self._names:
            said = value.name if isinstance(value, Enum) else value.model_dump(mode="json")
            return {TAG: f"own:{self._names[of]}", VALUE: self.encode(said, pool, depth + 1)}
        if isinstance(value, type):
            return {TAG: "class", VALUE: self._class_name(value)}
        raise InvalidInput(
            f"a value of class {of.__module__}:{of.__qualname__} cannot be kept in a checkpoint",
            hint=f"name its class: OnrecordCheckpointStorage(store, types=[{of.__name__}])",
        )

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
        inner = self.decode(value, pool)
        if tag in _LISTS:
            return _LISTS[tag](inner)
        if tag in ("dict", "ordered", "defaultdict"):
            made: Any = {"dict": dict, "ordered": OrderedDict, "defaultdict": defaultdict}[tag]()
            made.update((key, one) for key, one in inner)
            return made
        if tag in _BY_DICT:
            return _BY_DICT[tag].from_dict(inner)
        if tag in _FILLED:
            return _filled(_FILLED[tag], inner)
        return self._owned(tag, inner)

    def _owned(self, tag: str, inner: Any) -> Any:
        """A value of one of the caller's classes."""
        name = tag.removeprefix("own:")
        of: Any = self._own.get(name) if tag.startswith("own:") else None
        if of is None:
            raise InvalidInput(
                f"the checkpoint has a value of {name!r:.100}, which is not among the types of this storage",
                hint="name its class: OnrecordCheckpointStorage(store, types=[...])",
            )
        if issubclass(of, Enum):
            return of[inner]
        return _filled(of, inner) if is_dataclass(of) else of.model_validate(inner)


def _filled(of: Any, values: dict[str, Any]) -> Any:
    """An object with these attributes; no code of its class runs."""
    made = object.__new__(of)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made
