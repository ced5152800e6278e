"""`session.findings`: claims with a label that evidence earns. A contradiction is added, it never overwrites.

What is cited is on record already, and a label changes only by evidence that did not speak for it before. These rules
are checked here, at the door: the id of a judgement names the one before it, so that of two judgements at once the
second is checked again after the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, IdReused, InvalidInput, NotFound
from onrecord.session.chapter import Chapter, checked_text
from onrecord.session.evidence import cited, observed
from onrecord.views.attempts import FAILED, INTERRUPTED
from onrecord.views.claims import steps_of
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.findings import LABELS, NEED_EVIDENCE, SETTLED, STALE, anchor_key, late, same_claim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.views.values import Anchor, ClaimStep, Finding, Revision

MILESTONES = ("root_cause", "fix")
_TRIES = 100


class FindingVerbs(Chapter):
    """State findings, judge them, challenge them; read them with their present labels."""

    __slots__ = ()

    def get(self, finding: str) -> Finding:
        """The finding with this id (`f1`); `NotFound` if there is none."""
        return _find(self._session, finding)

    def all(self) -> list[Finding]:
        """Every finding, in the order they were stated."""
        return list(self._session.views.findings.findings.values())

    def label_of(self, finding: str) -> str:
        """The label a reader should go by: `stale` when the code a finding rests on has changed since."""
        return self._session.views.findings.label_of(_find(self._session, finding))

    def history(self, finding: str) -> list[ClaimStep]:
        """Everything that happened to a finding, each step with its evidence; code changes and the fix included."""
        return steps_of(self._session.views.findings, _find(self._session, finding))

    def state(
        self, claim: str, label: str = "open", *, evidence: Sequence[str] = (),
        anchors: Sequence[Anchor] = (), because: int | None = None, hypothesis: bool = False,
        contradicts: Sequence[str] = (), revision: Revision | None = None, after_change: bool = False,
        id: str | None = None,
    ) -> Event:  # fmt: skip
        """State a finding. `verified` and `rejected` need evidence that is on record.

        `contradicts` names findings that this one excludes; `revision` is the state of the code now; `after_change`
        says that the code has changed since the evidence was captured: the finding is stale until its fix settles it.
        """
        checked_text(claim, "a finding", TEXT_LIMIT)
        findings = self._session.views.findings.findings
        twin = next((one for one in findings.values() if same_claim(one["claim"], claim)), None)
        if twin:
            raise InvalidInput(
                f"finding {twin['id']} already says this; it is {twin['label']}",
                hint=f"relabel or challenge {twin['id']} instead",
                step="same_finding",
                finding=twin["id"],
            )
        data = {"claim": claim, **_labelled(self._session, label, evidence, because), "anchors": list(anchors)}
        data |= _more(self._session, contradicts, revision) | ({"hypothesis": True} if hypothesis else {})
        data |= {"after_change": True} if after_change else {}
        return self._session._record("finding.stated", data, id=id, because=because)

    def relabel(
        self, finding: str, label: str, *, evidence: Sequence[str] = (), why: str | None = None,
        anchors: Sequence[Anchor] = (), because: int | None = None, contradicts: Sequence[str] = (),
        revision: Revision | None = None, after_change: bool = False,
    ) -> Event:  # fmt: skip
        """Give a finding another label, or confirm the same one; its history keeps earlier labels.

        A label that says more or less than before needs evidence that was not cited for an earlier label; a rejected
        finding needs evidence that was recorded after it was rejected.
        """
        for _try in range(_TRIES):
            judged = _labelled(self._session, label, evidence, because)
            known = _find(self._session, finding)
            data = {"finding": known["id"], "why": why, **judged}
            _refuse_old_evidence(self._session, known, label, data["evidence"], anchors)
            data |= {"anchors": list(anchors), **_more(self._session, contradicts, revision)}
            data |= {"after_change": True} if after_change else {}
            id = f"finding/{known['id']}/judged-after/{known['history'][-1]['position']}"
            try:
                while (event := self._session._record("finding.relabelled", data, id=id, because=because)).data is None:
                    id += "/again"  # the judgement that had this id was erased
            except IdReused:
                continue  # another process judged it in the same moment: check again
            return event
        raise Conflict(f"too many judgements of {finding} at the same time", hint="try again")

    def challenge(
        self, finding: str, argument: str, *, evidence: Sequence[str] = (), because: int | None = None
    ) -> Event:
        """Contradict a finding, with evidence. Both sides stay on record; a new label or upholding is the outcome."""
        known = _find(self._session, finding)
        checked_text(argument, "a challenge", TEXT_LIMIT)
        proof = _proof(self._session, evidence, because)
        if not proof:
            raise _without_evidence("a finding can be challenged only with evidence", because)
        data = {"finding": known["id"], "argument": argument, "evidence": proof}
        return self._session._record("finding.challenged", data, because=because)

    def uphold(self, finding: str, why: str, *, evidence: Sequence[str] = ()) -> Event:
        """Confirm the label of a challenged finding."""
        known = _find(self._session, finding)
        if all(challenge["outcome"] for challenge in known["challenges"]):
            raise InvalidInput(f"{known['id']} has no open challenge")
        data = {
            "finding": known["id"],
            "why": checked_text(why, "an outcome", TEXT_LIMIT),
            "evidence": cited(self._session, evidence),
        }
        return self._session._record("finding.upheld", data)

    def pursue(self, finding: str) -> Event:
        """Make a finding the active hypothesis."""
        return self._session._record("hypothesis.chosen", {"finding": _find(self._session, finding)["id"]})

    def record_milestone(
        self, what: str, *, finding: str | None = None, evidence: Sequence[str] = (), revision: Revision | None = None
    ) -> Event:
        """Record that the root cause is verified (`root_cause`), or the fix implemented (`fix`, with evidence).

        A fix settles the finding it names, else the root cause: that finding was verified, and the code it rests on
        had to change.
        """
        if what not in MILESTONES:
            raise InvalidInput(f"a milestone must be one of {', '.join(MILESTONES)}, not {what!r}")
        findings = self._session.views.findings
        if finding is not None:
            finding = _find(self._session, finding)["id"]
        elif what == "fix":
            finding = findings.cause
        if what == "root_cause":
            _refuse_unverified(self._session, finding)
        proof = cited(self._session, evidence)
        if what == "fix" and not proof:
            raise _without_evidence("a fix is reached only with evidence that it works")
        if what == "fix":
            _refuse_unfixed(self._session, finding, proof)
        data = {"what": what, "finding": finding, "evidence": proof}
        return self._session._record("milestone.reached", data | _at(revision))


def _refuse_unverified(session: Session, finding: str | None) -> None:
    """A root cause is verified. One whose fix is on record already is one too, with evidence from before the fix."""
    findings = session.views.findings
    known = _find(session, finding) if finding else None
    if known and findings.label_of(known) in ("verified", SETTLED):
        return
    if known and known["label"] == "verified" and late(known):
        return
    waiting = findings.fixes.get("")
    if known and known["label"] == "verified" and waiting and known["history"][-1]["position"] < waiting["position"]:
        _refuse_unfixed(session, known["id"], waiting["evidence"])
        return
    verified = [one["id"] for one in findings.findings.values() if findings.label_of(one) == "verified"]
    if known is None and verified:
        raise InvalidInput(
            "the finding that is the root cause is not named",
            hint="pass the id of a verified finding",
            step="name_cause",
            finding=verified[-1],
        )
    raise InvalidInput(
        "a root cause must be a verified finding",
        hint="verify the finding first, then pass its id",
        step="verify_cause",
        finding=finding or "f1",
    )


def _refuse_unfixed(session: Session, cause: str | None, proof: list[str]) -> None:
    """A fix is not shown by what verified its cause, by the same command with the same failure, or by a failed run."""
    known = session.views.findings.findings.get(cause or "")
    spoken = {one for judged in known["history"] for one in judged["evidence"]} if known else set()
    failed = {one.get("evidence") for one in session.views.attempts.all() if one["status"] in (FAILED, INTERRUPTED)}
    results = {result for one in spoken if (result := _failure(session, one))}
    if all(one in spoken or one in failed or _failure(session, one) in results for one in proof):
        raise InvalidInput(
            f"{', '.join(proof)} {'do' if len(proof) > 1 else 'does'} not show that the fix works: "
            "it verified the cause, or failed",
            hint="record a run that shows the fix, and pass its id",
            step="capture_evidence",
        )


def _failure(session: Session, evidence: str) -> tuple[str, int] | None:
    """A captured command and the code with which it failed."""
    known: Any = session.views.findings.evidence.get(evidence) or {}
    command, code = known.get("command"), known.get("exit_code")
    return (command, code) if known.get("captured") and command and code else None


def _refuse_old_evidence(
    session: Session, known: Finding, label: str, evidence: list[str], anchors: Sequence[Anchor]
) -> None:
    """A label changes by new evidence only, and so does the code that a judgement is about."""
    view = session.views.findings
    spoken = {one for judged in known["history"] for one in judged["evidence"]}
    spoken |= {one for challenge in known["challenges"] for one in challenge.get("proof", ())}
    fresh = [one for one in evidence if one not in spoken]
    was = known["label"]
    if was == "rejected" and label != was:
        rejected = next(one["position"] for one in reversed(known["history"]) if one["label"] == was)
        if not any(view.recorded_at(one) > rejected for one in fresh):
            raise InvalidInput(
                f"{known['id']} was rejected; reopening it needs new evidence, recorded after that",
                hint="record new evidence and pass its id",
                step="capture_evidence",
            )
    elif label != was and (label in NEED_EVIDENCE or was in NEED_EVIDENCE) and not fresh:
        raise InvalidInput(
            f"{known['id']} is {was}; calling it {label} needs new evidence, not what was cited for it before",
            hint="record new evidence and pass its id",
            step="capture_evidence",
        )
    elif label in NEED_EVIDENCE and not fresh and (view.label_of(known) == STALE or _moved(known, anchors)):
        raise InvalidInput(
            f"{known['id']} is stale: the code changed after its evidence was recorded",
            hint="record new evidence and pass its id",
            step="recheck_finding",
            finding=known["id"],
        )


def _moved(known: Finding, anchors: Sequence[Anchor]) -> bool:
    """Whether the same code has other fingerprints now than when the finding was judged."""
    before = {anchor_key(anchor): anchor["fingerprint"] for anchor in known["anchors"]}
    return any(before.get(anchor_key(anchor), anchor["fingerprint"]) != anchor["fingerprint"] for anchor in anchors)


def _find(session: Session, finding: str | None) -> Finding:
    known = session.views.findings.findings.get(finding or "")
    if known is None:
        raise NotFound(
            f"there is no finding {finding!r}", hint="the session's findings list their ids", step="list_findings"
        )
    return known


def _proof(session: Session, evidence: Sequence[str], because: int | None) -> list[str]:
    """What a step rests on: the evidence that is cited, else the event that led to it, if that is evidence."""
    return cited(session, evidence) or (observed(session, because) if because is not None else [])


def _labelled(session: Session, label: str, evidence: Sequence[str], because: int | None) -> dict[str, Any]:
    if label not in LABELS:
        raise InvalidInput(f"a finding's label must be one of {', '.join(LABELS)}, not {label!r}")
    proof = _proof(session, evidence, because)
    if label in NEED_EVIDENCE and not proof:
        raise _without_evidence(f"a finding can be {label} only with evidence", because)
    return {"label": label, "evidence": proof}


def _without_evidence(message: str, because: int | None = None) -> InvalidInput:
    if because is not None:
        message += f"; the event at position {because} does not say what was seen"
    return InvalidInput(message, hint="pass evidence=[...] or because=position", step="give_evidence")


def _more(session: Session, contradicts: Sequence[str], revision: Revision | None) -> dict[str, Any]:
    named = [contradicts] if isinstance(contradicts, str) else list(contradicts)
    linked = [_find(session, one)["id"] for one in named]
    return ({"contradicts": linked} if linked else {}) | _at(revision)


def _at(revision: Revision | None) -> dict[str, Any]:
    """The revision in a payload, without the list of files that differ from it."""
    names = ("revision", "branch", "dirty")
    return {"revision": {name: revision.get(name) for name in names}} if revision else {}
