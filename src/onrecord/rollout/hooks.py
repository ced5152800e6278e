"""Hooks: a tokenizer, matcher or parser of the user. What they raise becomes an error that names them."""

from __future__ import annotations

from contextlib import contextmanager
from traceback import extract_tb
from typing import TYPE_CHECKING

from onrecord.errors import OnrecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

RAISED_LIMIT = 300
"""How much of what a hook raised is shown, in characters."""


@contextmanager
def hook(name: str, error: type[OnrecordError]) -> Iterator[None]:
    """Run a hook. If it raises, raise this error, which says what and where. Errors of onrecord pass."""
    try:
        yield
    except OnrecordError:
        raise
    except Exception as problem:
        last = extract_tb(problem.__traceback__)[-1]
        raised = ascii(problem)[:RAISED_LIMIT]  # it may have text that could not be recorded
        raise error(
            f"the {name} raised {raised} in {last.name}, line {last.lineno}",
            hint=f"correct the {name}; it is code that onrecord was given",
        ) from problem
