"""What went wrong, told once: a line a person can act on, or one JSON object, on stderr."""

from __future__ import annotations

import os
import sys

from onrecord.environment import DEBUG_VARIABLE
from onrecord.errors import OnrecordError
from onrecord.surfaces.cli.shared.exits import BUG, FAILED, exit_code_of
from onrecord.surfaces.cli.shared.output import SCHEMA_VERSION, dump, shown


def report(problem: Exception, words: list[str]) -> int:
    """Tell what happened and return the exit code for it."""
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exception(problem)
    if isinstance(problem, OnrecordError):
        code, message, hint, retryable = problem.code, problem.message, problem.hint, problem.retryable
        status = exit_code_of(code)
        hint = hint or f"onrecord help {_verb(words)}".rstrip()
    elif isinstance(problem, OSError) and problem.strerror:
        where = f": {problem.filename}" if problem.filename else ""
        code, message, hint, retryable = "system", f"{problem.strerror}{where}", "", False
        status = FAILED
    else:
        code, message, retryable = "internal", f"{type(problem).__name__}: {problem}", False
        hint = f"this is a bug in onrecord; {DEBUG_VARIABLE}=1 shows where, onrecord doctor looks at the store"
        status = BUG
    _flush()
    if "--json" in (words[: words.index("--")] if "--" in words else words):
        error = {"kind": code, "message": message, "hint": hint, "retryable": retryable}
        sys.stderr.write(dump({"schema_version": SCHEMA_VERSION, "kind": "error", "error": error}) + "\n")
    else:
        sys.stderr.write(f"error: {shown(message)}\n" + (f"hint: {shown(hint)}\n" if hint else ""))
    return status


def _verb(words: list[str]) -> str:
    """The verb that was asked for, if people are told about it."""
    from onrecord.surfaces.cli.catalogue import shown as told
    from onrecord.surfaces.cli.words import split

    name = split(words)[0]
    return name if name in {verb.name for verb in told()} else ""


def _flush() -> None:
    """What was answered before the error comes before it."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return
