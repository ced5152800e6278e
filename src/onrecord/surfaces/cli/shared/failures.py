"""Reports an error once, on stderr: a line a person can act on, or one JSON object."""

from __future__ import annotations

import os
import sys

from onrecord.environment import DEBUG_VARIABLE
from onrecord.errors import OnrecordError, SessionNotFound
from onrecord.surfaces.cli.shared.exits import BUG, FAILED, UsageError, exit_code_of
from onrecord.surfaces.cli.shared.hints import hint_of
from onrecord.surfaces.cli.shared.output import SCHEMA_VERSION, dump, labelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.surfaces.cli.verbs import Verb


def report(problem: Exception, words: list[str]) -> int:
    """Print what happened and return the exit code for it."""
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exception(problem)
    if isinstance(problem, RecursionError):
        problem = UsageError("the input is nested too deeply", hint="give it in a flatter form")
    elif isinstance(problem, UnicodeDecodeError):
        problem = UsageError(f"the input is not UTF-8 text: {problem.reason} at byte {problem.start:,}")
    if isinstance(problem, OnrecordError):
        code, message, retryable = problem.code, problem.message, problem.retryable
        status = exit_code_of(code)
        hint = _meant(problem, words) or hint_of(problem, _verb(words))
    elif isinstance(problem, OSError) and problem.strerror:
        where = f": {problem.filename}" if problem.filename else ""
        code, message, hint, retryable = "system", f"{problem.strerror}{where}", "", False
        status = FAILED
    else:
        code, message, retryable = "internal", f"{type(problem).__name__}: {problem}", False
        hint = f"this is a bug in onrecord; set {DEBUG_VARIABLE}=1 to see where; `onrecord doctor` checks the store"
        status = BUG
    _flush()
    if "--json" in (words[: words.index("--")] if "--" in words else words):
        error = {"kind": code, "message": message, "hint": hint, "retryable": retryable}
        sys.stderr.write(dump({"schema_version": SCHEMA_VERSION, "kind": "error", "error": error}) + "\n")
    else:
        sys.stderr.write(labelled("error", message) + (labelled("hint", hint) if hint else ""))
    return status


def _meant(problem: OnrecordError, words: list[str]) -> str:
    """The same command with the nearest name, for the name of a session that does not exist."""
    typed, near = problem.details.get("name"), problem.details.get("near")
    if problem.code != SessionNotFound.code or not isinstance(near, list) or typed not in words:
        return ""  # a name that is not on the command line was set in the environment
    from shlex import join

    place = len(words) - 1 - words[::-1].index(typed)
    others = f" (or {', '.join(near[1:])})" if near[1:] else ""
    return f"did you mean `onrecord {join([*words[:place], near[0], *words[place + 1 :]])}`?{others}"


def _verb(words: list[str]) -> Verb | None:
    """The verb of the command, if it is one that people use."""
    from onrecord.surfaces.cli.catalogue import shown as public
    from onrecord.surfaces.cli.words import split

    name = split(words)[0]
    return next((verb for verb in public() if verb.name == name), None)


def _flush() -> None:
    """Print what was answered before the error first."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return
