"""Findings: state, judge, challenge, pursue, recheck; milestones; and the survey of the code they depend on."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.errors import NotFound
from onrecord.session.evidence import cited
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.place import act, look_at_code, need, option, root_of, seconds
from onrecord.surfaces.cli.shared.shapes import receipt_data
from onrecord.surfaces.cli.work import state_file
from onrecord.views.claims import steps_of
from onrecord.views.findings import LABELS, NAMED, NEED_EVIDENCE, SETTLED, STALE, anchor_key, finding_line, marked
from onrecord.views.render import visible
from onrecord.work.anchors import anchored, reanchored
from onrecord.work.revisions import revision_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.findings import Findings
    from onrecord.views.values import Anchor, ClaimStep, Finding
    from onrecord.work.capturing import Recheck

STYLES = {"rejected": "bad", "verified": "good", SETTLED: "good", STALE: "attention", "blocked": "attention"}


def finding(call: Call) -> int:
    """State, relabel, challenge, uphold, pursue, list, show or recheck."""
    return act(call, _ACTIONS, "list")


def proofs(view: Findings, finding: Finding) -> str:
    """The evidence of a finding in one line, each with how it was recorded."""
    return ", ".join(
        f"{one} ({'not on record' if view.how(one) == NAMED else view.how(one)})" for one in finding["evidence"]
    )


def _state(call: Call, words: list[str]) -> int:
    (claim,) = need(call, words, "CLAIM")
    claim = sys.stdin.read().rstrip("\n") if claim == "-" else claim
    session = call.session()
    evidence, anchors = cited(session, call.many("evidence")), _anchors(call, session)
    event = session.findings.state(
        claim, call.get("label") or "open", evidence=evidence, anchors=anchors,
        because=call.number("because"), hypothesis="hypothesis" in call, contradicts=call.many("contradicts"),
        revision=revision_of(root_of(session)), after_change=_is_late(call, session, evidence, anchors),
    )  # fmt: skip
    made = next(one for one in session.views.findings.findings.values() if one["position"] == event.position)
    _point_at_same_code(call, session, made)
    return _answer(call, session, event, made["id"])


def _relabel(call: Call, words: list[str]) -> int:
    name, label = need(call, words, "FINDING", "LABEL")
    if label not in LABELS:
        raise UsageError(f"a label must be one of {', '.join(LABELS)}, not {label!r}")
    session = call.session()
    _known(session, name)
    look_at_code(call, session)
    known = _known(session, name)
    # A new judgement is about the code as it is now.
    anchors = _anchors(call, session) or reanchored(root_of(session), known["anchors"])
    evidence = cited(session, call.many("evidence"))
    event = session.findings.relabel(
        name, label, evidence=evidence, why=call.get("why"), anchors=anchors, because=call.number("because"),
        contradicts=call.many("contradicts"), revision=revision_of(root_of(session)),
        after_change=label in NEED_EVIDENCE and _is_late(call, session, evidence, anchors),
    )  # fmt: skip
    return _answer(call, session, event, name)


def _is_late(call: Call, session: Session, evidence: list[str], anchors: list[Anchor]) -> bool:
    """Whether the code has changed since its evidence was captured; only `verified` and `rejected` depend on that."""
    from onrecord.work.capturing import is_outdated

    if call.words[0] == "state" and call.get("label") not in NEED_EVIDENCE:
        return False
    late = is_outdated(session, evidence, anchors, root=root_of(session))
    if late:
        call.output.note(f"the code has changed since {', '.join(evidence)}; the finding is about the code before that")
    return late


def _point_at_same_code(call: Call, session: Session, made: Finding) -> None:
    """Only an actor knows whether two findings about the same code exclude each other."""
    view = session.views.findings
    keys, excluded = {anchor_key(anchor) for anchor in made["anchors"]}, view.contradicting(made)
    for other in view.findings.values():
        shared = sorted(keys & {anchor_key(anchor) for anchor in other["anchors"]})
        if shared and other is not made and other["label"] != "rejected" and other["id"] not in excluded:
            call.output.note(
                f"{other['id']} rests on {shared[0]} too: {other['claim']}; if they exclude each other: "
                f"`onrecord finding relabel {made['id']} {made['label']} --contradicts {other['id']}`"
            )


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

    def agree(argv: list[str], cwd: Path) -> bool:
        told = f"This command came from another store: {shlex.join(argv)} (in {cwd}). Run it here?"
        call.confirm(visible(told))
        return True

    found = recheck(session, name, root=root, timeout=limit, show=not call.output.json, agree=agree)
    show_rest(found.again.ran)
    known = session.views.findings.findings[name]
    applied = _applied(session, name, found, root) if "apply" in call else None
    state_file.after(call, session)
    data = {
        "finding": name, "label": known["label"], "proposed": found.proposed, "agrees": found.agrees, "why": found.why,
        "evidence": found.again.evidence, "rechecked": found.before, "applied": applied,
        "position": found.again.position, "exit_code": found.again.ran.exit_code, "error": found.again.error,
        "fixed": found.fixed,
    }  # fmt: skip
    done = f"{name} is now {found.proposed}" if applied else f"{name} should be {found.proposed} (`--apply` sets it)"
    if found.proposed == SETTLED:
        more = "; the fix has this evidence too" if applied else ""
        return call.output.done("recheck", data, f"{name} is settled; {found.why}{more}")
    return call.output.done("recheck", data, f"{done}: {found.why}")


def _applied(session: Session, name: str, found: Recheck, root: Path) -> int | None:
    """The position of what follows from a recheck: another label, or more evidence for the fix of a settled cause."""
    evidence, revision = [found.again.evidence], revision_of(root)
    if found.proposed == SETTLED:
        if found.fixed is None:
            return None
        fix = session.views.findings.fixes[name]["evidence"]
        return session.findings.record_milestone(
            "fix", finding=name, evidence=[*fix, *evidence], revision=revision
        ).position  # fmt: skip
    anchors = reanchored(root, session.views.findings.findings[name]["anchors"])
    return session.findings.relabel(
        name, found.proposed, evidence=evidence, why=found.why, anchors=anchors, revision=revision
    ).position  # fmt: skip


def _list(call: Call, words: list[str]) -> int:
    need(call, words)
    session = call.session()
    look_at_code(call, session)
    view = session.views.findings
    label = call.get("label")
    found = [one for one in view.findings.values() if label in (None, one["label"], view.label_of(one))]
    if call.output.json:
        call.output.envelope("findings", [view.shown(one) for one in found])
        return 0

    def proof(one: Finding) -> str:
        return ", ".join(marked(view, one["evidence"])) if call.output.terminal else proofs(view, one)

    rows: list[list[str | Cell]] = [
        [one["id"], Cell(view.label_of(one), STYLES.get(view.label_of(one), "")), one["claim"],
         Cell(_since(view, one), "attention"), Cell(proof(one), "quiet")]
        for one in found
    ]  # fmt: skip
    call.output.table(("#id", "!label", "*claim", "since", "~evidence"), rows)
    for one, other in view.contradictions():
        both = "; ".join(finding_line(view, view.findings[name]) for name in (one, other))
        call.output.note(f"{one} and {other} exclude each other until one gives way: {both}")
    if not found:
        call.output.note('no findings yet; `onrecord finding state "..."` states one')
    return 0


def _show(call: Call, words: list[str]) -> int:
    (name,) = need(call, words, "FINDING")
    session = call.session()
    look_at_code(call, session)
    view = session.views.findings
    one = _known(session, name)
    if call.output.json:
        call.output.envelope("finding", {**view.shown(one), "steps": steps_of(view, one)})
        return 0
    label, since = view.label_of(one), _since(view, one)
    lines = [
        ("finding", name), ("label", _labelled(label, one["label"], since)),
        ("claim", one["claim"]), ("contradicts", ", ".join(view.contradicting(one))),
        ("active", "yes" if view.hypothesis == name else ""),
        *(("rests on", f"{anchor_key(anchor)}{_differs(view, anchor)}") for anchor in one["anchors"]),
        *(("evidence", f"{proof['id']} ({proof['how']})") for proof in view.shown(one)["proof"]),
        *(("history", _told(call, step)) for step in steps_of(view, one)),
    ]  # fmt: skip
    call.output.table((), [[title, text] for title, text in lines if text])
    return 0


def reached(call: Call) -> int:
    """Record that the root cause is verified, or the fix implemented."""
    what = call.positional["WHAT"].replace("-", "_")
    session = call.session()
    look_at_code(call, session)
    event = session.findings.record_milestone(
        what, finding=call.get("finding"), evidence=call.many("evidence"), revision=revision_of(root_of(session))
    )
    state_file.after(call, session)
    sentence = "the root cause is verified" if what == "root_cause" else "the fix is implemented"
    data = receipt_data(session.head, event, "recorded") | event.data
    view = session.views.findings
    cause = view.findings.get(event.data["finding"] or "")
    if cause and view.is_settled(cause):
        data["settled"] = view.settled_by(cause)
        sentence += f"; {cause['id']} is settled: {data['settled']}"
    elif cause is None and (stale := [one["id"] for one in view.labelled(STALE) if one["label"] == "verified"]):
        declare = f"onrecord reached root-cause --finding {stale[-1]} --session {session.name}"
        call.output.note(f"which finding was the cause is not on record; if it was {stale[-1]}: `{declare}`")
    return call.output.done("milestone", data, f"{sentence} (position {event.position} of {session.name})")


def survey(call: Call) -> int:
    """Compare the code that findings depend on with the worktree."""
    from onrecord.work.surveying import survey as look

    session = call.session()
    found = look(session, root_of(session))
    state_file.after(call, session)
    if call.output.json:
        call.output.envelope("survey", found._asdict() | {"state": "recorded" if found.position else "nothing_new"})
        return 0
    view = session.views.findings
    call.output.table(
        ("#id", "!label", "since", "*claim"),
        [[name, STALE, _since(view, view.findings[name]), view.findings[name]["claim"]] for name in found.stale],
    )
    call.output.note(told(found.turned_stale, found.turned_fresh, found.looked_at, found.turned_settled))
    return 0


def told(stale: list[str], fresh: list[str], looked_at: int, settled: Sequence[str] = ()) -> str:
    """What a survey found, in a sentence. It never says that code is unchanged, only what was compared."""
    kinds = ((stale, "turned stale"), (fresh, "no longer stale"), (settled, "settled"))
    parts = [f"{', '.join(names)} {how}" for names, how in kinds if names]
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
    if view.is_settled(finding):
        return view.settled_by(finding)
    changed = view.what_changed(finding)
    older = "its evidence is older than the code" if view.label_of(finding) == STALE else ""
    return f"{changed} changed since" if changed else older


def _labelled(label: str, judged: str, since: str) -> str:
    if label == STALE:
        return f"{label} (was {judged}; {since})"
    return f"{label} ({since})" if label == SETTLED else label


def _differs(view: Findings, anchor: Anchor) -> str:
    now = view.known_at(anchor)
    return " (gone)" if now is None else " (changed since)" if now != anchor["fingerprint"] else ""


def _told(call: Call, step: ClaimStep) -> str:
    why = f": {step['why']}" if step["why"] else ""
    proof = f" [{', '.join(step['evidence'])}]" if step["evidence"] else ""
    return f"{call.when(step['at'])} {step['by']} {step['what']}{proof}{why}"


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
