"""Findings: claims with a label, the evidence they rest on, and the whole history of both.

A finding's number is its place among the findings of the log, so it comes from the transaction and cannot be given
twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.log.events import Event

LABELS = ("verified", "rejected", "open", "blocked")
NEED_EVIDENCE = ("verified", "rejected")


class Findings(View):
    """Findings by id (`f1`, `f2`, ...), evidence by its own id."""

    KINDS: ClassVar = frozenset({"finding.stated", "finding.relabelled", "evidence.recorded"})

    def __init__(self) -> None:
        self.findings: dict[str, dict[str, Any]] = {}
        self.evidence: dict[str, dict[str, Any]] = {}

    def labelled(self, label: str) -> list[dict[str, Any]]:
        """The findings that have this label now, in the order they were stated."""
        return [finding for finding in self.findings.values() if finding["label"] == label]

    def apply(self, event: Event) -> None:
        data = event.data
        stamp = {"position": event.position, "at": event.at, "by": event.by}
        if event.kind == "finding.stated":
            number = f"f{len(self.findings) + 1}"
            said = data or {"claim": "(erased)", "label": "open"}
            change = {"label": said["label"], "evidence": said.get("evidence", []), **stamp}
            self.findings[number] = {
                "id": number, "claim": said["claim"], "because": event.because, "history": [change], **change
            }  # fmt: skip
        elif event.kind == "finding.relabelled" and data and data.get("finding") in self.findings:
            finding = self.findings[data["finding"]]
            change = {"label": data["label"], "evidence": data.get("evidence", []), "why": data.get("why"), **stamp}
            finding["history"].append(change)
            finding["label"] = change["label"]
            finding["evidence"] = [*finding["evidence"], *change["evidence"]]
        elif event.kind == "evidence.recorded" and data:
            self.evidence[data["id"]] = {**data, **stamp}
