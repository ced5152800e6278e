"""The values that views contain and verbs return, with their types.

Each is a plain dict of JSON values, exactly as a snapshot keeps it; nothing here exists at run time but the names. The
views themselves import this module for type checkers only: the gate must start without `typing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NotRequired, TypeAlias, TypedDict

from onrecord.log.item_values import Content, Item, Json, Message, Part, ToolCall, Verbatim
from onrecord.views.finding_values import (
    Anchor,
    Challenge,
    ClaimStep,
    Evidence,
    Finding,
    Fix,
    Judgement,
    Proof,
    ShownFinding,
    Staleness,
)
from onrecord.views.stamps import Revision, Stamp

__all__ = [
    "Anchor", "Challenge", "ClaimStep", "Content", "Evidence", "Finding", "Fix", "Item", "Json", "Judgement",
    "Message", "Part", "Proof", "Revision", "ShownFinding", "Staleness", "Stamp", "ToolCall", "Verbatim",
]  # fmt: skip
"""What is defined elsewhere and used from here. Every other name of this module is public too."""


Process: TypeAlias = Mapping[str, Json]
"""Which process on which machine: host, boot, pid, started and space, as `machine.identity` gives it."""
Budget: TypeAlias = dict[str, float]
"""An amount for each limit: steps, tokens, seconds, spend, repeats."""


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


class Worktree(TypedDict):
    """Which worktree: the path of its top, the machine that it is on, and whether it is one of git."""

    root: str
    host: str
    git: bool


class ProposedFix(TypedDict):
    """What was said to fix a failed attempt, and at which position."""

    text: str
    position: int


class Attempt(Stamp):
    """A run of a command on record. The fields that may be missing come when it is settled."""

    number: int
    status: str
    """running, succeeded, failed, interrupted or abandoned."""
    command: str
    signature: str
    code: str | None
    phase: str | None
    cwd: str | None
    process: Process | None
    keeper: Process | None
    revision: Revision | None
    worktree: Worktree | None
    """Where it runs; None in old logs, and for an attempt that names no worktree."""
    fixes: NotRequired[list[ProposedFix]]
    """Every fix that was proposed for it, the newest last."""
    code_change_needed: NotRequired[bool]
    """The caller said that only a change of the code helps."""
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


# Code


class CodeState(TypedDict):
    """The code as it was seen last: revision, branch, and what differed from the revision."""

    revision: str
    branch: str | None
    dirty: bool
    changed: list[str]
    position: int


class RecordedCommit(TypedDict):
    """A commit of the repository that was made during the work."""

    revision: str
    subject: str
    files: NotRequired[list[str]]
    position: NotRequired[int]


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
    revision: NotRequired[Revision | None]


class WorkStart(TypedDict):
    """When work began, or continued after a stop."""

    position: int
    at: int


# Budget, effects, gate


Counter: TypeAlias = Callable[[str], int] | str | None
"""Counts the tokens of a text: a function, or the name of a model; None: our estimate."""


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
