"""The tools that record: record, attempt, gate. Each is done once, also when the client repeats the call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.agents.fencing import ABOUT, fence
from onrecord.errors import IdReused, InvalidInput, NotFound, SessionNotFound
from onrecord.log.head import LIVE, refuse_work
from onrecord.log.names import check_name, is_ulid
from onrecord.rules import ALLOW, ATTEMPT, EDIT, RUN, ToolRequest, command_of, commands_of, signature_of_command
from onrecord.session.attempts import number_at
from onrecord.surfaces.mcp.finding import own_name
from onrecord.surfaces.mcp.schemas import FORESEE, SETTLE
from onrecord.views.attempts import ABANDONED, FAILED, INTERRUPTED, RUNNING
from onrecord.views.findings import NEED_EVIDENCE
from onrecord.views.render import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.mcp.finding import Caller, Sessions
    from onrecord.views.values import Attempt

TOOL = "onrecord gate"
"""The tool that a verdict names when an agent asked for it."""
ID_PREFIX = "mcp/"
GIVEN, SEEN = "id-", "request-"
"""How a key begins: the caller gave it, or it is the request's. Clients may number their requests carelessly, so a
request's key counts only together with the same content."""
_LINK = ("http://", "https://")
_EVIDENCE_IS = (
    "evidence is an id on record like run-2026-05-18-a (`onrecord run -- COMMAND` makes one), `last`, part of a file "
    "(path:10-20) or a URL; what you only think is a finding with label open"
)
_KINDS = {
    "decision": "decision.made", "finding": "finding.stated", "next": "next_action.set",
    "reproduction": "reproduction.recorded", "worklog": "worklog.written", "objective": "objective.set",
}  # fmt: skip


def record(sessions: Sessions, caller: Caller, given: dict[str, Any], key: str = "") -> dict[str, Any]:
    """Put one fact on record."""
    kind, text = given["kind"], given["text"]
    _refuse_misplaced(given)
    if kind == "objective" and (opened := _opened(sessions, caller, given)) is not None:
        return opened
    session = sessions.find(caller, given.get("session", ""))
    id_ = f"{ID_PREFIX}{key}" if key else None
    known = session.log.find(id_) if id_ else None
    if known is not None and _is_same(known, kind, text):
        return _again(session, known)
    if known is not None and key.startswith(GIVEN):
        raise IdReused("this idempotency key was already used for something else")
    id_ = id_ if known is None else None
    made: list[str] = []
    about = ""
    if kind == "evidence":
        (about,) = _evidence(session, [text])
        event = session.log.event(session.evidence.get(about)["position"])  # type: ignore[index]  # just made
    elif kind == "finding":
        made = _evidence(session, given.get("evidence", []))
        event, about = _judged(session, given, made, id_)
    else:
        event = _PLAIN[kind](session, given, id_)
    _refresh(session)
    said = f"Recorded at position {event.position} of {session.name}" + (f" as {about}" if about else "")
    return {
        "session": session.name, "position": event.position, "id": about or event.id,
        **({"evidence": made} if made else {}), "text": f"{said}.{_reminder(session, kind)}",
    }  # fmt: skip


def _refuse_misplaced(given: dict[str, Any]) -> None:
    """An argument of another kind would be lost in silence."""
    belongs = {
        "why": ("decision",), "label": ("finding",), "evidence": ("finding",), "on": ("finding",),
        "finding": ("finding",), "command": ("next",), "rate": ("reproduction",),
    }  # fmt: skip
    for name, kinds in belongs.items():
        if name in given and given["kind"] not in kinds:
            raise InvalidInput(
                f"`{name}` does not belong to a {given['kind']}", hint=f"it is for kind {kinds[0]}; leave it out"
            )


def _opened(sessions: Sessions, caller: Caller, given: dict[str, Any]) -> dict[str, Any] | None:
    """Start the session that an objective names, if there is none of that name."""
    name = given.get("session", "")
    if not name or is_ulid(name.upper()):
        return None
    records = sessions.records(make=True)
    if records.named(name) is not None:
        return None
    made = records.create(check_name(name), agent=own_name(caller), objective=given["text"])
    return {
        "session": made.name, "position": made.head.position, "id": made.id,
        "text": f"Started the session {made.name}. Call `resume` with it to work in it from now on.",
    }  # fmt: skip


def _is_same(known: Event, kind: str, text: str) -> bool:
    """Whether an event says what a call wants to record; an erased one may have."""
    data: dict[str, Any] = known.data or {}
    said = next((data[name] for name in ("claim", "steps", "text") if name in data), text)
    return known.kind == _KINDS.get(kind) and said == text


def _again(session: Session, known: Event) -> dict[str, Any]:
    """The answer to a call that was recorded before."""
    finding = next((one for one in session.views.findings.findings.values() if one["position"] == known.position), None)
    return {
        "session": session.name, "position": known.position, "id": finding["id"] if finding else known.id,
        "text": f"This was recorded before, at position {known.position} of {session.name}; nothing was added.",
    }  # fmt: skip


