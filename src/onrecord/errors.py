"""Every error onrecord raises, in one tree.

    OnrecordError
    ├── InvalidInput          a given value cannot be accepted; nothing changed
    │   ├── InvalidName
    │   └── TooLarge · SecretFound
    ├── NotFound
    │   ├── SessionNotFound
    │   ├── AmbiguousName
    │   └── EventNotFound
    ├── Conflict              the log does not allow it; nothing changed
    │   ├── NameTaken · IdReused · LogMoved
    │   ├── IllegalTransition · SessionClosed · SessionPaused · SessionErased · SessionHeld
    │   ├── LeaseHeld · LeaseLost
    │   ├── TurnConflict · EffectUnknown · ToolTimedOut
    │   ├── TrajectoryMoved · SessionFrozen · SessionRetired
    │   └── ConversationInUse · NotRestored · FromElsewhere · UntrustedBundle
    ├── BudgetExhausted · BudgetExceeded
    ├── CompactionFailed
    ├── TokenMismatch · AssemblyFailed
    ├── PayloadErased
    ├── DamagedLog · DamagedBundle
    ├── TokenizationFailed · BadReply · UpstreamFailed · TurnAborted · ProxyBusy
    └── StoreError
        ├── NoStore · StoreBusy · StoreFull · StoreReadOnly · TenantRefused
        ├── SessionLocked
        └── StoreTooNew · StoreCorrupt · StoreUnsafe · StoreLocked · StoreMoved · OutcomeUnknown

The first line of a message is a sentence a person can act on. `hint` says what to do next, in words that are true in
Python and anywhere else; it never names a command. A traceback shows it as a note. `step` is a key for the same
advice: a surface that has commands looks up its own text by `step` or `code`, and fills in the details. `code` is
stable for programs. `retryable` says whether the same call may succeed later without any change by the caller.
"""

from __future__ import annotations


class OnrecordError(Exception):
    """Anything onrecord refuses or fails to do."""

    code = "error"
    hint = ""
    step = ""
    retryable = False

    def __init__(self, message: str, *, hint: str | None = None, step: str = "", **details: object) -> None:
        super().__init__(message)
        self.message = message
        if step:
            self.step = step
        if hint is not None:
            self.hint = hint
        self.details = details
        for name, value in details.items():
            setattr(self, name, value)
        if self.hint:
            self.add_note(f"hint: {self.hint}")  # a traceback shows it below the message


class InvalidInput(OnrecordError):
    """A value that was given cannot be accepted."""

    code = "invalid_input"


class InvalidName(InvalidInput):
    """A session or agent name that breaks the naming rules."""

    code = "invalid_name"
    hint = "use 1 to 64 of a-z A-Z 0-9 . _ - and start with a letter or digit"


class TooLarge(InvalidInput):
    """A payload or batch over a named limit."""

    code = "too_large"
    hint = "split it, or keep the large part in a file and record its path"


class SecretFound(InvalidInput):
    """The policy of this project refuses what contains a secret."""

    code = "secret_found"
    hint = 'remove the secret, or let the policy replace it: policy = "redact" under [secrets] in the settings'


class NotFound(OnrecordError):
    """Something that was named does not exist."""

    code = "not_found"


class TmuxMissing(OnrecordError):
    """tmux, or the library that drives it, is not installed."""

    code = "tmux_missing"
    hint = "install tmux, or run the team without a terminal"


class SessionNotFound(NotFound):
    """No session has this name or id."""

    code = "session_not_found"
    hint = 'store.sessions(project="") lists every session of this store'


class AmbiguousName(NotFound):
    """A partial name or id matches more than one session."""

    code = "ambiguous_name"
    hint = "give more of the name, or the full id"


class EventNotFound(NotFound):
    """No event has this position or id."""

    code = "event_not_found"
    hint = "session.events() lists the events that exist"


class Conflict(OnrecordError):
    """The log does not allow this; nothing was changed."""

    code = "conflict"


class NameTaken(Conflict):
    """Another session of the project already has this name."""

    code = "name_taken"
    hint = "choose another name, or rename the other session first"


