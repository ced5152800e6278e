"""openai-agents: its `Session` on our log.

    session = OnrecordSession("refund-42", onrecord.connect())
    await Runner.run(agent, "Refund order 42", session=session, hooks=session.hooks())

Items are kept word for word; `pop_item`, `clear_session` and compaction retract what is shown by another event, also
the turns of other writers, which stay in the record of the session. `hooks()` puts
each tool call on record before the tool runs and its result after it, so that a run that was killed inside a tool is
in the history of the next one: with the result if it is on record, else as "started, outcome unknown".
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

from onrecord.aio import settled
from onrecord.errors import LogMoved, OnrecordError
from onrecord.frameworks.conversation import (
    FORK,
    QUEUE,
    REFUSE,
    Conversation,
    check_type,
    has_secret,
    new_keys,
    row,
)
from onrecord.frameworks.leasing import aalone
from onrecord.frameworks.openai_history import History, Shown, item_of
from onrecord.frameworks.openai_items import FRAMEWORK, neutral
from onrecord.frameworks.parsing import parsed
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import speaking, theirs
from onrecord.frameworks.writing import as_line
from onrecord.log.readings import EMBEDDED, REPEAT_LIMIT, reference

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
    from onrecord.log.item_values import Item
    from onrecord.session.session_store import SessionStore

R = TypeVar("R")

_NO_IDS = (None, "", "__fake_id__")
"""What items have for an id if the model gave none; the last one is the framework's own."""
PROMPT_ITEMS = 4
"""How many items a prompt may have that is recognised when it is saved again."""


