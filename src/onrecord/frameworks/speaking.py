"""Our errors in the framework's own types: code, hint and message are ours, and a caller may catch either type."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onrecord.errors import OnrecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_A_SESSION = re.compile(r"\bsession\.(?=\w+\()")
"""How our hints begin a call; a user of a framework has a store, and no variable of this name."""


@contextmanager
def speaking(base: type[Exception], **more: Any) -> Iterator[None]:
    """Raise our errors as the framework's own; around a call, or on a constructor as a decorator."""
    try:
        yield
    except OnrecordError as problem:
        raise theirs(problem, base, **more) from problem


def theirs(problem: OnrecordError, base: type[Exception], **more: Any) -> Exception:
    """The same error as the framework's own type; `more` is what the constructor of that type sets."""
    bases: tuple[type, ...] = (type(problem), base)
    mixed: Any = type(type(problem).__name__, bases, {"__str__": _told, "__module__": __name__})
    made: Exception = mixed.__new__(mixed)
    made.__dict__.update(problem.__dict__, **_typeable(problem), **more)
    # The message ends with the hint, so a traceback shows it without its note.
    made.__notes__ = [note for note in getattr(problem, "__notes__", ()) if note != f"hint: {problem.hint}"]
    made.args = problem.args
    return made


def _typeable(problem: OnrecordError) -> dict[str, Any]:
    """The hint with the store and the name of the session, if the problem says which session it is about."""
    name = problem.details.get("name")
    if not name or not _OF_A_SESSION.search(problem.hint):
        return {}
    return {"hint": _OF_A_SESSION.sub(f'store.get("{name}").', problem.hint)}


def _told(self: OnrecordError) -> str:
    hint = f"; {self.hint}" if self.hint else ""
    return f"{self.message} [{self.code}]{hint}"
