"""The events: everything that can happen in a session, and the envelope each one travels in.

Read this first. A kind is a stable string `noun.past-participle`. Each declares its tier: *transcript* (large,
compactible, erasable by retention) or *durable* (small, permanent). There is no `turn.superseded`, no
`finding.stale`, no `attempt.lost`: those are deduced by the views.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from onrecord.log.item_values import Json

tuple_new = tuple.__new__
"""Makes a named tuple without its own constructor, which is a Python function and takes three times as long."""

TRANSCRIPT = "transcript"
DURABLE = "durable"


class Kind(NamedTuple):
    """What one kind of event means."""

    name: str
    tier: str
    meaning: str
    needs: str = ""
    """The fields that the payload must have; a payload is always a JSON object."""
    version: int = 1


class Event(NamedTuple):
    """One event as callers see it: decoded, upcast to the present version."""

    session: str
    position: int
    id: str
    kind: str
    v: int
    at: int
    """Microseconds since 1970, UTC."""
    by: str
    run: int
    because: int | None
    """The position in the same log that led to this event, if one did."""
    data: Json
    """The payload; None when it was erased."""
    payload_hash: bytes
    hash: bytes


class Draft(NamedTuple):
    """An event to append: sealed by the codec, not yet placed in a log."""

    id: str
    kind: str
    v: int
    at: int
    by: str
    run: int
    """The run that appends it; NEW_RUN asks the store to number a new one."""
    because: int | None
    salt: bytes
    payload: bytes
    payload_hash: bytes
    data: Json
    """The value that `payload` encodes, kept so that it need not be decoded again."""


class Record(NamedTuple):
    """An event as a store keeps it: placed, chained, its payload still bytes (None when erased)."""

    session: str
    position: int
    id: str
    kind: str
    v: int
    at: int
    by: str
    run: int
    because: int | None
    salt: bytes | None
    payload: bytes | None
    payload_hash: bytes
    hash: bytes


NEW_RUN = 0


def _kinds(*rows: tuple[str, str, str] | tuple[str, str, str, str]) -> dict[str, Kind]:
    return {row[0]: Kind(*row) for row in rows}


KINDS: dict[str, Kind] = _kinds(
    (
        "session.opened",
        DURABLE,
        "A session began: name, project, its directory, objective, metadata, budget, parent.",
        "name project",
    ),
    ("session.renamed", DURABLE, "The session was renamed, or moved to another project.", "name"),
    ("session.titled", DURABLE, "A title that sums up the work so far.", "text"),
    ("session.paused", DURABLE, "Work stops for now; no process keeps running."),
    ("session.resumed", DURABLE, "Work continues after a pause or an explicit reopening."),
    ("session.closed", DURABLE, "The work has ended; the record is kept."),
    ("session.archived", DURABLE, "A closed session was archived: lists leave it out."),
    ("session.forked", DURABLE, "The first event of a fork: the history before it is the parent's."),
    ("session.held", DURABLE, "Nothing of the session may be erased until it is released."),
    ("session.released", DURABLE, "A hold was lifted."),
    ("agent.joined", DURABLE, "A process opened the session as this agent: a new run begins."),
    (
        "agent.located",
        DURABLE,
        "The vendor's id of an agent's conversation, or something new about the conversation.",
        "vendor vendor_id",
    ),
    ("agent.left", DURABLE, "The agent's process closed the session cleanly."),
    ("attention.needed", DURABLE, "An agent waits for a person, for instance for a permission.", "message"),
    ("team.formed", DURABLE, "The team of this session: its agents, what each one runs, where.", "team"),
    ("team.scaled", DURABLE, "A group of the team was resized.", "group size"),
    ("team.dismissed", DURABLE, "The team was dismissed: its agents are ended."),
    ("agent.spawned", DURABLE, "A supervisor is about to start an agent: fresh or resumed, and why.", "agent mode"),
    ("agent.recalled", DURABLE, "An agent of the team must start fresh.", "agent"),
    ("attention.given", DURABLE, "The agent no longer waits for a person."),
    ("turn.begun", DURABLE, "The intent of a turn: number, base position, request fingerprint."),
    ("turn.committed", DURABLE, "The turn counts: its items are part of the committed transcript."),
    ("turn.aborted", DURABLE, "The turn was aborted: its items stay provisional until the next commit."),
    ("turn.recorded", TRANSCRIPT, "A whole turn that arrived complete: begun, filled and committed at once.", "items"),
    ("item.added", TRANSCRIPT, "One message, tool call or tool result of an open turn."),
    ("tokens.recorded", TRANSCRIPT, "Token ids of an open turn: of its prompt, or of what was generated.", "part ids"),
    ("effect.started", TRANSCRIPT, "A side effect is about to happen."),
    ("effect.finished", TRANSCRIPT, "The side effect happened, or failed: result or error."),
    ("tool.used", TRANSCRIPT, "An agent's tool ran: its command and exit code, the files it changed.", "tool act"),
    ("transcript.compacted", TRANSCRIPT, "A summary replaces a range of the transcript in contexts.", "summary upto"),
    ("attempt.started", DURABLE, "A run of a command is about to start.", "command signature"),
    ("attempt.settled", DURABLE, "The run ended: succeeded, failed, was interrupted or abandoned.", "attempt outcome"),
    ("attempt.corrected", DURABLE, "An addition to a settled attempt, for instance the fix.", "attempt"),
    ("phase.entered", DURABLE, "A phase of the profile began.", "phase"),
    ("phase.finished", DURABLE, "A phase was finished with its required sections.", "phase"),
    ("profile.chosen", DURABLE, "The kind of work: phases, required sections, STATE.md, instructions.", "profile"),
    ("objective.set", DURABLE, "What the session is for.", "text"),
    ("reproduction.recorded", DURABLE, "How to reproduce the problem: steps, scenario, rate.", "steps"),
    ("next_action.set", DURABLE, "The one thing to do next; may be a command.", "text"),
    ("decision.made", DURABLE, "A decision, with the position it came from.", "text"),
    ("worklog.written", DURABLE, "One line of the work log.", "text"),
    ("section.written", DURABLE, "Text of a section of STATE.md.", "section text"),
    ("feature.listed", DURABLE, "A feature that the work must have in the end.", "feature text"),
    (
        "feature.judged",
        DURABLE,
        "A listed feature passes, or no longer passes, with evidence.",
        "feature passes evidence",
    ),
    ("milestone.reached", DURABLE, "The root cause is verified, or the fix is implemented.", "what"),
    ("scratch.set", DURABLE, "A scratch value under a key; null removes it.", "key value"),
    ("finding.stated", DURABLE, "A claim with a label and its evidence.", "claim label"),
    ("finding.relabelled", DURABLE, "A finding was relabelled.", "finding label"),
    ("finding.challenged", DURABLE, "An actor contradicts a finding; both sides stay on record.", "finding argument"),
    ("finding.upheld", DURABLE, "A challenged finding keeps its label.", "finding"),
    ("hypothesis.chosen", DURABLE, "The finding that is being worked on.", "finding"),
    ("evidence.recorded", DURABLE, "Something inspectable that findings rest on.", "id"),
    ("code.changed", DURABLE, "Files that findings rest on have changed since the findings were stated.", "anchors"),
    ("budget.set", DURABLE, "Limits of steps, tokens, seconds and spend.", "limits"),
    ("budget.sliced", DURABLE, "Part of the budget was given to a child session.", "limits"),
    ("usage.recorded", DURABLE, "Tokens and cost of model calls, per model."),
    ("gate.decided", DURABLE, "The gate answered a tool request.", "decision"),
    ("gate.overridden", DURABLE, "A person or agent overrode a refusal, with a reason.", "ground reason"),
    ("interruption.recorded", DURABLE, "Why work stopped: limit, crash, budget."),
    ("samples.frozen", DURABLE, "A rollout's samples were frozen for a trainer: how they are made.", "digest options"),
    ("samples.acknowledged", DURABLE, "The trainer has the frozen samples.", "digest"),
    ("reward.recorded", DURABLE, "A reward of a rollout, or of one of its turns.", "agent name reward"),
    ("rollout.retired", DURABLE, "The rollout has ended for good: handed to a trainer, or discarded."),
    ("payload.kept", TRANSCRIPT, "An opaque entry of a partner, verbatim."),
    ("payload.retracted", TRANSCRIPT, "A partner's entry no longer counts."),
    ("secret.found", DURABLE, "What another event had of secrets, and what became of them: rules, places.", "found"),
    ("payload.erased", DURABLE, "Payloads were erased: which, why and on whose behalf."),
)


def tier_of(kind: str) -> str:
    """The tier of a kind; kinds of a newer version count as durable, so that nothing erases what it does not know."""
    known = KINDS.get(kind)
    return known.tier if known else DURABLE


RESERVED_KINDS = frozenset(
    {"session.opened", "session.renamed", "session.paused", "session.resumed", "session.closed", "session.archived",
     "session.forked", "session.imported", "session.held", "session.released", "agent.joined", "agent.left",
     "turn.begun", "turn.committed", "turn.aborted", "turn.recorded", "item.added", "tokens.recorded", "effect.started",
     "effect.finished", "transcript.compacted", "samples.frozen", "samples.acknowledged", "reward.recorded",
     "rollout.retired",
     "secret.found", "payload.erased"}
)  # fmt: skip
"""Kinds that only a verb may record: they come with a lane, a new session, or the erasure of bytes."""

TRANSCRIPT_KINDS = tuple(name for name, kind in KINDS.items() if kind.tier == TRANSCRIPT)
DURABLE_KINDS = tuple(name for name, kind in KINDS.items() if kind.tier == DURABLE)
