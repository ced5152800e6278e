"""Attempts that onrecord does not launch itself: start, settle, correct; and list all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.log.head import refuse_work
from onrecord.session.attempts import code_of, number_at
from onrecord.surfaces.cli.shared.call import pairs, whole_number
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.place import act, need, number_in, option, root_of
from onrecord.surfaces.cli.shared.shapes import receipt_data
from onrecord.surfaces.cli.work import state_file
from onrecord.views.attempts import ABANDONED, FAILED, LOST, SUCCEEDED, orphaned, status_of
from onrecord.views.render import ago, iso
from onrecord.work.attempting import retold
from onrecord.work.capturing import relative
from onrecord.work.outputs import as_number, output_file
from onrecord.work.revisions import revision_of

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.values import Attempt

STYLES = {FAILED: "bad", LOST: "attention", SUCCEEDED: "good"}


def attempt(call: Call) -> int:
    """Start, settle, correct, list or show."""
    return act(call, _ACTIONS)


def metrics_of(call: Call) -> dict[str, float]:
    """The metrics given as options; NaN and infinity are numbers here."""
    return {
        name: as_number(value, f"metric {name}") for name, value in pairs(call.many("metric"), "--metric NAME=NUMBER")
    }


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """An attempt as it is now: `lost` is deduced from its process and is not on record."""
    return {
        **attempt, "status": status_of(attempt, machine.is_gone), "on_record": attempt["status"],
        "orphaned": orphaned(attempt, machine.is_gone), "captured": bool(attempt.get("captured")),
        "time": iso(attempt["at"]),
    }  # fmt: skip


def _start(call: Call, words: list[str]) -> int:
    if not words:
        raise UsageError("the command is missing", hint="for example: `onrecord attempt start -- make train`")
    session = call.session()
    refuse_work(session.head)
    root = root_of(session)
    revision = revision_of(root)
    foreseen = session.attempts.foresee(words, revision)
    if foreseen and "strict" in call:
        raise Conflict(retold(foreseen), hint="change the code first, or leave `--strict` out")
    if foreseen:
        call.output.note(f"warning: {retold(foreseen)}")
    event = session.attempts.start(words, cwd=relative(root, Path(os.curdir)), revision=revision)
    number = number_at(session, event.position)
    more = {"warnings": [retold(foreseen)] if foreseen else []}
    return _answer(call, session, event, f"attempt {number} is running", number=number, more=more)


def _succeed(call: Call, words: list[str]) -> int:
    session, number = call.session(), number_in(words)
    root = root_of(session)
    outputs = []
    for name in call.many("output"):
        found = output_file(root, Path(name).absolute())
        if found is None:
            raise InvalidInput(
                f"the output file {name} does not exist",
                hint=f'if it failed: `onrecord attempt fail {number or ""} --error "no output file"`'.replace(
                    "  ", " "
                ),
            )
        outputs.append(found)
    return _settle(call, session, number, SUCCEEDED, metrics=metrics_of(call), outputs=outputs)


def _fail(call: Call, words: list[str]) -> int:
    error = option(call, "error")
    session = call.session()
    return _settle(
        call, session, number_in(words), FAILED, error=error, fix=call.get("fix"), metrics=metrics_of(call),
        exit_code=call.number("exit-code"),
    )  # fmt: skip


def _abandon(call: Call, words: list[str]) -> int:
    return _settle(call, call.session(), number_in(words), ABANDONED, reason=option(call, "reason"))


def _settle(call: Call, session: Session, number: int | None, outcome: str, **about: Any) -> int:
    after = revision_of(root_of(session))
    event = session.attempts.settle(number, outcome, code_after=code_of(after), revision_after=after, **about)
    number = event.data["attempt"]
    return _answer(call, session, event, f"attempt {number} {outcome}", number=number)


def _correct(call: Call, words: list[str]) -> int:
    (text,) = need(call, words, "N")
    number = whole_number(text, "the number of an attempt")
    session = call.session()
    event = session.attempts.correct(number, fix=call.get("fix"), remark=call.get("remark"))
    return _answer(call, session, event, f"added to attempt {number}", number=number)


def _list(call: Call, words: list[str]) -> int:
    need(call, words)
    session = call.session()
    attempts = [attempt_data(one) for one in session.views.attempts.all()]
    if call.output.json:
        call.output.envelope("attempts", attempts)
        return 0
    call.output.table(
        (">#", "!status", "*command", "result", "evidence", "when"), [_row(call, one) for one in attempts]
    )
    for one in attempts:
        if one["status"] == LOST:
            number = one["number"]
            call.output.note(
                f"attempt {number} is lost; check it, then run `onrecord attempt succeed {number}` (or fail, abandon)"
            )
        elif one["orphaned"]:
            call.output.note(
                f"attempt {one['number']} is still running without onrecord; record its outcome when it ends"
            )
    if not attempts:
        call.output.note("no attempts yet; `onrecord run -- COMMAND` records one")
    return 0


def _row(call: Call, one: dict[str, Any]) -> list[str | Cell]:
    status = one["status"]
    proof = f"captured {one['evidence']}" if one.get("evidence") else "asserted" if "settled" in one else ""
    when = ago(one["at"], call.now()) if call.output.terminal else iso(one["at"])
    return [
        str(one["number"]), Cell(status, STYLES.get(status, "")), one["command"], _outcome(one), Cell(proof, "quiet"),
        Cell(when, "quiet"),
    ]  # fmt: skip


def _outcome(one: dict[str, Any]) -> str:
    said = one.get("error") or one.get("reason") or ", ".join(f"{k} {v}" for k, v in (one.get("metrics") or {}).items())
    return f"{said}; fix: {one['fix']}" if one.get("fix") else said


def _show(call: Call, words: list[str]) -> int:
    (text,) = need(call, words, "N")
    number = whole_number(text, "the number of an attempt")
    session = call.session()
    known = session.views.attempts.get(number)
    if known is None:
        raise NotFound(f"there is no attempt {number}", step="list_attempts")
    one = attempt_data(known)
    evidence: dict[str, Any] = {**(session.evidence.get(one.get("evidence") or "") or {})}
    if call.output.json:
        call.output.envelope("attempt", one | {"output": evidence.get("output")})
        return 0
    revision = one["revision"] or {}
    dirty = f", {counted(revision.get('changed_count', 0), 'file')} changed" if revision.get("dirty") else ""
    settled = "" if "settled" not in one else "captured by onrecord" if one["captured"] else "asserted"
    lines = [
        ("attempt", f"{number} {one['status']}"), ("command", one["command"]), ("directory", one["cwd"]),
        ("started", f"{one['time']} by {one['by']}, position {one['position']}"), ("phase", one["phase"]),
        ("revision", f"{revision.get('revision') or '(none)'}{dirty}" if revision else None),
        ("exit code", one.get("exit_code")), ("seconds", one.get("seconds")), ("error", one.get("error")),
        ("fix", one.get("fix")), ("reason", one.get("reason")), ("result", settled), ("evidence", one.get("evidence")),
        *(("metric", f"{name} = {value}") for name, value in (one.get("metrics") or {}).items()),
        *(("output", _file(file)) for file in one.get("outputs") or ()),
        *(("remark", remark["remark"]) for remark in one.get("corrections", ()) if remark.get("remark")),
    ]  # fmt: skip
    call.output.table((), [[label, str(value)] for label, value in lines if value not in (None, "")])
    if evidence.get("output"):
        from onrecord.views.render import visible

        call.output.line()
        call.output.write(visible(str(evidence["output"]), lines=True).rstrip("\n") + "\n")
    return 0


def _file(file: Any) -> str:
    return (
        f"{file['path']} ({file['size']:,} bytes, sha256 {file['sha256'][:16]})"
        if isinstance(file, dict)
        else str(file)
    )


def _answer(
    call: Call, session: Session, event: Event, sentence: str, *, number: int, more: dict[str, Any] | None = None
) -> int:
    state_file.after(call, session)
    data = (
        attempt_data(session.views.attempts.all()[number - 1])
        | receipt_data(session.head, event, "recorded")
        | {"number": number}
        | (more or {})
    )
    return call.output.done("attempt", data, f"{sentence} (position {event.position} of {session.name})")


_ACTIONS = {
    "start": _start,
    "succeed": _succeed,
    "fail": _fail,
    "abandon": _abandon,
    "correct": _correct,
    "list": _list,
    "show": _show,
}
