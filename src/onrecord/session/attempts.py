"""`session.attempts`: runs of commands. RUNNING is durable before a command starts; its outcome is recorded once."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onrecord import machine
from onrecord.errors import Conflict, IdReused, InvalidInput, NotFound, OnrecordError
from onrecord.rules import command_of, signature_of_command
from onrecord.session.chapter import Chapter, checked_text
from onrecord.views.attempts import (
    ABANDONED,
    FAILED,
    INTERRUPTED,
    LOST,
    OUTCOMES,
    RUNNING,
    SUCCEEDED,
    error_signature,
    failed_on,
    in_worktree,
    status_of,
)
from onrecord.views.facts import TEXT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.views.values import Attempt, Json, Process, Revision, Worktree

_TRIES = 100


class OpenAttempt:
    """A running attempt: add its metrics, outputs and fix."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.metrics: dict[str, float] = {}
        self.outputs: list[str] = []
        self.fix: str | None = None

    def metric(self, name: str, value: float) -> None:
        """Record a number the run produced; NaN and infinity make the attempt fail."""
        self.metrics[name] = value

    def output(self, path: str) -> None:
        """Record a file the run produced."""
        self.outputs.append(path)


class AttemptVerbs(Chapter):
    """Start attempts, settle them, correct them; look up what is known of a command before running it."""

    __slots__ = ()

    def get(self, number: int) -> Attempt | None:
        """The attempt with this number, if there is one."""
        return self._session.views.attempts.get(number)

    def all(self) -> list[Attempt]:
        """Every attempt, in order."""
        return self._session.views.attempts.all()

    def start(
        self, command: str | Sequence[str], *, cwd: str | None = None, revision: Revision | None = None,
        process: Process | None = None, keeper: Process | None = None, watched: bool = False,
        worktree: Worktree | None = None, token: str | None = None,
    ) -> Event:  # fmt: skip
        """Record that a command is about to run.

        Refused while another attempt of this agent is unresolved in this worktree, or an attempt of any agent is lost
        in it. Without a worktree, those of all worktrees count.

        With `watched`, the attempt counts as lost when this process is gone; with `process` and `keeper`, when both
        are gone; without any of these it stays unresolved until it is settled. `token` is the caller's own id of this
        start, kept with it.
        """
        arguments = command_of(command) if isinstance(command, str) else tuple(command)
        if not arguments or not all(isinstance(word, str) for word in arguments):
            raise InvalidInput("an attempt needs a command")
        signature = signature_of_command(arguments)
        data = {
            "command": command if isinstance(command, str) else signature, "signature": signature, "cwd": cwd,
            "process": process or (machine.identity() if watched else None), "keeper": keeper, "revision": revision,
            "code": code_of(revision), "worktree": worktree, "token": token or machine.entropy(8).hex(),
        }  # fmt: skip
        for _try in range(_TRIES):
            views = self._session.views
            _refuse_second(self._session, worktree)
            # The id contains the number: when two start at once, one is recorded and the other takes the next number.
            number = len(views.attempts.attempts) + 1
            try:
                return self._session._record(
                    "attempt.started", data | {"phase": views.phases.current()}, id=f"attempt/{number}/started"
                )
            except IdReused:
                continue
        raise Conflict("too many attempts were started at the same time", hint="try again")

    def settle(
        self, /, number: int | None, outcome: str, *, error: str | None = None, fix: str | None = None,
        metrics: Mapping[str, float] | None = None, outputs: Sequence[Json] = (), reason: str | None = None,
        code_change_needed: bool = False, **about: Json,
    ) -> Event:  # fmt: skip
        """Record how an attempt ended.

        succeeded; failed (with its exact error); interrupted from outside, or abandoned (both with a reason).
        `code_change_needed` says of a failure that the same command fails again until the code changes.
        """
        attempt = _unsettled(self._session, number)
        if outcome not in OUTCOMES:
            raise InvalidInput(f"an attempt's outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")
        found = dict(metrics or {})
        bad = not_finite(found)
        if outcome == SUCCEEDED and bad:
            raise InvalidInput(
                f"{', '.join(bad)} is not a finite number, so the attempt did not succeed",
                hint="record it as failed",
                step="fail_attempt",
                number=attempt["number"],
            )
        if outcome == FAILED:
            checked_text(error or "", "a failed attempt's error", TEXT_LIMIT)
        if outcome in (ABANDONED, INTERRUPTED):
            checked_text(reason or "", f"an {outcome} attempt's reason", TEXT_LIMIT)
        if code_change_needed and outcome != FAILED:
            raise InvalidInput(
                "only a failed attempt can need a change of the code", hint="record it as failed", step="fail_attempt",
                number=attempt["number"],
            )  # fmt: skip
        plain = {name: value if name not in bad else str(value) for name, value in found.items()}
        data = {
            "attempt": attempt["number"], "outcome": outcome, "error": error, "fix": fix, "metrics": plain,
            "outputs": list(outputs), "reason": reason, "error_signature": error_signature(error) if error else None,
            "code_change_needed": code_change_needed, **about,
        }  # fmt: skip
        id = f"attempt/{attempt['number']}/settled"
        try:
            # The id makes settling final: when two callers settle the same attempt at once, the second is refused.
            while (event := self._session._record("attempt.settled", data, id=id)).data is None:
                # The recorded outcome was erased: the attempt has none now, and can be settled again.
                id += "/again"
            return event
        except IdReused:
            _unsettled(self._session, attempt["number"])
            raise

    def correct(
        self, number: int, *, fix: str | None = None, remark: str | None = None, code_change_needed: bool | None = None
    ) -> Event:
        """Add a fix, a remark, or whether the code must change to a settled attempt; what was recorded stays."""
        attempt = self._session.views.attempts.get(number)
        if attempt is None:
            raise NotFound(
                f"there is no attempt {number}", hint="the session's attempts list their numbers", step="list_attempts"
            )
        if attempt["status"] == RUNNING:
            raise Conflict(
                f"attempt {number} has no outcome yet",
                hint="record its outcome first",
                step="settle_attempt",
                number=number,
            )
        if not fix and not remark and code_change_needed is None:
            raise InvalidInput(
                "the correction is empty", hint="give a fix or a remark", step="correct_attempt", number=number
            )
        for text in (fix, remark):
            if text:
                checked_text(text, "a correction", TEXT_LIMIT)
        data = {"attempt": number, "fix": fix, "remark": remark}
        if code_change_needed is not None:
            data |= {"code_change_needed": code_change_needed}
        return self._session._record("attempt.corrected", data)

    def foresee(self, command: str | Sequence[str], revision: Revision | None = None) -> Attempt | None:
        """The earlier attempt that shows how this command would fail on this code, if there is one."""
        arguments = command_of(command) if isinstance(command, str) else tuple(command)
        return self._session.views.attempts.foreseen(signature_of_command(arguments), code_of(revision))

    def failed_before(self, command: str | Sequence[str]) -> Attempt | None:
        """The last attempt of this command, if it failed, on whatever code."""
        arguments = command_of(command) if isinstance(command, str) else tuple(command)
        return self._session.views.attempts.failed_before(signature_of_command(arguments))

    def failed_fix(self, fix: str, number: int) -> tuple[Attempt, Attempt] | None:
        """If this fix was tried before and failed: the attempt it was proposed for, and the one that failed with it."""
        attempt = self._session.views.attempts.get(number)
        return self._session.views.attempts.failed_fix(fix, attempt) if attempt else None

    def _repr_html_(self) -> str:
        """The attempts as a table, for notebooks."""
        from onrecord.views.attempt_table import as_html

        return as_html([{**one, "status": status_of(one, machine.is_gone)} for one in self.all()])

    @contextmanager
    def record(
        self, command: str | Sequence[str], *, cwd: str | None = None, revision: Revision | None = None,
        worktree: Worktree | None = None,
    ) -> Iterator[OpenAttempt]:  # fmt: skip
        """Record what the block does as an attempt: `with session.attempts.record("python train.py") as attempt: ...`.

        The end of the block settles it: succeeded, failed with the exception or the metric that is not finite, or
        interrupted by Ctrl-C or a cancellation.
        """
        started = self.start(command, cwd=cwd, revision=revision, watched=True, worktree=worktree)
        made = OpenAttempt(number_at(self._session, started.position))
        try:
            yield made
        except BaseException as problem:
            said = f"{type(problem).__name__}: {problem}"[:TEXT_LIMIT]
            try:
                if isinstance(problem, Exception | SystemExit):
                    self._conclude(made, FAILED, said)
                else:
                    self._conclude(made, INTERRUPTED, reason=said)
            except OnrecordError as failure:
                problem.add_note(f"onrecord could not record that the attempt failed: {failure}")
            raise
        bad = not_finite(made.metrics)
        if bad:
            self._conclude(made, FAILED, ", ".join(f"metric {name} is {made.metrics[name]}" for name in bad))
        else:
            self._conclude(made, SUCCEEDED)

    def _conclude(self, made: OpenAttempt, outcome: str, error: str | None = None, reason: str | None = None) -> None:
        self.settle(
            made.number, outcome, error=error, metrics=made.metrics, fix=made.fix, outputs=made.outputs, reason=reason
        )  # fmt: skip


