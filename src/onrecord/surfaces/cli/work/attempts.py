"""Attempts that onrecord does not launch itself: start, settle, correct; and list all of them."""

from __future__ import annotations

import os
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.log.head import refuse_work
from onrecord.session.attempts import code_of, number_at
from onrecord.surfaces.cli.shared.call import pairs, whole_number
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import GAP, Cell, counted
from onrecord.surfaces.cli.shared.place import act, need, number_in, option, root_of
from onrecord.surfaces.cli.shared.shapes import receipt_data
from onrecord.surfaces.cli.shared.wrapping import columns_of
from onrecord.surfaces.cli.work import state_file
from onrecord.views.attempt_table import METRIC_COLUMNS, as_csv, compared, metric_names, metric_text, rows_of
from onrecord.views.attempts import ABANDONED, FAILED, INTERRUPTED, LOST, SUCCEEDED, orphaned, status_of
from onrecord.views.render import ago, iso
from onrecord.work.attempting import retold, retold_fix
from onrecord.work.capturing import relative
from onrecord.work.outputs import as_number, output_file, state_of_output
from onrecord.work.project import worktree_named
from onrecord.work.revisions import revision_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.values import Attempt

TEXT_LEAST = 14
"""How much of the command and of the result a list shows at least, with the gap beside it."""
STYLES = {FAILED: "bad", LOST: "attention", INTERRUPTED: "attention", SUCCEEDED: "good"}


def attempt(call: Call) -> int:
    """Start, settle, correct, list, show or compare."""
    return act(call, _ACTIONS, "list")


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
    before = None if foreseen else session.attempts.failed_before(words)
    warnings = [retold(foreseen)] if foreseen else [retold(before, "before on other code")] if before else []
    for line in warnings:
        call.output.note(f"warning: {line}")
    event = session.attempts.start(
        words, cwd=relative(root, Path(os.curdir)), revision=revision, worktree=worktree_named(str(root))
    )
    number = number_at(session, event.position)
    more = {"warnings": warnings}
    return _answer(call, session, event, f"attempt {number} is running", number=number, more=more)


def _succeed(call: Call, words: list[str]) -> int:
    session, number = call.session(), number_in(words)
    root = root_of(session)
    outputs = []
    for name in call.many("output"):
        found = output_file(root, Path(name).absolute())
        _refuse_older(session, number, name)
        if found is None:
            raise InvalidInput(
                f"the output file {name} does not exist",
                hint=f'if it failed: `onrecord attempt fail {number or ""} --error "no output file"`'.replace(
                    "  ", " "
                ),
            )
        outputs.append(found)
    return _settle(call, session, number, SUCCEEDED, metrics=metrics_of(call), outputs=outputs)


def _refuse_older(session: Session, number: int | None, name: str) -> None:
    """An output was written after its attempt started. File system clocks are coarse, so a second is free."""
    waiting = session.views.attempts.unresolved(session.agent)
    attempt = session.views.attempts.get(number) if number is not None else waiting[0] if len(waiting) == 1 else None
    file = Path(name)
    if attempt and file.exists() and file.stat().st_mtime < attempt["at"] / 1e6 - 1:
        raise InvalidInput(
            f"{name} was written before attempt {attempt['number']} started, so it is not its output",
            hint="leave it out, or name a file that the attempt wrote",
        )


def _fail(call: Call, words: list[str]) -> int:
    error = option(call, "error")
    session = call.session()
    return _settle(
        call, session, number_in(words), FAILED, error=error, fix=call.get("fix"), metrics=metrics_of(call),
        exit_code=call.number("exit-code"), code_change_needed="code-change-needed" in call,
    )  # fmt: skip


def _interrupt(call: Call, words: list[str]) -> int:
    example = 'onrecord attempt interrupt 3 --reason "the machine was rebooted"'
    return _settle(call, call.session(), number_in(words), INTERRUPTED, reason=option(call, "reason", example))


def _abandon(call: Call, words: list[str]) -> int:
    return _settle(call, call.session(), number_in(words), ABANDONED, reason=option(call, "reason"))


