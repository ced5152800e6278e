"""openai-agents: its `Session` on our log.

    session = OnrecordSession("refund-42", onrecord.connect())
    await Runner.run(agent, "Refund order 42", session=session, hooks=session.hooks())

Items are kept word for word; `pop_item`, `clear_session` and compaction retract them by another event. `hooks()` puts
each tool call on record before the tool runs and its result after it, so that a run that was killed inside a tool is
in the history of the next one: with the result if it is on record, else as "started, outcome unknown".
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakKeyDictionary

from onrecord.aio import settled
from onrecord.errors import InvalidInput, LogMoved, OnrecordError
from onrecord.frameworks.conversation import (
    FORK,
    QUEUE,
    REFUSE,
    Conversation,
    Effect,
    Entry,
    as_line,
    new_keys,
    row,
    said_of,
    theirs,
)
from onrecord.frameworks.requiring import required

with required("openai-agents", "agents", "0.24"):
    from agents.exceptions import AgentsException
    from agents.lifecycle import RunHooks
    from agents.memory.session import _CompactionSnapshot
    from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.items import TResponseInputItem
    from agents.run_context import RunContextWrapper

    from onrecord.log.events import Draft
    from onrecord.log.items import Item
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")

FRAMEWORK = "openai-agents"
_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_RESULTS = frozenset(_CALLS.values())


class OnrecordSession:
    """The history of one conversation of openai-agents, kept in a session of ours.

    `on_conflict` says what happens to a run that wants to save items after another run has saved some: `refuse`,
    `queue` (they are saved behind the others) or `fork` (the run continues in a fork; `forks` has its name). Inside
    `async with`, no other process can add to the conversation.
    """

    def __init__(
        self, session_id: str, store: SessionStore, *, agent: str = "main", on_conflict: str = REFUSE,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.session_id = session_id
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or {})
        self.forks: list[str] = []
        """The sessions that runs of this one were moved to."""
        self._kept = Conversation(store, FRAMEWORK, session_id, agent=agent, on_conflict=on_conflict)
        self._runs: WeakKeyDictionary[Any, tuple[Conversation, int]] = WeakKeyDictionary()
        """Where each run continues, and up to which change it knows the history."""

    async def __aenter__(self) -> Self:
        await _awaited(self._kept.acquire)
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await _awaited(self._kept.leave)

    def close(self) -> None:
        """Do nothing: files and connections belong to the store."""

    # The interface of openai-agents

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """The history, or its latest items, in order."""
        wanted = resolve_session_limit(limit, self.session_settings)
        return await _awaited(partial(self._get, wanted, wrapper))

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Add items in one durable step."""
        if items:
            await _awaited(partial(self._add, items, wrapper))

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Retract the latest item and return it."""
        return await _awaited(partial(self._pop, wrapper))

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Retract every item. They stay in the log until they are erased."""
        await _awaited(partial(self._clear, wrapper))

    async def _get_compaction_snapshot(self, limit: int, **_options: Any) -> _CompactionSnapshot | None:
        """The latest items, and how to replace them in one step: what compaction asks of a session."""
        return await _awaited(partial(self._snapshot, limit))

    def hooks(self) -> RunHooks[Any]:
        """Hooks for `Runner.run`: each tool call is on record before the tool runs."""
        return _Ledger(self._kept)

    # The same on a thread

    def _run(self, wrapper: Any) -> tuple[Conversation, int]:
        """The conversation of a run, and where it has read it; 0 if it has not."""
        return (self._kept, 0) if wrapper is None else self._runs.get(wrapper, (self._kept, 0))

    def _saw(self, wrapper: Any, kept: Conversation) -> None:
        if wrapper is not None:
            self._runs[wrapper] = (kept, max(kept.changed_at, 1))

    def _get(self, limit: int | None, wrapper: Any) -> list[TResponseInputItem]:
        kept, _seen = self._run(wrapper)
        with kept.lock:
            kept.catch_up()
            self._saw(wrapper, kept)
            items = _history(kept)
        return items if limit is None else items[-limit:] if limit > 0 else []

    def _add(self, items: list[TResponseInputItem], wrapper: Any) -> None:
        lines = [as_line(item) for item in items]
        kept, seen = self._run(wrapper)
        with kept.lock:
            try:
                kept.write(partial(_added, kept, items, lines, seen))
            except LogMoved:
                if kept.on_conflict != FORK:
                    raise
                kept = self._forked(kept, seen)
                kept.write(partial(_added, kept, items, lines, 0))
            self._saw(wrapper, kept)

    def _forked(self, kept: Conversation, seen: int) -> Conversation:
        """The conversation as the run has read it, in a session of its own."""
        fork = Conversation(kept.store, FRAMEWORK, kept.id, name=kept.name, agent=kept.agent, on_conflict=FORK)
        fork.attach(kept.fork(seen))
        self.forks.append(fork.name)
        return fork

    def _pop(self, wrapper: Any) -> TResponseInputItem | None:
        kept, _seen = self._run(wrapper)
        with kept.lock:
            if not kept.catch_up():
                return None
            found: list[Entry] = []

            def retract() -> list[Draft]:
                found[:] = [list(kept.entries.values())[-1]] if kept.entries else []
                data = kept.retracted(one.key for one in found)
                return [kept.session.log.draft("payload.retracted", data)] if found else []

            kept.write(retract)
            self._saw(wrapper, kept)
        return json.loads(found[0].line) if found else None

    def _clear(self, wrapper: Any) -> None:
        kept, _seen = self._run(wrapper)
        with kept.lock:
            if kept.catch_up():
                kept.write(
                    lambda: (
                        [kept.session.log.draft("payload.retracted", kept.retracted(all=True))] if kept.entries else []
                    )
                )
                self._saw(wrapper, kept)

    def _snapshot(self, limit: int) -> _CompactionSnapshot:
        kept = self._kept
        with kept.lock:
            kept.catch_up()
            found = list(kept.entries.values())
        shown = found[-limit:] if limit > 0 else []

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            return await _awaited(partial(self._replace, shown[start:], output))

        return _CompactionSnapshot([json.loads(one.line) for one in shown], len(shown) == len(found), replace_suffix)

    def _replace(self, expected: list[Entry], output: list[TResponseInputItem]) -> bool:
        kept, lines = self._kept, [as_line(item) for item in output]
        keys = [one.key for one in expected]

        def replace() -> list[Draft]:
            if not keys or list(kept.entries)[-len(keys) :] != keys:
                return []
            log = kept.session.log
            drafts = [log.draft("payload.retracted", kept.retracted(keys, compacted=True))]
            return drafts + ([log.draft("payload.kept", _payload(kept, output, lines))] if lines else [])

        with kept.lock:
            kept.catch_up()
            return bool(kept.write(replace))


