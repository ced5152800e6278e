# Written by tools/reference.py from the synchronous classes. Do not edit.

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from onrecord.aio.calls import Outcome as Outcome, outcome_of as outcome_of
from onrecord.aio.deriving import Awaited
from onrecord.aio.hands import settled as settled
from onrecord.aio.own import OwnSession, OwnStore, OwnTurn
from onrecord.log.events import Draft, Event
from onrecord.log.head import Head
from onrecord.log.item_values import Item
from onrecord.log.store import Lease
from onrecord.log.verify import Report
from onrecord.rules import ToolRequest, Verdict
from onrecord.session.attempts import OpenAttempt
from onrecord.session.compaction import Coverage
from onrecord.session.copying import Copied
from onrecord.session.handle import Session
from onrecord.session.listings import Entry
from onrecord.session.moment import Moment
from onrecord.session.retention import Policy, Swept
from onrecord.session.session_store import Found, SessionStore
from onrecord.session.tools import answer
from onrecord.session.usage import Used
from onrecord.views.context import Context
from onrecord.views.dialects import Messages
from onrecord.views.fold import Whole
from onrecord.views.transcript import Transcript
from onrecord.views.values import Agent, Anchor, Attempt, Budget, Change, Checkpoint, ClaimStep, Counter, Effect, Evidence, Finding, Json, Lane, Message, ModelUsage, Parent, Process, Profile, Revision, ToolCall, Usage, Worktree
from typing import Self

class AsyncTurn(OwnTurn):
    """An open turn. Leaving its `with` block commits it; an exception aborts it and is recorded."""

    async def abort(self, reason: str, *, partial: Iterable[Message] = ...) -> Event:
        """Abort the turn, with what had arrived of it. It stays visible until the next commit supersedes it."""

    async def add(self, message: Message, *, format: str | None = ...) -> Event:
        """Add a message: an item in neutral form, or a partner's message, kept word for word."""

    @property
    def answered(self) -> bool:
        """Whether this very request has a committed answer already: use `answer`, call no model."""

    async def assistant(self, content: Json, *, tool_calls: Sequence[ToolCall] | None = ...) -> Event:
        """Add what the assistant says and the tools it calls."""

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls of this turn that have no result yet."""

    async def commit(self) -> Event:
        """Make the turn count. It supersedes what was provisional in this lane."""

    async def decide(self, text: str, *, why: str | None = ...) -> Event:
        """Record a decision that comes from the last item: it is a fact, whatever becomes of the turn."""

    @property
    def done(self) -> bool:
        """Whether the model has answered and calls no tool: the loop ends here, also if the turn was continued."""

    @property
    def is_open(self) -> bool:
        """Whether items can be added: it has no end, and its handle still has the lease with which it began."""

    async def messages(self, format: str = ..., *, tokens: int = ..., count: Counter = ..., system: str = ...) -> Messages:
        """Exactly what to send to the model now: what the record says, earlier turns that fit, and this turn."""

    async def must_be_open(self) -> None:
        """Raise if nothing can be added."""

    async def must_have_room(self) -> None:
        """Raise if the turn has as many items as a turn may have."""

    @property
    def origin(self) -> int:
        """Where this turn began; if it continues others, where the first of them did."""

    async def record_usage(self, model: str, *, input_tokens: int = ..., output_tokens: int = ..., cost: float | None = ..., **parts: int) -> Event:
        """Record what a model call of this turn used; it counts even if the turn is aborted."""

    async def reply(self, answer: object, /, *, cost: float | None = ...) -> list[ToolCall]:
        """Record what the model answered, as its SDK returned it: text, tool calls and usage, in one durable step."""

    async def system(self, content: Json) -> Event:
        """Add what the system says."""

    async def tool(self, call: str, content: Json, *, error: bool = ...) -> Event:
        """Add the result of a tool call of this turn."""

    async def use(self, answer: object, /, *, input_tokens: int = ..., output_tokens: int = ..., cost: float | None = ..., **parts: int) -> Event:
        """Record what a call of a model used, from its answer or as numbers with the model's name."""

    async def user(self, content: Json) -> Event:
        """Add what the user says."""


