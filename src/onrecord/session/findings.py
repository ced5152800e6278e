"""The verbs of findings and evidence. A label is earned by evidence; contradiction adds, it never overwrites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import IdReused, InvalidInput, NotFound
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.findings import LABELS, NEED_EVIDENCE, STALE, same_claim
from onrecord.views.render import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Event
    from onrecord.session.verbs import Conducted
    from onrecord.views.findings import Finding

EVIDENCE_KINDS = ("run", "file", "log", "trace", "test", "commit", "branch", "url", "position", "tracker")
"""run: a captured command; position: another session's event; tracker: a run id of MLflow or W&B."""
EVIDENCE_OUTPUT_LIMIT = 2_000
"""How many characters of a captured output or excerpt an evidence keeps in the durable tier."""
EVIDENCE_ID_LIMIT = 128
"""The longest id of an evidence, in characters."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
MILESTONES = ("root_cause", "fix")


class FindingVerbs:
    """State, judge, challenge; and the evidence all that rests on."""

    def state(
        self: Conducted, claim: str, label: str = "open", *, evidence: Sequence[str] = (),
        anchors: Sequence[dict[str, Any]] = (), because: int | None = None, hypothesis: bool = False,
    ) -> Event:  # fmt: skip
        """State a finding. `verified` and `rejected` need evidence: ids of something inspectable."""
        self.require_text(claim, "a finding", TEXT_LIMIT)
        twin = next((one for one in self.views.findings.findings.values() if same_claim(one["claim"], claim)), None)
        if twin:
            raise InvalidInput(
                f"finding {twin['id']} already says this; it is {twin['label']}",
                hint=f"relabel or challenge {twin['id']} instead",
                step="same_finding",
                finding=twin["id"],
            )
        data = {"claim": claim, **_labelled(label, evidence, because)}
        data |= {"anchors": list(anchors), "hypothesis": True} if hypothesis else {"anchors": list(anchors)}
        return self.record("finding.stated", data, because=because)

    def relabel(
        self: Conducted, finding: str, label: str, *, evidence: Sequence[str] = (), why: str | None = None,
        anchors: Sequence[dict[str, Any]] = (), because: int | None = None,
    ) -> Event:  # fmt: skip
        """Give a finding another label, or the same one anew; its history keeps what was before."""
        judged = _labelled(label, evidence, because)
        known = _find(self, finding)
        data = {"finding": known["id"], "why": why, **judged}
        fresh = [one for one in data["evidence"] if one not in known["evidence"]]
        if known["label"] == "rejected" and label != "rejected" and not fresh:
            raise InvalidInput(
                f"{known['id']} was rejected; reopening it needs new evidence",
                hint="record new evidence and pass its id",
                step="capture_evidence",
            )
        if label in NEED_EVIDENCE and self.views.findings.label_of(known) == STALE and not fresh and because is None:
            raise InvalidInput(
                f"{known['id']} is stale: the code changed after its evidence was recorded",
                hint="record new evidence and pass its id",
                step="recheck_finding",
                finding=known["id"],
            )
        return self.record("finding.relabelled", data | {"anchors": list(anchors)}, because=because)

    def challenge(
        self: Conducted, finding: str, argument: str, *, evidence: Sequence[str] = (), because: int | None = None
    ) -> Event:
        """Contradict a finding. Both sides stay on record; relabelling or upholding it is the outcome."""
        known = _find(self, finding)
        self.require_text(argument, "a challenge", TEXT_LIMIT)
        data = {"finding": known["id"], "argument": argument, "evidence": _named(evidence)}
        return self.record("finding.challenged", data, because=because)

    def uphold(self: Conducted, finding: str, why: str, *, evidence: Sequence[str] = ()) -> Event:
        """Let a challenged finding keep its label."""
        known = _find(self, finding)
        if all(challenge["outcome"] for challenge in known["challenges"]):
            raise InvalidInput(f"nobody has challenged {known['id']}")
        data = {
            "finding": known["id"],
            "why": self.require_text(why, "an outcome", TEXT_LIMIT),
            "evidence": _named(evidence),
        }
        return self.record("finding.upheld", data)

    def pursue(self: Conducted, finding: str) -> Event:
        """Make a finding the active hypothesis."""
        return self.record("hypothesis.chosen", {"finding": _find(self, finding)["id"]})

    def reach(self: Conducted, what: str, *, finding: str | None = None, evidence: Sequence[str] = ()) -> Event:
        """Say that the root cause is verified (`root_cause`) or the fix implemented (`fix`): two different things."""
        if what not in MILESTONES:
            raise InvalidInput(f"a milestone must be one of {', '.join(MILESTONES)}, not {what!r}")
        if finding is not None:
            finding = _find(self, finding)["id"]
        verified = finding is not None and self.views.findings.label_of(_find(self, finding)) == "verified"
        if what == "root_cause" and not verified:
            raise InvalidInput(
                "a root cause must be a verified finding", hint="verify the finding first, then pass its id"
            )
        return self.record("milestone.reached", {"what": what, "finding": finding, "evidence": _named(evidence)})

    def record_evidence(
        self: Conducted, /, kind: str, *, id: str | None = None, captured: bool = False, **about: Any
    ) -> Event:
        """Record something inspectable. `captured` is for what onrecord saw itself; the rest is asserted."""
        if kind not in EVIDENCE_KINDS:
            raise InvalidInput(f"the kind of evidence must be one of {', '.join(EVIDENCE_KINDS)}, not {kind!r}")
        about |= {"kind": kind, "captured": captured}
        if id is not None:
            return _record_evidence(self, check_evidence_id(id), about)
        day = iso(int(self.clock() * 1e6)).partition("T")[0]
        for suffix in _suffixes():
            made = f"{kind}-{day}-{suffix}"
            if made in self.views.findings.evidence:
                continue
            try:
                return _record_evidence(self, made, about)
            except IdReused:
                continue  # another process took this letter in the same moment
        raise InvalidInput("today's evidence ids are used up", hint="choose an id yourself")


def check_evidence_id(id: str) -> str:
    """The id if one can write it in a sentence."""
    if not id or len(id) > EVIDENCE_ID_LIMIT or not id.isprintable() or any(letter.isspace() for letter in id):
        raise InvalidInput(f"{id!r} is not a valid evidence id", hint="use an id like run-2026-05-18-a")
    return id


def _record_evidence(session: Conducted, id: str, about: dict[str, Any]) -> Event:
    for text in ("output", "excerpt"):
        if isinstance(about.get(text), str):
            about[text] = ends_of(about[text], EVIDENCE_OUTPUT_LIMIT)
    return session.record("evidence.recorded", {"id": id, **about}, id=f"evidence/{id}")


def ends_of(text: str, limit: int) -> str:
    """The beginning and, above all, the end of a text, within a limit."""
    if len(text) <= limit:
        return text
    mark = "\n… (left out) …\n"
    first = limit // 4
    return text[:first] + mark + text[-(limit - first - len(mark)) :]


def _named(evidence: Sequence[str]) -> list[str]:
    return [evidence] if isinstance(evidence, str) else list(evidence)


def _suffixes() -> list[str]:
    return [*_LETTERS, *(first + second for first in _LETTERS for second in _LETTERS)]


def _find(session: Conducted, finding: str) -> Finding:
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
