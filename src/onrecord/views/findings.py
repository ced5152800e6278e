"""Findings: claims with a label, the evidence and the code they rest on, and their whole history.

A finding's number is its rank among the findings of the log, so it comes from the transaction and cannot be given
twice. Two labels are deduced and set by no actor. A finding is *stale* because code it rests on differs from the code
it was last judged on; reverting the code makes it fresh again. A verified cause is *settled* because its fix was
reached afterwards: the code it rests on had to change, so the change does not make it stale.
"""

from __future__ import annotations

from onrecord.views.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from onrecord.log.events import Event
    from onrecord.views.values import Anchor, Evidence, Finding, Fix, Judgement, Revision, ShownFinding, Stamp

LABELS = ("verified", "rejected", "open", "blocked")
STALE, SETTLED = "stale", "settled"
NEED_EVIDENCE = ("verified", "rejected")
STALENESS_KEPT = 50
"""How many changes between fresh, stale and settled a finding keeps: the newest; the log has them all."""
NAMES_SHOWN = 3
"""How many changed places are named before the rest is counted."""
_POSITION = "position "
_NEGATIONS = {
    "not": "", "no": "", "never": "", "cannot": "can", "can't": "can", "won't": "will", "isn't": "is", "aren't": "are",
    "wasn't": "was", "doesn't": "", "don't": "", "didn't": "", "hasn't": "has", "haven't": "have",
}  # fmt: skip
"""What negates a claim, and what is left of the word without the negation."""
PROOFS_SHOWN = 3
"""How much evidence the line of a finding names, the newest."""
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


def without_negation(claim: str) -> tuple[str, bool]:
    """A claim as it reads without `not`, `never` and the like, and whether it is negated."""
    words = claim.casefold().replace("\u2019", "'").strip(" .!").split()
    kept = [_NEGATIONS.get(word, word) for word in words if word not in ("do", "does", "did")]
    # A verb loses its `s` when it is negated: "it leaks", "it does not leak".
    plain = " ".join(word.removesuffix("s") for word in kept if word)
    return plain, sum(word in _NEGATIONS for word in words) % 2 == 1


def short_revision(revision: Revision | None) -> str:
    """A revision as people write it; a `+` says that files differed from it."""
    if not revision or not revision.get("revision"):
        return ""
    return f"{str(revision['revision'])[:7]}{'+' if revision.get('dirty') else ''}"