class AsyncSession(OwnSession):
    """One session: a log, the views folded from it, and the verbs that append to it."""

    async def acquire(self, /, *, takeover: bool = ..., seconds: float = ..., expect: int | None = ..., **about: object) -> Self:
        """Take the lease on this agent's lane: a new run begins. Turns of an earlier holder are refused."""

    @property
    def agents(self) -> AsyncAgentVerbs:
        """Runs of agents, their vendor conversations, tools and interruptions."""

    async def archive(self, reason: str = ...) -> Event:
        """Archive a closed session: lists leave it out."""

    async def at(self, position: int) -> Moment:
        """The session as it was after an event."""

    @property
    def attempts(self) -> AsyncAttemptVerbs:
        """Runs of commands on record, and what they teach."""

    async def brief(self, *, happened: bool = ...) -> str:
        """The first 2 KB of the note, readable on their own; without `happened`, of what was written down only."""

    @property
    def budget(self) -> AsyncBudgetVerbs:
        """Limits, usage of models, and what is left."""

    async def close(self, reason: str = ..., *, anyway: str | None = ..., note_owed: bool = ...) -> Event:
        """End the session and keep its log; with a profile, the work log ends with what is pending."""

    async def compact(self, summarise: str | Callable[[list[Item]], str], *, upto: int | None = ..., extract: Callable[[list[Item]], Iterable[str]] | None = ..., afresh: bool = ...) -> Coverage:
        """Replace the transcript so far by a summary in contexts; facts and events stay."""

    async def context(self, tokens: int = ..., *, count: Counter = ...) -> Context:
        """What a model should see now: brief, summary, recent turns, within a token budget."""

    async def decide(self, text: str, *, why: str | None = ..., because: int | None = ..., id: str | None = ...) -> Event:
        """Record a decision; `because` is the position it came from."""

    async def diff(self, before: int, after: int | None = ...) -> list[Change]:
        """What changed in meaning between two positions."""

    @property
    def effects(self) -> AsyncEffectVerbs:
        """Side effects with both ends recorded by hand; `once` does both."""

    def events(self, after: int = ..., upto: int | None = ..., kinds: Collection[str] | None = ...) -> AsyncIterator[Event]:
        """The log, in order: position, id, kind, at, by, run, data, hash."""

    @property
    def evidence(self) -> AsyncEvidenceVerbs:
        """Something inspectable that findings and features rest on."""

    @property
    def facts(self) -> AsyncFactVerbs:
        """Objective, title, next action, reproduction, scratch values."""

    @property
    def findings(self) -> AsyncFindingVerbs:
        """Claims with a label that evidence has earned."""

    async def fork(self, name: str, at: int | None = ..., *, agent: str | None = ...) -> AsyncSession:
        """A new session that shares this one's history up to `at`; nothing is copied."""

    @property
    def gate(self) -> AsyncGateVerbs:
        """Verdicts on tool calls, and overrides."""

    @property
    def head(self) -> Head:
        """Position, hash and status of the log, as far as this handle has read."""

    async def leave(self) -> None:
        """Release the lease. The session stays as it is; `close` ends it."""

    @property
    def log(self) -> AsyncLogVerbs:
        """The log itself: single events, the newest first, headers only, holds, erasure, leases."""

    async def messages(self, format: str = ..., *, tokens: int = ..., count: Counter = ..., system: str = ...) -> Messages:
        """What to send to a model now, as in `Turn.messages`. A handle without an agent reads the only one there is."""

    @property
    def name(self) -> str:
        """The session's present name."""

    async def note(self) -> str:
        """The note for the agent that continues the work, as Markdown."""

    async def pause(self, reason: str = ...) -> Event:
        """Stop for now and release the lease; no process stays behind."""

    @property
    def phases(self) -> AsyncPhaseVerbs:
        """The profile, its phases and sections, the work log, the feature list."""

    async def record_turn(self, items: Iterable[Message], *, usage: ModelUsage | None = ..., format: str | None = ..., id: str | None = ...) -> Event:
        """Record a whole turn at once: one durable commit. Items are neutral, or messages of a partner."""

    async def refresh(self) -> Self:
        """Fold in what others appended."""

    async def rename(self, name: str, *, project: str | None = ..., place: str = ...) -> Event:
        """Give the session another name, also one in another project (and its directory); id and history stay."""

    async def renew(self, seconds: float = ...) -> None:
        """Extend the lease, if there is one; `LeaseLost` if another process has it. Only silent minutes need this."""

    async def resume(self, reason: str = ..., *, reopen: bool = ...) -> Event:
        """Continue after a pause; with `reopen`, after a close."""

    @property
    def status(self) -> str:
        """The session's status: open, paused, closed, archived or erased."""

    async def transcript(self, agent: str | None = ..., *, upto: int | None = ...) -> Transcript:
        """Turns and their items, of all agents or of one; `.provisional` has those that are not committed."""

    async def verify(self, checkpoint: Checkpoint | None = ..., *, progress: Callable[[int], None] | None = ...) -> Report:
        """Re-derive the hash chain from what the store returns, and compare it with a checkpoint kept elsewhere."""

    async def views(self) -> Whole:
        """Everything the log means at its newest position."""


