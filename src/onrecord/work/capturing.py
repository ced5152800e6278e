"""Captured evidence: a command's output, a piece of a file; and running captured commands again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import FromElsewhere, InvalidInput, NotFound, PayloadErased
from onrecord.rules import signature_of_command
from onrecord.session.evidence import EVIDENCE_OUTPUT_LIMIT
from onrecord.views.attempts import error_signature
from onrecord.views.findings import NEED_EVIDENCE, SETTLED, anchor_key, short_revision
from onrecord.work.anchors import anchored, excerpt, fingerprint_in
from onrecord.work.outputs import failure_of
from onrecord.work.revisions import content_at, revision_of
from onrecord.work.running import SuspendedCommand, noted_stops

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onrecord.session.handle import Session
    from onrecord.views.values import Anchor, Evidence
    from onrecord.work.ran import Ran


_COMPARED = 1_000
_SAID = 80


class Captured(NamedTuple):
    """A command that ran, and the evidence it left."""

    evidence: str
    position: int
    ran: Ran
    error: str | None


class Recheck(NamedTuple):
    """The result of running the captured evidence of a finding again."""

    again: Captured
    before: str
    """The evidence that was run again."""
    agrees: bool
    proposed: str
    why: str
    fixed: bool | None = None
    """For a settled finding: whether the command has another result since the fix."""


def capture_run(
    session: Session, command: Sequence[str], *, root: Path, cwd: Path, id: str | None = None,
    timeout: float | None = None, show: bool = True,
) -> Captured:  # fmt: skip
    """Run a command and record its result as evidence, however it ended."""
    if not command:
        raise InvalidInput("the command is empty")
    revision = revision_of(root)
    with noted_stops() as stop, SuspendedCommand(command, cwd=cwd) as suspended:
        if suspended.pid is None:
            raise NotFound(suspended.problem, hint="nothing ran, so there is nothing to capture")
        ran = suspended.go(timeout=timeout, show=show, stop=stop)
        error = failure_of(ran, timeout=timeout)
        event = record_run(session, command, ran, root=root, cwd=cwd, id=id, revision=revision, error=error)
    return Captured(event["id"], event["position"], ran, error)


def record_run(
    session: Session, command: Sequence[str], ran: Ran, *, root: Path, cwd: Path, revision: Any,
    error: str | None, id: str | None = None, **about: Any,
) -> dict[str, Any]:  # fmt: skip
    """Record a run as captured evidence. Large output goes to the transcript tier; the durable tier stays small."""
    kept_at = None
    if len(ran.output) > EVIDENCE_OUTPUT_LIMIT:
        kept = {"of": "run", "command": signature_of_command(tuple(command)), "text": ran.output}
        kept_at = session.log.record("payload.kept", kept).position
    ended = int(session.clock() * 1e6)
    event = session.evidence.record(
        "run", id=id, captured=True, command=signature_of_command(tuple(command)), argv=list(command),
        cwd=relative(root, cwd), exit_code=ran.exit_code, seconds=round(ran.seconds, 3),
        started_at=ended - int(ran.seconds * 1e6), ended_at=ended, revision=_short(revision), error=error,
        timed_out=ran.timed_out, output=ran.output, output_bytes=ran.size, left_out=ran.left_out, kept_at=kept_at,
        **about,
    )  # fmt: skip
    return {"id": event.data["id"], "position": event.position}


def capture_file(session: Session, text: str, *, root: Path, here: Path, id: str | None = None) -> dict[str, Any]:
    """Record the present text of `path`, `path:10-20` or `path::symbol`, with its fingerprint."""
    anchor = anchored(root, text, here)
    shown = excerpt(root, anchor)
    event = session.evidence.record(
        "file", id=id, captured=True, anchor=anchor, excerpt=shown, revision=_short(revision_of(root))
    )
    return {"id": event.data["id"], "position": event.position}


def full_output(session: Session, evidence: Evidence) -> str:
    """The whole kept output of captured evidence; an error if retention erased it."""
    kept_at = evidence.get("kept_at")
    if kept_at is None:
        return str(evidence.get("output") or evidence.get("excerpt") or "")
    data = session.log.event(kept_at).data
    if data is None:
        raise PayloadErased(f"the full output of {evidence['id']} was erased; only its end is left")
    return str(data["text"])


def recheck(
    session: Session, finding: str, *, root: Path, timeout: float | None = None, show: bool = True,
    agree: Callable[[list[str], Path], bool] | None = None,
) -> Recheck:  # fmt: skip
    """Run the newest captured command of a finding again, and propose the label that follows. Sets no label.

    The command of a settled cause must have another result now: that is what the fix is for. A command that came from
    another store runs only if `agree`, which gets it with its directory, says so.
    """
    view = session.views.findings
    known = view.findings.get(finding)
    if known is None:
        raise NotFound(
            f"there is no finding {finding!r}", hint="the session's findings list their ids", step="list_findings"
        )
    settled = view.label_of(known) == SETTLED
    cited = known["history"][-1]["evidence"] if settled else known["evidence"]
    runs = [found for one in cited if (found := view.evidence.get(one)) and found.get("argv")]
    if not runs:
        raise InvalidInput(
            f"{finding} has no captured command as evidence, so there is nothing to run again",
            hint="capture a command as evidence, then relabel the finding",
            step="recapture",
            finding=finding,
        )
    was = runs[-1]
    cwd = root / was["cwd"]
    if not cwd.is_dir():
        raise NotFound(f"{was['cwd']} no longer exists; {was['id']} was captured there")
    argv = [str(word) for word in was["argv"]]
    if view.recorded_at(was["id"]) <= session.log.arrived() and not (agree is not None and agree(argv, cwd)):
        raise FromElsewhere(f"the command of {was['id']} came from another store: {shlex.join(argv)}")
    again = capture_run(session, argv, root=root, cwd=cwd, timeout=timeout, show=show)
    agrees = again.ran.exit_code == was["exit_code"] and _sign(again.error) == _sign(was.get("error"))
    if settled:
        return _since_the_fix(again, was, agrees=agrees, held=short_revision(was.get("revision")), root=root)
    judged = known["label"] in NEED_EVIDENCE
    proposed = known["label"] if agrees or not judged else "open"
    if agrees:
        why = f"{again.evidence} ended as {was['id']} did: {_how(again.ran.exit_code, again.error)}"
    else:
        now, before = _how(again.ran.exit_code, again.error), _how(was["exit_code"], was.get("error"))
        why = f"{again.evidence} ended differently from {was['id']}: {now}; it was {before}"
    return Recheck(again, was["id"], agrees, proposed, why)


def _since_the_fix(again: Captured, was: Evidence, *, agrees: bool, held: str, root: Path) -> Recheck:
    """What a settled cause's command says now. If it passes before and after, its output decides."""
    old, new = str(was.get("output") or "")[-_COMPARED:], again.ran.output[-_COMPARED:]
    same = agrees and error_signature(old) == error_signature(new)
    here = short_revision(revision_of(root))
    before, now = _passes(was["exit_code"], was.get("error")), _passes(again.ran.exit_code, again.error)
    if same and old != new:
        why = f"cannot tell: {now}{_at(here)} as it did{_at(held)}, and the output differs only in numbers or paths"
        return Recheck(again, was["id"], agrees, SETTLED, why)
    if same:
        why = f"not fixed: {now}{_at(here)} as it did{_at(held)} ({again.evidence}, {was['id']})"
        return Recheck(again, was["id"], agrees, "verified", why, fixed=False)
    if before == now:
        before, now = _said(str(was.get("output") or "")), _said(again.ran.output)
    why = f"fixed: {before}{_at(held)}, {now}{_at(here)} ({was['id']}, {again.evidence})"
    return Recheck(again, was["id"], agrees, SETTLED, why, fixed=True)


