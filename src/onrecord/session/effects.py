"""`session.effects` and `session.once`: side effects that must not happen twice.

An effect that was started and never finished is unknown: it may have happened.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.errors import Conflict, EffectUnknown, InvalidInput, PayloadErased, ToolTimedOut
from onrecord.log.codec import decode_payload, encode_payload, open_record
from onrecord.session.chapter import Chapter, told
from onrecord.views.effects import KEY_LIMIT, effect_id, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onrecord.log.events import Event
    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session
    from onrecord.views.transcript import Turn
    from onrecord.views.values import Agent, Effect, Json

TRIES_LIMIT = 1_000
"""How often one effect may fail and be tried again."""
_RUNNING: set[tuple[str, str]] = set()
"""The effects that threads of this process are running: session and key."""
machine.after_fork(_RUNNING.clear)


class EffectVerbs(Chapter):
    """Record the two ends of a side effect by hand, where `session.once` does not fit; find the unknown ones."""

    __slots__ = ()

    def start(self, key: str, name: str = "", arguments: Json = None) -> Event:
        """Record that a side effect is about to happen."""
        return start(self._session, key, name, arguments)

    def settle(self, key: str, *, result: Json = None, error: str | None = None) -> Event:
        """Record how a started side effect ended, right away or once that is known."""
        return settle(self._session, key, result=result, error=error)

    def unknown(self) -> dict[str, Effect]:
        """Effects by key that a run started and did not finish before it ended."""
        return unknown(self._session)


def once(session: Session, key: str, fn: Callable[[], Json], *, rerun_unknown: bool, arguments: Json = None) -> Json:
    """Return the recorded result, or run `fn` between its two records."""
    done, result = prepare(session, key, getattr(fn, "__name__", ""), rerun_unknown=rerun_unknown, arguments=arguments)
    if done:
        return result
    with running(session, key):
        try:
            made = fn()
        except ToolTimedOut:
            raise  # it may still happen: the effect stays unknown
        except Exception as problem:
            settle(session, key, error=told(problem))
            raise  # anything else (Ctrl-C, exit) may have interrupted it half-way: the effect stays unknown
        return conclude(session, key, made)


@contextmanager
def running(session: Session, key: str) -> Iterator[None]:
    """While it runs, this process knows that it does: no other thread may take it for one that was cut off."""
    mark = (session.id, key)
    _RUNNING.add(mark)
    try:
        yield
    finally:
        _RUNNING.discard(mark)


def _refuse_running(session: Session, key: str) -> None:
    """Refuse to run an effect again while the process of its first run still exists."""
    since = session.views.effects.unfinished.get(key)
    if since is None:
        return
    joined = session.log.newest(("agent.joined",))
    started = next((one for one in joined if one.by == since["by"] and one.run == since["run"]), None)
    process = (started.data or {}).get("process") if started is not None else None
    if not isinstance(process, dict):
        return
    if machine.is_mine(process):
        alive = (session.id, key) in _RUNNING
    elif process.get("host") == machine.identity()["host"]:
        alive = not machine.is_gone(process)
    else:
        alive = any(
            one.lane == since["by"]
            and one.until > session.clock() * 1e6
            and one.holder.get("pid") == process.get("pid")
            for one in session.log.leases()
        )
    if alive:
        raise EffectUnknown(
            f"effect {key!r} is running: process {process.get('pid')} on {process.get('host')} started it at position "
            f"{since['position']}",
            hint="wait until it has ended, or end that process",
            key=key,
            running=True,
        )


def prepare(session: Session, key: str, name: str, *, rerun_unknown: bool, arguments: Json = None) -> tuple[bool, Any]:
    """Whether the effect has happened, and its result; if it has not, record that it starts now."""
    number, ended = _latest(session, _checked(key))
    if ended is not None and _succeeded(ended):
        return True, _result(ended, key)
    if number and ended is None:
        if not rerun_unknown:
            raise _unknown(session, key)
        _refuse_running(session, key)
        settle(session, key, error="unknown; run again at the caller's request")
    try:
        start(session, key, name, arguments)
    except Conflict:
        # Another thread or agent started first; if it has finished, return its result.
        ended = _latest(session, key)[1]
        if ended is not None and _succeeded(ended):
            return True, _result(ended, key)
        raise
    return False, None


def conclude(session: Session, key: str, made: Json) -> Json:
    """Record what an effect returned, and return it as a later process will read it."""
    try:
        result = decode_payload(encode_payload(made).decode())
        settle(session, key, result=result)
    except InvalidInput:
        _finish(session, key, {"ok": True, "result": None, "unrecordable": True})
        raise
    return result


def start(session: Session, key: str, name: str, arguments: Json) -> Event:
    """Record that the effect is about to happen; refuse an effect that runs, is unknown or has succeeded."""
    _checked(key)
    session._take_up()
    number, ended = _latest(session, key)
    if number and ended is None:
        raise _unknown(session, key)
    if ended is not None and _succeeded(ended):
        raise Conflict(
            f"effect {key!r} already happened, at position {ended.position}",
            hint="session.once(key, fn) returns its result",
        )
    if number >= TRIES_LIMIT:
        raise Conflict(f"effect {key!r} failed {number} times", hint="use a new key")
    data = {"key": key, "name": name, "arguments": arguments}
    draft = session._draft("effect.started", data, id=effect_id(key, "started", number + 1))
    event = session._append_drafts(draft, fenced=True)[0]
    if event.payload_hash != draft.payload_hash:
        raise _unknown(session, key)  # another thread or agent started first: the event on record is not ours
    return event


def settle(session: Session, key: str, *, result: Json = None, error: str | None = None) -> Event:
    """Record how the effect ended."""
    return _finish(session, key, {"ok": error is None, "result": result, "error": error})


def _finish(session: Session, key: str, outcome: dict[str, Any]) -> Event:
    """Record an outcome. It needs no lease: a holder that lost its lane may still know what happened."""
    number, ended = _latest(session, _checked(key))
    if not number or ended is not None:
        raise Conflict(f"effect {key!r} was not started", hint="start it first")
    draft = session._draft("effect.finished", {"key": key, **outcome}, id=effect_id(key, "finished", number))
    return session._append_drafts(draft)[0]


def unknown(session: Session) -> dict[str, Effect]:
    """Unfinished effects of runs that have ended."""
    views = session.views
    latest = {agent: lane["run"] for agent, lane in views.lanes.lanes.items()}
    return {
        key: effect
        for key, effect in views.effects.unfinished.items()
        if effect["run"] < latest.get(effect["by"], 0) or not _is_here(views.roster.agents.get(effect["by"]))
    }


def _is_here(agent: Agent | None) -> bool:
    return bool(agent and agent["here"])


def recorded_try(session: Session, key: str, number: int) -> Event | None:
    """How the `number`th try of an effect ended on record."""
    ended = session.store.find(session.id, effect_id(_checked(key), "finished", number))
    return open_record(ended) if ended else None


def tries(session: Session, key: str) -> int:
    """How often an effect was started."""
    return _latest(session, _checked(key))[0]


def result_of(ended: Event, key: str) -> Json:
    """What a try that succeeded returned."""
    return _result(ended, key)


def _latest(session: Session, key: str) -> tuple[int, Event | None]:
    """The number of the last try (0: none) and how it ended (None: it did not)."""
    number = 0
    while session.store.find(session.id, effect_id(key, "started", number + 1)):
        number += 1
    ended = session.store.find(session.id, effect_id(key, "finished", number)) if number else None
    return number, open_record(ended) if ended else None


def _succeeded(ended: Event) -> bool:
    """An erased outcome counts as success: an effect that may have happened is not repeated."""
    return ended.data is None or bool(ended.data["ok"])


def _result(ended: Event, key: str) -> Json:
    if ended.data is None:
        raise PayloadErased(f"effect {key!r} happened at position {ended.position}, and its result was erased")
    if ended.data.get("unrecordable"):
        raise InvalidInput(f"effect {key!r} happened, but its result could not be recorded as JSON")
    return ended.data["result"]


def _unknown(session: Session, key: str) -> EffectUnknown:
    since = session.views.effects.unfinished.get(key)
    started = f"effect {key!r} was started at position {since['position'] if since else '?'}"
    if (session.id, key) in _RUNNING:
        return EffectUnknown(
            f"{started} and is running in this process", hint="wait until it has ended", key=key, running=True
        )
    return EffectUnknown(
        f"{started} and has no result: it may have happened",
        hint=f"check whether it happened: session.effects.settle({key!r}, result=...) records what it returned; "
        "with error=... instead, the next call runs it again",
        key=key,
        running=False,
    )


def _checked(key: str) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_LIMIT or not key.isprintable():
        raise InvalidInput(f"an effect's key has 1 to {KEY_LIMIT} printable characters, not {key!r}")
    return key


def with_results(session: Session, turns: list[Turn]) -> list[Turn]:
    """The same turns with results that only the ledger has: a framework's run died before it kept what a tool answered.

    A model that read "outcome unknown" of a call that ended would make it again.
    """
    waiting = {number: ids for number, turn in enumerate(turns) if (ids := _unanswered(turn.items))}
    if not waiting:
        return turns
    found: dict[int, list[Item]] = {}
    after = min(turns[number].begun for number in waiting)
    for record in session.store.read(session.id, after=after, kinds=("effect.finished",)):
        ended = open_record(record)
        call = key_of(ended.id).partition("/")[2]
        asked = [number for number, ids in waiting.items() if call in ids and turns[number].begun < ended.position]
        if asked and ended.data is not None:
            waiting[asked[-1]].discard(call)
            found.setdefault(asked[-1], []).append(_answer(call, ended.data))
    return [turn._replace(items=[*turn.items, *found.get(number, ())]) for number, turn in enumerate(turns)]


def _unanswered(items: list[Item]) -> set[str]:
    """The ids of the calls that have no result among the items."""
    asked = {call["id"] for item in items for call in item.get("tool_calls") or ()}
    return asked - {item["call"] for item in items if item["role"] == "tool"}


def _answer(call: str, outcome: dict[str, Any]) -> Item:
    if not outcome.get("ok"):
        return {"role": "tool", "call": call, "content": f"failed: {outcome.get('error')}", "error": True}
    result = outcome.get("result")
    text = result if isinstance(result, str) else encode_payload(result).decode()
    return {"role": "tool", "call": call, "content": text}