class AsyncSessionStore(OwnStore):
    """Open, find, list and search sessions."""

    async def child(self, parent: AsyncSession, name: str, *, budget: Mapping[str, float], agent: str = ..., objective: str | None = ..., metadata: Mapping[str, Json] | None = ...) -> AsyncSession:
        """Create a session under another one, with a slice of what is left of its budget."""

    async def children(self, id: str) -> list[Head]:
        """The sessions that were forked from the one with this id."""

    async def close(self) -> None:
        """Release the lanes of the sessions that `open` returned, then close files and connections."""

    async def copy(self, name: str, to: AsyncSessionStore, *, rename: str | None = ..., into: str | None = ...) -> list[Copied]:
        """Copy a session to another store, verified before and after; or add what is new to the copy that is there."""

    async def create(self, name: str, *, agent: str = ..., objective: str | None = ..., metadata: Mapping[str, Json] | None = ..., budget: Mapping[str, float] | None = ..., parent: Parent | None = ...) -> AsyncSession:
        """Make a new session; `NameTaken` if the project has one of this name."""

    async def entries(self, sessions: Sequence[Head]) -> list[Entry]:
        """These sessions with what lists show of them: agent, vendor, last prompt, and what may need a person."""

    async def erase_again(self) -> list[str]:
        """Erase sessions whose key was destroyed, after an older copy of the store is back; returns their names."""

    def erase_everything(self, reason: str, *, dry_run: bool = ...) -> AsyncIterator[Swept]:
        """Erase the content of every session of the store (in PostgreSQL: of the tenant); holds are respected."""

    async def every(self, status: Collection[str], *, project: str | None = ...) -> list[Head]:
        """All sessions with one of these statuses, the newest first. `project` "" means every project."""

    async def find(self, name: str) -> Head:
        """The head of the session with this name or id."""

    async def folded(self, sessions: Sequence[Head], view: str, fold: Callable[[Session, Head], Json]) -> Mapping[str, Json]:
        """What `fold` makes of each session, as JSON, by id; kept under the name `view` until the session grows."""

    async def get(self, name: str, *, agent: str = ...) -> AsyncSession:
        """The session of this name or id; a unique beginning of either is enough. Takes no lease."""

    async def handle(self, id: str, *, agent: str = ...) -> AsyncSession:
        """The session with exactly this id. Nothing is read: if there is no such session, its first verb raises."""

    async def head(self, id: str) -> Head:
        """The head of the session with exactly this id."""

    async def leases(self, session: str) -> list[Lease]:
        """The leases on the lanes of a session, given by its id."""

    async def linked(self, vendor: str, vendor_id: str) -> list[str]:
        """The ids of the sessions that have this vendor conversation on record, the newest event first."""

    async def named(self, name: str) -> Head | None:
        """The session of this project with exactly this name, if there is one."""

    async def open(self, name: str, *, agent: str = ..., objective: str | None = ..., metadata: Mapping[str, Json] | None = ..., budget: Mapping[str, float] | None = ..., takeover: bool = ..., lease_seconds: float = ...) -> AsyncSession:
        """Open a session for work as `agent`: a new one, or the one of this name as its last process left it."""

    async def search(self, query: str, *, project: str | None = ..., session: str | None = ..., limit: int = ...) -> list[Found]:
        """Events of transcript and facts that have all words of the query. `project` "" means every project."""

    async def sessions(self, *, project: str | None = ..., status: str | Collection[str] | None = ..., limit: int = ..., before: Head | None = ...) -> list[Head]:
        """Sessions by last activity, newest first. `project` "" means every project; None means this one."""

    def sweep(self, policy: Policy | None = ..., *, dry_run: bool = ...) -> AsyncIterator[Swept]:
        """Apply the retention policy to every session of the store."""

    @property
    def url(self) -> str:
        """The address of the store, as `connect` takes it."""

    def usage(self, *, project: str | None = ..., session: str | None = ..., since: int = ...) -> AsyncIterator[Used]:
        """What sessions used, by day, agent and model, since a day (its number since 1970)."""


