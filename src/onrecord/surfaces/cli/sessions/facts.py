"""Recording facts: decide, objective, title, next. One event each, durable when the command answers."""

from __future__ import annotations

from onrecord.surfaces.cli.shared.shapes import describe, receipt_data, session_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call


def decide(call: Call) -> int:
    """Record a decision."""
    session = call.session()
    known = session.head.position
    event = session.decide(call.text("TEXT"), why=call.get("why"), because=call.number("because"), id=call.get("id"))
    state = "recorded" if event.position > known else "already_recorded"
    return _answer(call, session, event, state)


def objective(call: Call) -> int:
    """Set the objective of the session."""
    session, text = call.session(), call.text("TEXT")
    present = session.views.facts.objective
    if present and present["text"] == text:
        return _answer(call, session, session.log.event(present["position"]), "already_recorded")
    return _answer(call, session, session.facts.set_objective(text), "recorded")


def title(call: Call) -> int:
    """Set the title that lists show."""
    session, text = call.session(), call.text("TEXT")
    if session.views.facts.title == text:
        data = session_data(session.head) | {"state": "already_titled"}
        return call.output.done("session", data, f"{session.name} already has this title")
    session.facts.set_title(text)
    if session.views.phases.profile is not None:
        from onrecord.surfaces.cli.work import state_file

        state_file.after(call, session)
    return call.output.done("session", session_data(session.head) | {"state": "titled"}, f"{session.name}: {text}")


def next_action(call: Call) -> int:
    """Set the next action."""
    session = call.session()
    event = session.facts.set_next_action(call.text("TEXT"), command=call.get("command"))
    return _answer(call, session, event, "recorded")


def _answer(call: Call, session: Session, event: Event, state: str) -> int:
    head = session.head
    if session.views.phases.profile is not None:
        from onrecord.surfaces.cli.work import state_file

        state_file.after(call, session)
    sentence = f"{state.replace('_', ' ')} at position {event.position} of {head.name}: {describe(event)}"
    return call.output.done("event", receipt_data(head, event, state), sentence)
