"""The exit codes of the command, in one table, and the errors that only the command line raises."""

from __future__ import annotations

from onrecord.errors import InvalidInput, NoStore, OnrecordError

OK = 0
FAILED = 1
USAGE = 2
NOT_INITIALISED = 3
NOT_FOUND = 4
DAMAGED = 5
VERSION_MISMATCH = 6
BUSY = 7
PARTIAL = 8
REFUSED = 10
BUG = 70
INTERRUPTED = 130
PIPE_CLOSED = 141

EXIT_CODES = {
    OK: "done, or already done",
    FAILED: "a check found a problem, or the command failed",
    USAGE: "wrong arguments, or a value that cannot be accepted",
    NOT_INITIALISED: "there is no store yet",
    NOT_FOUND: "no such session or event, or more than one matches",
    DAMAGED: "the store, a log or a bundle is damaged",
    VERSION_MISMATCH: "a newer onrecord wrote this",
    BUSY: "in use by another process; the same command may work later",
    PARTIAL: "partly done; the output names the rest",
    REFUSED: "not allowed: status, hold, budget, name, gate, a secret, or an unsafe store",
    BUG: "an error inside onrecord",
    INTERRUPTED: "stopped with Ctrl-C",
    PIPE_CLOSED: "the reader of the output stopped reading",
}

BY_ERROR = {
    "usage": USAGE,
    "invalid_input": USAGE,
    "invalid_name": USAGE,
    "too_large": USAGE,
    "not_initialised": NOT_INITIALISED,
    "not_found": NOT_FOUND,
    "session_not_found": NOT_FOUND,
    "ambiguous_name": NOT_FOUND,
    "event_not_found": NOT_FOUND,
    "payload_erased": NOT_FOUND,
    "damaged_log": DAMAGED,
    "damaged_bundle": DAMAGED,
    "store_corrupt": DAMAGED,
    "store_too_new": VERSION_MISMATCH,
    "store_busy": BUSY,
    "store_full": BUSY,
    "lease_held": BUSY,
    "log_moved": BUSY,
    "outcome_unknown": BUSY,
    "conversation_in_use": BUSY,
    "secret_found": REFUSED,
    "not_restored": REFUSED,
    "from_elsewhere": REFUSED,
    "untrusted_bundle": REFUSED,
    "conflict": REFUSED,
    "name_taken": REFUSED,
    "id_reused": REFUSED,
    "illegal_transition": REFUSED,
    "session_closed": REFUSED,
    "session_paused": REFUSED,
    "session_erased": REFUSED,
    "session_held": REFUSED,
    "lease_lost": REFUSED,
    "turn_conflict": REFUSED,
    "trajectory_moved": BUSY,
    "session_frozen": REFUSED,
    "session_retired": REFUSED,
    "effect_unknown": REFUSED,
    "tool_timed_out": REFUSED,
    "budget_exhausted": REFUSED,
    "budget_exceeded": REFUSED,
    "store_unsafe": REFUSED,
    "tenant_refused": REFUSED,
    "store_locked": REFUSED,
    "session_locked": REFUSED,
    "store_moved": REFUSED,
    "declined": REFUSED,
    "compaction_failed": FAILED,
    "token_mismatch": FAILED,
    "assembly_failed": FAILED,
    "tokenization_failed": FAILED,
    "bad_reply": FAILED,
    "upstream_failed": BUSY,
    "turn_aborted": BUSY,
    "proxy_busy": BUSY,
    "tmux_missing": FAILED,
    "store_read_only": FAILED,
    "store_error": FAILED,
    "error": FAILED,
    "system": FAILED,
    "internal": BUG,
}
"""The exit code of every error, by its `code`. tests/cli checks that none is missing."""


def exit_code_of(code: str) -> int:
    """The exit code of an error; an unknown one counts as a failure."""
    return BY_ERROR.get(code, FAILED)


class UsageError(InvalidInput):
    """The command line cannot be understood."""

    code = "usage"


class NotInitialised(NoStore):
    """There is no store file yet; the first session creates it."""

    hint = "record a coding agent, or open a session"
    step = "first_session"


class Declined(OnrecordError):
    """The person did not confirm."""

    code = "declined"
