"""Attempts: every run of a command, RUNNING before it starts, settled once after it ended.

Numbers come from the order in the log. A settled attempt never changes; a correction is another event. An attempt is
*lost* because its process is gone and it was never settled: whoever asks brings the knowledge of which processes are
gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onrecord.views.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Event

RUNNING, SUCCEEDED, FAILED, ABANDONED, LOST = "running", "succeeded", "failed", "abandoned", "lost"
OUTCOMES = (SUCCEEDED, FAILED, ABANDONED)

Attempt = dict[str, Any]


class Attempts(View):
    """Every attempt by its number."""

    KINDS: ClassVar = frozenset({"attempt.started", "attempt.settled", "attempt.corrected"})

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}

    def get(self, number: int) -> Attempt | None:
        """The attempt with this number."""
        return self.attempts.get(str(number))

    def all(self) -> list[Attempt]:
        """Every attempt, in order."""
        return list(self.attempts.values())

    def unresolved(self, agent: str | None = None) -> list[Attempt]:
        """Attempts without an outcome, of one agent or of all."""
        return [
            attempt
            for attempt in self.attempts.values()
            if attempt["status"] == RUNNING and (agent is None or attempt["by"] == agent)
        ]

    def failures_of(self, command: str, code: str | None = None) -> list[Attempt]:
        """Failed attempts of the same command; with `code`, only those on the same state of the code."""
        return [
            attempt
            for attempt in self.attempts.values()
            if attempt["status"] == FAILED
            and attempt["signature"] == command
            and (code is None or attempt["code"] == code)
        ]

    def apply(self, event: Event) -> None:
        data = event.data or {}
        stamp = {"position": event.position, "at": event.at, "by": event.by}
        if event.kind == "attempt.started":
            number = len(self.attempts) + 1
            self.attempts[str(number)] = {
                "number": number, "status": RUNNING, "command": data.get("command", "(erased)"),
                "signature": data.get("signature", ""), "code": data.get("code"), "phase": data.get("phase"),
                "cwd": data.get("cwd"), "process": data.get("process"), "revision": data.get("revision"), **stamp,
            }  # fmt: skip
            return
        attempt = self.attempts[str(data["attempt"])]
        if event.kind == "attempt.corrected":
            attempt.setdefault("corrections", []).append({**data, **stamp})
            attempt["fix"] = data.get("fix") or attempt.get("fix")
        elif attempt["status"] == RUNNING:
            attempt |= {
                "status": data["outcome"], "ended_at": event.at, "settled": event.position,
                "exit_code": data.get("exit_code"), "seconds": data.get("seconds"), "error": data.get("error"),
                "error_signature": data.get("error_signature"), "fix": data.get("fix"),
                "metrics": data.get("metrics", {}), "outputs": data.get("outputs", []), "reason": data.get("reason"),
                "evidence": data.get("evidence"),
            }  # fmt: skip


def status_of(attempt: Attempt, gone: Callable[[dict[str, Any]], bool]) -> str:
    """The status a reader should go by: lost when it runs on record and its process is gone."""
    lost = attempt["status"] == RUNNING and attempt["process"] and gone(attempt["process"])
    return LOST if lost else str(attempt["status"])
