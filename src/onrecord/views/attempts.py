"""Attempts: every run of a command, RUNNING before it starts, settled once after it ended.

Numbers come from the order in the log. A settled attempt never changes; a correction is another event. An attempt is
*lost* because its process is gone and it was never settled: the caller knows which processes are gone. One that was
*interrupted* was stopped from outside: it neither failed nor succeeded.
"""

from __future__ import annotations

from onrecord.views.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, Self

    from onrecord.log.events import Event
    from onrecord.views.values import Attempt, Process, Stamp, Worktree

RUNNING, SUCCEEDED, FAILED, ABANDONED, LOST = "running", "succeeded", "failed", "abandoned", "lost"
INTERRUPTED = "interrupted"
OUTCOMES = (SUCCEEDED, FAILED, INTERRUPTED, ABANDONED)
SIGNATURE_LIMIT = 500
"""The longest signature of an error, in characters."""

SHARED = ("code", "cwd", "process", "keeper", "revision", "worktree", "code_after")
"""Fields of an attempt that no fold changes once they are set, and in which most attempts are alike."""


class Attempts(View):
    """Every attempt by its number."""

    KINDS: ClassVar = frozenset({"attempt.started", "attempt.settled", "attempt.corrected"})

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.count = 0
        """How many there were: the number of the last one."""

    def dump(self) -> dict[str, Any]:
        """Each attempt as a row: there may be thousands.

        The names of its fields are there once for all attempts that have the same. So are the values of fields in which
        attempts rarely differ: a row has their number.
        """
        forms: dict[tuple[str, ...], int] = {}
        numbers: dict[str, int] = {}
        values: list[Any] = []
        rows = {}
        for number, attempt in self.attempts.items():
            row: dict[str, Any] = dict(attempt)
            for name in SHARED:
                if name in row:
                    text = repr(row[name])
                    if text not in numbers:
                        numbers[text] = len(values)
                        values.append(row[name])
                    row[name] = numbers[text]
            rows[number] = [forms.setdefault(tuple(row), len(forms)), *row.values()]
        return {"forms": list(forms), "shared": values, "rows": rows, "count": self.count}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        view, forms, shared = cls(), saved["forms"], saved["shared"]
        view.count = saved["count"]
        names = [[name for name in SHARED if name in form] for form in forms]
        for number, (form, *row) in saved["rows"].items():
            known: Any = dict(zip(forms[form], row, strict=True))
            for name in names[form]:
                known[name] = shared[known[name]]
            view.attempts[number] = known
        return view

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

    def of_commands(self, signatures: set[str]) -> list[Attempt]:
        """The attempts of some commands, in order."""
        return [attempt for attempt in self.attempts.values() if attempt["signature"] in signatures]

    def failed_before(self, command: str) -> Attempt | None:
        """The last attempt of this command that has an outcome, if that is a failure; an interrupted one has none."""
        known = [one for one in self.attempts.values() if one["signature"] == command]
        last = next((one for one in reversed(known) if one["status"] in (SUCCEEDED, FAILED)), None)
        return last if last and last["status"] == FAILED else None

    def failed_fix(self, fix: str, attempt: Attempt) -> tuple[Attempt, Attempt] | None:
        """The attempt that a fix was proposed for before, and the one that failed with it.

        The same words were said to fix the same command, or the same error; the next run of that command tried them.
        """
        for one in reversed(self.attempts.values()):
            error = one.get("error_signature")
            alike = one["signature"] == attempt["signature"] or (error and error == attempt.get("error_signature"))
            said = [known["position"] for known in one.get("fixes", ()) if same_words(known["text"], fix)]
            if not alike or not said:
                continue
            tries = (
                other for other in self.attempts.values()
                if other["signature"] == one["signature"] and other["position"] > said[0]
            )  # fmt: skip
            tried = next((other for other in tries if other["status"] in (SUCCEEDED, FAILED)), None)
            if tried and tried["status"] == FAILED:
                return one, tried
        return None

    def failures_of(self, command: str, code: str | None = None) -> list[Attempt]:
        """Failed attempts of the same command; with `code`, only those on that state of the code."""
        return [
            attempt
            for attempt in self.attempts.values()
            if attempt["status"] == FAILED
            and attempt["signature"] == command
            and (code is None or failed_on(attempt, code))
        ]

    def foreseen(self, command: str, code: str | None) -> Attempt | None:
        """The failure that shows how a run of this command on this code would end, if there is one.

        It is a failure of the same command on the same code; or a failure of any command on the same code, with an
        error that this command has failed with before. The newest one with a fix is the most useful.
        """
        here = [one for one in self.attempts.values() if one["status"] == FAILED and failed_on(one, code)]
        same = [one for one in here if one["signature"] == command]
        met = {one["error_signature"] for one in self.failures_of(command) if one["error_signature"]}
        told = same or [one for one in here if one["error_signature"] in met]
        return next((one for one in reversed(told) if one.get("fix")), told[-1] if told else None)

    def of_error(self, signature: str, code: str | None, before: int) -> Attempt | None:
        """The newest earlier failure with this error on this code."""
        known = [
            one
            for one in self.attempts.values()
            if one["status"] == FAILED and one["number"] < before and one["error_signature"] == signature
            and failed_on(one, code)
        ]  # fmt: skip
        return known[-1] if known else None

    def started_at(self, position: int) -> Attempt | None:
        """The attempt that was started at this position."""
        return next((one for one in reversed(self.attempts.values()) if one["position"] == position), None)

    def apply(self, event: Event) -> None:
        data: Any = event.data or {}
        stamp: Stamp = {"position": event.position, "at": event.at, "by": event.by}
        if event.kind == "attempt.started":
            number = self.count = self.count + 1
            begun: Any = {
                "number": number, "status": RUNNING, "command": data.get("command", "(erased)"),
                "signature": data.get("signature", ""), "code": data.get("code"), "phase": data.get("phase"),
                "cwd": data.get("cwd"), "process": data.get("process"), "keeper": data.get("keeper"),
                "revision": data.get("revision"), "worktree": data.get("worktree"), **stamp,
            }  # fmt: skip
            self.attempts[str(number)] = begun
            return
        attempt = self.attempts[str(data["attempt"])]
        if event.kind == "attempt.corrected":
            attempt.setdefault("corrections", []).append(data | stamp)
            attempt["fix"] = data.get("fix") or attempt.get("fix")
            _propose(attempt, data.get("fix"), event.position)
            if data.get("code_change_needed") is not None:
                attempt["code_change_needed"] = bool(data["code_change_needed"])
        elif attempt["status"] == RUNNING:
            attempt |= {
                "status": data["outcome"], "ended_at": event.at, "settled": event.position,
                "exit_code": data.get("exit_code"), "seconds": data.get("seconds"), "error": data.get("error"),
                "error_signature": data.get("error_signature"), "fix": data.get("fix"),
                "metrics": data.get("metrics", {}), "outputs": data.get("outputs", []), "reason": data.get("reason"),
                "evidence": data.get("evidence"), "captured": bool(data.get("captured")),
                "code_after": data.get("code_after"), "settled_by": event.by,
                "code_change_needed": bool(data.get("code_change_needed")),
            }  # fmt: skip
            _propose(attempt, data.get("fix"), event.position)


