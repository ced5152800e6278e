"""Findings: claims with a label, the evidence and the code they rest on, and their whole history.

A finding's number is its rank among the findings of the log, so it comes from the transaction and cannot be given
twice. No actor sets the label `stale`: a finding is stale because code it rests on differs from the code it was last
judged on. Reverting the code makes it fresh again.
"""

from __future__ import annotations

from onrecord.views.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from onrecord.log.events import Event
    from onrecord.views.values import Anchor, Evidence, Finding, Judgement, ShownFinding, Stamp

LABELS = ("verified", "rejected", "open", "blocked")
STALE = "stale"
NEED_EVIDENCE = ("verified", "rejected")
CAPTURED, ASSERTED, NAMED = "captured", "asserted", "named"
"""Evidence that onrecord captured itself, that was only asserted, and that is only a name."""


def anchor_key(anchor: Anchor) -> str:
    """How an anchor is written: `path`, `path:10-20` or `path::Class.method`."""
    if anchor.get("symbol"):
        return f"{anchor['path']}::{anchor['symbol']}"
    if lines := anchor.get("lines"):
        return f"{anchor['path']}:{lines[0]}-{lines[1]}"
    return str(anchor["path"])


def place_key(anchor: Anchor) -> str:
    """The key of an anchor's present fingerprint.

    Lines are recognised after they moved, so their key includes their content.
    """
    return f"{anchor_key(anchor)}@{anchor['fingerprint']}" if anchor.get("lines") else anchor_key(anchor)


def subject_of(evidence: Evidence) -> str:
    """What an evidence points at: an anchor in the code, a command that ran, or an external reference."""
    if anchor := evidence.get("anchor"):
        return anchor_key(anchor)
    return str(evidence.get("command") or evidence.get("reference") or "")


def same_claim(one: str, other: str) -> bool:
    """Whether two claims say the same in the same words."""
    return " ".join(one.casefold().split()).rstrip(".") == " ".join(other.casefold().split()).rstrip(".")