def _settle(call: Call, session: Session, number: int | None, outcome: str, **about: Any) -> int:
    after = revision_of(root_of(session))
    event = session.attempts.settle(number, outcome, code_after=code_of(after), revision_after=after, **about)
    settled = int(event.data["attempt"])
    more = _tried_before(call, session, settled, about.get("fix"))
    return _answer(call, session, event, f"attempt {settled} {outcome}", number=settled, more=more)


def _tried_before(call: Call, session: Session, number: int, fix: str | None) -> dict[str, Any]:
    """A warning if a fix was tried before and failed."""
    useless = session.attempts.failed_fix(fix, number) if fix else None
    warnings = [retold_fix(fix, *useless)] if fix and useless else []
    for line in warnings:
        call.output.note(f"warning: {line}")
    return {"warnings": warnings}


def _correct(call: Call, words: list[str]) -> int:
    (text,) = need(call, words, "N")
    number = whole_number(text, "the number of an attempt")
    session = call.session()
    event = session.attempts.correct(
        number, fix=call.get("fix"), remark=call.get("remark"),
        code_change_needed=True if "code-change-needed" in call else None,
    )  # fmt: skip
    more = _tried_before(call, session, number, call.get("fix"))
    return _answer(call, session, event, f"added to attempt {number}", number=number, more=more)


def _list(call: Call, words: list[str]) -> int:
    need(call, words)
    session = call.session()
    state_file.show_lost(call, session)
    attempts = [attempt_data(one) for one in session.views.attempts.all()]
    if call.output.json:
        call.output.envelope("attempts", attempts)
        return 0
    if "csv" in call:
        call.output.write(as_csv(rows_of(attempts)))
        return 0
    names, apart = _columns(call, attempts), _apart({one["command"] for one in attempts})
    call.output.table(
        (">#", "!status", "*command", *(f">{name}" for name in names), "*result", "!evidence", "when"),
        [_row(call, one, names, apart.get(one["command"], ())) for one in attempts],
    )
    for one in attempts:
        if one["status"] == LOST:
            number = one["number"]
            call.output.note(
                f"attempt {number} is lost; check it, then run `onrecord attempt succeed {number}` (or fail, abandon)"
            )
        elif one["orphaned"]:
            number = one["number"]
            call.output.note(
                f"attempt {number} is still running without onrecord; when it has ended, record how: "
                f"`onrecord attempt succeed {number}` (or fail)"
            )
    if not attempts:
        call.output.note("no attempts yet; `onrecord run -- COMMAND` records one")
    return 0


def _compare(call: Call, words: list[str]) -> int:
    if len(words) < 2:  # noqa: PLR2004  # to compare takes two
        raise UsageError("name the attempts to compare", hint="for example: `onrecord attempt compare 3 7`")
    session = call.session()
    chosen = [attempt_data(_get(session, whole_number(word, "the number of an attempt"))) for word in words]
    table = compared(chosen)
    if call.output.json:
        call.output.envelope("comparison", {"attempts": chosen, "rows": table[1:]})
    elif "csv" in call:
        call.output.write(as_csv(table))
    else:
        head, *rows = table
        call.output.table(("#", *head[1:]), [[*row] for row in rows])
    return 0


def _get(session: Session, number: int) -> Attempt:
    known = session.views.attempts.get(number)
    if known is None:
        raise NotFound(f"there is no attempt {number}", step="list_attempts")
    return known


def _columns(call: Call, attempts: list[dict[str, Any]]) -> list[str]:
    """The metrics with a column of their own: as many as fit beside evidence, command and result."""
    names = metric_names(attempts, METRIC_COLUMNS)
    if not call.output.terminal:
        return names
    whole = [
        [str(one["number"]) for one in attempts], [one["status"] for one in attempts], [_proof(one) for one in attempts]
    ]  # fmt: skip
    room = columns_of(sys.stdout) - 2 * TEXT_LEAST - sum(max(map(len, cells), default=0) + GAP for cells in whole)
    found = []
    for name in names:
        room -= max([len(name), *(len(metric_text(one, name)) for one in attempts)]) + GAP
        if room < 0:
            break
        found.append(name)
    return found


