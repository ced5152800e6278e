"""The survey: has the code that findings rest on changed? Differences become one `code.changed`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log.head import LIVE
from onrecord.views.findings import SETTLED, STALE, anchor_key
from onrecord.work.anchors import changed_parts, fingerprint

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.views.findings import Findings


class Surveyed(NamedTuple):
    """What a survey found."""

    looked_at: int
    """How many anchors were compared."""
    differing: list[str]
    """Anchors that differ from the last known state, as people write them."""
    turned_stale: list[str]
    turned_fresh: list[str]
    stale: dict[str, int]
    """Every stale finding, and how many of its files changed since it was judged."""
    turned_settled: list[str]
    """Findings that were verified and are fixed now."""
    position: int | None
    """The position of the `code.changed`; None if there was nothing new to record."""


def survey(session: Session, root: Path | str) -> Surveyed:
    """Compare every anchor with the worktree, and record what differs from the last known state."""
    root, findings = Path(root), session.views.findings
    anchors = findings.anchors()
    before, settled = _stale(findings), _settled(findings)
    changed: dict[str, Any] = {}
    parts: dict[str, list[str]] = {}
    for key, anchor in anchors.items() if root.is_dir() else ():
        now = fingerprint(root, anchor, known=anchor["fingerprint"])
        if now != findings.known_at(anchor):
            changed[key] = now
            if names := changed_parts(root, anchor):
                parts[key] = names
    position = None
    if changed and session.head.status in LIVE:
        from onrecord.work.revisions import revision_of

        data = {"anchors": changed, "revision": revision_of(root)} | ({"parts": parts} if parts else {})
        position = session.log.record("code.changed", data).position
        findings = session.views.findings
    after = _stale(findings)
    return Surveyed(
        len(anchors), [anchor_key(anchors[key]) for key in changed],
        [finding for finding in after if finding not in before],
        [finding for finding in before if finding not in after and finding not in _settled(findings)], after,
        [finding for finding in _settled(findings) if finding not in settled], position,
    )  # fmt: skip


def _settled(findings: Findings) -> list[str]:
    return [finding["id"] for finding in findings.labelled(SETTLED)]


def _stale(findings: Findings) -> dict[str, int]:
    return {
        finding["id"]: findings.files_changed(finding)
        for finding in findings.findings.values()
        if findings.label_of(finding) == STALE
    }
