"""Trees: with `--branches`, a request that does not continue its session starts a branch of it.

The agent knows one session, the root. Each request goes to the line of the tree that it continues, which is a session
with its own lease, so lines run side by side. Which line that is, is read from the record each time: another proxy may
have continued a line, or started one.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from onrecord.aio import settled
from onrecord.errors import Conflict, InvalidInput, SessionClosed, SessionRetired
from onrecord.rollout.branches import BUSY, FREE, SAME, Line, Node, Tree, choose, grow, read_heads, read_line
from onrecord.rollout.ended import refuse_frozen, refuse_retired
from onrecord.rollout.recording import POLICY_AGENT
from onrecord.rollout.server.live import answered, key_of
from onrecord.rollout.server.messages import arguments_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from onrecord.rollout.lane import Lane
    from onrecord.rollout.server.asking import Asking, Turn
    from onrecord.rollout.server.live import Live
    from onrecord.rollout.server.shelf import Shelf
    from onrecord.rollout.server.streaming import Flow
    from onrecord.rollout.trajectory import Policy
    from onrecord.session.session_store import SessionStore

    Started = tuple[Live, Turn, Flow | None]

ANSWERS_LIMIT = 64
"""The largest `n`: how many answers one request may ask for."""


class Grove:
    """The trees of a proxy."""

    def __init__(self, records: SessionStore, shelf: Shelf, policy: Policy) -> None:
        self.records = records
        self.shelf = shelf
        self.policy = policy
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _lock(self, root: str) -> asyncio.Lock:
        lock = self._locks.get(root)
        if lock is None:
            lock = self._locks[root] = asyncio.Lock()
        return lock

    async def start(
        self, root: str, chat: dict[str, Any], how: dict[str, bool], asking: Asking, count: int = 1
    ) -> list[Started]:
        """Start the turns of a request: one, or as many as it wants answers, each on the line it belongs to."""
        asking.check(_numbered(chat, 0))  # before it could begin a branch
        async with self._lock(root):
            started: list[Started] = []
            for number in range(count):
                one = _numbered(chat, number)
                id = await self._line(root, one, {live.id for live, _turn, _flow in started}, again=how["resample"])
                live = await self.shelf.get(id, takeover=how["takeover"])
                own = how | {"resample": False}  # a line that has an answer was left out
                started.append((live, *asking.turn(live, one, own)))
            return started

    async def _line(self, root: str, chat: dict[str, Any], taken: set[str], *, again: bool) -> str:
        """The session of the line that a request belongs to; a new one if there is none."""
        states = {id: SAME if same else BUSY for id, same in self.shelf.running(key_of(chat)).items()}
        states |= dict.fromkeys(taken, BUSY)
        return await settled(partial(self._chosen, root, chat["messages"], states, again=again))

    def _chosen(
        self, root: str, messages: Sequence[Mapping[str, Any]], states: Mapping[str, str], *, again: bool
    ) -> str:
        with self.reading(root) as tree:
            self._refuse_retired(tree)
            refuse_frozen(tree.root.head.name, tree.root.lane)
            lines = [
                Line(id, node.lane.trajectory, states.get(id) or _state(node.lane, messages))
                for id, node in tree.by_id.items()
                if node.lane.retired is None
            ]
            chosen = choose(lines, messages, again=again)
            if chosen.turns is None:
                return chosen.id
            handle = self.records.get(chosen.id, agent=POLICY_AGENT)
            lane = tree.by_id[chosen.id].lane
            return grow(handle, lane, tree.root.head.name, chosen.turns, len(tree.nodes)).id

    def _refuse_retired(self, tree: Tree) -> None:
        if tree.root.lane.retired is not None:
            refuse_retired(self.records.get(tree.root.head.session, agent=POLICY_AGENT))

    @contextmanager
    def reading(self, root: str) -> Iterator[Tree]:
        """The tree as it is on record. A line in memory is only brought up to date."""
        with ExitStack() as seen:
            nodes = []
            for head in read_heads(self.records, root):
                live = self.shelf.peek(head.session)
                lane: Lane | None
                if live is None:
                    lane = read_line(self.records, head.session, root, POLICY_AGENT, self.policy)
                else:
                    lane = seen.enter_context(live.seen())
                if lane is not None:
                    nodes.append(Node(head, lane))
            yield Tree(nodes)

    def about(self, root: str) -> dict[str, Any]:
        """The tree as JSON."""
        with self.reading(root) as tree:
            return tree.about()

    # Samples

    async def samples(self, root: str, options: dict[str, Any], on: Callable[..., Any]) -> dict[str, Any]:
        """Freeze all lines and return a sample of each leaf: the same bytes at every read.

        A line without a turn is frozen too, for a request may be about to run its first one. A frozen line has no new
        branches. So there is a last line, and then every turn is in these samples, or is refused.
        """
        async with self._lock(root):
            made: dict[str, list[Any]] = {}
            while new := await settled(partial(self._lines, root, made.keys())):
                for id in new:
                    made[id] = []
                    try:
                        live = await self.shelf.get(id)
                        made[id] = (await on(live, settled(partial(live.samples, options, empty=True))))["samples"]
                    except (SessionRetired, SessionClosed):
                        if id in await settled(partial(self._lines, root, ())):
                            raise
                        # It was retired meanwhile, because it was branched too late for instance: it has no samples.
            return await settled(partial(self._handed_over, root, made))

    def _lines(self, root: str, known: Collection[str]) -> list[str]:
        """The lines that have not ended, without those that are `known`."""
        with self.reading(root) as tree:
            self._refuse_retired(tree)
            lines = [node.head.session for node in tree.nodes if node.lane.retired is None]
            return [id for id in lines if id not in known]

    def _handed_over(self, root: str, made: dict[str, list[Any]]) -> dict[str, Any]:
        with self.reading(root) as tree:
            leaves = [node.head.session for node in tree.due()]
            return {
                "session_id": root, "digest": digest_of(tree), "samples": [one for id in leaves for one in made[id]],
                "sampled_tokens": tree.sampled_tokens, "discarded_tokens": tree.discarded_tokens,
            }  # fmt: skip

    async def acknowledge(self, root: str, digest: str, on: Callable[..., Any]) -> None:
        """Record that the trainer has the samples of all lines, and retire them; the root last."""
        async with self._lock(root):
            for id, frozen in await settled(partial(self._to_retire, root, digest)):
                live = await self.shelf.get(id)
                await on(live, settled(partial(live.acknowledge, frozen) if frozen else live.delete))
                self.shelf.drop(live)

    def _to_retire(self, root: str, digest: str | None) -> list[tuple[str, str]]:
        """The lines that are not retired yet, the root last, with the digest of their samples."""
        with self.reading(root) as tree:
            if digest not in (None, digest_of(tree)):
                raise Conflict(f"the frozen samples have the digest {digest_of(tree)}, not {digest!r:.100}")
            if digest is not None and any(node.lane.frozen is None for node in tree.due()):
                raise Conflict("a line has turns that are in no frozen samples", hint="read the samples again")
            frozen = [node.lane for node in tree.nodes if node.lane.frozen]
            had = [tree.root.lane] if tree.root.lane.frozen else frozen
            if digest is not None and tree.root.lane.retired is not None and any(lane.acknowledged for lane in had):
                return []  # the same acknowledgement again
            return [
                (node.head.session, node.lane.frozen.digest if node.lane.frozen else "")
                for node in reversed(tree.nodes)
                if node.lane.retired is None or node is tree.root
            ]

    async def delete(self, root: str, give_up: Callable[[Live], Awaitable[None]]) -> None:
        """Give up all lines; the root last."""
        async with self._lock(root):
            for id, _frozen in await settled(partial(self._to_retire, root, None)):
                await give_up(await self.shelf.get(id))


class KnownTree(NamedTuple):
    """What the record knows of a tree, for the protocols."""

    grove: Grove
    root: str

    def arguments(self) -> dict[str, list[str]]:
        """The arguments of the recorded calls of all lines, by the id of the call."""
        with self.grove.reading(self.root) as tree:
            return arguments_of([message for node in tree.nodes for message in node.lane.trajectory.messages])

    def conversation(self, response: str) -> list[dict[str, Any]]:
        """The messages up to the recorded answer with this id, on whichever line it is."""
        with self.grove.reading(self.root) as tree:
            found = answered([node.lane.trajectory for node in tree.nodes], response)
        if found is not None:
            return found
        raise InvalidInput(f"this session has no response {response!r:.100}")


def answers_wanted(chat: Mapping[str, Any]) -> int:
    """How many answers a request wants: its `n`."""
    count = chat.get("n")
    if count is None:
        return 1
    if type(count) is not int or not 1 <= count <= ANSWERS_LIMIT:
        raise InvalidInput(f"n must be 1 to {ANSWERS_LIMIT}, not {count!r:.40}")
    if count > 1 and chat.get("stream"):
        raise InvalidInput("several answers cannot come in one stream", hint="ask for n answers without a stream")
    return count


def _numbered(chat: dict[str, Any], number: int) -> dict[str, Any]:
    """The request for one of several answers; each has its own seed, or all would be the same."""
    one = {name: value for name, value in chat.items() if name != "n"}
    if isinstance(chat.get("seed"), int):
        one["seed"] = chat["seed"] + number
    return one


def _state(lane: Lane, messages: Sequence[Mapping[str, Any]]) -> str:
    """The state of a line that this proxy is not running a turn of."""
    running = lane.open
    if running is None:
        return FREE
    anchors = lane.trajectory.anchors
    asked = [*lane.trajectory.messages[: anchors[running.base - 1] if running.base else 0], *running.appended]
    return SAME if asked == list(messages) else BUSY


def digest_of(tree: Tree) -> str:
    """What identifies the frozen samples of all lines."""
    frozen = [f"{node.head.session} {node.frozen}" for node in tree.nodes if node.frozen]
    return sha256("\n".join(sorted(frozen)).encode()).hexdigest()
