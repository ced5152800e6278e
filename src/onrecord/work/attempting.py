"""Running a command as an attempt: RUNNING is durable before it starts, and its outcome is recorded right after."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.errors import Conflict, InvalidInput
from onrecord.session.attempts import code_of, last_failure, not_finite, number_at
from onrecord.views.attempts import FAILED, INTERRUPTED, SUCCEEDED, error_signature
from onrecord.views.render import one_line
from onrecord.work.capturing import record_run, relative
from onrecord.work.outputs import (
    Before,
    failure_of,
    interruption_of,
    metric_in,
    metrics_of_file,
    not_finite_in,
    output_file,
)
from onrecord.work.project import worktree_named
from onrecord.work.revisions import revision_of
from onrecord.work.running import SuspendedCommand, noted_stops

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onrecord.session.handle import Session
    from onrecord.views.values import Attempt
    from onrecord.work.ran import Ran

_SHOWN = 300


class Wanted(NamedTuple):
    """What a run must produce, besides exit code 0."""

    metrics: tuple[tuple[str, float], ...] = ()
    metrics_file: str | None = None
    patterns: tuple[tuple[str, str], ...] = ()
    """Names of metrics, and the regular expressions that find them in the output."""
    files: tuple[str, ...] = ()
    """Files that the run must write, relative to the command's directory."""
    allow_traceback: bool = False
    allow_nan: bool = False
    """Do not look for NaN and infinity in the output."""


class Finished(NamedTuple):
    """An attempt that onrecord ran, and its outcome on record."""

    number: int
    position: int
    """The position of the outcome."""
    status: str
    error: str | None
    """Why it failed, or what interrupted it."""
    metrics: dict[str, Any]
    outputs: list[dict[str, Any]]
    evidence: str
    ran: Ran
    known: Attempt | None
    """An earlier attempt that failed with the same error on the same code."""
    exit_code: int
    """The exit code to pass on: the command's own, or 1 if it exited with 0 but failed."""


class _Brought(NamedTuple):
    status: str
    error: str | None
    metrics: dict[str, float]
    outputs: list[dict[str, Any]]


def run_attempt(
    session: Session, command: Sequence[str], *, root: Path, cwd: Path, wanted: Wanted | None = None,
    timeout: float | None = None, strict: bool = False, fix: str | None = None, show: bool = True,
    warn: Callable[[str], None] = lambda _line: None, begun: Callable[[], None] = lambda: None,
) -> Finished:  # fmt: skip
    """Run a command as an attempt. If it failed before, `warn` gets that.

    With `strict` it is refused if it failed on this code, or if the fix was tried before and failed.
    `begun` is called when the attempt is on record as RUNNING and its process has not started yet.
    """
    if not command:
        raise InvalidInput("there is no command to run")
    wanted = wanted or Wanted()
    patterns = [(name, compiled(name, pattern)) for name, pattern in wanted.patterns]
    revision = revision_of(root)
    _look_back(session, command, revision, fix, strict=strict, warn=warn)
    before = Before(cwd / name for name in (*wanted.files, wanted.metrics_file) if name)
    with noted_stops() as stop, SuspendedCommand(command, cwd=cwd) as suspended:
        started = session.attempts.start(
            command, cwd=relative(root, cwd), revision=revision, keeper=machine.identity(),
            process=machine.identity_of(suspended.pid) if suspended.pid else None,
            worktree=worktree_named(str(root)),
        )  # fmt: skip
        number = number_at(session, started.position)
        begun()
        ran = suspended.go(timeout=timeout, show=show, stop=stop)
        brought = _judge(ran, wanted, patterns, root=root, cwd=cwd, before=before, timeout=timeout)
        return _settle(session, command, number, ran, brought, root=root, cwd=cwd, revision=revision)


def _look_back(
    session: Session, command: Sequence[str], revision: Any, fix: str | None, *, strict: bool,
    warn: Callable[[str], None],
) -> None:  # fmt: skip
    """What is known of this command before it runs: its failures, and fixes that did not help."""
    failed = _to_fix(session, command, fix)
    if fix and failed and (useless := session.attempts.failed_fix(fix, failed["number"])):
        if strict:
            raise Conflict(retold_fix(fix, *useless), hint="try another fix", step="another_fix")
        warn(retold_fix(fix, *useless))
    if fix and failed and failed.get("fix") != fix:
        session.attempts.correct(failed["number"], fix=fix)
    foreseen = session.attempts.foresee(command, revision)
    # A fix that was just recorded may be outside the code, so the same code is worth another run.
    if foreseen and not (failed and foreseen["number"] == failed["number"]):
        if strict:
            raise Conflict(retold(foreseen), hint="change the code, or record what you fixed", step="strict_run")
        warn(retold(foreseen))
    elif not foreseen and (before := session.attempts.failed_before(command)):
        warn(retold(before, "before on other code"))


