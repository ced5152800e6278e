"""The values of findings and evidence, with their types; `values` has all the others."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from onrecord.log.item_values import Json
from onrecord.views.stamps import Revision, Stamp


class Anchor(TypedDict):
    """A piece of code that a finding rests on, and its fingerprint when it was judged."""

    path: str
    fingerprint: NotRequired[str]
    lines: NotRequired[list[int]]
    """The first and the last line."""
    symbol: NotRequired[str]
    within: NotRequired[str]
    """The function or class around the lines."""
    symbols: NotRequired[dict[str, str]]
    """For a whole Python file: fingerprints of its functions and classes, so that a survey can name what changed."""


class Judgement(Stamp):
    """A label that a finding was given."""

    label: str
    evidence: list[str]
    why: NotRequired[str | None]
    revision: NotRequired[Revision | None]
    """The revision of the worktree then."""
    after_change: NotRequired[bool]
    """The code had already changed after the evidence was captured."""


class Staleness(Stamp):
    """A finding turned stale or settled because code changed, or fresh because the change was reverted."""

    label: str
    was: str
    what: str
    """The code that differs, by name."""


class Fix(Stamp):
    """The fix of a verified cause."""

    evidence: list[str]
    revision: Revision | None


class Challenge(Stamp):
    """An argument against a finding; `outcome` is None while it is open."""

    argument: str
    evidence: list[str]
    outcome: str | None
    settled: NotRequired[int]
    settled_at: NotRequired[int]
    settled_by: NotRequired[str]
    why: NotRequired[str | None]
    proof: NotRequired[list[str]]
    """The evidence of the outcome."""


class Finding(Stamp):
    """A claim, its label, and what it rests on."""

    id: str
    claim: str
    label: str
    evidence: list[str]
    because: int | None
    history: list[Judgement]
    challenges: list[Challenge]
    anchors: list[Anchor]
    contradicts: list[str]
    """Findings that it excludes, whatever their labels are now."""
    staleness: list[Staleness]


class ClaimStep(Stamp):
    """One step in the story of a finding."""

    what: str
    """stated verified, rejected, challenged, upheld, turned stale, fixed, and so on."""
    evidence: list[str]
    why: str | None


class Proof(TypedDict):
    """An evidence id, and whether it was captured, asserted or only named."""

    id: str
    how: str


class ShownFinding(Finding):
    """A finding with what follows from the present code and evidence."""

    current: str
    changed: list[str]
    files_changed: int
    active: bool
    proof: list[Proof]
    what_changed: str
    """The code that differs, by name."""
    settled: str | None
    """How it was settled; None if it is not."""


class Evidence(Stamp):
    """Something inspectable. Which of the further fields it has depends on its kind."""

    id: str
    kind: str
    captured: NotRequired[bool]
    command: NotRequired[Json]
    exit_code: NotRequired[int]
    output: NotRequired[str | None]
    excerpt: NotRequired[str | None]
    error: NotRequired[str | None]
    revision: NotRequired[Revision | None]
    reference: NotRequired[str | None]
    text: NotRequired[str | None]
    path: NotRequired[str | None]
    url: NotRequired[str | None]
    ref: NotRequired[str | None]
    anchor: NotRequired[Anchor | None]
    argv: NotRequired[list[str]]
    cwd: NotRequired[str]
    seconds: NotRequired[float]
    started_at: NotRequired[int]
    ended_at: NotRequired[int]
    timed_out: NotRequired[bool]
    output_bytes: NotRequired[int]
    left_out: NotRequired[int]
    kept_at: NotRequired[int | None]
    """Where the whole output is; None if all of it is in `output`."""
    attempt: NotRequired[int]
