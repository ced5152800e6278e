"""The present: the small part of the views that the gate reads, with a snapshot of its own.

A gate runs before every tool call of every agent, in a separate process. So what it needs is a snapshot of
its own: without texts, outputs and history, so it is quick to read. The folds are those of the views; no rule depends
on what is left out here. The attempts that have an outcome are on a line of their own, which is decoded only if a rule
asks for one of them. Modules on this path import no `typing`: that alone would cost a fifth of a decision.
"""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.log.shapes import UNREADABLE, misfit
from onrecord.views.attempts import FAILED, RUNNING, Attempts
from onrecord.views.findings import Findings, late
from onrecord.views.gates import Gates
from onrecord.views.lifecycle import Lifecycle
from onrecord.views.phases import Phases
from onrecord.views.spend import Spend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from onrecord.views.fold import Whole
    from onrecord.views.values import Attempt, Finding, Json, Step
    from onrecord.views.view import View

PRESENT_VERSION = "present.7"
"""Changes whenever what is kept changes its meaning."""
CLAIM_WIDTH = 240
"""How many characters of a claim, an error or a fix are kept for advice."""
ATTEMPTS_KEPT = 100
"""How many of the newest attempts are kept whatever they ran."""

LISTENS: dict[str, tuple[str, ...]] = {
    "lifecycle": ("session.paused", "session.closed", "session.archived"),
    "attempts": ("attempt.started", "attempt.settled", "attempt.corrected"),
    "findings": ("finding.stated", "finding.relabelled", "finding.challenged", "finding.upheld", "code.changed"),
    "phases": ("profile.chosen", "phase.entered", "phase.finished"),
    "gates": ("gate.decided", "gate.overridden"),
    "spend": (
        "session.opened", "budget.set", "budget.sliced", "usage.recorded", "turn.begun", "turn.recorded",
        "session.paused", "session.resumed", "session.closed",
    ),
}  # fmt: skip
"""The kinds that each view folds here; no rule depends on its other kinds."""
KINDS = frozenset(kind for kinds in LISTENS.values() for kind in kinds)
_ROUTES = {kind: [name for name, kinds in LISTENS.items() if kind in kinds] for kind in KINDS}
BODIES = KINDS - {"turn.recorded", "turn.begun"}
STARTS_ANEW = ("payload.erased", "session.forked")
"""After these, an earlier snapshot is not used."""


class Seen:
    """The part of an event that a view reads. (A named tuple would bring in typing.)"""

    __slots__ = ("at", "because", "by", "data", "kind", "position", "run")

    def __init__(  # noqa: PLR0917 - the columns of a row in their order
        self, position: int, kind: str, at: int, by: str, run: int, because: int | None, data: Any
    ) -> None:
        self.position = position
        self.kind = kind
        self.at = at
        self.by = by
        self.run = run
        self.because = because
        self.data = data


class KeptAttempts(Attempts):
    """The attempts of a snapshot. Those with an outcome stay undecoded until one of them is asked for."""

    def __init__(self, running: dict[str, Attempt], settled: bytes, count: int) -> None:
        self._running = running
        self._settled = settled
        self.count = count

    def __getattr__(self, name: str) -> dict[str, Attempt]:
        """All of them, in order."""
        if name != "attempts":
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        every: dict[str, Attempt] = json.loads(self._settled) | self._running
        self.attempts = {number: every[number] for number in sorted(every, key=int)}
        return self.attempts

    def unresolved(self, agent: str | None = None) -> list[Attempt]:
        if "attempts" in vars(self):
            return super().unresolved(agent)
        return [attempt for attempt in self._running.values() if agent is None or attempt["by"] == agent]

    def of_commands(self, signatures: set[str]) -> list[Attempt]:
        known = "attempts" in vars(self) or any(_names(one) in self._settled for one in signatures)
        found = self.attempts if known else self._running
        return [attempt for attempt in found.values() if attempt["signature"] in signatures]


def _names(signature: str) -> bytes:
    """How an attempt of this command is written in a snapshot."""
    return f'"signature":{json.dumps(signature, ensure_ascii=False)}'.encode()


