"""Branches: a rollout as a tree of lines. A request that does not continue a line leaves it where it differs.

    trunk   ─ turn 1 ─ turn 2 ─ turn 3
    trunk.1      └──── turn 2'             an edit, or another of n answers
    trunk.2   ─ turn 1'                    another first prompt: a subagent, or a compacted context

Each line is a session of its own, a fork that shares the turns before it, so nothing is copied, and a line is recorded,
frozen and rewarded like any rollout. `choose` is the only place that decides where a request belongs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import (
    AssemblyFailed,
    Conflict,
    DamagedLog,
    InvalidInput,
    NameTaken,
    PayloadErased,
    SessionClosed,
    SessionNotFound,
    SessionRetired,
)
from onrecord.rollout.ended import refuse_frozen, refuse_retired
from onrecord.rollout.recording import POLICY_AGENT, branch, open_rollout, read_lane
from onrecord.rollout.trajectory import Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.head import Head
    from onrecord.rollout.lane import Lane
    from onrecord.rollout.matching import Message
    from onrecord.rollout.recording import Rollout
    from onrecord.rollout.samples import Sample
    from onrecord.rollout.trajectory import LinearTrajectory
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

BRANCHES_LIMIT = 1_000
"""How many lines one rollout may have: an agent that never repeats its conversation would make one for each request."""
FREE, SAME, BUSY = "free", "same", "busy"
"""The state of a line: no turn is running, one with the same request is, or one with another request."""


class Line(NamedTuple):
    """A line that a request may continue."""

    id: str
    trajectory: LinearTrajectory
    state: str = FREE


class Choice(NamedTuple):
    """Where a request belongs."""

    id: str
    turns: int | None = None
    """None: it continues that line. Else it is a new line that shares so many turns with it."""


def choose(lines: Sequence[Line], messages: Sequence[Message], *, again: bool = False) -> Choice:
    """Where a request belongs: the line that it continues furthest, or a new one.

    It continues a line if that has its first prompt and it discards at most `max_rollback` generated turns, as in a
    rollout without branches; and if its only difference is another spelling of the last generated turn, which will be
    refused. With `again`, a request that has an answer gets another one, on a line of its own.
    """
    best: tuple[tuple[int, ...], str] | None = None
    root, turns = lines[0].id, 0
    for line in lines:
        if line.state == SAME and not again:
            return Choice(line.id)
        matched, base = line.trajectory.shared(messages)
        if base > turns:
            root, turns = line.id, base
        discards = line.trajectory.num_assistant - base
        anchors, given = line.trajectory.anchors, messages[matched:]
        last = discards == 1 and matched == anchors[-1] - 1
        answered = last and not given
        continues = discards <= line.trajectory.policy.max_rollback and matched >= (anchors[0] - 1 if anchors else 0)
        continues = continues and not (discards and _is_edited(given, spelled=matched + 1 in anchors))
        continues = continues or (last and bool(given) and given[0].get("role") == "assistant")
        if line.state == FREE and (continues or answered) and not (again and answered):
            rank = (base, -discards, matched)
            best = max(best or (rank, line.id), (rank, line.id), key=lambda found: found[0])
    # If another line has more of the request's turns, the difference is an answer of that line, not another spelling.
    return Choice(best[1]) if best and best[0][0] >= turns else Choice(root, turns)


def _is_edited(different: Sequence[Message], *, spelled: bool) -> bool:
    """Whether a message of the assistant, among those from the first difference on, answers another prompt.

    If the first that differs is where a generated one was (`spelled`), it is that turn in another spelling, which is
    refused.
    """
    roles = [message.get("role") for message in different]
    return "assistant" in roles and not (spelled and roles[0] == "assistant")


def branching(policy: Policy | None) -> Policy:
    """A policy for lines of a tree: what follows an edit may contain assistant messages, as prompt history.

    By default, no request discards a generated turn: one that would is a branch.
    """
    policy = policy or Policy(max_rollback=0)
    return policy._replace(appended_roles=policy.appended_roles | {"assistant"})


class Node(NamedTuple):
    """One line of a tree."""

    head: Head
    lane: Lane

    @property
    def shared_turns(self) -> int:
        """How many of its turns are also its parent's."""
        return self.lane.inherited

    @property
    def has_own(self) -> bool:
        """Whether it has a turn of its own, whole or not."""
        return len(self.lane.standing()) > self.shared_turns

    @property
    def frozen(self) -> str | None:
        """The digest of its frozen samples, if it has a turn of its own: other lines are in no sample."""
        return self.lane.frozen.digest if self.lane.frozen and self.has_own else None

    @property
    def is_given_up(self) -> bool:
        """Whether it was deleted: it has ended, and no trainer has its samples."""
        return self.lane.retired is not None and not self.lane.acknowledged


