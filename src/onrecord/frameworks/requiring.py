"""A framework that is missing or too old: one sentence, with the command that installs it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def required(extra: str, packages: str, oldest: str) -> Iterator[None]:
    """Around the imports of a framework: what is missing, or too old, becomes one sentence with the command."""
    try:
        yield
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in packages.split():
            raise
        raise ImportError(
            f"this adapter needs {extra} {oldest} or newer: pip install 'onrecord[{extra}]'",
            name=problem.name,
        ) from None
