"""A framework that is missing or too old: one sentence, with the command that installs it."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTRIBUTIONS = {
    "agent-framework": "agent-framework-core", "pydantic-ai": "pydantic-ai-slim", "strands": "strands-agents",
}  # fmt: skip
"""What an extra installs, where that has another name."""


@contextmanager
def required(extra: str, packages: str, oldest: str, part: str = "", oldest_part: str = "") -> Iterator[None]:
    """Around the imports of a framework: what is missing, or too old, becomes one sentence with the command.

    `part` is another distribution of the framework, which has versions of its own.
    """
    try:
        yield
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in packages.split():
            raise
        raise ImportError(_needs(extra, oldest), name=problem.name) from None
    for of, wanted in ((extra, oldest), (part, oldest_part)):
        if of and is_older(version_of(of), wanted):  # it may have every name, and still behave differently
            raise ImportError(_needs(extra, wanted, of), name=packages.partition(" ")[0])


def _needs(extra: str, oldest: str, of: str = "") -> str:
    installed = version_of(of or extra)
    but = f", not {installed}" if is_older(installed, oldest) else ""
    return f"this adapter needs {of or extra} {oldest} or newer{but}: pip install 'onrecord[{extra}]'"


@cache
def version_of(extra: str) -> str:
    """The version of a framework that is installed; empty if none is."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTIONS.get(extra, extra))
    except PackageNotFoundError:
        return ""


def is_older(version: str, oldest: str) -> bool:
    """Whether a version is below another one; a version that is no row of numbers is not."""
    numbers = [part for part in version.split(".") if part.isdigit()]
    wanted = oldest.split(".")
    if len(numbers) < len(wanted):
        return False
    return [int(one) for one in numbers[: len(wanted)]] < [int(one) for one in wanted]