class _Ledger(RunHooks[Any]):
    """Puts both ends of every tool call on record."""

    def __init__(self, kept: Conversation) -> None:
        self._kept = kept

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        call = getattr(context, "tool_call_id", None)
        if call:
            await _awaited(partial(self._kept.start_effect, call, tool.name, _arguments(context)))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        call = getattr(context, "tool_call_id", None)
        if call:
            text = result if isinstance(result, str) else str(result)
            await _awaited(partial(self._kept.finish_effect, call, result=text))


async def _awaited(call: Callable[[], R]) -> R:
    """Run a call on a thread; our errors become errors of openai-agents."""
    try:
        return await settled(call)
    except OnrecordError as problem:
        mine = theirs(problem, AgentsException)
        mine.run_data = None  # type: ignore[attr-defined]  # what the constructor of AgentsException sets
        raise mine from problem


def _added(kept: Conversation, items: list[Any], lines: list[str], seen: int) -> list[Draft]:
    if seen and kept.changed_at > seen and kept.on_conflict != QUEUE:
        raise LogMoved(
            f"another run added to conversation {kept.id!r} at position {kept.changed_at}; "
            f"this run has read up to position {seen}",
            hint='run again with the new history, or choose on_conflict="queue" or "fork"',
            expected=seen,
            actual=kept.changed_at,
        )
    return [kept.session.log.draft("payload.kept", _payload(kept, items, lines))]


