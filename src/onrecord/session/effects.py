"""Effects: side effects that must not happen twice. What was started and not finished is unknown, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, EffectUnknown, InvalidInput, PayloadErased
from onrecord.log.codec import decode_payload, encode_payload, open_record
from onrecord.session.turns import told
from onrecord.views.effects import KEY_LIMIT, effect_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Event
    from onrecord.session.handle import Session

TRIES_LIMIT = 1_000
"""How often one effect may fail and be tried again."""


def once(session: Session, key: str, fn: Callable[[], Any], *, rerun_unknown: bool) -> Any:
    """Return the recorded result, or run `fn` between its two records."""
    number, ended = _latest(session, _checked(key))
    if ended is not None and _succeeded(ended):
        return _result(ended, key)
    if number and ended is None:
        if not rerun_unknown:
            raise _unknown(session, key)
        settle(session, key, error="unknown; run again at the caller's request")
    start(session, key, getattr(fn, "__name__", ""), None)
    try:
        result = fn()
    except Exception as problem:
        settle(session, key, error=told(problem))
        raise  # anything harsher (Ctrl-C, exit) may have struck half-way: the effect stays unknown
    try:
        # What a later process reads back is what this one gets, so that both go on alike.
        result = decode_payload(encode_payload(result).decode())
    except InvalidInput:
        _finish(session, key, {"ok": True, "result": None, "unrecordable": True})
        raise
    settle(session, key, result=result)
    return result


def start(session: Session, key: str, name: str, arguments: Any) -> Event:
    """Record that the effect is about to happen; refuse one that runs, is unknown or has succeeded."""
    _checked(key)
    session.take_up()
    number, ended = _latest(session, key)
    if number and ended is None:
        raise _unknown(session, key)
    if ended is not None and _succeeded(ended):
        raise Conflict(
            f"effect {key!r} has happened, at position {ended.position}", hint="once(key, fn) returns its result"
        )
    if number >= TRIES_LIMIT:
        raise Conflict(f"effect {key!r} has failed {number} times", hint="use a new key")
    data = {"key": key, "name": name, "arguments": arguments}
    draft = session.draft("effect.started", data, id=effect_id(key, "started", number + 1))
    event = session.append(draft, fenced=True)[0]
    if event.payload_hash != draft.payload_hash:
        raise _unknown(session, key)  # another thread or agent was quicker: the event on record is not ours
    return event


def settle(session: Session, key: str, *, result: Any = None, error: str | None = None) -> Event:
    """Record how the effect ended."""
    return _finish(session, key, {"ok": error is None, "result": result, "error": error})


def _finish(session: Session, key: str, outcome: dict[str, Any]) -> Event:
    """Whoever learned the outcome may record it: a holder that lost its lane too, for what happened has happened."""
    number, ended = _latest(session, _checked(key))
    if not number or ended is not None:
        raise Conflict(f"effect {key!r} is not under way", hint="start_effect(key) comes first")
    draft = session.draft("effect.finished", {"key": key, **outcome}, id=effect_id(key, "finished", number))
    return session.append(draft)[0]


def unknown(session: Session) -> dict[str, dict[str, Any]]:
    """Unfinished effects of runs that are over."""
    views = session.views
    latest = {agent: lane["run"] for agent, lane in views.lanes.lanes.items()}
    return {
        key: effect
        for key, effect in views.effects.unfinished.items()
        if effect["run"] < latest.get(effect["by"], 0) or not views.roster.agents.get(effect["by"], {}).get("here")
    }


def recorded_result(session: Session, key: str) -> tuple[bool, Any]:
    """Whether the effect succeeded on record, and its result."""
    _number, ended = _latest(session, _checked(key))
    return (True, _result(ended, key)) if ended is not None and _succeeded(ended) else (False, None)


def _latest(session: Session, key: str) -> tuple[int, Event | None]:
    """The number of the last try (0: none) and how it ended (None: it did not)."""
    number = 0
    while session.store.find(session.id, effect_id(key, "started", number + 1)):
        number += 1
    ended = session.store.find(session.id, effect_id(key, "finished", number)) if number else None
    return number, open_record(ended) if ended else None


def _succeeded(ended: Event) -> bool:
    """An erased outcome counts as success: what may have happened is not done again."""
    return ended.data is None or bool(ended.data["ok"])


def _result(ended: Event, key: str) -> Any:
    if ended.data is None:
        raise PayloadErased(
            f"effect {key!r} happened, and its result was erased", hint=f"onrecord at {ended.position} tells when"
        )
    if ended.data.get("unrecordable"):
        raise InvalidInput(f"effect {key!r} happened, and its result could not be recorded as JSON")
    return ended.data["result"]


def _unknown(session: Session, key: str) -> EffectUnknown:
    since = session.views.effects.unfinished.get(key, {})
    return EffectUnknown(
        f"effect {key!r} was started at position {since.get('position', '?')} and has no result: it may have happened",
        key=key,
    )


def _checked(key: str) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_LIMIT or not key.isprintable():
        raise InvalidInput(f"an effect's key has 1 to {KEY_LIMIT} printable characters, not {key!r}")
    return key