class AsyncAgentVerbs(Awaited):
    """Record where an agent's conversation is, its runs and tools, when it needs a person, why it stopped."""

    async def get(self, agent: str | None = ...) -> Agent | None:
        """What is known of an agent, or of this handle's own; None if it never took part."""

    async def lane(self, agent: str | None = ...) -> Lane:
        """An agent's turns: counts, last committed position, the open turn, the provisional tail."""

    async def locate(self, /, vendor: str, vendor_id: str, **about: Json) -> Event | None:
        """Record which vendor conversation this agent uses, and what is new about it; None if nothing is new."""

    async def record_attention_given(self) -> Event | None:
        """Record that this agent no longer needs a person; None if it did not wait for one."""

    async def record_attention_needed(self, /, message: str) -> Event:
        """Record that this agent needs a person."""

    async def record_end(self, /, reason: str = ...) -> Event:
        """Record that the agent's present run ended cleanly; the counterpart of `record_start`."""

    async def record_going_on(self) -> Event | None:
        """Record that this agent works again after a stop of the same run; None if it was not stopped."""

    async def record_interruption(self, /, cause: str, message: str = ..., *, resets_at: float | None = ..., **about: Json) -> Event:
        """Record why work stopped; `resets_at` (seconds since 1970) is when a limit ends, if that is known."""

    async def record_start(self, /, process: Process | None, **about: Json) -> Event:
        """Record that a new run of this agent began in a process that is not ours; takes no lane."""

    async def record_tool(self, /, tool: str, act: str, *, call: str = ..., **about: Json) -> Event:
        """Record that a tool ran: command, exit_code, paths. The same call is recorded once."""