class IdReused(Conflict):
    """The idempotency key was already used for a different event."""

    code = "id_reused"
    hint = "an idempotency key belongs to one event: use a new one for new content"


class LogMoved(Conflict):
    """The log is no longer at the expected position."""

    code = "log_moved"
    hint = "read the new events, then try again"
    retryable = True
    expected: int
    actual: int


class IllegalTransition(Conflict):
    """The session's lifecycle does not allow this step."""

    code = "illegal_transition"


class SessionClosed(Conflict):
    """The session has ended; it accepts no more work."""

    code = "session_closed"
    hint = "session.resume(reopen=True) reopens it; session.fork(name) starts a new session from it"


class SessionPaused(Conflict):
    """The session is paused; it accepts no turns until it is resumed."""

    code = "session_paused"
    hint = "session.resume() resumes it"


class SessionErased(Conflict):
    """The session's content was erased; its id and name stay reserved."""

    code = "session_erased"
    hint = "open a session under another name"


class SessionHeld(Conflict):
    """A hold protects the session against erasure."""

    code = "session_held"
    hint = "lift the hold first"


class LeaseHeld(Conflict):
    """Another process has the lease of this lane."""

    code = "lease_held"
    retryable = True
    holder: dict[str, object]
    until: int
    """When it ends, if its holder does not renew it: microseconds since 1970."""


class LeaseLost(Conflict):
    """This process had the lease of the lane; another process has taken it."""

    code = "lease_lost"
    hint = "open the session again to take the lease; events without an acknowledgement were not recorded"


class TurnConflict(Conflict):
    """The step does not follow from the lane's turns; nothing was changed."""

    code = "turn_conflict"
    hint = "read session.agents.lane() and start from its last committed position"


class EffectUnknown(Conflict):
    """An effect was started and has no result on record: it may or may not have happened."""

    code = "effect_unknown"
    hint = "check whether it happened, then record its result, or run it with session.once(..., rerun_unknown=True)"


class ToolTimedOut(EffectUnknown):
    """A tool did not return in time. It may still finish; its outcome is recorded if it does."""

    code = "tool_timed_out"
    hint = "check whether it happened, then record its result; or allow more time with session.tool(fn, timeout=...)"


class TrajectoryMoved(TurnConflict):
    """The trajectory has moved since the prompt was prepared; nothing was changed."""

    code = "trajectory_moved"
    hint = "prepare the prompt again from this error's `head`"
    retryable = True
    head: dict[str, object]


class SessionFrozen(Conflict):
    """The session's samples are frozen for a trainer; it accepts no more turns."""

    code = "session_frozen"
    hint = "read the samples and acknowledge them, or retire the session"


class SessionRetired(Conflict):
    """The session was handed to a trainer or discarded; it cannot be used again."""

    code = "session_retired"
    hint = "start another session"


class ConversationInUse(Conflict):
    """Another running process has the agent's conversation open."""

    code = "conversation_in_use"
    retryable = True
    pids: list[int]


class NotRestored(Conflict):
    """The agent's conversation could not be resumed, and the policy forbids a fresh start."""

    code = "not_restored"
    reason: str


class FromElsewhere(Conflict):
    """A command on record came from another store (import, copy, restored backup); no person here agreed to it."""

    code = "from_elsewhere"
    hint = "look at the command first, then agree to it"


class UntrustedBundle(Conflict):
    """The bundle is not for this reader, or not from the sender who was asked for; nothing was imported."""

    code = "untrusted_bundle"


class BudgetExhausted(OnrecordError):
    """The session has used up a limit of its budget."""

    code = "budget_exhausted"
    hint = "raise it with session.budget.set(...), or close the session"
    limit: str
    spent: dict[str, float]


class BudgetExceeded(BudgetExhausted):
    """A limit of the budget was reached inside a turn: the turn is aborted, and the session is paused."""

    code = "budget_exceeded"
    hint = "session.budget.set(...) raises it; then session.resume(), and session.turn(resume=True) continues the turn"


class CompactionFailed(OnrecordError):
    """The summary could not be made or accepted; transcript and facts are unchanged."""

    code = "compaction_failed"


