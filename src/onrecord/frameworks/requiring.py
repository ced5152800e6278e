"""A framework that is missing or too old: one sentence, with the command that installs it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def required(extra: str, package: str, oldest: str) -> Iterator[None]:
    """Around the imports of a framework: what is missing becomes an ImportError that says how to install it."""
    try:
        yield
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] != package.partition(".")[0]:
            raise
        raise ImportError(
            f"this adapter needs {extra} {oldest} or newer, which is not installed: pip install 'onrecord[{extra}]'",
            name=problem.name,
        ) from None