class AsyncAttemptVerbs(Awaited):
    """Start attempts, settle them, correct them; look up what is known of a command before running it."""

    async def all(self) -> list[Attempt]:
        """Every attempt, in order."""

    async def correct(self, number: int, *, fix: str | None = ..., remark: str | None = ..., code_change_needed: bool | None = ...) -> Event:
        """Add a fix, a remark, or whether the code must change to a settled attempt; what was recorded stays."""

    async def failed_before(self, command: str | Sequence[str]) -> Attempt | None:
        """The last attempt of this command, if it failed, on whatever code."""

    async def failed_fix(self, fix: str, number: int) -> tuple[Attempt, Attempt] | None:
        """If this fix was tried before and failed: the attempt it was proposed for, and the one that failed with it."""

    async def foresee(self, command: str | Sequence[str], revision: Revision | None = ...) -> Attempt | None:
        """The earlier attempt that shows how this command would fail on this code, if there is one."""

    async def get(self, number: int) -> Attempt | None:
        """The attempt with this number, if there is one."""

    def record(self, command: str | Sequence[str], *, cwd: str | None = ..., revision: Revision | None = ..., worktree: Worktree | None = ...) -> AbstractAsyncContextManager[OpenAttempt]:
        """Record what the block does as an attempt: `with session.attempts.record("python train.py") as attempt: ...`."""

    async def settle(self, /, number: int | None, outcome: str, *, error: str | None = ..., fix: str | None = ..., metrics: Mapping[str, float] | None = ..., outputs: Sequence[Json] = ..., reason: str | None = ..., code_change_needed: bool = ..., **about: Json) -> Event:
        """Record how an attempt ended."""

    async def start(self, command: str | Sequence[str], *, cwd: str | None = ..., revision: Revision | None = ..., process: Process | None = ..., keeper: Process | None = ..., watched: bool = ..., worktree: Worktree | None = ..., token: str | None = ...) -> Event:
        """Record that a command is about to run."""


class AsyncBudgetVerbs(Awaited):
    """Set limits, record usage, read what is used and left."""

    async def check(self) -> None:
        """Raise `BudgetExhausted` if a limit is used up. Nothing is recorded and the session is not paused."""

    async def counted(self, vendor: str, calls: Collection[str]) -> frozenset[str]:
        """Which calls of a vendor's model were counted already: in this session, or in one with the same history."""

    async def left(self) -> Budget:
        """What is left of each set limit, after usage and the slices given to other sessions."""

    async def record_usage(self, model: str, *, input_tokens: int = ..., output_tokens: int = ..., cost: float | None = ..., **parts: int) -> Event:
        """Record what a model call used. A cost that is not known stays unknown."""

    async def set(self, /, **limits: float) -> Event:
        """Limit steps, tokens, seconds, spend or repeats; replaces the budget so far."""

    async def spent(self) -> Usage:
        """What all model calls together used."""


class AsyncEffectVerbs(Awaited):
    """Record the two ends of a side effect by hand, where `session.once` does not fit; find the unknown ones."""

    async def settle(self, key: str, *, result: Json = ..., error: str | None = ...) -> Event:
        """Record how a started side effect ended, right away or once that is known."""

    async def start(self, key: str, name: str = ..., arguments: Json = ...) -> Event:
        """Record that a side effect is about to happen."""

    async def unknown(self) -> dict[str, Effect]:
        """Effects by key that a run started and did not finish before it ended."""


class AsyncEvidenceVerbs(Awaited):
    """Record evidence, read it by its id."""

    async def get(self, id: str) -> Evidence | None:
        """The evidence with this id, if it is on record."""

    async def record(self, /, kind: str, *, id: str | None = ..., captured: bool = ..., **about: Json) -> Event:
        """Record something inspectable. `captured` is for what onrecord saw itself; the rest is asserted."""

    async def resolve(self, name: str) -> str:
        """The full id of an evidence. `last` is the newest (of this agent, if it has any), `a` the newest `...-a`."""


class AsyncFactVerbs(Awaited):
    """Set the objective, the title, the next action, the reproduction and scratch values."""

    async def set_next_action(self, text: str, *, command: str | None = ..., id: str | None = ...) -> Event:
        """Record the one thing to do next."""

    async def set_objective(self, text: str, *, id: str | None = ...) -> Event:
        """Record what the session is for. A title that was given stays the title in lists."""

    async def set_reproduction(self, steps: str, *, rate: str | None = ..., scenario: str | None = ..., id: str | None = ...) -> Event:
        """Record how to reproduce the problem, and how often it occurs (`3/10`)."""

    async def set_scratch(self, key: str, value: Json) -> Event:
        """Keep a small value under a key across restarts; None removes it."""

    async def set_title(self, text: str) -> Event:
        """Record a summary of the work so far, for lists; it is also the Session Title of STATE.md, if that has one."""

    async def title_by_prompt(self, prompt: str) -> Event | None:
        """Title a session that has no title and no objective by the beginning of its first prompt."""


