"""Every error onrecord raises, in one tree.

    OnrecordError
    ├── InvalidInput          what was given cannot be accepted; nothing changed
    │   ├── InvalidName
    │   └── TooLarge
    ├── NotFound
    │   ├── SessionNotFound
    │   ├── AmbiguousName
    │   └── EventNotFound
    ├── Conflict              the record says otherwise; nothing changed
    │   ├── NameTaken · IdReused · LogMoved
    │   ├── IllegalTransition · SessionClosed · SessionPaused · SessionErased · SessionHeld
    │   ├── LeaseHeld · LeaseLost
    │   ├── TurnConflict · EffectUnknown
    │   ├── TrajectoryMoved · SessionFrozen · SessionRetired
    │   └── ConversationHeld · NotRestored
    ├── BudgetExhausted
    ├── CompactionFailed
    ├── TokenMismatch · AssemblyFailed
    ├── PayloadErased
    ├── DamagedLog · DamagedBundle
    ├── TokenizationFailed · BadReply · UpstreamFailed · TurnAborted · ProxyBusy
    └── StoreError
        ├── NoStore · StoreBusy · StoreFull · StoreReadOnly
        └── StoreTooNew · StoreCorrupt · StoreUnsafe · OutcomeUnknown

The first line of a message is a sentence a person can act on. `hint` names the next step, `code` is stable for
programs, `retryable` says whether the same call may succeed later without anybody changing anything.
"""

from __future__ import annotations


class OnrecordError(Exception):
    """Anything onrecord refuses or fails to do."""

    code = "error"
    hint = ""
    retryable = False

    def __init__(self, message: str, *, hint: str | None = None, **details: object) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint
        self.details = details
        for name, value in details.items():
            setattr(self, name, value)


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


class NotFound(OnrecordError):
    """Something that was named does not exist."""

    code = "not_found"


class TmuxMissing(OnrecordError):
    """tmux, or the library that drives it, is not installed."""

    code = "tmux_missing"
    hint = "install tmux, or use --headless"


class SessionNotFound(NotFound):
    """No session has this name or id."""

    code = "session_not_found"
    hint = "onrecord list --all shows every session of this store"


class AmbiguousName(NotFound):
    """A partial name or id fits more than one session."""

    code = "ambiguous_name"
    hint = "give more of the name, or the full id"


class EventNotFound(NotFound):
    """No event stands at this position or under this id."""

    code = "event_not_found"
    hint = "onrecord log NAME shows the events there are"


class Conflict(OnrecordError):
    """The record says otherwise; nothing was changed."""

    code = "conflict"


class NameTaken(Conflict):
    """Another session of the project has this name."""

    code = "name_taken"
    hint = "choose another name, or rename the other session first"


class IdReused(Conflict):
    """An event id that is on record already, with another payload."""

    code = "id_reused"
    hint = "an id names one event for ever: use a new id for new content"


class LogMoved(Conflict):
    """The log is not at the expected position any more."""

    code = "log_moved"
    hint = "read the new events, decide again, then append"
    retryable = True
    expected: int
    actual: int


class IllegalTransition(Conflict):
    """The session's lifecycle does not allow this step."""

    code = "illegal_transition"


class SessionClosed(Conflict):
    """The session has ended; it is kept, and takes no more work."""

    code = "session_closed"
    hint = "onrecord resume NAME --reopen goes on with it; onrecord fork starts a new one from it"


class SessionPaused(Conflict):
    """The session is paused; turns wait until it is resumed."""

    code = "session_paused"
    hint = "onrecord resume NAME"


class SessionErased(Conflict):
    """The session's content was erased; its id stays taken for good."""

    code = "session_erased"
    hint = "open a session under another name"


class SessionHeld(Conflict):
    """A hold protects the session against erasure."""

    code = "session_held"
    hint = "onrecord hold --release NAME --reason ... lifts it"


class LeaseHeld(Conflict):
    """Another process writes this lane."""

    code = "lease_held"
    retryable = True
    holder: dict[str, object]


class LeaseLost(Conflict):
    """This process held the lane once; another has taken it since."""

    code = "lease_lost"
    hint = "open the session again to take the lane back; what this process had not been acknowledged for is not there"


class TurnConflict(Conflict):
    """A turn step that does not fit the lane's turns; nothing moved."""

    code = "turn_conflict"
    hint = "read session.agents.lane() and start from its last committed position"


class EffectUnknown(Conflict):
    """An effect was started and never finished on record: it may or may not have happened."""

    code = "effect_unknown"
    hint = "find out what happened, then settle_effect(key, result=...) or once(..., rerun_unknown=True)"