class Findings(View):
    """Findings by id (`f1`, `f2`, ...), evidence by its own id, and what is known of the code they rest on."""

    KINDS: ClassVar = frozenset(
        {"finding.stated", "finding.relabelled", "finding.challenged", "finding.upheld", "hypothesis.chosen",
         "evidence.recorded", "code.changed", "milestone.reached"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.findings: dict[str, Finding] = {}
        self.evidence: dict[str, Evidence] = {}
        self.hypothesis: str | None = None
        self.code: dict[str, str | None] = {}
        """The last known fingerprint at each anchor that ever changed."""
        self.parts: dict[str, list[str]] = {}
        """Which functions and classes differ at an anchor without a symbol, as the last survey saw it."""
        self.claims: dict[str, list[str]] = {}
        """The findings by their claims without negations."""
        self.cause: str | None = None
        """The finding that was last declared the root cause."""
        self.fixes: dict[str, Fix] = {}
        """The fix of each finding; under an empty name, a fix that waits for its cause to be declared."""

    def labelled(self, label: str) -> list[Finding]:
        """The findings with this label now, in the order they were stated; a stale finding is only `stale`."""
        return [finding for finding in self.findings.values() if self.label_of(finding) == label]

    def by_label(self) -> dict[str, list[Finding]]:
        """All findings by their label now, each list in the order they were stated."""
        found: dict[str, list[Finding]] = {}
        for finding in self.findings.values():
            found.setdefault(self.label_of(finding), []).append(finding)
        return found

    def label_of(self, finding: Finding) -> str:
        """The label to show: `settled` or `stale` if the finding is."""
        if self.is_settled(finding):
            return SETTLED
        judged = finding["label"] in NEED_EVIDENCE
        return STALE if judged and (self.changed_under(finding) or late(finding)) else str(finding["label"])

    def is_settled(self, finding: Finding) -> bool:
        """Whether a finding was verified and then fixed.

        A finding that was verified before its fix is settled as long as code it rests on differs: a revert brings the
        cause back. One that was verified after its fix needs evidence from before it.
        """
        fix = self.fixes.get(finding["id"])
        if fix is None or finding["label"] != "verified":
            return False
        judged = finding["history"][-1]
        if judged["position"] < fix["position"]:
            return bool(judged.get("after_change") or not finding["anchors"] or self.changed_under(finding))
        return any(self.recorded_at(one) < fix["position"] for one in judged["evidence"])

    def recorded_at(self, evidence: str) -> int:
        """The position where an evidence was recorded; for `position N` that event's; 0 if it is only a name."""
        known = self.evidence.get(evidence)
        if known is not None:
            return int(known["position"])
        number = evidence.removeprefix(_POSITION)
        return int(number) if evidence.startswith(_POSITION) and number.isdecimal() else 0

    def held_at(self, finding: Finding) -> Revision | None:
        """The revision that a finding was last judged on: that of its evidence, else that of the worktree then."""
        judged = finding["history"][-1]
        known = [self.evidence[one].get("revision") for one in judged["evidence"] if one in self.evidence]
        return next((one for one in reversed(known) if one), judged.get("revision"))

    def settled_by(self, finding: Finding) -> str:
        """How a settled finding was settled: `verified at 4f2c1a9, fixed by 9a1b03e`."""
        fix = self.fixes[finding["id"]]
        held, fixed = short_revision(self.held_at(finding)), short_revision(fix["revision"])
        named = [self.evidence[one] for one in fix["evidence"] if one in self.evidence]
        commit = next((str(one.get("reference") or "")[:12] for one in named if one["kind"] == "commit"), "")
        uncommitted = fixed.endswith("+") and fixed[:-1] == held.rstrip("+")
        by = commit or (f"changes on {fixed[:-1]}" if uncommitted else fixed)
        return f"verified{f' at {held}' if held else ''}, {f'fixed by {by}' if by else 'then fixed'}"

    def contradicting(self, finding: Finding) -> list[str]:
        """The live findings that this live one excludes: linked by an actor, or its negation about the same code."""
        others = finding["contradicts"] if finding["label"] != "rejected" else []
        return [one for one in others if one in self.findings and self.findings[one]["label"] != "rejected"]

    def contradictions(self) -> list[tuple[str, str]]:
        """Pairs of live findings that exclude each other, until one of them gives way."""
        return [
            (name, other) for name, one in self.findings.items() for other in self.contradicting(one)
            if int(name[1:]) < int(other[1:])
        ]  # fmt: skip

    def changed_under(self, finding: Finding) -> list[str]:
        """The anchors of a finding where the code has changed since it was last judged."""
        return [anchor_key(anchor) for anchor in finding["anchors"] if self.known_at(anchor) != anchor["fingerprint"]]

    def files_changed(self, finding: Finding) -> int:
        """In how many files the code differs from when a finding was last judged."""
        return len({anchor["path"] for anchor in finding["anchors"] if self.known_at(anchor) != anchor["fingerprint"]})

    def what_changed(self, finding: Finding) -> str:
        """Where the code under a finding differs: `auth.py::accept`, or `auth.py (accept, login)` for a whole file."""
        named = []
        for anchor in finding["anchors"]:
            if self.known_at(anchor) == anchor["fingerprint"]:
                continue
            parts = self.parts.get(place_key(anchor)) or ([anchor["within"]] if anchor.get("within") else [])
            within = "gone" if self.known_at(anchor) is None else _listed(parts)
            named.append(f"{anchor_key(anchor)}{f' ({within})' if within else ''}")
        return _listed(named)

    def known_at(self, anchor: Anchor) -> str | None:
        """The fingerprint last seen at an anchor; None when its code was gone."""
        return self.code.get(place_key(anchor), anchor["fingerprint"])

    def how(self, evidence: str) -> str:
        """How an evidence was recorded: `captured` by onrecord, `asserted`, or only `named`."""
        known = self.evidence.get(evidence)
        if known is None:
            return ASSERTED if self.recorded_at(evidence) else NAMED
        return CAPTURED if known.get("captured") else ASSERTED

    def shown(self, finding: Finding) -> ShownFinding:
        """A finding with its present label, and how each evidence was recorded."""
        return {
            **finding, "current": self.label_of(finding), "changed": self.changed_under(finding),
            "files_changed": self.files_changed(finding), "active": self.hypothesis == finding["id"],
            "proof": [{"id": one, "how": self.how(one)} for one in finding["evidence"]],
            "what_changed": self.what_changed(finding), "contradicts": self.contradicting(finding),
            "settled": self.settled_by(finding) if self.is_settled(finding) else None,
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
            self.evidence[data["id"]] = {"kind": "note"} | data | stamp
        elif event.kind == "code.changed":
            parts = data.get("parts", {})
            self.parts = {key: names for key, names in self.parts.items() if key not in data["anchors"]} | parts
            self._look(data["anchors"], stamp)
        elif event.kind == "milestone.reached":
            self._reach(data, stamp)
        elif data["finding"] in self.findings:
            self._judge(event.kind, self.findings[data["finding"]], data, stamp)

    def _state(self, event: Event, said: dict[str, Any], stamp: Stamp) -> None:
        number = f"f{len(self.findings) + 1}"
        label, evidence = said["label"], said.get("evidence", [])
        self._look(_prints(said.get("anchors", [])), stamp)
        self.findings[number] = {
            "id": number, "claim": said["claim"], "because": event.because,
            "history": [_judgement(label, evidence, said, stamp)], "challenges": [], "anchors": said.get("anchors", []),
            "contradicts": [], "staleness": [], "label": label, "evidence": evidence, **stamp,
        }  # fmt: skip
        self._exclude(self.findings[number], said.get("contradicts", []))
        if said.get("hypothesis"):
            self.hypothesis = number

    def _exclude(self, finding: Finding, linked: list[str]) -> None:
        """Link a finding with those that it excludes, on both sides."""
        plain, negated = without_negation(finding["claim"])
        alike = self.claims.setdefault(plain, [])
        keys = {anchor_key(anchor) for anchor in finding["anchors"]}
        for name in (*linked, *alike):
            other = self.findings.get(name)
            if other is None or other is finding or name in finding["contradicts"]:
                continue
            same = {anchor_key(anchor) for anchor in other["anchors"]}
            opposite = without_negation(other["claim"])[1] != negated and (same & keys or not (same or keys))
            if name in linked or opposite:
                finding["contradicts"].append(name)
                other["contradicts"].append(finding["id"])
        if finding["id"] not in alike:
            alike.append(finding["id"])

    def _look(self, prints: dict[str, str | None], stamp: Stamp, judged: Finding | None = None) -> None:
        """Remember the fingerprints that were seen, and which other findings turned stale, settled or fresh by that."""
        differs = {key for key, seen in prints.items() if self.code.get(key, "") != seen}
        resting = [
            finding for finding in self.findings.values()
            if finding is not judged and any(place_key(one) in differs for one in finding["anchors"])
        ] if differs else []  # fmt: skip
        before = [self.label_of(finding) for finding in resting]
        self.code |= prints
        for finding, was in zip(resting, before, strict=True):
            now = self.label_of(finding)
            if now != was:
                finding["staleness"].append({"label": now, "was": was, "what": self.what_changed(finding), **stamp})
                del finding["staleness"][:-STALENESS_KEPT]

    def _reach(self, data: dict[str, Any], stamp: Stamp) -> None:
        named = data.get("finding")
        if data["what"] == "root_cause" and named:
            self.cause = named
            if "" in self.fixes:
                self.fixes.setdefault(named, self.fixes.pop(""))
        elif data["what"] == "fix":
            fix: Fix = {"evidence": data.get("evidence", []), "revision": data.get("revision"), **stamp}
            self.fixes[named or self.cause or ""] = fix

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
            judged = _judgement(data["label"], evidence, data, stamp) | {"why": data.get("why")}
            finding["history"].append(judged)
            finding["label"] = judged["label"]
            self._look(_prints(data.get("anchors") or []), stamp, finding)
            finding["anchors"] = data.get("anchors") or finding["anchors"]
            self._exclude(finding, data.get("contradicts", []))
        for challenge in finding["challenges"]:
            if challenge["outcome"] is None:
                challenge |= {
                    "outcome": outcome, "why": data.get("why"), "proof": evidence, "settled": stamp["position"],
                    "settled_at": stamp["at"], "settled_by": stamp["by"],
                }  # fmt: skip


def late(finding: Finding) -> bool:
    """Whether a finding was judged when its code had already changed after its evidence was captured."""
    return bool(finding["history"] and finding["history"][-1].get("after_change"))


def _prints(anchors: list[Anchor]) -> dict[str, str | None]:
    """The fingerprints that a finding was judged on."""
    return {place_key(anchor): anchor["fingerprint"] for anchor in anchors}


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _judgement(label: str, evidence: list[str], said: dict[str, Any], stamp: Stamp) -> Judgement:
    judged: Any = {"label": label, "evidence": evidence, **stamp}
    found: Judgement = judged | {name: said[name] for name in ("revision", "after_change") if said.get(name)}
    return found


def speaking_for(finding: Finding) -> list[str]:
    """The evidence that the present label was given for; what spoke for another one is in the history."""
    judged = [one for one in finding["history"] if one["label"] == finding["label"]]
    found = dict.fromkeys(evidence for one in judged for evidence in one["evidence"])
    return list(found) or finding["evidence"]


def marked(findings: Findings, evidence: list[str]) -> list[str]:
    """Ids of evidence, with a check mark if onrecord captured it."""
    return [f"{one}✓" if findings.how(one) == CAPTURED else one for one in evidence]


def finding_line(findings: Findings, finding: Finding, label: str = "") -> str:
    """A finding with its evidence, on one line; a stale one says what it was and what changed since.

    `label` is what `label_of` says, from a caller that has asked already.
    """
    marks = marked(findings, speaking_for(finding)[-PROOFS_SHOWN:])
    proof = f" [{', '.join(marks)}]" if marks else ""
    since = ""
    label = label or findings.label_of(finding)
    if label == STALE:
        what = findings.what_changed(finding)
        how = f"{what} changed since" if what else "its evidence is older than the code"
        since = f" (was {finding['label']}; {how})"
    elif label == SETTLED:
        since = f" ({findings.settled_by(finding)})"
    challenged = " (challenged)" if any(one["outcome"] is None for one in finding["challenges"]) else ""
    against = findings.contradicting(finding)
    excluded = f" (contradicts {', '.join(against)})" if against else ""
    return f"{finding['id']}: {finding['claim']}{since}{challenged}{excluded}{proof}"
