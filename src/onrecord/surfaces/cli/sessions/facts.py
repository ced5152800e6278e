"""Putting facts on record: decide, objective, next, state. One event each, durable when the command answers."""

from __future__ import annotations

from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.shapes import describe, receipt_data

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
    """Say what the session is for."""
    session, text = call.session(), call.text("TEXT")
    present = session.views.facts.objective
    if present and present["text"] == text:
        return _answer(call, session, session.event(present["position"]), "already_recorded")
    return _answer(call, session, session.facts.set_objective(text), "recorded")


def next_action(call: Call) -> int:
    """Say the one thing to do next."""
    session = call.session()
    event = session.facts.set_next_action(call.text("TEXT"), command=call.get("command"))
    return _answer(call, session, event, "recorded")


def state(call: Call) -> int:
    """State a finding; with --finding, give that one another label."""
    finding, label = call.get("finding"), call.get("label")
    evidence, because = call.many("evidence"), call.number("because")
    if finding:
        if "CLAIM" in call.positional or not label:
            raise UsageError("--finding goes with --label and without a claim", hint=call.verb.example)
        session = call.session()
        _require_finding(session, finding)
        event = session.findings.relabel(finding, label, evidence=evidence, why=call.get("why"), because=because)
        return _answer(call, session, event, "recorded")
    if "CLAIM" not in call.positional:
        raise UsageError("CLAIM is missing: onrecord state CLAIM", hint=f"for example: {call.verb.example}")
    session = call.session()
    event = session.findings.state(call.text("CLAIM"), label or "open", evidence=evidence, because=because)
    return _answer(call, session, event, "recorded")


def _require_finding(session: Session, finding: str) -> None:
    known = session.views.findings.findings
    if finding not in known:
        from onrecord.errors import NotFound

        raise NotFound(
            f"session {session.name!r} has no finding {finding!r}",
            hint=f"it has {', '.join(known)}" if known else "state one first: onrecord state CLAIM",
        )


def _answer(call: Call, session: Session, event: Event, state: str) -> int:
    head = session.head
    if session.views.phases.profile is not None:
        from onrecord.surfaces.cli.work import state_file

        state_file.after(call, session)
    sentence = f"{state.replace('_', ' ')} at position {event.position} of {head.name}: {describe(event)}"
    return call.output.done("event", receipt_data(head, event, state), sentence)
