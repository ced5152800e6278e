"""Objects of pydantic and of agent-framework, taken apart and put together again without loss."""

from __future__ import annotations

from typing import Any

from onrecord.errors import InvalidInput
from onrecord.frameworks.requiring import required

with required("agent-framework", "agent_framework", "1.23"):
    from agent_framework import AgentResponse, ChatResponse, Content, Message
    from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter

_COMPARED = (AgentResponse, ChatResponse, Content, Message)
"""Classes of agent-framework that compare by identity, or by what they would write."""
_LEFT_OUT = frozenset({"raw_representation", "exception"})
"""What the framework never writes: an SDK's own object, and details of an error that may be confidential."""
_MODEL_PARTS = {"extra": "__pydantic_extra__", "private": "__pydantic_private__"}


# Pydantic


def is_model(of: type) -> bool:
    """Whether a class is a pydantic model."""
    return issubclass(of, BaseModel)


def is_secret(of: type) -> bool:
    """Whether a class hides what it holds."""
    return issubclass(of, SecretBytes | SecretStr)


def model_parts(value: Any) -> dict[str, Any]:
    """A model as data: its fields, also those that it excludes from what it writes, and which of them were set."""
    names = type(value).model_fields
    parts: dict[str, Any] = {"fields": {name: one for name, one in vars(value).items() if name in names}}
    parts["set"] = sorted(value.__pydantic_fields_set__)
    parts.update({part: found for part, name in _MODEL_PARTS.items() if (found := getattr(value, name))})
    return parts


def model_of(of: Any, parts: dict[str, Any]) -> Any:
    """The model again; no code of its class runs, so what was set without validation comes back as well."""
    made = object.__new__(of)
    object.__setattr__(made, "__dict__", dict(parts["fields"]))
    object.__setattr__(made, "__pydantic_fields_set__", set(parts["set"]))
    has = {"extra": of.model_config.get("extra") == "allow", "private": bool(of.__private_attributes__)}
    for part, name in _MODEL_PARTS.items():
        object.__setattr__(made, name, parts.get(part, {} if has[part] else None))
    return made


def model_of_dump(of: Any, data: Any) -> Any:
    """A model of what earlier versions wrote: its own JSON, by the names of the fields."""
    try:
        return of.model_validate(data)
    except ValueError:
        return of.model_validate(data, by_alias=True, by_name=True)  # it has aliases


def dumped(of: Any, name: str, value: Any) -> Any:
    """A field whose class the caller did not name, as pydantic writes it; refused if it would come back changed."""
    adapter = TypeAdapter(of.model_fields[name].annotation)
    try:
        data = adapter.dump_python(value, mode="json", warnings=False)
        same = alike(adapter.validate_python(data), value)
    except Exception as problem:  # validators and serializers of the caller raise what they like
        raise InvalidInput(f"{of.__qualname__}.{name} cannot be written: {type(problem).__name__}") from problem
    if not same:
        raise InvalidInput(f"{of.__qualname__}.{name} would come back changed")
    return data


def loaded(of: Any, name: str, data: Any) -> Any:
    """The same field again."""
    return TypeAdapter(of.model_fields[name].annotation).validate_python(data)


# agent-framework


def lost(value: Any, again: Any) -> dict[str, Any]:
    """The attributes of an object that are not the same in what was made of its own JSON."""
    there = vars(again)
    return {
        name: one
        for name, one in vars(value).items()
        if name not in _LEFT_OUT and not (name in there and alike(one, there[name]))
    }


def is_plain(value: Any) -> bool:
    """Whether JSON keeps a value exactly; an empty value inside of another one may be left out by the framework."""
    of = type(value)
    if of in (str, bool, int, float):
        return True
    if of is list:
        return all(is_plain(one) for one in value)
    if of is dict:
        return all(type(key) is str and is_plain(one) for key, one in value.items())
    return of in _COMPARED and all(
        one is None or name in _LEFT_OUT or is_plain(one) for name, one in vars(value).items()
    )


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same, and of the same classes, all the way down."""
    of = type(one)
    if of is not type(other):
        return False
    if of in (list, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if of is dict:
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    if of in _COMPARED:
        return not lost(one, other) and not lost(other, one)
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124  # not a number
