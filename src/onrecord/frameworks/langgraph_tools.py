"""Tools of a LangGraph graph that do not run twice, and a thread's messages as other writers of the session left them.

    ToolNode([pay], wrap_tool_call=once(saver), awrap_tool_call=aonce(saver))

LangGraph runs an interrupted step again, with the tools that had begun. Wrapped like this, a tool call is on record
before the tool runs: one that has a result on record returns it, and one whose outcome is unknown says so to the model.
A result is text on record if text is all it is; a `Command`, or a message with parts or an artifact, is kept as data.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from onrecord.aio import settled
from onrecord.errors import InvalidInput
from onrecord.frameworks.langgraph import called
from onrecord.frameworks.langgraph_neutral import from_neutral
from onrecord.frameworks.langgraph_values import Pool
from onrecord.frameworks.requiring import required
from onrecord.frameworks.tool_calls import said_of
from onrecord.frameworks.writing import as_line
from onrecord.views.parts import text_of

with required("langgraph", "langgraph langchain_core", "1.2"):
    from langchain_core.messages import ToolMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain_core.messages import BaseMessage

    from onrecord.frameworks.langgraph import OnrecordSaver
    from onrecord.frameworks.langgraph_threads import Thread
    from onrecord.frameworks.langgraph_values import Values
    from onrecord.frameworks.tool_calls import Effect

_DATA = "langgraph"
"""In the result of a tool call: what the tool returned, as the saver keeps values."""
DATA_LIMIT = 8 * 1024 * 1024
"""The longest form of what a tool returned that is kept, in characters: of more, only the text is."""
_LOST = "the tool ran; its update could not be recorded: check what it changed before you call it again"


def once(saver: OnrecordSaver) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """What `ToolNode(wrap_tool_call=...)` takes."""

    def wrapped(request: Any, execute: Callable[[Any], Any]) -> Any:
        thread, call = _thread_and_call(saver, request)
        if thread is None:
            return execute(request)
        known = called(partial(thread.start_effect, call, *_named(request), answered=0))
        if known is not None:
            return called(partial(_answer, thread.values, request, known))
        finish = partial(thread.finish_effect, call, _named(request)[1])
        try:
            made = execute(request)
        except Exception as problem:
            called(partial(finish, error=f"{type(problem).__name__}: {problem}"))
            raise
        called(partial(finish, **_outcome(thread.values, request, made)))
        return made

    return wrapped


def aonce(saver: OnrecordSaver) -> Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]:
    """What `ToolNode(awrap_tool_call=...)` takes."""

    async def wrapped(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
        thread, call = _thread_and_call(saver, request)
        if thread is None:
            return await execute(request)
        known = await settled(lambda: called(partial(thread.start_effect, call, *_named(request), answered=0)))
        if known is not None:
            return called(partial(_answer, thread.values, request, known))
        finish = partial(thread.finish_effect, call, _named(request)[1])
        try:
            made = await execute(request)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
            await settled(lambda: called(partial(finish, error=error)))
            raise
        await settled(lambda: called(partial(finish, **_outcome(thread.values, request, made))))
        return made

    return wrapped


def messages_of_others(saver: OnrecordSaver, thread_id: str) -> list[BaseMessage]:
    """What other frameworks, loops and agents added to the session of a thread, as messages for its state.

    Each is given until a state has it: once passed to the graph, it is not given again, nor counted as said again.
    """
    thread = called(partial(saver.thread, thread_id))
    with thread.lock:
        called(thread.catch_up)
        made = [message for turn in thread.turns_of_others() for message in from_neutral(turn)]
        return [message for message in made if message.id not in thread.pool.known]


def _thread_and_call(saver: OnrecordSaver, request: Any) -> tuple[Thread | None, str]:
    """The thread that a request belongs to, and the name of its call: the same when the step is repeated.

    Another step is another task, so its calls have other names also if the model gives every call the same id.
    """
    conf = ((getattr(request.runtime, "config", None) or {}).get("configurable")) or {}
    thread_id, call = conf.get("thread_id"), request.tool_call.get("id")
    if not thread_id or not call:
        return None, ""
    return saver.thread(thread_id), f"{conf.get('__pregel_task_id', '')}/{call}"


def _named(request: Any) -> tuple[str, Any]:
    return str(request.tool_call.get("name", "")), request.tool_call.get("args")


def _outcome(values: Values, request: Any, made: Any) -> dict[str, Any]:
    """What the record says about what a tool returned."""
    text = None
    if isinstance(made, ToolMessage):
        text = made.content if isinstance(made.content, str) else text_of(made.content)
        if made.status == "error":
            return {"error": text}
        if made == _message(request, text):
            return {"result": text}
    with suppress(InvalidInput):
        line = as_line(values.encode(made, None))
        if len(line) <= DATA_LIMIT:
            return {"result": {_DATA: line}}
    # The graph has all of it; a repeated step has the text, or says that the tool ran.
    return {"result": text}


def _answer(values: Values, request: Any, known: Effect) -> Any:
    """What a call returns whose tool ran before."""
    if known.outcome is None:
        return _message(request, said_of(known), "error")
    result = known.outcome.get("result")
    if isinstance(result, str):
        return _message(request, result)
    if not isinstance(result, dict) or _DATA not in result:  # earlier versions recorded nothing of a `Command`
        return _message(request, _LOST, "error")
    return values.decode(json.loads(result[_DATA]), Pool())


def _message(request: Any, text: str, status: Any = "success") -> ToolMessage:
    name, call = _named(request)[0], request.tool_call["id"]
    return ToolMessage(text, name=name, tool_call_id=call, status=status)