class TokenMismatch(OnrecordError):
    """The token ids do not continue the ones on record; nothing was changed."""

    code = "token_mismatch"
    hint = "send the prepared prompt ids to the engine, or allow more with max_trim_tokens"
    index: int


class AssemblyFailed(OnrecordError):
    """No sample can be made from the log."""

    code = "assembly_failed"


class PayloadErased(OnrecordError):
    """The requested content has been erased."""

    code = "payload_erased"


class DamagedLog(OnrecordError):
    """What the store returned is not what was written."""

    code = "damaged_log"
    hint = "session.verify() reports position and cause; restore a backup or a bundle"


class DamagedBundle(OnrecordError):
    """The bundle is truncated or changed, or the file is not a bundle."""

    code = "damaged_bundle"
    hint = "export it again from the store it came from"


class TokenizationFailed(OnrecordError):
    """The messages could not be turned into token ids that continue those on record."""

    code = "tokenization_failed"
    first_mismatch: int


class BadReply(OnrecordError):
    """The inference engine's reply cannot be recorded token by token."""

    code = "bad_reply"
    hint = "check the dialect, and that the engine returns token ids and logprobs"


class UpstreamFailed(OnrecordError):
    """The inference engine could not be reached, or stopped answering."""

    code = "upstream_failed"
    hint = "check the engine's address, then send the same request again"
    retryable = True


class TurnAborted(OnrecordError):
    """The inference engine aborted the turn; the client should send the request again."""

    code = "turn_aborted"
    hint = "send the same request again"
    retryable = True


class ProxyBusy(OnrecordError):
    """The recording proxy has reached its limit of concurrent turns, or is shutting down."""

    code = "proxy_busy"
    hint = "send the same request again a little later"
    retryable = True


class StoreError(OnrecordError):
    """The store failed."""

    code = "store_error"


class NoStore(StoreError):
    """This database has no onrecord store yet."""

    code = "not_initialised"
    hint = "create the store first, as a role that may create roles"


class StoreBusy(StoreError):
    """Another writer kept the store busy for too long."""

    code = "store_busy"
    hint = "try again"
    retryable = True


class StoreFull(StoreError):
    """No space left; acknowledged events are safe, and reading still works."""

    code = "store_full"
    hint = "free some space and try again; no restart is needed"
    retryable = True


class StoreReadOnly(StoreError):
    """The store can be read but not written."""

    code = "store_read_only"
    hint = "check the permissions and the mount, or set ONRECORD_STORE to another path"


class TenantRefused(StoreError):
    """The login may not work for this tenant. The answer is the same whether or not the tenant exists."""

    code = "tenant_refused"
    hint = "name a tenant of this login in the URL, or ask the owner of the store to grant it"


class StoreTooNew(StoreError):
    """A newer version of onrecord made this store."""

    code = "store_too_new"
    hint = "upgrade onrecord"


class StoreCorrupt(StoreError):
    """The database is damaged, or it is not an onrecord store."""

    code = "store_corrupt"
    hint = "restore the last backup"


class StoreUnsafe(StoreError):
    """The store is not safe where it is: another owner, wide permissions or a network file system."""

    code = "store_unsafe"


class StoreLocked(StoreError):
    """The key of an encrypted store is missing, unreadable or wrong, or there are no ciphers; nothing was changed."""

    code = "store_locked"
    hint = "name the key in ONRECORD_KEY, or under [encryption] in the settings"


class SessionLocked(StoreError):
    """The key of this session is missing or was destroyed: its content cannot be read, and nothing can be added."""

    code = "session_locked"
    hint = "put a copy of its key there, or name the directory of the keys under [session_keys] in the settings"
    destroyed: bool = False


class StoreMoved(StoreError):
    """The store's file was deleted, moved or replaced while this process had it open; nothing was written."""

    code = "store_moved"
    hint = "close this store and open it again; what is on record is where the file is now"


class OutcomeUnknown(StoreError):
    """The store failed during a commit; it is not known whether the events were written."""

    code = "outcome_unknown"
    hint = "append again with the same event ids: nothing is written twice"
    retryable = True
