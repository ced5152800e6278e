"""The verbs of attempts: RUNNING is durable before anything runs; the outcome is recorded once."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.errors import Conflict, IdReused, InvalidInput, NotFound, OnrecordError
from onrecord.rules import command_of, signature_of_command
from onrecord.views.attempts import (
    ABANDONED,
    FAILED,
    LOST,
    OUTCOMES,
    RUNNING,
    SUCCEEDED,
    error_signature,
    failed_on,
    status_of,
)
from onrecord.views.facts import TEXT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onrecord.log.events import Event
    from onrecord.session.verbs import Conducted
    from onrecord.views.attempts import Attempt

_TRIES = 100


class OpenAttempt:
    """An attempt under way: fill in what it brings."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.metrics: dict[str, float] = {}
        self.outputs: list[str] = []
        self.fix: str | None = None

    def metric(self, name: str, value: float) -> None:
        """Note a number the run produced; NaN and infinity make the attempt fail."""
        self.metrics[name] = value

    def output(self, path: str) -> None:
        """Note a file the run produced."""
        self.outputs.append(path)


class AttemptVerbs:
    """Start, settle, correct."""

    def start_attempt(
        self: Conducted, command: str | Sequence[str], *, cwd: str | None = None, revision: Any = None,
        process: dict[str, Any] | None = None, keeper: dict[str, Any] | None = None, watched: bool = False,
    ) -> Event:  # fmt: skip
        """Put on record that a command is about to run. Refused while another attempt of this agent is unresolved.

        With `watched`, the attempt is lost when this process is gone; with `process` and `keeper`, when both of them
        are; without any of these it waits until somebody settles it.
        """
        arguments = command_of(command) if isinstance(command, str) else tuple(command)
        if not arguments or not all(isinstance(word, str) for word in arguments):
            raise InvalidInput("an attempt needs a command")
        signature = signature_of_command(arguments)
        data = {
            "command": command if isinstance(command, str) else signature, "signature": signature, "cwd": cwd,
            "process": process or (machine.identity() if watched else None), "keeper": keeper, "revision": revision,
            "code": code_of(revision), "token": machine.entropy(8).hex(),
        }  # fmt: skip
        for _try in range(_TRIES):
            views = self.views
            _refuse_second(self, views.attempts.unresolved(self.agent))
            # The id holds the number: of two that start at once one is placed, and the other looks again.
            number = len(views.attempts.attempts) + 1
            try:
                return self.record(
                    "attempt.started", data | {"phase": views.phases.current()}, id=f"attempt/{number}/started"
                )
            except IdReused:
                continue
        raise Conflict("too many attempts were started at the same time", hint="try again")

    def settle_attempt(
        self: Conducted, /, number: int | None, outcome: str, *, error: str | None = None, fix: str | None = None,
        metrics: dict[str, float] | None = None, outputs: Sequence[Any] = (), reason: str | None = None, **about: Any,
    ) -> Event:  # fmt: skip
        """Record how an attempt ended: succeeded, failed (with its exact error) or abandoned (with a reason)."""
        attempt = _unsettled(self, number)
        if outcome not in OUTCOMES:
            raise InvalidInput(f"an attempt's outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")
        found = dict(metrics or {})
        bad = not_finite(found)
        if outcome == SUCCEEDED and bad:
            raise InvalidInput(
                f"{', '.join(bad)} is not a finite number, so the attempt did not succeed", hint="record it as failed"
            )
        if outcome == FAILED:
            self.require_text(error or "", "a failed attempt's error", TEXT_LIMIT)
        if outcome == ABANDONED:
            self.require_text(reason or "", "an abandoned attempt's reason", TEXT_LIMIT)
        plain = {name: value if name not in bad else str(value) for name, value in found.items()}
        data = {
            "attempt": attempt["number"], "outcome": outcome, "error": error, "fix": fix, "metrics": plain,
            "outputs": list(outputs), "reason": reason, "error_signature": error_signature(error) if error else None,
            **about,
        }  # fmt: skip
        try:
            # The id makes settling final: of two that settle the same attempt at once, the second is refused.
            return self.record("attempt.settled", data, id=f"attempt/{attempt['number']}/settled")
        except IdReused:
            _unsettled(self, attempt["number"])
            raise

    def correct_attempt(self: Conducted, number: int, *, fix: str | None = None, remark: str | None = None) -> Event:
        """Add to a settled attempt; what was recorded stays."""
        attempt = self.views.attempts.get(number)
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
        if not fix and not remark:
            raise InvalidInput(
                "the correction is empty", hint="give a fix or a remark", step="correct_attempt", number=number
            )
        for text in (fix, remark):
            if text:
                self.require_text(text, "a correction", TEXT_LIMIT)
        return self.record("attempt.corrected", {"attempt": number, "fix": fix, "remark": remark})

    def foreseen_failure(self: Conducted, command: str | Sequence[str], revision: Any = None) -> Attempt | None:
        """The earlier attempt that tells how this command would fail on this code, if one does."""
        arguments = command_of(command) if isinstance(command, str) else tuple(command)
        return self.views.attempts.foreseen(signature_of_command(arguments), code_of(revision))

    @contextmanager
    def attempt(self: Conducted, command: str | Sequence[str], **about: Any) -> Iterator[OpenAttempt]:
        """Run something as an attempt: `with session.attempt("python train.py") as attempt: ...`."""
        this: Any = self
        started = this.start_attempt(command, watched=True, **about)
        made = OpenAttempt(number_at(self, started.position))

        def settle(outcome: str, error: str | None = None) -> None:
            known = {"metrics": made.metrics, "fix": made.fix, "outputs": made.outputs}
            this.settle_attempt(made.number, outcome, error=error, **known)

        try:
            yield made
        except BaseException as problem:
            try:
                settle(FAILED, f"{type(problem).__name__}: {problem}"[:TEXT_LIMIT])
            except OnrecordError as failure:
                problem.add_note(f"onrecord could not record that the attempt failed: {failure}")
            raise
        bad = not_finite(made.metrics)
        if bad:
            settle(FAILED, ", ".join(f"metric {name} is {made.metrics[name]}" for name in bad))
        else:
            settle(SUCCEEDED)