class AsyncFindingVerbs(Awaited):
    """State findings, judge them, challenge them; read them with their present labels."""

    async def all(self) -> list[Finding]:
        """Every finding, in the order they were stated."""

    async def challenge(self, finding: str, argument: str, *, evidence: Sequence[str] = ..., because: int | None = ...) -> Event:
        """Contradict a finding, with evidence. Both sides stay on record; a new label or upholding is the outcome."""

    async def get(self, finding: str) -> Finding:
        """The finding with this id (`f1`); `NotFound` if there is none."""

    async def history(self, finding: str) -> list[ClaimStep]:
        """Everything that happened to a finding, each step with its evidence; code changes and the fix included."""

    async def label_of(self, finding: str) -> str:
        """The label a reader should go by: `stale` when the code a finding rests on has changed since."""

    async def pursue(self, finding: str) -> Event:
        """Make a finding the active hypothesis."""

    async def record_milestone(self, what: str, *, finding: str | None = ..., evidence: Sequence[str] = ..., revision: Revision | None = ...) -> Event:
        """Record that the root cause is verified (`root_cause`), or the fix implemented (`fix`, with evidence)."""

    async def relabel(self, finding: str, label: str, *, evidence: Sequence[str] = ..., why: str | None = ..., anchors: Sequence[Anchor] = ..., because: int | None = ..., contradicts: Sequence[str] = ..., revision: Revision | None = ..., after_change: bool = ...) -> Event:
        """Give a finding another label, or confirm the same one; its history keeps earlier labels."""

    async def state(self, claim: str, label: str = ..., *, evidence: Sequence[str] = ..., anchors: Sequence[Anchor] = ..., because: int | None = ..., hypothesis: bool = ..., contradicts: Sequence[str] = ..., revision: Revision | None = ..., after_change: bool = ..., id: str | None = ...) -> Event:
        """State a finding. `verified` and `rejected` need evidence that is on record."""

    async def uphold(self, finding: str, why: str, *, evidence: Sequence[str] = ...) -> Event:
        """Confirm the label of a challenged finding."""


class AsyncGateVerbs(Awaited):
    """Judge a tool call, override a refusal."""

    async def judge(self, request: ToolRequest, *, asked: bool = ...) -> Verdict:
        """The verdict on a tool call. Every verdict except a plain allow is recorded, once for each call."""

    async def override(self, rule: str, reason: str, *, agent: str | None = ..., worktree: Worktree | None = ...) -> Event:
        """Allow what a rule refuses an agent at present, for a reason. A new ground is refused again."""