def _passes(exit_code: int, error: str | None) -> str:
    return "passes" if exit_code == 0 and not error else "fails"


def _said(output: str) -> str:
    from onrecord.views.render import one_line

    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return f"prints {one_line(last, _SAID)!r}" if last else "prints nothing"


def _at(revision: str) -> str:
    return f" at {revision}" if revision else ""


def is_outdated(session: Session, evidence: Sequence[str], anchors: Sequence[Anchor], *, root: Path) -> bool:
    """Whether the code at these anchors has changed since all of this evidence was captured, as far as that is known.

    A run knows its revision, and which files differed from it; a captured piece of a file knows its fingerprint.
    """
    view = session.views.findings.evidence
    captured = [view[one] for one in evidence if one in view and view[one].get("captured")]
    return bool(captured and anchors) and all(_is_older(one, anchors, root) for one in captured)


def _is_older(evidence: Evidence, anchors: Sequence[Anchor], root: Path) -> bool:
    seen = evidence.get("anchor")
    if seen:
        same = [anchor for anchor in anchors if anchor_key(anchor) == anchor_key(seen)]
        return any(anchor["fingerprint"] != seen["fingerprint"] for anchor in same)
    revision = evidence.get("revision") or {}
    commit, changed = revision.get("revision"), revision.get("changed")
    if not commit or (revision.get("dirty") and changed is None):
        return False
    for anchor in anchors:
        if anchor["path"] in (changed or ()):
            continue  # it differed from the revision then, and how is not known
        content = content_at(root, commit, anchor["path"])
        now = anchor["fingerprint"]
        if content is not None and fingerprint_in(content, anchor, now) != now:
            return True
    return False


def relative(root: Path, place: Path) -> str:
    """A path relative to the project, valid on every machine that has it; outside of it, the absolute path."""
    root, place = root.resolve(), place.resolve()
    return place.relative_to(root).as_posix() if place.is_relative_to(root) else str(place)


def _sign(error: str | None) -> str:
    return error_signature(error) if error else ""


def _how(exit_code: int, error: str | None) -> str:
    return f"exit code {exit_code}" + (f", {error}" if error else "")


def _short(revision: dict[str, Any] | None) -> dict[str, Any] | None:
    """A revision without the list of changed files, where that is not complete."""
    if not revision:
        return None
    whole = revision["changed_count"] <= len(revision["changed"])
    return {name: revision[name] for name in ("revision", "branch", "dirty")} | (
        {"changed": revision["changed"]} if whole and revision["changed"] else {}
    )