class Tree:
    """A rollout with its branches, read from the record."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    @property
    def by_id(self) -> dict[str, Node]:
        """The lines by their session."""
        return {node.head.session: node for node in self.nodes}

    @property
    def root(self) -> Node:
        """The line that the others come from."""
        return self.nodes[0]

    def leaves(self) -> list[Node]:
        """The lines that end here: each is a sample. A line that another one continues is not among them."""
        whole = [node for node in self.nodes if node.has_own and not node.is_given_up]
        ends = {(node.head.parent, node.head.forked_at) for node in whole}
        return [node for node in whole if (node.head.session, max(node.lane.commits, default=0)) not in ends]

    def due(self) -> list[Node]:
        """The leaves whose samples no trainer has yet."""
        return [node for node in self.leaves() if node.lane.retired is None]

    @property
    def sampled_tokens(self) -> int:
        """How many ids were sampled in committed turns; a shared turn counts once."""
        return sum(self._sampled().values())

    @property
    def discarded_tokens(self) -> int:
        """How many of them are in no line any more, or only in lines that were given up."""
        kept = {self._owned(node, position) for node in self.leaves() for position in node.lane.commits}
        return sum(count for turn, count in self._sampled().items() if turn not in kept)

    def _sampled(self) -> dict[tuple[str, int], int]:
        """By the session that has the turn in its own part of the log, and the position of its commit."""
        return {
            self._owned(node, position): count for node in self.nodes for position, count in node.lane.sampled.items()
        }

    def _owned(self, node: Node, position: int) -> tuple[str, int]:
        known, head = self.by_id, node.head
        while head.parent in known and position <= head.forked_at:
            head = known[head.parent].head
        return head.session, position

    def about(self) -> dict[str, Any]:
        """The tree as JSON."""
        leaves = {node.head.session for node in self.leaves()}
        return {
            "session_id": self.root.head.session,
            "sampled_tokens": self.sampled_tokens,
            "discarded_tokens": self.discarded_tokens,
            "lines": [
                {
                    "session_id": node.head.session, "name": node.head.name,
                    "parent": node.head.parent if node is not self.root else None,
                    "shared_turns": node.shared_turns if node is not self.root else 0,
                    "turns": node.lane.trajectory.num_assistant, "tokens": node.lane.trajectory.length,
                    "provisional": node.lane.trajectory.provisional is not None,
                    "leaf": node.head.session in leaves,
                }
                for node in self.nodes
            ],
        }  # fmt: skip


def read_heads(records: SessionStore, id: str) -> list[Head]:
    """The sessions of a tree: the first one, then its forks and theirs, in the order in which they were made."""
    found = [records.head(id)]
    for head in found:
        found += sorted(records.children(head.session), key=lambda child: child.session)
    return [found[0], *sorted(found[1:], key=lambda head: head.session)]


def read_line(records: SessionStore, id: str, root: str, agent: str, policy: Policy | None) -> Lane | None:
    """A line of a tree, from the record; None if a sweep erased its ids, some time after it had been retired."""
    session = records.get(id, agent=agent)
    try:
        return read_lane(session, agent, policy)
    except PayloadErased:
        with suppress(SessionRetired):
            refuse_retired(session)
            raise
        if id == root:
            raise
        return None


def read_tree(records: SessionStore, name: str, *, agent: str = POLICY_AGENT, policy: Policy | None = None) -> Tree:
    """The rollout with this name or id and all its branches, from the record; takes no lease."""
    heads = read_heads(records, records.find(name).session)
    lanes = [(head, read_line(records, head.session, heads[0].session, agent, policy)) for head in heads]
    return Tree([Node(head, lane) for head, lane in lanes if lane is not None])


def is_continued(records: SessionStore, head: Head, lane: Lane, agent: str) -> bool:
    """Whether a branch that was not deleted continues a line from its end: its samples have the turns of both."""
    end = max(lane.commits, default=0)
    for child in records.children(head.session):
        if end and child.forked_at == end:
            with suppress(AssemblyFailed, DamagedLog, PayloadErased):
                node = Node(child, read_lane(records.get(child.session, agent=agent), agent))
                if node.has_own and not node.is_given_up:
                    return True
    return False


def grow(session: Session, lane: Lane, name: str, turns: int, count: int) -> Session:
    """A new line of a tree that has `count` lines."""
    if count >= BRANCHES_LIMIT:
        raise InvalidInput(
            f"rollout {name!r} has {count:,} branches, the limit",
            hint="an agent must repeat the conversation as it was answered, or every request starts a new branch",
        )
    for number in range(count, count + BRANCHES_LIMIT):
        try:
            return branch(session, lane, f"{name}.{number}", turns)
        except NameTaken:
            continue
    raise SessionNotFound(f"no free name for a branch of {name!r}")


class RolloutTree:
    """A rollout with branches, for a loop of your own.

        tree = RolloutTree(records, "task-17")
        rollout = tree.line(request)        # the line that the request continues, or a new one
        prepared = rollout.prepare(request, tokenizer)

    It holds the leases of the lines it has opened; `leave` releases them.
    """

    def __init__(
        self, records: SessionStore, name: str, *, policy: Policy | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        policy = branching(policy)
        first = open_rollout(records, name, policy=policy, metadata=metadata)
        self._records, self._policy = records, policy
        self._open: dict[str, Rollout] = {first.session.id: first}
        self._root = first.session.id
        self._reopened()

    @property
    def lines(self) -> list[Rollout]:
        """All lines that have not been retired, the first one first."""
        return [rollout for rollout in self._open.values() if rollout.lane.retired is None]

    def line(self, messages: Sequence[Message], *, again: bool = False) -> Rollout:
        """The line that these messages continue; a new one if there is none, or if the answer is wanted `again`."""
        root = self._open[self._root]
        refuse_frozen(root.session.name, root.lane)
        lines = [Line(rollout.session.id, rollout.trajectory) for rollout in self.lines]
        chosen = choose(lines, messages, again=again)
        if chosen.turns is None:
            return self._open[chosen.id]
        origin = self._open[chosen.id]
        new = grow(origin.session, origin.lane, root.session.name, chosen.turns, len(self._open))
        self._open[new.id] = open_rollout(self._records, new.id, policy=self._policy)
        return self._open[new.id]

    def tree(self) -> Tree:
        """The tree as it is on record now."""
        return read_tree(self._records, self._root, policy=self._policy)

    def freeze(self, **options: Any) -> list[Sample]:
        """Freeze every line and return one sample per leaf: from now on, every reader gets the same bytes."""
        if not self.tree().due():
            raise Conflict("no line of this rollout has a turn", hint="record a turn first")
        frozen: dict[str, Rollout] = {}
        while new := [rollout for rollout in self._reopened() if rollout.session.id not in frozen]:
            for rollout in new:
                frozen[rollout.session.id] = rollout
                try:
                    rollout.freeze(empty=True, **options)
                except (SessionRetired, SessionClosed):
                    if rollout.refresh().lane.retired is None:
                        raise
                    # It was retired meanwhile, because it was branched too late for instance: it has no samples.
        return [sample for node in self.tree().due() for sample in frozen[node.head.session].samples()]

    def _reopened(self) -> list[Rollout]:
        """All lines that have not been retired; another process may have made one, or retired one without the lease."""
        for rollout in self._open.values():
            rollout.refresh()
        for head in read_heads(self._records, self._root):
            if head.session not in self._open:
                with suppress(SessionRetired):
                    self._open[head.session] = open_rollout(self._records, head.session, policy=self._policy)
        return self.lines

    def leave(self) -> None:
        """Release all leases."""
        for rollout in self._open.values():
            rollout.leave()