class Findings(View):
    """Findings by id (`f1`, `f2`, ...), evidence by its own id, and what is known of the code they rest on."""

    KINDS: ClassVar = frozenset(
        {"finding.stated", "finding.relabelled", "finding.challenged", "finding.upheld", "hypothesis.chosen",
         "evidence.recorded", "code.changed"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.findings: dict[str, Finding] = {}
        self.evidence: dict[str, Evidence] = {}
        self.hypothesis: str | None = None
        self.code: dict[str, str | None] = {}
        """The last known fingerprint at each anchor that ever changed."""

    def labelled(self, label: str) -> list[Finding]:
        """The findings with this label now, in the order they were stated; a stale finding is only `stale`."""
        return [finding for finding in self.findings.values() if self.label_of(finding) == label]

    def label_of(self, finding: Finding) -> str:
        """The label to show: `stale` if the finding is."""
        judged = finding["label"] in NEED_EVIDENCE
        return STALE if judged and self.changed_under(finding) else str(finding["label"])

    def changed_under(self, finding: Finding) -> list[str]:
        """The anchors of a finding where the code has changed since it was last judged."""
        return [anchor_key(anchor) for anchor in finding["anchors"] if self.known_at(anchor) != anchor["fingerprint"]]

    def files_changed(self, finding: Finding) -> int:
        """In how many files the code differs from when a finding was last judged."""
        return len({anchor["path"] for anchor in finding["anchors"] if self.known_at(anchor) != anchor["fingerprint"]})

    def known_at(self, anchor: Anchor) -> str | None:
        """The fingerprint last seen at an anchor; None when its code was gone."""
        return self.code.get(place_key(anchor), anchor["fingerprint"])

    def how(self, evidence: str) -> str:
        """How an evidence was recorded: `captured` by onrecord, `asserted`, or only `named`."""
        known = self.evidence.get(evidence)
        if known is None:
            return NAMED
        return CAPTURED if known.get("captured") else ASSERTED

    def shown(self, finding: Finding) -> ShownFinding:
        """A finding with its present label, and how each evidence was recorded."""
        return {
            **finding, "current": self.label_of(finding), "changed": self.changed_under(finding),
            "files_changed": self.files_changed(finding), "active": self.hypothesis == finding["id"],
            "proof": [{"id": one, "how": self.how(one)} for one in finding["evidence"]],
        }  # fmt: skip

    def resting_on(self, evidence: str) -> list[str]:
        """The findings that rest on an evidence."""
        return [finding["id"] for finding in self.findings.values() if evidence in finding["evidence"]]

    def active(self) -> Finding | None:
        """The hypothesis being worked on, as long as it is open."""
        finding = self.findings.get(self.hypothesis or "")
        return finding if finding and self.label_of(finding) in ("open", "blocked", STALE) else None

    def anchors(self) -> dict[str, Anchor]:
        """Every anchor that any finding rests on, by where it is in the code."""
        return {place_key(anchor): anchor for finding in self.findings.values() for anchor in finding["anchors"]}

    def apply(self, event: Event) -> None:
        data = event.data
        stamp: Stamp = {"position": event.position, "at": event.at, "by": event.by}
        if event.kind == "finding.stated":
            self._state(event, data or {"claim": "(erased)", "label": "open"}, stamp)
        elif data is None:
            return
        elif event.kind == "evidence.recorded":
            self.evidence[data["id"]] = data | stamp
        elif event.kind == "code.changed":
            self.code |= data["anchors"]
        elif data["finding"] in self.findings:
            self._judge(event.kind, self.findings[data["finding"]], data, stamp)

    def _state(self, event: Event, said: dict[str, Any], stamp: Stamp) -> None:
        number = f"f{len(self.findings) + 1}"
        label, evidence = said["label"], said.get("evidence", [])
        self.findings[number] = {
            "id": number, "claim": said["claim"], "because": event.because,
            "history": [_judgement(label, evidence, stamp)], "challenges": [], "anchors": said.get("anchors", []),
            "label": label, "evidence": evidence, **stamp,
        }  # fmt: skip
        self._look(said.get("anchors", []))
        if said.get("hypothesis"):
            self.hypothesis = number

    def _look(self, anchors: list[Anchor]) -> None:
        """Remember the fingerprints that a finding was judged on."""
        self.code |= {place_key(anchor): anchor["fingerprint"] for anchor in anchors}

    def _judge(self, kind: str, finding: Finding, data: dict[str, Any], stamp: Stamp) -> None:
        evidence = data.get("evidence", [])
        if kind == "hypothesis.chosen":
            self.hypothesis = finding["id"]
            return
        finding["evidence"] = [*finding["evidence"], *(one for one in evidence if one not in finding["evidence"])]
        if kind == "finding.challenged":
            challenge: Any = {"argument": data["argument"], "evidence": evidence, "outcome": None} | stamp
            finding["challenges"].append(challenge)
            return
        outcome = "upheld"
        if kind == "finding.relabelled":
            outcome = f"relabelled {data['label']}"
            judged: Judgement = {"label": data["label"], "evidence": evidence, "why": data.get("why"), **stamp}
            finding["history"].append(judged)
            finding["label"] = judged["label"]
            finding["anchors"] = data.get("anchors") or finding["anchors"]
            self._look(data.get("anchors") or [])
        for challenge in finding["challenges"]:
            if challenge["outcome"] is None:
                challenge |= {"outcome": outcome, "settled": stamp["position"], "why": data.get("why")}


def _judgement(label: str, evidence: list[str], stamp: Stamp) -> Judgement:
    return {"label": label, "evidence": evidence, "position": stamp["position"], "at": stamp["at"], "by": stamp["by"]}


def finding_line(findings: Findings, finding: Finding) -> str:
    """A finding with its evidence, on one line; a stale one says what it was and how much changed since."""
    marks = [f"{one}✓" if findings.how(one) == CAPTURED else one for one in finding["evidence"][-3:]]
    proof = f" [{', '.join(marks)}]" if marks else ""
    stale = ""
    if findings.label_of(finding) == STALE:
        count = findings.files_changed(finding)
        stale = f" (was {finding['label']}; {count} {'file' if count == 1 else 'files'} changed since)"
    challenged = " (challenged)" if any(one["outcome"] is None for one in finding["challenges"]) else ""
    return f"{finding['id']}: {finding['claim']}{stale}{challenged}{proof}"