class OnrecordSession:
    """The history of one conversation of openai-agents, kept in a session of ours.

    `on_conflict` says what happens to a run that wants to save items after another run has saved some: `refuse`,
    `queue` (they are saved behind the others) or `fork` (the run continues in a fork; `forks` has its name). A run that
    is resumed after an approval has read up to the call that was approved. Inside `async with`, no other process can
    add to the conversation.
    """

    @speaking(AgentsException, run_data=None)
    def __init__(
        self, session_id: str, store: SessionStore, *, agent: str = "main", on_conflict: str = REFUSE,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.session_id = session_id
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or {})
        self.forks: list[str] = []
        """The sessions that runs of this one were moved to."""
        self._kept = History(store, FRAMEWORK, session_id, agent=agent, on_conflict=on_conflict)
        self._runs: WeakKeyDictionary[Any, tuple[History, int]] = WeakKeyDictionary()
        """Where each run continues, and up to which change it knows the history."""
        self._writers: WeakSet[Any] = WeakSet()
        """The runs that have saved items."""
        self._readers: WeakSet[Any] = WeakSet()
        """The runs that have read the history for their model; one that is resumed only looks at its end."""
        self._moved: list[tuple[ref[Any], History]] = []
        """The runs that were moved to a fork, each with the fork."""

    async def __aenter__(self) -> Self:
        leaving, name = AsyncExitStack(), self._kept.name
        await leaving.enter_async_context(aalone(self._kept, _awaited))
        self._leaving = leaving
        if self._kept.name != name:
            self.forks.append(self._kept.name)
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await self._leaving.aclose()

    def close(self) -> None:
        """Do nothing: files and connections belong to the store."""

    # The interface of openai-agents

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """The history, or its latest items, in order."""
        wanted = resolve_session_limit(limit, self.session_settings)
        is_whole = limit is None or limit == getattr(self.session_settings, "limit", None)
        return await _awaited(partial(self._get, wanted, wrapper, is_whole=is_whole))

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Add items in one durable step."""
        if items:
            await _awaited(partial(self._add, items, wrapper))

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Retract the last item that `get_items` shows and return it; None if it shows none."""
        return await _awaited(partial(self._pop, wrapper))

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Retract every item that `get_items` shows. They stay in the log until they are erased."""
        await _awaited(partial(self._clear, wrapper))

    async def _get_compaction_snapshot(self, limit: int, **_options: Any) -> _CompactionSnapshot | None:
        """The latest items, and how to replace them in one step: what compaction asks of a session."""
        return await _awaited(partial(self._snapshot, limit))

    def hooks(self) -> RunHooks[Any]:
        """Hooks for `Runner.run`: each tool call is on record before the tool runs."""
        return _Ledger(self._of_tool)

    # The same on a thread

    def _run(self, wrapper: Any) -> tuple[History, int]:
        """The conversation of a run, and where it has read it; 0 if it has not."""
        return (self._kept, 0) if wrapper is None else self._runs.get(wrapper, (self._kept, 0))

    def _of_tool(self, context: Any) -> History:
        """The conversation of the run that calls a tool: its own one, if the run was moved to a fork.

        The context of a tool is an object of its own; what it shares with that of its run is the usage.
        """
        usage = getattr(context, "usage", None)
        moved = ((one(), fork) for one, fork in reversed(self._moved))
        runs = (fork for run, fork in moved if run is not None and getattr(run, "usage", None) is usage)
        return next(runs, self._kept)

    def _saw(self, wrapper: Any, kept: History) -> None:
        if wrapper is not None:
            self._runs[wrapper] = (kept, max(kept.changed_at, 1))

    def _get(self, limit: int | None, wrapper: Any, *, is_whole: bool) -> list[TResponseInputItem]:
        check_type(limit or 0, int, "a limit that is a number")
        kept, _seen = self._run(wrapper)
        with kept.lock:
            kept.catch_up()
            self._saw(wrapper, kept)
            if is_whole and wrapper is not None:
                self._readers.add(wrapper)
            items = kept.history()
        return items if limit is None else items[-limit:] if limit > 0 else []

    def _add(self, items: list[TResponseInputItem], wrapper: Any) -> None:
        check_type(items, (list, tuple), "a list of items")
        lines = [as_line(item) for item in items]
        kept, seen = self._resumed(items, wrapper)
        with kept.lock:
            try:
                kept.write(partial(_added, kept, items, lines, seen))
            except LogMoved:
                if kept.on_conflict != FORK:
                    raise
                kept = self._forked(kept, seen)
                self._moved.append((ref(wrapper), kept))
                kept.write(partial(_added, kept, items, lines, 0))
            self._saw(wrapper, kept)
            if wrapper is not None:
                self._writers.add(wrapper)

    def _resumed(self, items: list[Any], wrapper: Any) -> tuple[History, int]:
        """The conversation of a run that saves items, and up to where its model has read it.

        A run that is resumed looks at the end of the history before it saves, but does not show it to the model. It
        continues in the fork that it was moved to before.
        """
        kept, seen = self._run(wrapper)
        if wrapper is None or wrapper in self._writers or wrapper in self._readers:
            return kept, seen
        for one in (kept, *(fork for _run, fork in reversed(self._moved))):
            with one.lock:
                one.catch_up()
                at = one.resumed_at(items)
            if at:
                return one, min(seen or at, at) if one is kept else at
        return kept, seen

    def _forked(self, kept: History, seen: int) -> History:
        """The conversation as the run has read it, in a session of its own."""
        fork = History(kept.store, FRAMEWORK, kept.id, name=kept.name, agent=kept.agent, on_conflict=FORK)
        fork.attach(kept.fork(seen))
        self.forks.append(fork.name)
        return fork

    def _pop(self, wrapper: Any) -> TResponseInputItem | None:
        kept, _seen = self._run(wrapper)
        with kept.lock:
            if not kept.catch_up():
                return None
            found: list[Shown] = []

            def retract() -> list[Draft]:
                found[:] = kept.shown()[-1:]
                return [kept.draft("payload.retracted", kept.hidden(found))] if found else []

            kept.write(retract)
            self._saw(wrapper, kept)
            return item_of(found[0]) if found else None

    def _clear(self, wrapper: Any) -> None:
        kept, _seen = self._run(wrapper)
        with kept.lock:
            if kept.catch_up():
                kept.write(lambda: [kept.draft("payload.retracted", kept.cleared())] if kept.shown() else [])
                self._saw(wrapper, kept)

    def _snapshot(self, limit: int) -> _CompactionSnapshot:
        kept = self._kept
        with kept.lock:
            kept.catch_up()
            found = kept.shown()
        shown = found[-limit:] if limit > 0 else []

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            return await _awaited(partial(self._replace, shown[start:], output))

        return _CompactionSnapshot([item_of(one) for one in shown], len(shown) == len(found), replace_suffix)

    def _replace(self, expected: list[Shown], output: list[TResponseInputItem]) -> bool:
        kept, lines = self._kept, [as_line(item) for item in output]
        places = [one[:2] for one in expected]

        def replace() -> list[Draft]:
            if not places or [one[:2] for one in kept.shown()[-len(places) :]] != places:
                return []
            drafts = [kept.draft("payload.retracted", kept.hidden(expected, compacted=True))]
            return drafts + ([kept.draft("payload.kept", _payload(kept, output, lines))] if lines else [])

        with kept.lock:
            kept.catch_up()
            return bool(kept.write(replace))


class _Ledger(RunHooks[Any]):
    """Puts both ends of every tool call on record."""

    def __init__(self, of_tool: Callable[[Any], Conversation]) -> None:
        self._of_tool = of_tool

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        call = getattr(context, "tool_call_id", None)
        if call:
            kept = self._of_tool(context)
            await _awaited(partial(kept.begin_effect, call, tool.name, _arguments(context)))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        call = getattr(context, "tool_call_id", None)
        if call:
            kept, text = self._of_tool(context), result if isinstance(result, str) else str(result)
            await _awaited(partial(kept.finish_effect, call, _arguments(context), result=text))


async def _awaited(call: Callable[[], R]) -> R:
    """Run a call on a thread; our errors become errors of openai-agents."""
    try:
        return await settled(call)
    except OnrecordError as problem:
        raise theirs(problem, AgentsException, run_data=None) from problem


def _added(kept: Conversation, items: list[Any], lines: list[str], seen: int) -> list[Draft]:
    again = _repeated(kept, items, lines)
    if again is not None:
        return [kept.draft("payload.retracted", kept.retracted(again))] if again else []
    if seen and kept.changed_at > seen and kept.on_conflict != QUEUE:
        raise LogMoved(
            f"another run added to conversation {kept.id!r} at position {kept.changed_at}; "
            f"this run has read up to position {seen}",
            hint='run again with the new history, or choose on_conflict="queue" or "fork"',
            expected=seen,
            actual=kept.changed_at,
        )
    twice = _asked_twice(kept, items)
    drafts = [kept.draft("payload.retracted", kept.retracted(twice))] if twice else []
    return [*drafts, kept.draft("payload.kept", _payload(kept, items, lines))]


def _asked_twice(kept: Conversation, items: list[Any]) -> list[str]:
    """The keys of a prompt that was saved again before any answer, now that its answer arrives; mostly none.

    The runner saves a prompt, which has no id, in a call of its own. A run that was cancelled after it, and is run
    again, saves it a second time. Words that are said twice in one call stay.
    """
    if not _has_ids(items):
        return []
    last = list(islice(reversed(kept.entries.values()), 2 * PROMPT_ITEMS))[::-1]
    second = [one for one in last if one.position == last[-1].position]
    first = last[-2 * len(second) : -len(second)]
    if len({one.position for one in first}) != 1 or [one.line for one in first] != [one.line for one in second]:
        return []
    is_prompt = all(
        item.get("role") == "user" and item.get("id") in _NO_IDS for item in map(parsed, [one.line for one in second])
    )
    return [one.key for one in second] if is_prompt else []


def _has_ids(items: list[Any]) -> bool:
    """Whether the model gave one of these items an id."""
    return any(isinstance(item, dict) and item.get("id") not in _NO_IDS for item in items)


def _repeated(kept: Conversation, items: list[Any], lines: list[str]) -> list[str] | None:
    """None unless these items are the last ones on record: then they are saved again, because the reply was lost.

    The ids of the model show it: what it says twice has two ids. The runner saves a prompt, which has no id, in a call
    of its own; if the prompt was saved again too, the keys of that second one are returned, to be retracted.
    """
    if not _has_ids(items):
        return None
    count = len(lines)
    last = list(islice(reversed(kept.entries.values()), count + 2 * PROMPT_ITEMS))[::-1]
    found = [one.line for one in last]
    forms = [lines, kept.recorded(lines)] if any(map(has_secret, found)) else [lines]
    for behind in range(PROMPT_ITEMS + 1):
        end = len(found) - behind
        start = end - count
        if start >= behind and found[start:end] in forms and found[start - behind : start] == found[end:]:
            return [one.key for one in last[end:]]
    return None


def _arguments(context: Any) -> Any:
    return getattr(context, "tool_arguments", None)


def _payload(kept: Conversation, items: list[Any], lines: list[str]) -> dict[str, Any]:
    keys = new_keys(len(items))
    reading = [
        found
        for number, (key, item, line) in enumerate(zip(keys, items, lines, strict=True))
        if (found := _row(number, key, item, line))
    ]
    return kept.kept(lines, keys, reading)


def _row(number: int, key: str, item: Any, line: str) -> Any:
    """What an item says, as a row of the reading; calls and results, which are most items, without a search."""
    said = neutral(item)
    made: Item | None = None
    # An escape may be that of a lone surrogate, which no event can have; the search for one character is quicker.
    if said and ("\\" not in line or "\\u" not in line):
        if item.get("type") == "function_call":
            (call,), text = said[0]["tool_calls"], item.get("arguments")
            if type(call["arguments"]) is dict and len(text) > REPEAT_LIMIT:
                call["arguments"] = reference(f"/arguments/{EMBEDDED}", text)
                made = said[0]
        elif item.get("type") == "function_call_output" and type(item.get("output")) is str:
            made = said[0]
            made["content"] = reference("/output", item["output"])
    if made is not None:
        return {"line": number, "id": key, "items": [made]}
    return row(number, key, item, said) if said else None
