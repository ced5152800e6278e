"""The values that views contain and verbs return, with their types.

Each is a plain dict of JSON values, exactly as a snapshot keeps it; nothing here exists at run time but the names. The
views themselves import this module for type checkers only: the gate must start without `typing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypeAlias, TypedDict

Json: TypeAlias = Any
"""A JSON value: text, number, boolean, None, a list or a dict of these. The caller knows its form."""
Message: TypeAlias = Any
"""A message: an item in neutral form (`{"role", "content"}`), or a message of a partner's library."""
Process: TypeAlias = Mapping[str, Json]
"""Which process on which machine: host, boot, pid, started and space, as `machine.identity` gives it."""
Revision: TypeAlias = Mapping[str, Json]
"""Which state of the code: revision, branch and dirty, a hash of what differs from the revision."""
Budget: TypeAlias = dict[str, float]
"""An amount for each limit: steps, tokens, seconds, spend, repeats."""


class ToolCall(TypedDict):
    """A tool that an assistant calls."""

    id: str
    name: str
    arguments: NotRequired[Json]


class Stamp(TypedDict):
    """Where, when and by whom something was recorded."""

    position: int
    at: int
    """Microseconds since 1970."""
    by: str


# Lanes


class OpenTurn(TypedDict):
    """A turn that was begun and is not over."""

    turn: int
    base: int
    fingerprint: str | None
    position: int
    run: int
    at: int


class Commit(TypedDict):
    """A committed turn."""

    turn: int
    base: int
    fingerprint: str | None
    position: int


class ProvisionalTurn(TypedDict):
    """A turn after the last commit that was aborted, or begun by a run that is over."""

    turn: int
    position: int
    end: int
    how: str
    """aborted or interrupted."""
    reason: str
    run: int
    at: int


class Lane(TypedDict):
    """The line of turns of one agent."""

    run: int
    turns: int
    committed: int
    last_commit: int
    commits: list[Commit]
    """The last few, which a retry may roll back to."""
    open: OpenTurn | None
    provisional: list[ProvisionalTurn]
    aborted: int
    interrupted: int
    compacted: int
    """The position of the last summary that counts; 0 without one."""
    covered: int
    """The last position that summary covers."""


# Attempts


class Correction(Stamp):
    """What was added to an attempt after it was settled."""

    attempt: int
    fix: str | None
    remark: str | None


class Attempt(Stamp):
    """A run of a command on record. The fields that may be missing come when it is settled."""

    number: int
    status: str
    """running, succeeded, failed or abandoned."""
    command: str
    signature: str
    code: str | None
    phase: str | None
    cwd: str | None
    process: Process | None
    keeper: Process | None
    revision: Revision | None
    corrections: NotRequired[list[Correction]]
    ended_at: NotRequired[int]
    settled: NotRequired[int]
    settled_by: NotRequired[str]
    exit_code: NotRequired[int | None]
    seconds: NotRequired[float | None]
    error: NotRequired[str | None]
    error_signature: NotRequired[str | None]
    fix: NotRequired[str | None]
    metrics: NotRequired[dict[str, Json]]
    outputs: NotRequired[list[Json]]
    reason: NotRequired[str | None]
    evidence: NotRequired[str | None]
    captured: NotRequired[bool]
    code_after: NotRequired[str | None]


# Findings and evidence


class Anchor(TypedDict):
    """A piece of code that a finding rests on, and its fingerprint when it was judged."""

    path: str
    fingerprint: NotRequired[str]
    lines: NotRequired[list[int]]
    """The first and the last line."""
    symbol: NotRequired[str]


class Judgement(Stamp):
    """A label that a finding was given."""

    label: str
    evidence: list[str]
    why: NotRequired[str | None]


class Challenge(Stamp):
    """An argument against a finding; `outcome` is None while it is open."""

    argument: str
    evidence: list[str]
    outcome: str | None
    settled: NotRequired[int]
    why: NotRequired[str | None]


class Finding(Stamp):
    """A claim, its label, and what it rests on."""

    id: str
    claim: str
    label: str
    evidence: list[str]
    because: int | None
    history: list[Judgement]
    challenges: list[Challenge]
    anchors: list[Anchor]


class Proof(TypedDict):
    """An evidence id, and whether it was captured, asserted or only named."""

    id: str
    how: str


class ShownFinding(Finding):
    """A finding with what follows from the present code and evidence."""

    current: str
    changed: list[str]
    files_changed: int
    active: bool
    proof: list[Proof]


class Evidence(Stamp):
    """Something inspectable. Which of the further fields it has depends on its kind."""

    id: str
    kind: str
    captured: NotRequired[bool]
    command: NotRequired[Json]
    exit_code: NotRequired[int]
    output: NotRequired[str | None]
    excerpt: NotRequired[str | None]
    error: NotRequired[str | None]
    revision: NotRequired[Revision | None]
    reference: NotRequired[str | None]
    text: NotRequired[str | None]
    path: NotRequired[str | None]
    url: NotRequired[str | None]
    ref: NotRequired[str | None]
    anchor: NotRequired[Anchor | None]
    argv: NotRequired[list[str]]
    cwd: NotRequired[str]
    seconds: NotRequired[float]
    started_at: NotRequired[int]
    ended_at: NotRequired[int]
    timed_out: NotRequired[bool]
    output_bytes: NotRequired[int]
    left_out: NotRequired[int]
    kept_at: NotRequired[int | None]
    """Where the whole output is; None if all of it is in `output`."""
    attempt: NotRequired[int]


# Facts


class Objective(Stamp):
    """What a session is for."""

    text: str


class NextAction(Stamp):
    """The one thing to do next."""

    text: str
    command: str | None


