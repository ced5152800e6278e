"""What an asynchronous adapter never does on the thread of the event loop: call the store, sleep or sync."""

import asyncio
import inspect
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any

import pytest

from onrecord.session.session_store import SessionStore

try:
    from blockbuster import blockbuster_ctx  # type: ignore[import-not-found]  # in the environment `core`
except ModuleNotFoundError:
    blockbuster_ctx = nullcontext

WAITS = ((time, "sleep"), (os, "fsync"))


@contextmanager
def never_blocked(store: SessionStore) -> Iterator[list[str]]:
    """Fail at the end if the loop's thread made a call that blocks; where BlockBuster is installed, it looks too."""
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        kind = type(store.store)
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                patched.setattr(kind, name, _noted(method, found))
        for owner, name in WAITS:
            patched.setattr(owner, name, _noted(getattr(owner, name), found))
        with blockbuster_ctx("onrecord"):
            yield found
    assert not found


def _noted(call: Callable[..., Any], found: list[str]) -> Callable[..., Any]:
    @wraps(call)
    def noted(*arguments: Any, **named: Any) -> Any:
        _note(call, found)
        made = call(*arguments, **named)
        return _read(call, made, found) if inspect.isgenerator(made) else made

    return noted


def _read(call: Callable[..., Any], rows: Iterator[Any], found: list[str]) -> Iterator[Any]:
    """The rows of a store, which are read one by one."""
    for row in rows:
        _note(call, found)
        yield row


def _note(call: Callable[..., Any], found: list[str]) -> None:
    if asyncio._get_running_loop() is not None:  # that of this thread; the public one raises without one
        found.append(call.__qualname__)
