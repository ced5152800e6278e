"""`session.findings`: claims with a label that evidence earns. A contradiction is added, it never overwrites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput, NotFound
from onrecord.session.chapter import Chapter, checked_text
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.findings import LABELS, NEED_EVIDENCE, STALE, same_claim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.views.values import Anchor, Finding

MILESTONES = ("root_cause", "fix")


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

    def state(
        self, claim: str, label: str = "open", *, evidence: Sequence[str] = (),
        anchors: Sequence[Anchor] = (), because: int | None = None, hypothesis: bool = False,
    ) -> Event:  # fmt: skip
        """State a finding. `verified` and `rejected` need evidence: ids of something inspectable."""
        checked_text(claim, "a finding", TEXT_LIMIT)
        twin = next(
            (one for one in self._session.views.findings.findings.values() if same_claim(one["claim"], claim)), None
        )
        if twin:
            raise InvalidInput(
                f"finding {twin['id']} already says this; it is {twin['label']}",
                hint=f"relabel or challenge {twin['id']} instead",
                step="same_finding",
                finding=twin["id"],
            )
        data = {"claim": claim, **_labelled(label, evidence, because)}
        data |= {"anchors": list(anchors), "hypothesis": True} if hypothesis else {"anchors": list(anchors)}
        return self._session._record("finding.stated", data, because=because)

    def relabel(
        self, finding: str, label: str, *, evidence: Sequence[str] = (), why: str | None = None,
        anchors: Sequence[Anchor] = (), because: int | None = None,
    ) -> Event:  # fmt: skip
        """Give a finding another label, or confirm the same one; its history keeps earlier labels."""
        judged = _labelled(label, evidence, because)
        known = _find(self._session, finding)
        data = {"finding": known["id"], "why": why, **judged}
        fresh = [one for one in data["evidence"] if one not in known["evidence"]]
        if known["label"] == "rejected" and label != "rejected" and not fresh:
            raise InvalidInput(
                f"{known['id']} was rejected; reopening it needs new evidence",
                hint="record new evidence and pass its id",
                step="capture_evidence",
            )
        if (
            label in NEED_EVIDENCE
            and self._session.views.findings.label_of(known) == STALE
            and not fresh
            and because is None
        ):
            raise InvalidInput(
                f"{known['id']} is stale: the code changed after its evidence was recorded",
                hint="record new evidence and pass its id",
                step="recheck_finding",
                finding=known["id"],
            )
        return self._session._record("finding.relabelled", data | {"anchors": list(anchors)}, because=because)

    def challenge(
        self, finding: str, argument: str, *, evidence: Sequence[str] = (), because: int | None = None
    ) -> Event:
        """Contradict a finding. Both sides stay on record; relabelling or upholding it is the outcome."""
        known = _find(self._session, finding)
        checked_text(argument, "a challenge", TEXT_LIMIT)
        data = {"finding": known["id"], "argument": argument, "evidence": _named(evidence)}
        return self._session._record("finding.challenged", data, because=because)

    def uphold(self, finding: str, why: str, *, evidence: Sequence[str] = ()) -> Event:
        """Confirm the label of a challenged finding."""
        known = _find(self._session, finding)
        if all(challenge["outcome"] for challenge in known["challenges"]):
            raise InvalidInput(f"{known['id']} has no open challenge")
        data = {
            "finding": known["id"],
            "why": checked_text(why, "an outcome", TEXT_LIMIT),
            "evidence": _named(evidence),
        }
        return self._session._record("finding.upheld", data)

    def pursue(self, finding: str) -> Event:
        """Make a finding the active hypothesis."""
        return self._session._record("hypothesis.chosen", {"finding": _find(self._session, finding)["id"]})

    def record_milestone(self, what: str, *, finding: str | None = None, evidence: Sequence[str] = ()) -> Event:
        """Record that the root cause is verified (`root_cause`) or the fix implemented (`fix`)."""
        if what not in MILESTONES:
            raise InvalidInput(f"a milestone must be one of {', '.join(MILESTONES)}, not {what!r}")
        if finding is not None:
            finding = _find(self._session, finding)["id"]
        verified = (
            finding is not None and self._session.views.findings.label_of(_find(self._session, finding)) == "verified"
        )
        if what == "root_cause" and not verified:
            raise InvalidInput(
                "a root cause must be a verified finding", hint="verify the finding first, then pass its id"
            )
        return self._session._record(
            "milestone.reached", {"what": what, "finding": finding, "evidence": _named(evidence)}
        )


def _named(evidence: Sequence[str]) -> list[str]:
    return [evidence] if isinstance(evidence, str) else list(evidence)


def _find(session: Session, finding: str) -> Finding:
    known = session.views.findings.findings.get(finding)
    if known is None:
        raise NotFound(
            f"there is no finding {finding!r}", hint="the session's findings list their ids", step="list_findings"
        )
    return known


def _labelled(label: str, evidence: Sequence[str], because: int | None) -> dict[str, Any]:
    if label not in LABELS:
        raise InvalidInput(f"a finding's label must be one of {', '.join(LABELS)}, not {label!r}")
    named = _named(evidence)
    if label in NEED_EVIDENCE and not named and because is None:
        raise InvalidInput(
            f"a finding can be {label} only with evidence",
            hint="pass evidence=[...] or because=position",
            step="give_evidence",
        )
    return {"label": label, "evidence": named or ([f"position {because}"] if because else [])}