def _arguments(context: Any) -> Any:
    return getattr(context, "tool_arguments", None)


def _payload(kept: Conversation, items: list[Any], lines: list[str]) -> dict[str, Any]:
    keys = new_keys(len(items))
    reading = [
        row(number, key, item, said)
        for number, (key, item) in enumerate(zip(keys, items, strict=True))
        if (said := neutral(item))
    ]
    return kept.kept(lines, keys, reading)


def _history(kept: Conversation) -> list[TResponseInputItem]:
    """Own items word for word, turns of other writers translated, and tool calls that were never saved."""
    own = [(one.position, number, json.loads(one.line)) for number, one in enumerate(kept.entries.values())]
    parts: list[tuple[int, int, list[Any]]] = [(position, number, [item]) for position, number, item in own]
    parts += [(position, 0, from_neutral(items)) for position, items in kept.of_others()]
    if kept.effects:
        saved = {item.get("call_id") for _position, _number, item in own if isinstance(item, dict)}
        parts += [(one.position, 0, _unsaved(one)) for one in kept.effects.values() if one.call not in saved]
    if len(parts) > len(own):
        parts.sort(key=lambda part: part[:2])
    return [item for _position, _number, items in parts for item in items]


def _unsaved(effect: Effect) -> list[dict[str, Any]]:
    """A tool call of a run that ended before it saved anything: the call and what is known of its result."""
    arguments = effect.arguments if isinstance(effect.arguments, str) else json.dumps(effect.arguments or {})
    return [
        {"type": "function_call", "call_id": effect.call, "name": effect.name, "arguments": arguments},
        {"type": "function_call_output", "call_id": effect.call, "output": said_of(effect)},
    ]


def neutral(item: Any) -> list[Item]:
    """What an item of openai-agents says, as neutral items."""
    if not isinstance(item, dict):
        raise InvalidInput(f"an item of openai-agents must be a dict, not {type(item).__name__}")
    kind = item.get("type") or "message"
    if kind == "message" and item.get("role"):
        role = {"developer": "system"}.get(item["role"], item["role"])
        if role not in ("system", "user", "assistant"):
            role = "assistant"
        return [{"role": role, "content": _content(item.get("content"))}]
    if kind in _CALLS and isinstance(item.get("call_id"), str):
        call = {"id": item["call_id"], "name": str(item.get("name", "")), "arguments": _parsed(item)}
        return [{"role": "assistant", "content": "", "tool_calls": [call]}]
    if kind in _RESULTS and isinstance(item.get("call_id"), str):
        return [{"role": "tool", "call": item["call_id"], "content": _content(item.get("output"))}]
    if kind == "reasoning":
        texts = [part.get("text") for part in (item.get("summary") or []) if isinstance(part, dict)]
        text = "\n".join(one for one in texts if isinstance(one, str))
        return [{"role": "assistant", "content": text, "thinking": True}] if text else []
    return [{"role": "assistant", "content": f"[{kind}]"}]


def _parsed(item: dict[str, Any]) -> Any:
    given = item.get("arguments", item.get("input"))
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content if isinstance(content, str) or content is None else json.dumps(content, ensure_ascii=False)
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
        return "\n".join(str(text) for text in texts)
    return content


def from_neutral(items: list[Item]) -> list[Any]:
    """Items of openai-agents that say the same."""
    made: list[Any] = []
    for item in items:
        if item.get("thinking"):
            continue
        if item["role"] == "tool":
            made.append({"type": "function_call_output", "call_id": item["call"], "output": _text(item)})
            continue
        if _text(item):
            made.append({"role": item["role"], "content": _text(item)})
        made += [
            {
                "type": "function_call", "call_id": call["id"], "name": call["name"],
                "arguments": _argument_text(call.get("arguments")),
            }
            for call in item.get("tool_calls") or ()
        ]  # fmt: skip
    return made


def _argument_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)


def _text(item: Item) -> str:
    content = item.get("content")
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""
