"""Acting: what a person can do on a page that allows writes. Each act is an event with the person's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.views.attempts import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onrecord.log.events import Event
    from onrecord.session.handle import Session

TEXT_LIMIT = 4_000
"""How many characters one field of a form may have."""


def act(session: Session, form: Mapping[str, Any]) -> Event:
    """Do what a form says, with the session of the person who sent it."""
    known = ACTIONS.get(str(form.get("action")))
    if known is None:
        raise InvalidInput(f"an action must be one of {', '.join(ACTIONS)}")
    return known(session, form)


def _text(form: Mapping[str, Any], name: str, *, optional: bool = False) -> str:
    value = form.get(name, "")
    if not isinstance(value, str) or len(value) > TEXT_LIMIT:
        raise InvalidInput(f"{name} must be text of at most {TEXT_LIMIT:,} characters")
    if not value.strip() and not optional:
        raise InvalidInput(f"{name} is empty", hint="write a sentence")
    return value.strip()


def _settle(session: Session, form: Mapping[str, Any]) -> Event:
    number, outcome, why = form.get("number"), str(form.get("outcome")), _text(form, "text", optional=True)
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidInput("the number of the attempt is missing")
    if outcome not in OUTCOMES:
        raise InvalidInput(f"an attempt's outcome must be one of {', '.join(OUTCOMES)}")
    return session.attempts.settle(
        number, outcome, error=why if outcome == "failed" else None, reason=why if outcome != "failed" else None
    )


def _decide(session: Session, form: Mapping[str, Any]) -> Event:
    because = form.get("because")
    if because is not None and (not isinstance(because, int) or isinstance(because, bool)):
        raise InvalidInput("`because` must be the position of an event")
    return session.decide(_text(form, "text"), why=_text(form, "why", optional=True) or None, because=because)


def _next(session: Session, form: Mapping[str, Any]) -> Event:
    command = _text(form, "command", optional=True) or None
    return session.facts.set_next_action(_text(form, "text"), command=command)


def _close(session: Session, form: Mapping[str, Any]) -> Event:
    why = _text(form, "text", optional=True)
    return session.close(why, anyway=why or None)


ACTIONS: dict[str, Callable[[Session, Mapping[str, Any]], Event]] = {
    "settle": _settle,
    "decide": _decide,
    "next": _next,
    "pause": lambda session, form: session.pause(_text(form, "text", optional=True)),
    "resume": lambda session, form: session.resume(_text(form, "text", optional=True)),
    "close": _close,
    "hold": lambda session, form: session.log.hold(_text(form, "text")),
    "release": lambda session, form: session.log.release(_text(form, "text")),
}
"""What can be done, by name."""