class Present:
    """Status, attempts, findings, phases, refusals and spend of one session, as rules need them."""

    VIEWS: dict[str, type[View]] = {  # noqa: RUF012 - a constant; `ClassVar` would bring in typing
        "lifecycle": Lifecycle, "attempts": Attempts, "findings": Findings, "phases": Phases, "gates": Gates,
        "spend": Spend,
    }  # fmt: skip

    def __init__(self, name: str, status: str) -> None:
        self.name = name
        self.status = status
        self.lifecycle, self.attempts, self.findings = Lifecycle(), Attempts(), Findings()
        self.phases, self.gates, self.spend = Phases(), Gates(), Spend()

    @classmethod
    def of(cls, whole: Whole) -> Present:
        """The part of all views that the gate reads. Nothing is copied."""
        present = cls(whole.head.name, whole.head.status)
        for name in cls.VIEWS:
            setattr(present, name, getattr(whole, name))
        return present

    def stopped(self) -> Step:
        """The step that paused or ended the session last."""
        steps = (step for step in reversed(self.lifecycle.steps) if f"session.{step['step']}" in LISTENS["lifecycle"])
        never: Step = {"position": 0, "at": 0, "by": "", "run": 0, "step": "", "reason": ""}
        return next(steps, never)

    def fold(self, events: Iterable[Any]) -> Present:
        """Fold events in, in order: whole ones or `Seen` ones. Kinds that no rule depends on may be missing."""
        for event in events:
            if misfit(event.kind, event.data):
                continue
            for name in _ROUTES.get(event.kind, ()):
                try:
                    getattr(self, name).apply(event)
                except UNREADABLE:
                    continue  # as in `Whole`: an invalid payload must not make a session unreadable
        return self

    def dump(self) -> bytes:
        """The snapshot: only what a rule or a line of advice can come from."""
        findings, phases, spend = self.findings, self.phases, self.spend
        profile = {"name": "", "phases": [{"name": name} for name in phases.names]} if phases.profile else None
        attempts = self._attempts()
        settled = {number: one for number, one in attempts.items() if one["status"] != RUNNING}
        running = {number: one for number, one in attempts.items() if one["status"] == RUNNING}
        kept = {
            "lifecycle": {"steps": [self.stopped()] if self.stopped()["position"] else []},
            "attempts": {"attempts": running, "count": self.attempts.count},
            "findings": {
                "findings": {name: _short(one) for name, one in findings.findings.items()},
                "code": findings.code,
            },
            "phases": {"profile": profile, "entered": phases.entered, "finished": phases.finished},
            "gates": self.gates.dump(),
            "spend": spend.dump() | {"models": {}, "runs": {}, "days": {}},
        }
        return b"\n".join(
            json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode() for one in (kept, settled)
        )

    def _attempts(self) -> dict[str, dict[str, Json]]:
        """Attempts that run, the last of each command, those that findings rest on, and the newest."""
        known = self.attempts.attempts
        last = {attempt["signature"]: number for number, attempt in known.items() if attempt["status"] != RUNNING}
        named = {one for finding in self.findings.findings.values() for one in finding["evidence"]}
        keep = {*last.values(), *list(known)[-ATTEMPTS_KEPT:]}
        return {
            number: _slim(attempt)
            for number, attempt in known.items()
            if number in keep or attempt["status"] == RUNNING or attempt.get("evidence") in named
        }

    @classmethod
    def load(cls, body: bytes, name: str, status: str) -> Present:
        """Load a snapshot; name and status come from the store."""
        present = cls(name, status)
        first, _end, settled = body.partition(b"\n")
        kept = json.loads(first)
        attempts = kept.pop("attempts")
        present.attempts = KeptAttempts(attempts["attempts"], settled, attempts["count"])
        for view, saved in kept.items():
            setattr(present, view, cls.VIEWS[view].load(saved))
        return present


def _slim(attempt: Attempt) -> dict[str, Json]:
    """What is kept of an attempt: all of a running one, the error and fix of a failed one, the number of any other."""
    if attempt["status"] == RUNNING:
        return dict(attempt)
    slim = {name: attempt.get(name) for name in ("number", "status", "signature", "position", "by", "evidence")}
    if attempt["status"] == FAILED:
        slim |= {name: str(attempt[name])[:CLAIM_WIDTH] for name in ("error", "fix") if attempt.get(name)}
    return slim


def _short(finding: Finding) -> Finding:
    anchors: Any = [
        {name: value for name, value in anchor.items() if name != "symbols"} for anchor in finding["anchors"]
    ]
    short: Any = {"claim": finding["claim"][:CLAIM_WIDTH], "anchors": anchors, "challenges": [], "staleness": []}
    # The last judgement says whether the code had changed before it.
    last: Any = [{"label": finding["label"], "after_change": True}] if late(finding) else []
    return {**finding, **short, "history": last}
