"""What every adapter does with arguments of a wrong type: the framework's own error, with our code."""

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import pytest

from onrecord.errors import OnrecordError


async def check_refused(error: type[Exception], code: str, *calls: Callable[[], Any]) -> None:
    """Each call raises the framework's type of error, with our code and type; blocks raise it when they are entered."""
    for call in calls:
        with pytest.raises(error, match=rf"\[{code}\]") as found:
            await _done(call)
        assert isinstance(found.value, OnrecordError)
        assert found.value.code == code


async def _done(call: Callable[[], Any]) -> None:
    made = call()
    if inspect.isawaitable(made):
        await made
    elif isinstance(made, AbstractAsyncContextManager):
        async with made:
            pass
    elif isinstance(made, AbstractContextManager):
        with made:
            pass
    else:
        list(made or ())