def _evidence(session: Session, named: list[str]) -> list[str]:
    """Evidence by id; a part of a file is captured now, and an address is recorded as one."""
    from onrecord.work.capturing import capture_file

    found = []
    for one in named:
        try:
            found.append(session.evidence.resolve(one))
            continue
        except NotFound:
            place = Path(one.partition("::")[0].rpartition(":")[0] or one)
            is_file = place.is_file() or Path(one).is_file()
            if not is_file and not one.startswith(_LINK):
                raise NotFound(f"there is no evidence {one!r:.80}", hint=_EVIDENCE_IS) from None
        if one.startswith(_LINK):
            found.append(session.evidence.record("url", reference=one).data["id"])
        else:
            found.append(capture_file(session, one, root=_root(session), here=Path.cwd())["id"])
    return found


def _judged(session: Session, given: dict[str, Any], evidence: list[str], id_: str | None) -> tuple[Event, str]:
    """State a finding, or judge one again."""
    from onrecord.work.anchors import anchored, reanchored
    from onrecord.work.capturing import is_outdated
    from onrecord.work.revisions import revision_of

    root, label = _root(session), given.get("label", "open")
    anchors = [anchored(root, one, here=Path.cwd()) for one in given.get("on", [])]
    known = given.get("finding")
    if known:
        anchors = anchors or reanchored(root, session.findings.get(known)["anchors"])
    late = label in NEED_EVIDENCE and is_outdated(session, evidence, anchors, root=root)
    revision: Any = revision_of(root)
    if known:
        if "label" not in given:
            raise InvalidInput(
                "a finding that is judged again needs a `label`", hint="verified, rejected, open, blocked"
            )
        event = session.findings.relabel(
            known, label, evidence=evidence, why=given["text"], anchors=anchors, revision=revision, after_change=late
        )
        return event, known
    event = session.findings.state(
        given["text"], label, evidence=evidence, anchors=anchors, revision=revision, after_change=late, id=id_
    )
    made = next(one for one in session.views.findings.findings.values() if one["position"] == event.position)
    return event, str(made["id"])


_PLAIN: dict[str, Callable[[Session, dict[str, Any], str | None], Event]] = {
    "decision": lambda session, given, id_: session.decide(given["text"], why=given.get("why"), id=id_),
    "next": lambda session, given, id_: session.facts.set_next_action(
        given["text"], command=given.get("command"), id=id_
    ),
    "reproduction": lambda session, given, id_: session.facts.set_reproduction(
        given["text"], rate=given.get("rate"), id=id_
    ),
    "worklog": lambda session, given, id_: session.phases.log_work(given["text"], id=id_),
    "objective": lambda session, given, id_: session.facts.set_objective(given["text"], id=id_),
}


def _reminder(session: Session, kind: str) -> str:
    """What is still missing for the next agent, after the next action was set."""
    if kind != "next":
        return ""
    from onrecord.views.check import check

    _grade, gaps = check(session.views)
    needed = [gap.field + " (too vague)" * gap.problem.startswith("is vague") for gap in gaps if gap.essential]
    return f" The note still lacks: {', '.join(needed)}." if needed else ""


def attempt(sessions: Sessions, caller: Caller, given: dict[str, Any], key: str = "") -> dict[str, Any]:
    """Foresee, start or settle an attempt."""
    session = sessions.find(caller, given.get("session", ""))
    if given["action"] == SETTLE:
        return _settled(session, given)
    if "command" not in given:
        example = f'like {{"action": "{given["action"]}", "command": "pytest -q"}}'
        raise InvalidInput(f"`{given['action']}` needs the argument `command`", hint=example)
    from onrecord.work.revisions import revision_of

    root, command = _root(session), given["command"]
    if given["action"] == FORESEE:
        # git is asked only if there is a failure to compare the code with.
        failed = session.views.attempts.failures_of(signature_of_command(command_of(command)))
        return _foreseen(session, command, revision_of(root) if failed else None)
    revision: Any = revision_of(root)
    running = _started_by(session, key, command)
    if running is not None:
        return _answer(session, running, running["position"], f"Attempt {running['number']} was started before.")
    refuse_work(session.head)
    told = _foreseen(session, command, revision)
    from onrecord.work.project import worktree_named

    event = session.attempts.start(
        command,
        revision=revision,
        worktree=worktree_named(str(root)),
        cwd=os.path.relpath(os.curdir, root),
        token=key or None,
    )
    number = number_at(session, event.position)
    found = session.attempts.get(number)
    assert found is not None  # noqa: S101  # it was just started
    warning = f" {told['text']}" if told["failed_before"] else ""
    said = f"Attempt {number} is running. Settle it when it ends.{warning}"
    return _answer(session, found, event.position, said) | {"failed_before": told["failed_before"]}


def _started_by(session: Session, key: str, command: str) -> Attempt | None:
    """The running attempt that the same call started before."""
    waiting = [one for one in session.views.attempts.unresolved(session.agent) if key and one["command"] == command]
    return next((one for one in waiting if (session.log.event(one["position"]).data or {}).get("token") == key), None)