def number_at(session: Session, position: int) -> int:
    """The number of the attempt that was started at a position."""
    attempt = session.views.attempts.started_at(position)
    if attempt is None:
        raise NotFound(f"no attempt started at position {position}")
    return int(attempt["number"])


def code_of(revision: Revision | None) -> str | None:
    """The state of the code as one word, the same for the same code; None where there is no repository."""
    if not revision:
        return None
    return f"{revision.get('revision') or ''}/{revision.get('dirty') or ''}"


def not_finite(metrics: Mapping[str, object]) -> list[str]:
    """Metrics that are not finite numbers."""
    return [name for name, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)]


def last_failure(session: Session, command: str | Sequence[str], code: str | None = None) -> Attempt | None:
    """The failed attempt that a fix belongs to: the newest of this command, else the newest of this agent."""
    arguments = command_of(command) if isinstance(command, str) else tuple(command)
    attempts = session.views.attempts
    same = [one for one in attempts.failures_of(signature_of_command(arguments)) if not code or failed_on(one, code)]
    own = [one for one in attempts.all() if one["status"] == FAILED and one["by"] == session.agent]
    return next(reversed(same or own), None)


def _refuse_second(session: Session, worktree: Worktree | None) -> None:
    """Refuse while this agent has an attempt without an outcome, or an attempt of any agent is lost in the worktree."""
    waiting = [(one, status_of(one, machine.is_gone)) for one in session.views.attempts.unresolved()]
    here = [(one, status) for one, status in waiting if in_worktree(one, worktree)]
    blocking = [(one, status) for one, status in here if one["by"] == session.agent or (status == LOST and worktree)]
    if not blocking:
        return
    first, status = blocking[0]
    number = first["number"]
    if status == RUNNING and first["process"]:
        raise Conflict(
            f"attempt {number} of {first['by']!r} has no outcome yet; it is still running: {first['command']}",
            hint="wait until it ends",
            step="await_attempt",
        )
    state = "is lost: its process ended without recording an outcome" if status == LOST else "has no outcome yet"
    raise Conflict(
        f"attempt {number} of {first['by']!r} {state}: {first['command']}",
        hint="record its outcome first",
        step="settle_attempt",
        number=number,
    )


def _unsettled(session: Session, number: int | None) -> Attempt:
    attempts = session.views.attempts
    if number is None:
        waiting = attempts.unresolved(session.agent)
        if len(waiting) != 1:
            raise NotFound(
                f"{session.agent!r} has {len(waiting)} attempts without an outcome",
                hint="give a number",
                step="list_attempts",
            )
        return waiting[0]
    attempt = attempts.get(number)
    if attempt is None:
        raise NotFound(
            f"there is no attempt {number}", hint="the session's attempts list their numbers", step="list_attempts"
        )
    if attempt["status"] != RUNNING:
        raise Conflict(
            f"attempt {number} already has its outcome: {attempt['status']}",
            hint="add a correction",
            step="correct_attempt",
            number=number,
        )
    return attempt