def _propose(attempt: Attempt, fix: str | None, position: int) -> None:
    if fix:
        attempt.setdefault("fixes", []).append({"text": fix, "position": position})


def same_words(one: str, other: str) -> bool:
    """Whether two texts say the same in the same words."""
    return one.casefold().strip(" .!").split() == other.casefold().strip(" .!").split()


def in_worktree(attempt: Attempt, worktree: Worktree | None) -> bool:
    """Whether an attempt runs in a worktree. One that does not say where it runs counts in every worktree."""
    own = attempt.get("worktree")
    if not own or not worktree:
        return True
    if own["host"] != worktree["host"]:
        return False
    one, other = f"{own['root']}/", f"{worktree['root']}/"
    # Only git says where a worktree ends: without it, a directory and one below it count as the same.
    nested = (one.startswith(other) or other.startswith(one)) and not (own.get("git") and worktree.get("git"))
    return one == other or nested


def error_signature(error: str) -> str:
    """An error without what differs from run to run: numbers, addresses, paths, hashes."""
    import re

    varying = r"0x[0-9a-fA-F]+|\b[0-9a-f]{7,64}\b|\d+(?:\.\d+)?|/\S+"
    return re.sub(varying, "#", error).strip().casefold()[:SIGNATURE_LIMIT]


def failed_on(attempt: Attempt, code: str | None) -> bool:
    """Whether an attempt ran on this state of the code. Files that the attempt itself wrote do not change that."""
    return code in (attempt["code"], attempt.get("code_after") or attempt["code"])


def status_of(attempt: Attempt, gone: Callable[[Process], bool]) -> str:
    """The status to show: lost when the record says running and its processes are gone.

    This is not stored: an attempt is running again if its process turns out to be alive.
    """
    known = [process for process in (attempt["process"], attempt["keeper"]) if process]
    lost = attempt["status"] == RUNNING and known and all(gone(process) for process in known)
    return LOST if lost else str(attempt["status"])


def orphaned(attempt: Attempt, gone: Callable[[Process], bool]) -> bool:
    """Whether a command still runs though the onrecord that started it is gone: its outcome will not be recorded."""
    process, keeper = attempt["process"], attempt["keeper"]
    return bool(attempt["status"] == RUNNING and process and keeper and gone(keeper) and not gone(process))