def _foreseen(session: Session, command: str, revision: Any) -> dict[str, Any]:
    """Whether this command is known to fail; what is on record about it is fenced."""
    from onrecord.work.attempting import retold

    now = session.attempts.foresee(command, revision)
    before = now or session.attempts.failed_before(command)
    about = {"session": session.name, "position": session.views.position}
    if before is None:
        return about | {"failed_before": False, "text": "No failure of this command is on record."}
    where = "on this code" if now else "before on other code"
    preface = f"It failed before: attempt {before['number']}, {where}. {ABOUT}"
    return about | {
        "number": before["number"], "status": before["status"], "failed_before": True,
        "text": fence(retold(before, where), about=preface),
    }  # fmt: skip


def _settled(session: Session, given: dict[str, Any]) -> dict[str, Any]:
    number, outcome = given.get("number"), given.get("outcome")
    if outcome is None:
        raise InvalidInput("`settle` needs the argument `outcome`", hint="succeeded, failed, interrupted or abandoned")
    if outcome == FAILED and not given.get("error"):
        raise InvalidInput("a failed attempt needs the argument `error`", hint="its last line, or what went wrong")
    known = session.attempts.get(number) if number is not None else _last_settled(session)
    if known is not None and known["status"] == outcome and known.get("error") == given.get("error"):
        said = f"Attempt {known['number']} was settled before as {outcome}."
        return _answer(session, known, known["position"], said)
    reason = given.get("reason") or (given.get("error") if outcome in (ABANDONED, INTERRUPTED) else None)
    if outcome in (ABANDONED, INTERRUPTED) and not reason:
        raise InvalidInput(f"an {outcome} attempt needs the argument `reason`", hint="why it has no result")
    event = session.attempts.settle(number, outcome, error=given.get("error"), fix=given.get("fix"), reason=reason)
    _refresh(session)
    done = session.attempts.get(event.data["attempt"])
    assert done is not None  # noqa: S101  # it was just settled
    return _answer(session, done, event.position, f"Attempt {done['number']} is settled: {outcome}.")


def _last_settled(session: Session) -> Attempt | None:
    """The attempt that a repeated call without a number means: this agent's last one, if none of its own is running."""
    own = [one for one in session.views.attempts.all() if one["by"] == session.agent]
    return own[-1] if own and not any(one["status"] == RUNNING for one in own) else None


def _answer(session: Session, attempt: Attempt, position: int, said: str) -> dict[str, Any]:
    return {
        "session": session.name, "position": position, "number": attempt["number"],
        "status": RUNNING if attempt["status"] == RUNNING else attempt["status"], "text": said,
    }  # fmt: skip


def gate(sessions: Sessions, caller: Caller, given: dict[str, Any]) -> dict[str, Any]:
    """The verdict on an edit or a command. It is recorded unless it is a plain yes; it is not counted as a refusal."""
    paths, command = given.get("paths", []), given.get("command")
    if not paths and command is None:
        raise InvalidInput("`gate` needs `paths` or `command`", hint='like {"paths": ["src/auth.py"]}')
    if paths and command is not None:
        raise InvalidInput("`gate` judges `paths` or a `command`, not both at once", hint="make two calls")
    try:
        session = sessions.find(caller, given.get("session", ""))
    except SessionNotFound:
        if given.get("session"):
            raise
        return {"decision": ALLOW, "text": "Allowed: no session is on record here."}
    from onrecord.work.project import find_worktree, worktree_named

    top = find_worktree(os.curdir)
    request = ToolRequest(
        session.agent, RUN if command is not None else EDIT, paths=[_from(top, path) for path in paths],
        commands=commands_of(command) if command else (), line=command or "", tool=TOOL,
        worktree=worktree_named(top),
    )  # fmt: skip
    verdict = session.gate.judge(request, asked=True)
    data = {
        "session": session.name, "decision": verdict.decision, "rule": verdict.rule, "clear": verdict.clear,
        "positions": list(verdict.positions),
    }  # fmt: skip
    if verdict.decision == ALLOW:
        said = fence(verdict.advice, about=f"Allowed. {ABOUT}") if verdict.advice else "Allowed."
        return data | {"text": said}
    means = "A person decides" if verdict.decision == "ask" else "Refused"
    tool = " (or the tool `attempt` with action settle)" if verdict.rule == ATTEMPT else ""
    about = f"{means}. To clear it: {one_line(verdict.clear, 300)}{tool}. {ABOUT}"
    return data | {"text": fence(verdict.reason, about=about)}


def _from(top: str, path: str) -> str:
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100  # the file itself may be a link
    return os.path.relpath(os.path.join(os.path.realpath(folder), name), top)  # noqa: PTH118  # as above


def _root(session: Session) -> Path:
    from onrecord.work.project import worktree_for

    return Path(worktree_for(session, os.curdir))


def _refresh(session: Session) -> None:
    """Bring STATE.md and NOTE.md up to date, where a session has them."""
    from onrecord.connection import workspace_paths
    from onrecord.workspace.syncing import refresh, tolerating

    if session.status in LIVE:
        tolerating(lambda: refresh(session, workspace_paths(session)))