def retold(attempt: Attempt, where: str = "on this code") -> str:
    """An earlier failure in one line: which attempt, its error, its fix."""
    known = attempt.get("fix")
    fix = f"; fix: {one_line(known, _SHOWN)}" if known else "; no fix is on record"
    needed = "; the code must change first" if attempt.get("code_change_needed") and where == "on this code" else ""
    error = one_line(attempt.get("error") or "no error on record", _SHOWN)
    return f"attempt {attempt['number']} ({one_line(attempt['command'], 80)}) failed {where}: {error}{fix}{needed}"


def retold_fix(fix: str, proposed: Attempt, tried: Attempt) -> str:
    """A fix that was tried before and failed, in one line."""
    error = one_line(tried.get("error") or "no error on record", _SHOWN)
    return (
        f"this fix was tried before: {one_line(fix, _SHOWN)} (for attempt {proposed['number']}); "
        f"attempt {tried['number']} failed with it: {error}"
    )


def compiled(name: str, pattern: str) -> re.Pattern[str]:
    """A metric's pattern, or an error that says what is wrong with it."""
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as problem:
        raise InvalidInput(f"the pattern of {name} is not a regular expression: {problem}") from None


def _to_fix(session: Session, command: Sequence[str], fix: str | None) -> Attempt | None:
    """The failed attempt that a fix is for."""
    if fix is None:
        return None
    failed = last_failure(session, command)
    if failed is None:
        raise InvalidInput(
            "no failed attempt of this command needs a fix", hint="leave out the fix", step="leave_out_fix"
        )
    return failed


def _judge(
    ran: Ran, wanted: Wanted, patterns: list[tuple[str, re.Pattern[str]]], *, root: Path, cwd: Path, before: Before,
    timeout: float | None,
) -> _Brought:  # fmt: skip
    """The failure rule: non-zero exit, traceback, a missing metric or file, a number that is not finite.

    A run that was stopped from outside is interrupted: it neither failed nor succeeded.
    """
    problems = [failure_of(ran, timeout=timeout, allow_traceback=wanted.allow_traceback)]
    metrics: dict[str, float] = dict(wanted.metrics)
    try:
        if wanted.metrics_file:
            metrics |= metrics_of_file(cwd / wanted.metrics_file, before)
    except InvalidInput as problem:
        problems.append(problem.message)
    for name, pattern in patterns:
        try:
            metrics[name] = metric_in(ran.output, name, pattern)
        except InvalidInput as problem:
            problems.append(problem.message)
    if not wanted.allow_nan and not not_finite(metrics):
        metrics |= {name: value for name, value in not_finite_in(ran.output).items() if name not in metrics}
    problems += [f"metric {name} is {metrics[name]}" for name in not_finite(metrics)]
    files = {name: output_file(root, cwd / name) for name in wanted.files}
    problems += [f"expected file is missing: {name}" for name, found in files.items() if found is None]
    old = [name for name, found in files.items() if found and not before.wrote(cwd / name)]
    problems += [f"expected file was not written by this run: {name} is as it was before" for name in old]
    written = [found for name, found in files.items() if found and name not in old]
    if stopped := interruption_of(ran):
        return _Brought(INTERRUPTED, stopped, metrics, written)
    error = next((one for one in problems if one), None)
    return _Brought(FAILED if error else SUCCEEDED, error, metrics, written)


def _settle(
    session: Session, command: Sequence[str], number: int, ran: Ran, brought: _Brought, *, root: Path, cwd: Path,
    revision: Any,
) -> Finished:  # fmt: skip
    error, status = brought.error, brought.status
    code = code_of(revision)
    after = revision_of(root)
    evidence = record_run(
        session, command, ran, root=root, cwd=cwd, revision=revision, error=error, attempt=number
    )["id"]  # fmt: skip
    attempts = session.views.attempts
    failed = status == FAILED
    known = attempts.of_error(error_signature(error), code, number) if error and failed else None
    try:
        settled = session.attempts.settle(
            number, status, error=error if failed else None, reason=None if failed else error,
            metrics=brought.metrics, outputs=brought.outputs, evidence=evidence, exit_code=ran.exit_code,
            seconds=round(ran.seconds, 3), captured=True, code_after=code_of(after), revision_after=after,
        ).position  # fmt: skip
    except Conflict:
        # Another process settled it while it ran. That outcome is final; the captured output is on record as evidence.
        other = session.views.attempts.get(number)
        if other is None or "settled" not in other:
            raise
        settled, status = other["settled"], other["status"]
    passed_on = ran.exit_code or (1 if error else 0)
    return Finished(
        number, settled, status, error, brought.metrics, brought.outputs, evidence, ran, known, passed_on
    )  # fmt: skip
