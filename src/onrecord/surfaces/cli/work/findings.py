"""Findings: state, judge, challenge, pursue, recheck; milestones; and the survey of the code they depend on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.errors import NotFound
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.place import act, need, option, root_of, seconds
from onrecord.surfaces.cli.shared.shapes import receipt_data
from onrecord.surfaces.cli.work import state_file
from onrecord.views.findings import LABELS, NAMED, STALE, anchor_key
from onrecord.views.render import iso
from onrecord.work.anchors import anchored, reanchored

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.findings import Findings
    from onrecord.views.values import Anchor, Challenge, Finding, Judgement

STYLES = {"rejected": "bad", "verified": "good", STALE: "attention", "blocked": "attention"}


def finding(call: Call) -> int:
    """State, relabel, challenge, uphold, pursue, list, show or recheck."""
    return act(call, _ACTIONS)


def proofs(view: Findings, finding: Finding) -> str:
    """The evidence of a finding in one line, each with how it was recorded."""
    return ", ".join(
        f"{one} ({'not on record' if view.how(one) == NAMED else view.how(one)})" for one in finding["evidence"]
    )


def _state(call: Call, words: list[str]) -> int:
    (claim,) = need(call, words, "CLAIM")
    claim = sys.stdin.read().rstrip("\n") if claim == "-" else claim
    session = call.session()
    event = session.findings.state(
        claim, call.get("label") or "open", evidence=call.many("evidence"), anchors=_anchors(call, session),
        because=call.number("because"), hypothesis="hypothesis" in call,
    )  # fmt: skip
    made = next(one for one in session.views.findings.findings.values() if one["position"] == event.position)
    return _answer(call, session, event, made["id"])


def _relabel(call: Call, words: list[str]) -> int:
    name, label = need(call, words, "FINDING", "LABEL")
    if label not in LABELS:
        raise UsageError(f"a label must be one of {', '.join(LABELS)}, not {label!r}")
    session = call.session()
    known = _known(session, name)
    # A new judgement is about the code as it is now.
    anchors = _anchors(call, session) or reanchored(root_of(session), known["anchors"])
    event = session.findings.relabel(
        name,
        label,
        evidence=call.many("evidence"),
        why=call.get("why"),
        anchors=anchors,
        because=call.number("because"),
    )
    return _answer(call, session, event, name)


def _challenge(call: Call, words: list[str]) -> int:
    name, argument = need(call, words, "FINDING", "ARGUMENT")
    session = call.session()
    event = session.findings.challenge(name, argument, evidence=call.many("evidence"), because=call.number("because"))
    return _answer(call, session, event, name)


def _uphold(call: Call, words: list[str]) -> int:
    (name,) = need(call, words, "FINDING")
    session = call.session()
    return _answer(
        call,
        session,
        session.findings.uphold(
            name, option(call, "why", f'onrecord finding uphold {name} --why "..."'), evidence=call.many("evidence")
        ),
        name,
    )


def _pursue(call: Call, words: list[str]) -> int:
    (name,) = need(call, words, "FINDING")
    session = call.session()
    return _answer(call, session, session.findings.pursue(name), name)


def _recheck(call: Call, words: list[str]) -> int:
    from onrecord.work.capturing import recheck
    from onrecord.work.running import show_rest

    (name,) = need(call, words, "FINDING")
    limit = seconds(call)
    session = call.session()
    root = root_of(session)
    found = recheck(session, name, root=root, timeout=limit, show=not call.output.json)
    show_rest(found.again.ran)
    known = session.views.findings.findings[name]
    applied = None
    if "apply" in call:
        applied = session.findings.relabel(
            name,
            found.proposed,
            evidence=[found.again.evidence],
            why=found.why,
            anchors=reanchored(root, known["anchors"]),
        ).position
    data = {
        "finding": name, "label": known["label"], "proposed": found.proposed, "agrees": found.agrees, "why": found.why,
        "evidence": found.again.evidence, "rechecked": found.before, "applied": applied,
        "position": found.again.position, "exit_code": found.again.ran.exit_code, "error": found.again.error,
    }  # fmt: skip
    done = f"{name} is now {found.proposed}" if applied else f"{name} should be {found.proposed} (`--apply` sets it)"
    return call.output.done("recheck", data, f"{done}: {found.why}")


def _list(call: Call, words: list[str]) -> int:
    need(call, words)
    session = call.session()
    view = session.views.findings
    label = call.get("label")
    found = [one for one in view.findings.values() if label in (None, one["label"], view.label_of(one))]
    if call.output.json:
        call.output.envelope("findings", [view.shown(one) for one in found])
        return 0
    rows: list[list[str | Cell]] = [
        [one["id"], Cell(view.label_of(one), STYLES.get(view.label_of(one), "")), one["claim"],
         Cell(_since(view, one), "attention"), Cell(proofs(view, one), "quiet")]
        for one in found
    ]  # fmt: skip
    call.output.table(("#id", "!label", "*claim", "since", "evidence"), rows)
    if not found:
        call.output.note('no findings yet; `onrecord finding state "..."` states one')
    return 0


def _show(call: Call, words: list[str]) -> int:
    (name,) = need(call, words, "FINDING")
    session = call.session()
    view = session.views.findings
    one = _known(session, name)
    if call.output.json:
        call.output.envelope("finding", view.shown(one))
        return 0
    label, since = view.label_of(one), _since(view, one)
    lines = [
        ("finding", name), ("label", f"{label} (was {one['label']}; {since})" if label == STALE else label),
        ("claim", one["claim"]), ("active", "yes" if view.hypothesis == name else ""),
        *(("rests on", f"{anchor_key(anchor)}{_differs(view, anchor)}") for anchor in one["anchors"]),
        *(("evidence", f"{proof['id']} ({proof['how']})") for proof in view.shown(one)["proof"]),
        *(("history", _change(change)) for change in one["history"]),
        *(("challenge", _argued(challenge)) for challenge in one["challenges"]),
    ]  # fmt: skip
    call.output.table((), [[title, text] for title, text in lines if text])
    return 0


def reached(call: Call) -> int:
    """Record that the root cause is verified, or the fix implemented."""
    what = call.positional["WHAT"].replace("-", "_")
    session = call.session()
    event = session.findings.record_milestone(what, finding=call.get("finding"), evidence=call.many("evidence"))
    sentence = "the root cause is verified" if what == "root_cause" else "the fix is implemented"
    data = receipt_data(session.head, event, "recorded") | event.data
    return call.output.done("milestone", data, f"{sentence} (position {event.position} of {session.name})")


def survey(call: Call) -> int:
    """Compare the code that findings depend on with the worktree."""
    from onrecord.work.surveying import survey as look

    session = call.session()
    found = look(session, root_of(session))
    if call.output.json:
        call.output.envelope("survey", found._asdict() | {"state": "recorded" if found.position else "nothing_new"})
        return 0
    view = session.views.findings
    call.output.table(
        ("#id", "!label", "since", "*claim"),
        [[name, STALE, _since(view, view.findings[name]), view.findings[name]["claim"]] for name in found.stale],
    )
    call.output.note(told(found.turned_stale, found.turned_fresh, found.looked_at))
    return 0


def told(stale: list[str], fresh: list[str], looked_at: int) -> str:
    """What a survey found, in a sentence. It never says that code is unchanged, only what was compared."""
    parts = [
        f"{', '.join(names)} {how}" for names, how in ((stale, "turned stale"), (fresh, "no longer stale")) if names
    ]
    return f"compared {counted(looked_at, 'anchor')}; " + ("; ".join(parts) or "no finding changed its label")


def _anchors(call: Call, session: Session) -> list[Anchor]:
    root = root_of(session)
    return [anchored(root, text, Path.cwd()) for text in call.many("on")]


def _known(session: Session, name: str) -> Finding:
    known = session.views.findings.findings
    if name not in known:
        raise NotFound(
            f"session {session.name!r} has no finding {name!r}",
            hint=f"its findings: {', '.join(known)}" if known else 'state one first: `onrecord finding state "..."`',
        )
    return known[name]


def _since(view: Findings, finding: Finding) -> str:
    count = view.files_changed(finding)
    return f"{counted(count, 'file')} changed since" if count else ""


def _differs(view: Findings, anchor: Anchor) -> str:
    now = view.known_at(anchor)
    return " (gone)" if now is None else " (changed since)" if now != anchor["fingerprint"] else ""


def _change(change: Judgement) -> str:
    why = f": {change['why']}" if change.get("why") else ""
    proof = f" [{', '.join(change['evidence'])}]" if change["evidence"] else ""
    return f"{iso(change['at'])} {change['by']} {change['label']}{proof}{why}"


def _argued(challenge: Challenge) -> str:
    outcome = f"{challenge['outcome']}: {challenge.get('why') or ''}" if challenge["outcome"] else "no outcome yet"
    return f"{iso(challenge['at'])} {challenge['by']}: {challenge['argument']} ({outcome})"


def _answer(call: Call, session: Session, event: Event, name: str) -> int:
    state_file.after(call, session)
    view = session.views.findings
    one = view.findings[name]
    for evidence in one["evidence"]:
        if view.how(evidence) == NAMED:
            call.output.note(f"{evidence} is not on record; record it with `onrecord evidence` (run, file or add)")
    data = view.shown(one) | receipt_data(session.head, event, "recorded") | {"finding": name}
    what = event.kind.partition(".")[2]
    return call.output.done(
        "finding", data, f"{name} {what}, {view.label_of(one)} (position {event.position} of {session.name})"
    )


_ACTIONS = {
    "state": _state,
    "relabel": _relabel,
    "challenge": _challenge,
    "uphold": _uphold,
    "pursue": _pursue,
    "list": _list,
    "show": _show,
    "recheck": _recheck,
}
