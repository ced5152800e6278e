"""The survey: has the code that findings rest on changed? Differences become one `code.changed`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.log.head import LIVE
from onrecord.views.findings import STALE, anchor_key
from onrecord.work.anchors import fingerprint

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
    position: int | None
    """The position of the `code.changed`; None if there was nothing new to record."""


def survey(session: Session, root: Path | str) -> Surveyed:
    """Compare every anchor with the worktree, and record what differs from the last known state."""
    root, findings = Path(root), session.views.findings
    anchors = findings.anchors()
    before = _stale(findings)
    changed: dict[str, Any] = {}
    for key, anchor in anchors.items() if root.is_dir() else ():
        now = fingerprint(root, anchor, known=anchor["fingerprint"])
        if now != findings.known_at(anchor):
            changed[key] = now
    position = None
    if changed and session.head.status in LIVE:
        from onrecord.work.revisions import revision_of

        position = session.log.record("code.changed", {"anchors": changed, "revision": revision_of(root)}).position
        findings = session.views.findings
    after = _stale(findings)
    return Surveyed(
        len(anchors), [anchor_key(anchors[key]) for key in changed],
        [finding for finding in after if finding not in before],
        [finding for finding in before if finding not in after], after, position,
    )  # fmt: skip


def _stale(findings: Findings) -> dict[str, int]:
    return {
        finding["id"]: findings.files_changed(finding)
        for finding in findings.findings.values()
        if findings.label_of(finding) == STALE
    }
