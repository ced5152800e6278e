"""`onrecord compact`: a summary by a command of the user's choice; and facts it proposes, accepted one by one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from onrecord.agents.fencing import fence
from onrecord.errors import Conflict, NotFound
from onrecord.surfaces.cli.shared.call import whole_number
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.shapes import describe, receipt_data
from onrecord.surfaces.cli.work import state_file
from onrecord.views.findings import same_claim
from onrecord.work.summarising import PROPOSALS, SUMMARY, as_text, cited_text, proposals_in, run_summariser

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call

PROPOSED = "proposals"
"""What a `payload.kept` with proposals is marked with; it is in the transcript tier until one is accepted."""


def compact(call: Call) -> int:
    """Summarise the transcript so far; list proposed facts, or accept some."""
    action, *rest = call.words or [""]
    if action == "accept":
        return _accept(call, rest)
    if action == "list" and not rest:
        return _list(call, call.session())
    if action:
        raise UsageError(f"unexpected argument {action!r}", hint=f"for example: `{call.verb.example}`")
    command, text = call.get("with"), call.get("text")
    if (command is None) is (text is None):
        raise UsageError("give --with COMMAND or --text SUMMARY", hint=f"for example: `{call.verb.example}`")
    if "propose" in call and command is None:
        raise UsageError("--propose needs --with COMMAND", hint=f"for example: `{call.verb.example}`")
    session = call.session(agent="main")
    before = session.views.lanes.lane(session.agent)["covered"]
    try:
        made = session.compact(
            text if text is not None else lambda items: run_summariser(str(command), _asked(SUMMARY, as_text(items))),
            upto=call.number("upto"), afresh="afresh" in call,
        )  # fmt: skip
        proposed = _propose(call, session, str(command), before, made.upto) if "propose" in call else None
    finally:
        session.leave()
    state_file.after(call, session)
    data = receipt_data(session.head, made.event, "compacted") | {
        "upto": made.upto, "turns": made.turns, "items": made.items, "facts": made.facts,
        "summary": made.event.data["summary"], "proposals": proposed.data["proposals"] if proposed else [],
    }  # fmt: skip
    call.output.done(
        "compaction", data,
        f"a summary covers {counted(made.turns, 'turn')} up to position {made.upto}; "
        f"{counted(made.facts, 'fact')} and every event stay as they are",
    )  # fmt: skip
    if proposed and not call.output.json:
        _show(call, session, proposed)
        _ask(call, session, proposed)
    return 0


def _asked(task: str, text: str) -> str:
    return f"{task}\n\n{fence(text)}"


def _propose(call: Call, session: Session, command: str, after: int, upto: int) -> Event:
    """Ask for facts, and keep what was proposed in the transcript tier."""
    turns = [turn for turn in session.transcript(session.agent) if after < turn.ended <= upto]
    said = run_summariser(command, _asked(PROPOSALS, cited_text(turns)))
    found, dropped = proposals_in(said, [turn.ended for turn in turns])
    if dropped:
        call.output.note(f"ignored {counted(dropped, 'line')} of the command's answer: a proposal must cite a message")
    data = {"of": PROPOSED, "agent": session.agent, "proposals": [one._asdict() for one in found]}
    return session.log.record("payload.kept", data)


def _newest(session: Session) -> Event:
    for event in session.log.newest(("payload.kept",)):
        if isinstance(event.data, dict) and event.data.get("of") == PROPOSED:
            return event
    raise NotFound("nothing was proposed", hint="propose some: `onrecord compact --with 'claude -p' --propose`")


def _list(call: Call, session: Session) -> int:
    event = _newest(session)
    if call.output.json:
        rows = [one | {"number": n, "state": _state(session, event, n)} for n, one in _numbered(event)]
        call.output.envelope("proposals", {"position": event.position, "proposals": rows})
        return 0
    _show(call, session, event)
    return 0


def _show(call: Call, session: Session, event: Event) -> None:
    rows: list[list[str | Cell]] = [
        [str(number), one["kind"], one["text"], Cell(", ".join(map(str, one["cites"])), "quiet"),
         Cell(_state(session, event, number), "quiet")]
        for number, one in _numbered(event)
    ]  # fmt: skip
    call.output.table((">#", "!kind", "*text", "cites", "state"), rows)
    if rows:
        call.output.note("none of these is a fact yet; `onrecord compact accept 1` records the first one")


def _numbered(event: Event) -> list[tuple[int, dict[str, Any]]]:
    return list(enumerate((event.data or {}).get("proposals") or (), 1))


def _state(session: Session, event: Event, number: int) -> str:
    known = session.log.find(_id(event, number))
    return f"accepted at position {known.position}" if known else "proposed"


def _id(event: Event, number: int) -> str:
    return f"proposal/{event.position}/{number}"


def _ask(call: Call, session: Session, event: Event) -> None:
    """On a terminal, ask about each proposal; without one, nothing is accepted."""
    if "no-input" in call or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    for number, one in _numbered(event):
        sys.stderr.write(f"accept {number}, {one['kind']}: {one['text'][:200]!r}? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            _take(session, event, number)


def _accept(call: Call, words: list[str]) -> int:
    if not words:
        raise UsageError("the number of a proposal is missing", hint="`onrecord compact list` lists the proposals")
    session = call.session(agent="main")
    event = _newest(session)
    known = dict(_numbered(event))
    numbers = [whole_number(word, "the number of a proposal") for word in words]
    for number in numbers:
        if number not in known:
            raise NotFound(f"there is no proposal {number}", hint="`onrecord compact list` lists the proposals")
    made = [_take(session, event, number) for number in numbers]
    state_file.after(call, session)
    data = receipt_data(session.head, made[-1], "recorded") | {"accepted": numbers}
    return call.output.done(
        "event", data, "; ".join(f"recorded at position {one.position}: {describe(one)}" for one in made)
    )


def _take(session: Session, event: Event, number: int) -> Event:
    """Record one proposal as a fact that cites where it comes from; again is no second fact."""
    one = dict(_numbered(event))[number]
    payload = {
        "decision": ("decision.made", {"text": one["text"], "why": None}),
        "finding": ("finding.stated", {"claim": one["text"], "label": "open", "evidence": [], "anchors": []}),
        "next": ("next_action.set", {"text": one["text"], "command": None}),
        "reproduction": ("reproduction.recorded", {"steps": one["text"], "rate": None, "scenario": None}),
    }  # fmt: skip
    kind, data = payload[one["kind"]]
    twin = next((f for f in session.findings.all() if same_claim(f["claim"], one["text"])), None)
    if kind == "finding.stated" and twin and session.log.find(_id(event, number)) is None:
        raise Conflict(f"finding {twin['id']} already says this; it is {twin['label']}")
    return session.log.record(kind, data | {"cites": one["cites"]}, id=_id(event, number), because=one["cites"][0])
