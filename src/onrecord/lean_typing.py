"""What our modules use of `typing` at run time, without importing `typing`: that import is a fifth of a hook.

A type checker sees the real names, so write `from onrecord.lean_typing import Any, NamedTuple` in a module that hooks
load, and everything else as always. At run time an annotation is text that is never evaluated
(`from __future__ import annotations`), and only the base classes below do something. Modules that no hook loads import
`typing`. Why: docs/decisions/0050-hooks-load-no-typing.md.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Generic, NamedTuple, NoReturn, Protocol, Self, TypeVar, overload
else:
    from collections import _tuplegetter

    Any = ClassVar = NoReturn = Self = object

    def _first(cls: type, *values: Any, **named: Any) -> Any:
        """Make the first one of its class: the constructor is compiled then, and used from then on."""
        owner = next(one for one in cls.__mro__ if "_fields" in vars(one))
        names = "".join(f"{field}, " for field in owner._fields)
        new = eval(f"lambda _cls, {names}: _new(_cls, ({names}))", {"_new": tuple.__new__})  # noqa: S307  # fields of our own classes
        new.__defaults__ = tuple(owner._field_defaults.values())
        new.__name__, new.__qualname__ = "__new__", f"{owner.__qualname__}.__new__"
        owner.__new__ = new
        return new(cls, *values, **named)

    def _make(cls: type, values: Any) -> Any:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self: Any, /, **changes: Any) -> Any:
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=False))

    def _values(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    def _repr(self: Any) -> str:
        said = ", ".join([f"{name}={value!r}" for name, value in zip(self._fields, self, strict=False)])
        return f"{type(self).__name__}({said})"

    _SHARED = {
        "__slots__": (), "__new__": _first, "__repr__": _repr, "__getnewargs__": _values, "_make": classmethod(_make),
        "_replace": _replace, "_asdict": _asdict,
    }  # fmt: skip
    """What all named tuples have. `collections.namedtuple` makes it again for each class, by evaluating text."""

    class _Fields(type):
        """Makes a named tuple of a class body: its annotations are the fields, its values their defaults."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            """The class that `typing.NamedTuple` would make."""
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            body["_field_defaults"] = {field: body[field] for field in fields if field in body}
            body["_fields"] = body["__match_args__"] = fields
            for number, field in enumerate(fields):
                body[field] = _tuplegetter(number, "")
            return type(name, (tuple,), _SHARED | body)

    class NamedTuple(metaclass=_Fields):
        """A tuple with named fields. As with `typing`, a class made of it has `tuple` as its base."""

    class Protocol:
        """What a class must have; only a type checker compares."""

        __slots__ = ()

    class Generic:
        """A class with a type parameter; only a type checker reads it."""

        __slots__ = ()

        def __class_getitem__(cls, _parameter: object) -> type:
            """The class itself."""
            return cls

    def overload(declared: Any) -> Any:
        """A signature for type checkers; the definition that follows the last one counts."""
        return declared

    class TypeVar:
        """A type parameter."""

        def __init__(self, name: str, *, bound: object = None) -> None:
            self.name = name
            self.bound = bound


__all__ = [
    "TYPE_CHECKING", "Any", "ClassVar", "Generic", "NamedTuple", "NoReturn", "Protocol", "Self", "TypeVar", "overload",
]  # fmt: skip