def number_at(session: Conducted, position: int) -> int:
    """The number of the attempt that was started at a position."""
    attempt = session.views.attempts.started_at(position)
    if attempt is None:
        raise NotFound(f"no attempt started at position {position}")
    return int(attempt["number"])


def code_of(revision: Any) -> str | None:
    """The state of the code, in one word: the same code has the same; None where there is no repository."""
    if not revision:
        return None
    return f"{revision.get('revision') or ''}/{revision.get('dirty') or ''}"


def not_finite(metrics: dict[str, Any]) -> list[str]:
    """Metrics that are not finite numbers."""
    return [name for name, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)]


def last_failure(session: Conducted, command: str | Sequence[str], code: str | None = None) -> Attempt | None:
    """The failed attempt a fix is told for: the newest of this command, else the newest of this agent."""
    arguments = command_of(command) if isinstance(command, str) else tuple(command)
    attempts = session.views.attempts
    same = [one for one in attempts.failures_of(signature_of_command(arguments)) if not code or failed_on(one, code)]
    own = [one for one in attempts.all() if one["status"] == FAILED and one["by"] == session.agent]
    return next(reversed(same or own), None)


def _refuse_second(session: Conducted, waiting: list[Attempt]) -> None:
    if not waiting:
        return
    first = waiting[0]
    number = first["number"]
    lost = status_of(first, machine.is_gone) == LOST
    state = "is lost: its process ended without recording an outcome" if lost else "has no outcome yet"
    raise Conflict(
        f"attempt {number} of {session.agent!r} {state}: {first['command']}",
        hint="record its outcome first",
        step="settle_attempt",
        number=number,
    )


def _unsettled(session: Conducted, number: int | None) -> Attempt:
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