class Reproduction(Stamp):
    """How to reproduce a problem."""

    steps: str
    rate: str | None
    scenario: str | None


class Decision(Stamp):
    """A decision, its reason, and the position it came from."""

    text: str
    why: str | None
    because: int | None


# Phases


class Phase(TypedDict):
    """A phase of a profile."""

    name: str
    number: NotRequired[int]
    goal: NotRequired[str]
    checkpoint: NotRequired[list[str]]
    """The required sections."""
    all_features: NotRequired[bool]


Section = TypedDict(
    "Section", {"name": str, "description": NotRequired[str], "rule": NotRequired[str], "from": NotRequired[str]}
)
"""A section of STATE.md: free, append or generated (`from` names the source)."""


class Profile(TypedDict):
    """A kind of work as data: ordered phases, and the sections of STATE.md."""

    name: str
    about: NotRequired[str]
    instructions: NotRequired[str]
    phases: list[Phase]
    sections: NotRequired[list[Section]]


class FinishedPhase(Stamp):
    """When a phase was finished, and whether that was recorded afterwards."""

    retroactive: bool
    why: str | None


class SectionText(Stamp):
    """What a section says."""

    text: str


class WorklogLine(Stamp):
    """One line of the work log."""

    text: str
    phase: str | None


class Feature(Stamp):
    """Something the work must be able to do."""

    text: str
    passes: bool
    evidence: list[str]


class Milestone(Stamp):
    """The root cause is verified, or the fix implemented."""

    what: str
    finding: str | None
    evidence: list[str]


class WorkStart(TypedDict):
    """When work began, or continued after a stop."""

    position: int
    at: int


# Budget, effects, gate


class ModelUsage(TypedDict, total=False):
    """What one model call used."""

    model: str | None
    input_tokens: int
    """All input, whether or not it came from a cache."""
    cache_read_tokens: int
    """The part of the input that was read from a cache."""
    cache_write_tokens: int
    """The part of the input that was written to a cache."""
    output_tokens: int
    """All output, reasoning included."""
    reasoning_tokens: int
    cost: float | None


class Usage(TypedDict):
    """What several model calls used together."""

    calls: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost: float
    unknown_cost_calls: int


class DayUsage(Usage):
    """What the calls of one agent to one model used on one day."""

    unpriced: dict[str, int]
    """The tokens of the calls of unknown cost, by the names above; empty if there are none."""


class Effect(Stamp):
    """A side effect that was started and is not finished on record."""

    run: int


class Override(Stamp):
    """Why a refusal was overridden."""

    reason: str


# Agents and lifecycle


class Link(TypedDict):
    """A vendor conversation of an agent; `first` and `last` are the first and the last word on each of its fields."""

    vendor: str
    id: str
    agent: str
    position: int
    at: int
    first: dict[str, Json]
    last: dict[str, Json]
    seen_at: NotRequired[int]


class Attention(TypedDict):
    """What an agent needs a person for."""

    message: str
    kind: NotRequired[str]
    position: int
    at: int


class Agent(TypedDict):
    """An agent of a session: its runs, its process, its vendor conversations."""

    joined_at: int
    runs: int
    run: int
    here: bool
    vendor: str | None
    process: Process | None
    links: list[Link]
    waits: Attention | None
    arguments: list[str]
    """The user's own arguments of its program, as it was last started with onrecord."""
    arguments_on: str | None
    """The machine on which they were given."""
    via: NotRequired[str | None]
    """What recorded the present run: a hook; None is a process that has the lease of its lane."""
    stop: Interruption | None
    person: NotRequired[str]
    """Who started it last, if a person did."""
    last_joined_at: NotRequired[int]
    joined: NotRequired[int]
    """The position at which its present run began."""
    left_at: NotRequired[int]


class Step(Stamp):
    """One step of a session's lifecycle."""

    run: int
    step: str
    reason: str


class Interruption(Stamp):
    """Why work stopped."""

    cause: str
    message: NotRequired[str]
    agent: NotRequired[str]
    resets_at: NotRequired[float | None]
    until: NotRequired[str]
    vendor: NotRequired[str]
    limit: NotRequired[str]
    terminal: NotRequired[bool]


class ListedStop(TypedDict):
    """An interruption, as a listing has it."""

    cause: str
    message: str
    resets_at: float | None
    vendor: str | None
    position: int
    at: int


class ListedAgent(TypedDict):
    """An agent, as a listing has it."""

    vendor: str | None
    via: str | None
    here: bool
    process: Process | None
    talks: bool
    """Whether it has a conversation that can be resumed."""
    waits: Attention | None
    at: int
    """When its last run began."""
    position: int
    """Where its open turn began; else its last run."""
    run: int
    stop: ListedStop | None
    turn: int | None
    """The number of its open turn."""
    provisional: ProvisionalTurn | None


class Listing(TypedDict):
    """What lists show of a session besides its head, and all that can make it need a person."""

    agents: dict[str, ListedAgent]
    agent: str
    """The one whose conversation was in use last."""
    vendor: str | None
    people: list[str]
    """Who opened the session, then other people who took part."""
    branch: str | None
    cwd: str | None
    prompt: str
    next: str
    attempts: list[dict[str, Json]]
    """Those without an outcome."""
    effects: dict[str, Effect]
    blocked: list[dict[str, Json]]
    stale: list[str]


class Parent(TypedDict):
    """The session that another one was forked or sliced from."""

    session: str
    position: int
    hash: NotRequired[str]


class Checkpoint(TypedDict):
    """Position and hash of a log, to keep outside the store."""

    session: str
    position: int
    hash: str


class Change(TypedDict):
    """One change in meaning between two positions."""

    what: str
    before: Json
    after: Json
    position: NotRequired[int]
    about: NotRequired[str]