class TrajectoryMoved(TurnConflict):
    """A reply to a trajectory that has moved since the request was prepared; nothing changed."""

    code = "trajectory_moved"
    hint = "prepare the request again on the head this error carries"
    retryable = True
    head: dict[str, object]


class SessionFrozen(Conflict):
    """The session's samples were frozen for a trainer; it takes no more turns."""

    code = "session_frozen"
    hint = "read the samples and acknowledge them, or retire the session"


class SessionRetired(Conflict):
    """The session was handed to a trainer, or given up: it is over for good."""

    code = "session_retired"
    hint = "start another session"


class ConversationHeld(Conflict):
    """Another living process has the agent's conversation."""

    code = "conversation_held"
    retryable = True
    pids: list[int]


class NotRestored(Conflict):
    """The agent's conversation could not be gone on with, and nothing else was wanted."""

    code = "not_restored"


class BudgetExhausted(OnrecordError):
    """The first limit of the session's budget that ran out."""

    code = "budget_exhausted"
    hint = "raise it with session.budget.set(...), or close the session"
    limit: str


class CompactionFailed(OnrecordError):
    """The summary could not be made or accepted; transcript and facts are as they were."""

    code = "compaction_failed"


class TokenMismatch(OnrecordError):
    """Token ids that do not go on from the ones on record; nothing changed."""

    code = "token_mismatch"
    hint = "send the prepared prompt ids to the engine, or allow more with max_trim_tokens"
    index: int


class AssemblyFailed(OnrecordError):
    """No sample can be made of what is on record."""

    code = "assembly_failed"


class PayloadErased(OnrecordError):
    """The content that was asked for has been erased."""

    code = "payload_erased"


class DamagedLog(OnrecordError):
    """What came out of the store is not what was put in."""

    code = "damaged_log"
    hint = "restore a backup or a bundle; onrecord verify tells position and cause"


class DamagedBundle(OnrecordError):
    """A bundle that was cut, changed or is not a bundle."""

    code = "damaged_bundle"
    hint = "export it again from the store it came from"


class TokenizationFailed(OnrecordError):
    """Messages could not be turned into token ids that go on from those on record."""

    code = "tokenization_failed"
    first_mismatch: int


class BadReply(OnrecordError):
    """An inference engine answered with something that cannot be put on record token by token."""

    code = "bad_reply"
    hint = "check --dialect, and that the engine returns token ids and logprobs"


class UpstreamFailed(OnrecordError):
    """The inference engine could not be reached, or went silent."""

    code = "upstream_failed"
    hint = "check --upstream; the same request may be sent again"
    retryable = True


class TurnAborted(OnrecordError):
    """The inference engine aborted the turn, and the client is to ask for it again."""

    code = "turn_aborted"
    hint = "send the same request again"
    retryable = True


class ProxyBusy(OnrecordError):
    """The recording proxy has as many turns under way as it takes, or is about to stop."""

    code = "proxy_busy"
    hint = "send the same request again, a little later"
    retryable = True


class StoreError(OnrecordError):
    """The store could not do its work."""

    code = "store_error"


class NoStore(StoreError):
    """Nobody has made a store in this database yet."""

    code = "not_initialised"
    hint = "onrecord store init URL makes one, as a role that may create roles"


class StoreBusy(StoreError):
    """Another writer kept the store for too long."""

    code = "store_busy"
    hint = "try again; onrecord doctor shows who holds it"
    retryable = True


class StoreFull(StoreError):
    """No space left; nothing acknowledged is lost and reading goes on."""

    code = "store_full"
    hint = "free some space and try again; no restart is needed"
    retryable = True


class StoreReadOnly(StoreError):
    """The store can be read but not written."""

    code = "store_read_only"
    hint = "check the permissions and the mount, or set ONRECORD_STORE to another place"


class StoreTooNew(StoreError):
    """A newer onrecord made this store."""

    code = "store_too_new"
    hint = "upgrade onrecord"


class StoreCorrupt(StoreError):
    """The database file is damaged or is not an onrecord store."""

    code = "store_corrupt"
    hint = "onrecord doctor; restore the last backup"


class StoreUnsafe(StoreError):
    """The store's place cannot keep the promises: foreign owner, wide permissions or a network file system."""

    code = "store_unsafe"


class OutcomeUnknown(StoreError):
    """The store failed while committing and could not be asked again whether the events landed."""

    code = "outcome_unknown"
    hint = "append again with the same event ids: what landed is not written twice"
    retryable = True
