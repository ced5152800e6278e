"""Why the command that a supervisor started for an agent could not run it: written to a file, as fields.

An agent that came up has its end on record. A command that fails earlier has no lane to record it in, so its
supervisor names a file for it, and reads that file instead of guessing from what was printed.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from onrecord.errors import OnrecordError
from onrecord.machine.files import write_file


def write_failure(file: str, problem: Exception) -> None:
    """Write what went wrong. If that is impossible, the command just fails with its own error."""
    if isinstance(problem, OnrecordError):
        code, message = problem.code, problem.message
    else:
        code, message = type(problem).__name__, str(problem)
    with suppress(OSError):
        write_file(Path(file), [json.dumps({"code": code, "message": message}).encode()], durable=False)


def read_failure(file: Path) -> str:
    """What went wrong, in one sentence; "" when nothing was said."""
    try:
        found = json.loads(file.read_text(encoding="utf-8", errors="replace"))
        return str(found["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
