"""Values of the classes that a caller named, as data: the fields of an object, and an object with these fields.

An object is made with the fields it had, whatever its class would say to them today: it was accepted when it was made,
or its program chose not to check it. Fields that its class got since have their defaults; those without one are unset.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from copy import deepcopy
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

EXTRA, UNSET = "extra", "unset"
"""What a model has besides its fields, and those of them that its maker did not name."""
_KINDS = "dataclasses, pydantic models, enums and named tuples"
FACTORIES: dict[str, Any] = {
    of.__name__: of for of in (list, dict, set, frozenset, tuple, str, bytes, int, float, bool)
}  # fmt: skip
"""What may make the missing values of a `defaultdict`; a name in the record means one of these and nothing else."""
_NOTHING = object()


def named(types: Iterable[type]) -> dict[str, type]:
    """The classes by the name that the record has of them."""
    found: dict[str, type] = {}
    for of in types:
        if not _is_nameable(of):
            raise InvalidInput(f"{of!r:.80} cannot be kept as data", hint=f"use {_KINDS}")
        other = found.setdefault(of.__name__, of)
        if other is not of:
            raise InvalidInput(
                f"two classes are named {of.__name__!r:.80}: {_whole_name(other)} and {_whole_name(of)}",
                hint="rename one of them: the record has the name only",
            )
    return found


def refused(kind: type, types: dict[str, type]) -> InvalidInput:
    """The error for a value of a class that no one named; it proposes only what would help."""
    name = kind.__name__
    if name in types:
        hint = f"the class named {name!r:.80} is {_whole_name(types[name])}: rename one of them"
    elif _is_nameable(kind):
        hint = f"name its class: OnrecordSaver(store, types=[{name}]), or use dicts and lists in the state"
    else:
        hint = f"put it into the state as text, numbers, dicts and lists, or as one of your {_KINDS}"
    return InvalidInput(f"a value of {_whole_name(kind)} cannot be kept as data", hint=hint)


def _whole_name(of: type) -> str:
    return f"{of.__module__}.{of.__qualname__}"


def _is_nameable(of: Any) -> bool:
    return isinstance(of, type) and (_is_model(of) or is_dataclass(of) or issubclass(of, Enum | tuple))


def _is_model(of: type) -> bool:
    return hasattr(of, "model_fields") and hasattr(of, "model_validate")


def factory_name(value: defaultdict[Any, Any]) -> str | None:
    """What the record calls the factory of a `defaultdict`; None if it has none."""
    factory: Any = value.default_factory
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if FACTORIES.get(name) is not factory:
        raise InvalidInput(
            f"a defaultdict whose factory is {factory!r:.80} cannot be kept as data",
            hint=f"use one of {', '.join(FACTORIES)} as its factory, or a plain dict",
        )
    return str(name)


def fields_of(value: Any, encode: Callable[[Any], Any]) -> tuple[Any, dict[str, Any]]:
    """An object as data: its fields, and by name what else it has."""
    if isinstance(value, Enum):
        return encode(value.value), {}
    if isinstance(value, tuple):
        return encode(list(value)), {}
    if is_dataclass(value):
        return encode(_fields_of_dataclass(value, encode)), {}
    model: Any = value
    names = type(model).model_fields
    said = {name: part for name, part in model.__dict__.items() if name in names}  # and nothing that was only cached
    more = {}
    if extra := model.__pydantic_extra__:
        more[EXTRA] = encode(extra)
    if unset := [name for name in said if name not in model.__pydantic_fields_set__]:
        more[UNSET] = unset
    return encode(said), more


def _fields_of_dataclass(value: Any, encode: Callable[[Any], Any]) -> dict[str, Any]:
    """The fields that are set. One that callers cannot give, such as a lock, is left to the class if it is no data."""
    found: dict[str, Any] = {}
    for field in fields(value):
        part = getattr(value, field.name, _NOTHING)
        if part is _NOTHING:
            continue
        if not field.init:
            try:
                encode(part)
            except InvalidInput:
                continue
        found[field.name] = part
    return found


def remade(of: Any, said: Any, extra: dict[str, Any] | None, unset: Iterable[str] | None) -> Any:
    """The object with these fields; records of earlier versions have nothing else."""
    if issubclass(of, Enum):
        return _member(of, said)
    if issubclass(of, tuple):
        return _tuple(of, said)
    if is_dataclass(of):
        return _dataclass(of, said)
    return _model(of, said, extra or {}, unset or ())


def _member(of: Any, said: Any) -> Any:
    try:
        return of(said)
    except ValueError:
        raise InvalidInput(
            f"the record has the value {said!r:.80}, which is no member of the class {of.__name__!r:.80} any more",
            hint="add the member again",
        ) from None


def _tuple(of: Any, said: list[Any]) -> Any:
    names = getattr(of, "_fields", None)
    if names is not None:
        said = said[: len(names)]
        added, usual = names[len(said) :], of._field_defaults
        missing = [name for name in added if name not in usual]
        if missing:  # a tuple has no unset fields
            raise InvalidInput(
                f"the record has a {of.__name__:.80} that was written before its class had {', '.join(missing):.200}",
                hint="give what was added a default",
            )
        said = [*said, *(usual[name] for name in added)]
    return tuple.__new__(of, said)


def _dataclass(of: Any, said: dict[str, Any]) -> Any:
    known = fields(of)
    given = {field.name: said[field.name] for field in known if field.init and field.name in said}
    if hasattr(of, "__post_init__"):
        given = deepcopy(given)  # it may change them
    made = _NOTHING
    with suppress(Exception):  # what the class refuses today is made past its checks
        made = of(**given)
    if type(made) is not of:
        made = of.__new__(of)
        for field in known:
            if field.default is not MISSING:
                object.__setattr__(made, field.name, field.default)
            elif field.default_factory is not MISSING:
                object.__setattr__(made, field.name, field.default_factory())
    for field in known:
        if field.name in said:
            object.__setattr__(made, field.name, said[field.name])
    return made


def _model(of: Any, said: dict[str, Any], extra: dict[str, Any], unset: Iterable[str]) -> Any:
    """A pydantic model as `model_construct` makes it, which cannot be used: it takes aliases for names."""
    names = of.model_fields
    whole = {name: said[name] for name in names if name in said}
    were_set = {*whole, *extra}.difference(unset)
    for name, field in names.items():
        if name not in said and not field.is_required():
            more = {"validated_data": whole} if getattr(field, "default_factory_takes_validated_data", False) else {}
            whole[name] = field.get_default(call_default_factory=True, **more)
    parts: dict[str, Any] = {"__dict__": whole, "__pydantic_fields_set__": were_set}
    if not of.__pydantic_root_model__:
        allowed = of.model_config.get("extra") == "allow"
        extra = {name: part for name, part in said.items() if name not in names} | extra
        parts["__pydantic_extra__"] = extra if allowed else None
    made, private = of.__new__(of), None
    if of.__pydantic_post_init__:  # it makes what is private, and may change fields
        _set(made, deepcopy(parts))
        _set_private(made, None)
        with suppress(Exception):  # what the class refuses today is made past its checks
            made.model_post_init(None)
        private = made.__pydantic_private__
    _set(made, parts)
    _set_private(made, private)
    return made


def _set_private(made: Any, private: Any) -> None:
    if private is not None or not made.__pydantic_root_model__:  # a root model without any has no place for it
        _set(made, {"__pydantic_private__": private})


def _set(made: Any, parts: dict[str, Any]) -> None:
    for name, part in parts.items():
        object.__setattr__(made, name, part)
