"""The verbs of attempts: RUNNING is durable before anything runs; the outcome is recorded once."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.errors import Conflict, InvalidInput, NotFound, OnrecordError
from onrecord.rules import command_of, signature_of_command
from onrecord.views.attempts import ABANDONED, FAILED, OUTCOMES, RUNNING, SUCCEEDED
from onrecord.views.facts import TEXT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onrecord.log.events import Event
    from onrecord.session.verbs import Conducted
    from onrecord.views.attempts import Attempt


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
        process: dict[str, Any] | None = None, watched: bool = False,
    ) -> Event:  # fmt: skip
        """Put on record that a command is about to run. Refused while another attempt of this agent is unresolved.

        With `watched`, the attempt is lost when this process is gone; without, it waits until somebody settles it.
        """
        arguments = command_of(command) if isinstance(command, str) else tuple(command)
        if not arguments or not all(isinstance(word, str) for word in arguments):
            raise InvalidInput("an attempt needs a command")
        views = self.views
        waiting = views.attempts.unresolved(self.agent)
        if waiting:
            number = waiting[0]["number"]
            raise Conflict(
                f"attempt {number} of {self.agent!r} is unresolved: {waiting[0]['command']}",
                hint=f"onrecord attempt succeed {number}, fail {number} or abandon {number}",
            )
        signature = signature_of_command(arguments)
        state = (revision or {}).get("revision"), (revision or {}).get("dirty")
        data = {
            "command": command if isinstance(command, str) else signature, "signature": signature, "cwd": cwd,
            "process": process or (machine.identity() if watched else None), "revision": revision,
            "phase": views.phases.current(), "code": "/".join(part or "" for part in state) if revision else None,
        }  # fmt: skip
        return self.record("attempt.started", data)

    def settle_attempt(
        self: Conducted, number: int | None, outcome: str, *, error: str | None = None, fix: str | None = None,
        metrics: dict[str, float] | None = None, outputs: Sequence[Any] = (), reason: str | None = None, **about: Any,
    ) -> Event:  # fmt: skip
        """Record how an attempt ended: succeeded, failed (with its exact error) or abandoned (with a reason)."""
        attempt = _unsettled(self, number)
        if outcome not in OUTCOMES:
            raise InvalidInput(f"an attempt ends {', '.join(OUTCOMES)}; not {outcome!r}")
        found = dict(metrics or {})
        bad = [name for name, value in found.items() if isinstance(value, float) and not math.isfinite(value)]
        if outcome == SUCCEEDED and bad:
            raise InvalidInput(
                f"{', '.join(bad)} is not a finite number: this attempt failed", hint="settle it as failed"
            )
        if outcome == FAILED:
            self.require_text(error or "", "a failed attempt's error", TEXT_LIMIT)
        if outcome == ABANDONED:
            self.require_text(reason or "", "an abandoned attempt's reason", TEXT_LIMIT)
        plain = {name: value if name not in bad else str(value) for name, value in found.items()}
        data = {
            "attempt": attempt["number"], "outcome": outcome, "error": error, "fix": fix, "metrics": plain,
            "outputs": list(outputs), "reason": reason, **about,
        }  # fmt: skip
        # The id makes settling final: of two that settle the same attempt at once, the second is refused.
        return self.record("attempt.settled", data, id=f"attempt/{attempt['position']}/settled")

    def correct_attempt(self: Conducted, number: int, *, fix: str | None = None, remark: str | None = None) -> Event:
        """Add to a settled attempt; what was recorded stays."""
        attempt = self.views.attempts.get(number)
        if attempt is None or attempt["status"] == RUNNING:
            raise NotFound(f"no settled attempt has the number {number}", hint="onrecord attempt list")
        if not fix and not remark:
            raise InvalidInput("a correction says something", hint="give a fix or a remark")
        return self.record("attempt.corrected", {"attempt": number, "fix": fix, "remark": remark})

    @contextmanager
    def attempt(self: Conducted, command: str | Sequence[str], **about: Any) -> Iterator[OpenAttempt]:
        """Run something as an attempt: `with session.attempt("python train.py") as attempt: ...`."""
        this: Any = self
        this.start_attempt(command, watched=True, **about)
        number = max(attempt["number"] for attempt in self.views.attempts.unresolved(self.agent))
        made = OpenAttempt(number)
        known = {"metrics": made.metrics, "fix": made.fix, "outputs": made.outputs}
        try:
            yield made
        except BaseException as problem:
            error = f"{type(problem).__name__}: {problem}"
            try:
                this.settle_attempt(number, FAILED, error=error, **known)
            except OnrecordError as failure:
                problem.add_note(f"onrecord could not record that the attempt failed: {failure}")
            raise
        bad = [name for name, value in made.metrics.items() if not math.isfinite(value)]
        if bad:
            this.settle_attempt(number, FAILED, error=f"{', '.join(bad)} is not finite", **known)
        else:
            this.settle_attempt(number, SUCCEEDED, **known)


def _unsettled(session: Conducted, number: int | None) -> Attempt:
    attempts = session.views.attempts
    if number is None:
        waiting = attempts.unresolved(session.agent)
        if len(waiting) != 1:
            raise NotFound(f"{session.agent!r} has {len(waiting)} unresolved attempts", hint="onrecord attempt list")
        return waiting[0]
    attempt = attempts.get(number)
    if attempt is None:
        raise NotFound(f"no attempt has the number {number}", hint="onrecord attempt list")
    if attempt["status"] != RUNNING:
        raise Conflict(
            f"attempt {number} {attempt['status']} and stays so",
            hint=f'onrecord attempt correct {number} --fix "..." adds to it',
        )
    return attempt