def _proof(one: dict[str, Any]) -> str:
    """The id of the evidence; without any, the outcome is asserted."""
    return str(one.get("evidence") or ("asserted" if "settled" in one else ""))


def _apart(commands: set[str]) -> dict[str, list[str]]:
    """For commands that begin alike, the word in which each differs from the others: a cut must not hide it."""
    found = {}
    for command in commands:
        alike = [one for one in commands if one[:TEXT_LEAST] == command[:TEXT_LEAST]]
        columns = zip(*(one.split() for one in alike), strict=False)
        shared = sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, columns))
        found[command] = command.split()[shared : shared + 1] if len(alike) > 1 else []
    return found


def _row(call: Call, one: dict[str, Any], names: list[str], around: Sequence[str]) -> list[str | Cell]:
    status = one["status"]
    # On a terminal the id needs the room.
    proof = _proof(one) if call.output.terminal or not one.get("evidence") else f"captured {one['evidence']}"
    when = ago(one["at"], call.now()) if call.output.terminal else iso(one["at"])
    return [
        str(one["number"]), Cell(status, STYLES.get(status, "")), Cell(one["command"], "", around),
        *(metric_text(one, name) for name in names), _outcome(one, names), Cell(proof, "quiet"), Cell(when, "quiet"),
    ]  # fmt: skip


def _outcome(one: dict[str, Any], names: list[str]) -> str:
    """Why it ended so; metrics without a column of their own."""
    others = ", ".join(f"{name} {value}" for name, value in (one.get("metrics") or {}).items() if name not in names)
    said = one.get("error") or one.get("reason") or others
    needed = "; the code must change first" if one.get("code_change_needed") else ""
    return f"{said}{needed}; fix: {one['fix']}" if one.get("fix") else f"{said}{needed}"


def _show(call: Call, words: list[str]) -> int:
    (text,) = need(call, words, "N")
    number = whole_number(text, "the number of an attempt")
    session = call.session()
    one = attempt_data(_get(session, number))
    evidence: dict[str, Any] = {**(session.evidence.get(one.get("evidence") or "") or {})}
    if call.output.json:
        call.output.envelope("attempt", one | {"output": evidence.get("output")})
        return 0
    revision, root = one["revision"] or {}, root_of(session)
    dirty = f", {counted(revision.get('changed_count', 0), 'file')} changed" if revision.get("dirty") else ""
    settled = "" if "settled" not in one else "captured by onrecord" if one["captured"] else "asserted"
    lines = [
        ("attempt", f"{number} {one['status']}"), ("command", one["command"]), ("directory", one["cwd"]),
        ("started", f"{one['time']} by {one['by']}, position {one['position']}"), ("phase", one["phase"]),
        ("revision", f"{revision.get('revision') or '(none)'}{dirty}" if revision else None),
        ("exit code", one.get("exit_code")), ("seconds", one.get("seconds")), ("error", one.get("error")),
        ("fix", one.get("fix")), ("reason", one.get("reason")), ("result", settled), ("evidence", one.get("evidence")),
        *(("metric", f"{name} = {value}") for name, value in (one.get("metrics") or {}).items()),
        ("code change", "needed" if one.get("code_change_needed") else ""),
        *(("output", _file(root, file)) for file in one.get("outputs") or ()),
        *(("remark", remark["remark"]) for remark in one.get("corrections", ()) if remark.get("remark")),
    ]  # fmt: skip
    call.output.table((), [[label, str(value)] for label, value in lines if value not in (None, "")])
    if evidence.get("output"):
        from onrecord.views.render import visible

        call.output.line()
        call.output.write(visible(str(evidence["output"]), lines=True).rstrip("\n") + "\n")
    return 0


def _file(root: Path, file: Any) -> str:
    """An output with its path from the project's root, and whether it is still the same file."""
    if not isinstance(file, dict):
        return str(file)
    since = state_of_output(root, file)
    return f"{file['path']} ({file['size']:,} bytes, sha256 {file['sha256'][:16]}{f'; {since}' if since else ''})"


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
    "interrupt": _interrupt,
    "abandon": _abandon,
    "correct": _correct,
    "list": _list,
    "show": _show,
    "compare": _compare,
}