class AsyncLogVerbs(Awaited):
    """Find single events, read from the end, append several at once, hold and erase, list the leases."""

    async def append(self, *drafts: Draft, expect: int | None = ..., fenced: bool = ...) -> list[Event]:
        """Append drafts in one durable step. `fenced` ones need the lease on this agent's lane."""

    async def arrived(self) -> int:
        """Up to which position the log came from elsewhere: an import, a copy or a restored backup; 0: nothing did."""

    async def catch_up(self) -> None:
        """Fold new events if this handle knows that there are some; unlike `refresh`, it does not ask the store."""

    async def certificate(self) -> Json:
        """A statement of the erasure of this session with its key; `erasure.check` compares it with any copy."""

    async def checkpoint(self) -> Checkpoint:
        """Position and hash to keep outside the store: with it, `verify` finds a truncated or rolled back store."""

    def decoded(self, parse: Callable[[bytes], Json], kinds: Collection[str] | None = ..., *, after: int = ..., upto: int | None = ...) -> AsyncIterator[Event]:
        """Events in order, decoded by the caller's parser: it returns what `json.loads` does, or the part it needs."""

    async def disconnect(self) -> None:
        """Close the files and connections of the store; for a process that used this one session."""

    async def draft(self, kind: str, data: Json, *, id: str | None = ..., because: int | None = ..., encode: Callable[[Json], bytes] = ...) -> Draft:
        """Seal an event of this handle's agent and run, to append together with others."""

    async def erase(self, reason: str, *, positions: Collection[int] | None = ...) -> Event:
        """Erase payloads for good: those at `positions`, or all of the session."""

    async def event(self, position: int) -> Event:
        """The event at one position."""

    async def find(self, id: str) -> Event | None:
        """The event with this id, if there is one."""

    async def head(self) -> Head:
        """The newest position, hash and status in the store, without folding anything."""

    def headers(self, kinds: Collection[str] | None = ..., *, after: int = ..., page: int = ...) -> AsyncIterator[Event]:
        """Events in order without their payload (`data` is None), to search a large log with."""

    async def hold(self, reason: str) -> Event:
        """Protect the whole log against erasure, for instance until an incident is understood."""

    async def join(self, *first: Draft, takeover: bool, seconds: float, **about: object) -> list[Event]:
        """Take the lease on this agent's lane, and record that and the first events of the run in one durable step."""

    async def key(self) -> tuple[str, str] | None:
        """The id of the session's own key, and whether it is present, destroying, destroyed or missing; None: no key."""

    async def leases(self) -> list[Lease]:
        """The leases on the lanes of this session, expired ones of silent holders included."""

    def newest(self, kinds: Collection[str] | None = ..., *, upto: int | None = ..., headers: bool = ..., page: int = ...) -> AsyncIterator[Event]:
        """Events from the end of the log backwards, fetched in pages; with `headers`, without their payload."""

    async def read_on(self) -> list[Event]:
        """Fold new events, like `session.refresh`, and return them."""

    async def record(self, kind: str, data: Json, *, id: str | None = ..., because: int | None = ...) -> Event:
        """Append one event of a kind that has no verb of its own."""

    async def release(self, reason: str) -> Event:
        """Lift the hold."""

    @property
    def url(self) -> str:
        """The address of the store that keeps the log, as `connect` takes it."""


class AsyncPhaseVerbs(Awaited):
    """Choose a profile, enter and finish phases, write sections, keep the work log and the feature list."""

    async def add_feature(self, feature: str, text: str) -> Event:
        """Add a feature to the list of what the work must be able to do. Its text never changes."""

    async def choose_profile(self, profile: Profile | Mapping[str, object]) -> Event:
        """Record what kind of work this is; the work log starts with it."""

    async def completion(self) -> str:
        """The last line of the work log: what is pending when the session ends."""

    async def empty_section(self, section: str) -> Event:
        """Empty a section; its text stays in the log. Only a free section can be emptied."""

    async def enter(self, phase: str) -> Event:
        """Enter a phase; the ones before it must be finished."""

    async def finish(self, phase: str, *, retroactive: bool = ..., why: str | None = ...) -> Event:
        """Finish a phase: entered, its required sections written, no attempt unresolved, earlier phases finished."""

    async def judge_feature(self, feature: str, *, passes: bool, evidence: Sequence[str]) -> Event:
        """Record that a feature passes, or no longer passes; either needs evidence that is on record."""

    async def log_start(self, how: str = ...) -> Event:
        """Write the work log line that says at which phase work continues."""

    async def log_work(self, text: str, *, id: str | None = ...) -> Event:
        """Write one line of the work log, tagged with the phase."""

    async def write_section(self, section: str, text: str, *, append: bool = ..., id: str | None = ...) -> Event:
        """Write a section of STATE.md; protected ones only grow, generated ones cannot be written."""


def over(store: SessionStore) -> AsyncSessionStore:
    """The awaited form of what `connect()` returns."""
