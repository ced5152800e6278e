"""The lane of a rollout: the fold of its events into a trajectory, and the payloads those events carry.

A turn is `turn.begun`, an `item.added` per new message and `tokens.recorded` of its prompt, in one durable step before
the engine is called; then the reply's `item.added`, `tokens.recorded` of the output and `turn.committed` or
`turn.aborted` in another. While an engine streams, `tokens.recorded` of the output so far come in between; the whole
output repeats them, so they matter only if it never comes. Live and replayed steps both go through `apply`, so a
restart changes nothing.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import AssemblyFailed, DamagedLog, InvalidInput, PayloadErased
from onrecord.log.items import ROLES, to_items
from onrecord.log.packed import count_packed, pack_floats, pack_integers, unpack_floats, unpack_integers
from onrecord.rollout.trajectory import LinearTrajectory, Prepared
from onrecord.rollout.turns import (
    ABORT,
    ABORTED,
    INCOMPLETE,
    INFRA,
    STATUS_OF,
    TurnRecord,
    floats,
    integers,
    spans,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from onrecord.log.events import Event
    from onrecord.log.item_values import Item
    from onrecord.rollout.matching import Message
    from onrecord.rollout.trajectory import Policy
    from onrecord.rollout.turns import Reply, Span

REWARD = "reward"
"""The name of the reward that a trainer uses; others are kept beside it."""
PROMPT, PARTIAL, OUTPUT = "prompt", "partial", "output"
"""What ids are of: the prompt, the output so far while an engine streams it, or the whole output."""
_EMPTY_PROMPT: dict[str, Any] = {"keep": 0, "ids": pack_integers(()), "origins": []}

LANE_KINDS = (
    "session.forked", "agent.joined", "agent.left", "turn.begun", "item.added", "tokens.recorded", "turn.committed",
    "turn.aborted", "turn.recorded", "samples.frozen", "samples.acknowledged", "reward.recorded", "rollout.retired",
)  # fmt: skip
"""The kinds that the fold reads."""


class Frozen(NamedTuple):
    """The samples of a lane, frozen for a trainer."""

    position: int
    digest: str
    options: dict[str, Any]
    """The options they were made with: the same options on the same log give the same bytes."""
    samples: int


@dataclass(slots=True)
class OpenTurn:
    """A turn that began and has not ended."""

    id: str
    position: int
    base: int
    fingerprint: str
    appended: list[dict[str, Any]] = field(default_factory=list)
    prompt: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    partial: list[dict[str, Any]] = field(default_factory=list)
    erased: bool = False
    tools: str = ""
    template: str = ""

    @property
    def streamed(self) -> int:
        """How many ids of the output are on record so far."""
        return sum(count_packed(part["ids"]) for part in self.partial)

    def cut_off(self, status: str) -> dict[str, Any]:
        """The output of a turn that has no whole one: what was streamed until then."""
        if not self.partial:
            return {"status": status}
        ids, logprobs, weights = array("i"), array("f"), list[Any]()
        for part in self.partial:
            ids.extend(unpack_integers(part["ids"]))
            logprobs.extend(unpack_floats(part["logprobs"]))
            weights += part.get("weights") or [["", len(ids) - sum(count for _version, count in weights)]]
        known = any(version for version, _count in weights)
        return {"status": status, "ids": ids, "logprobs": logprobs, "weights": weights if known else []}


_UNCOUNTED = {"position": 0, "shared": False, "run": 0}


class Lane:
    """One agent's turns with their ids: the trajectory, its position in the log, and the state of the samples."""

    def __init__(self, agent: str, policy: Policy | None = None) -> None:
        self.agent = agent
        self.trajectory = LinearTrajectory(policy)
        self.position = 0
        """The position of the last folded event."""
        self.forked = 0
        """Where the own part of a branch begins: earlier turns are those of the rollout that it branched from."""
        self.commits: list[int] = []
        """The position that committed each turn of the trajectory."""
        self.turns = 0
        self.shared = False
        """Whether the last process that took the lane lets others take it between its turns."""
        self.run = 0
        """The run of that process."""
        self.open: OpenTurn | None = None
        self.frozen: Frozen | None = None
        self.acknowledged: int = 0
        self.retired: str | None = None
        """The reason, once the rollout is retired."""
        self.sampled: dict[int, int] = {}
        """How many ids each committed turn sampled, by the position of its commit; discarded turns included."""
        self.rewards: dict[tuple[int, str], float] = {}
        """By the position that committed a turn (0: the whole rollout) and by name."""

    def __eq__(self, other: object) -> bool:
        """Whether two folds mean the same; how far they have read does not count, nor who had the lane last."""
        return isinstance(other, Lane) and vars(self) | _UNCOUNTED == vars(other) | _UNCOUNTED

    __hash__ = None  # type: ignore[assignment]  # it changes

    def fold(self, events: Iterable[Event]) -> Lane:
        """Fold events, in order; events of other lanes are skipped."""
        for event in events:
            self.apply(event)
        return self

    def apply(self, event: Event) -> None:
        """Fold one event."""
        if event.position <= self.position:
            return
        self.position = event.position
        kind, data = event.kind, event.data if isinstance(event.data, dict) else {}
        if kind == "session.forked":
            # Earlier events are the parent's history, and so are its samples.
            self.frozen, self.acknowledged, self.retired, self.rewards = None, 0, None, {}
            self.forked = event.position
        elif kind == "rollout.retired":
            self.retired = str(data.get("reason", ""))
        elif kind == "reward.recorded":
            if data.get("agent") == self.agent:
                self.rewards[int(data.get("turn", 0)), str(data.get("name"))] = float(data["reward"])
        elif event.by == self.agent:
            try:
                self._step(kind, event, data)
            except (KeyError, TypeError, ValueError, AttributeError):
                raise DamagedLog(f"the {kind} at position {event.position} is not a valid step of a rollout") from None

    def _step(self, kind: str, event: Event, data: dict[str, Any]) -> None:
        if kind == "turn.begun":
            self._interrupt("another turn was begun")  # part of a frozen digest, like the other causes: never reworded
            self.turns += 1
            self.open = OpenTurn(event.id, event.position, self._base(data), str(data.get("fingerprint", "")))
            self.open.tools, self.open.template = str(data.get("tools", "")), str(data.get("arguments", ""))
        elif kind == "samples.frozen":
            options = data.get("options", {})
            self.frozen = Frozen(event.position, str(data.get("digest")), options, data.get("count", 0))
        elif kind == "samples.acknowledged":
            self.acknowledged = event.position
        elif kind == "turn.recorded":
            raise AssemblyFailed(f"the turn of {self.agent!r} at position {event.position} has no token ids")
        elif kind in ("agent.joined", "agent.left"):
            self._interrupt("its process ended")
            if kind == "agent.joined":
                self.shared, self.run = bool(data.get("shared")), event.run
        elif self.open is not None:
            self._continue(kind, self.open, event, data)

    def _base(self, data: dict[str, Any]) -> int:
        """How many turns were committed up to the position that a turn builds on."""
        position = data.get("base", self.commits[-1] if self.commits else 0)
        count = len(self.commits)
        while count and self.commits[count - 1] > position:
            count -= 1
        return count

    def _continue(self, kind: str, turn: OpenTurn, event: Event, data: dict[str, Any]) -> None:
        if event.data is None:
            turn.erased = True
        elif kind == "item.added":
            if turn.prompt is None:
                turn.appended.append(message_of(data["item"]))
            else:
                turn.message = message_of(data["item"])
        elif kind == "tokens.recorded":
            if data.get("part") == PROMPT:
                turn.prompt = data
            elif data.get("part") == PARTIAL:
                turn.partial.append(data)
            else:
                turn.output = data
        if kind == "turn.committed":
            self._commit(turn, event)
        elif kind == "turn.aborted":
            self._give_up(turn, data)

    def _commit(self, turn: OpenTurn, event: Event) -> None:
        if turn.erased:
            raise PayloadErased(f"the token ids of the turn committed at position {event.position} were erased")
        if turn.prompt is None or turn.output is None or turn.message is None:
            raise AssemblyFailed(f"the turn of {self.agent!r} committed at position {event.position} has no token ids")
        kept = self.trajectory.anchors[turn.base - 1] if turn.base else 0
        record = _record(turn, turn.output, "")
        self.trajectory.advance(record, kept, turn.appended, turn.output.get("response", ""))
        del self.commits[turn.base :]
        self.commits.append(event.position)
        self.sampled[event.position] = len(record.output)
        self.open = None

    def _give_up(self, turn: OpenTurn, data: dict[str, Any]) -> None:
        reason = str(data.get("reason", ""))
        if data.get("withdrawn"):
            pass  # the engine never took it, so no record of it remains
        elif data.get("failed"):
            self.trajectory.note_failure(_record(turn, turn.cut_off(INFRA), reason))
        else:
            self.trajectory.append_provisional_record(
                _record(turn, turn.output or turn.cut_off(ABORTED) | {"finish": ABORT}, reason)
            )
        self.open = None

    def _interrupt(self, why: str) -> None:
        if self.open is not None:
            self.trajectory.note_failure(_record(self.open, self.open.cut_off(INCOMPLETE), why))
            self.open = None

    @property
    def inherited(self) -> int:
        """How many committed turns are those of the rollout that it branched from."""
        return sum(position < self.forked for position in self.commits)

    @property
    def sampled_tokens(self) -> int:
        """How many ids were sampled here: all of its own committed turns, discarded ones included, and of the tail.

        Those of shared turns were sampled, and count, in the rollout that it branched from.
        """
        tail = self.trajectory.provisional
        return sum(self._own.values()) + (len(tail.output) if tail else 0)

    @property
    def discarded(self) -> list[int]:
        """How many ids each of its own turns had that a request has discarded."""
        return [count for position, count in self._own.items() if position not in self.commits]

    @property
    def _own(self) -> dict[int, int]:
        return {position: count for position, count in self.sampled.items() if position > self.forked}

    def standing(self) -> list[TurnRecord]:
        """The turns as samples would be made from them now; one that is still open is INCOMPLETE."""
        if self.open is None:
            return self.trajectory.standing()
        last = _record(self.open, self.open.cut_off(INCOMPLETE), "its end is not on record")
        if self.trajectory.provisional is not None and not last.output:
            return self.trajectory.standing()
        return self.trajectory.standing(last)


def _record(turn: OpenTurn, output: dict[str, Any], cause: str) -> TurnRecord:
    """The record of a turn, from its payloads."""
    prompt = output.get("prompt") or turn.prompt or _EMPTY_PROMPT
    finish = output.get("finish", "")
    return TurnRecord(
        base=turn.base,
        keep=prompt["keep"],
        prompt=unpack_integers(prompt["ids"]),
        output=_unpacked(output.get("ids"), unpack_integers, "i"),
        logprobs=_unpacked(output.get("logprobs"), unpack_floats, "f"),
        status=output["status"] if "status" in output else STATUS_OF.get(finish, ABORTED),
        finish=finish,
        cause=output.get("cause", cause),
        origins=_pairs(prompt["origins"]),
        weight_versions=_pairs(output.get("weights", ())),
        fingerprint=turn.fingerprint,
        message=turn.message,
        response_id=output.get("response_id", ""),
        side_payloads=output.get("side", {}),
        tools=turn.tools,
        template=turn.template,
    )


def _unpacked(packed: Any, unpack: Callable[[Any], array[Any]], typecode: str) -> array[Any]:
    if isinstance(packed, array):
        return packed
    return array(typecode) if packed is None else unpack(packed)


def _pairs(listed: Sequence[Any]) -> tuple[Span, ...]:
    return tuple((mark, count) for mark, count in listed)


# The payloads


def prompt_payload(prepared: Prepared) -> dict[str, Any]:
    """The new ids of a prompt, recorded before the engine sees them."""
    return {"part": PROMPT} | _prompt(prepared.keep, prepared.tail, prepared.origins)


def partial_payload(ids: Sequence[int], logprobs: Sequence[float], weights: Sequence[Span]) -> dict[str, Any]:
    """What an engine has streamed since the last such payload."""
    checked = floats(logprobs, "logprobs")
    if len(ids) != len(checked):
        raise InvalidInput(f"a part of a reply has {len(ids)} ids and {len(checked)} logprobs")
    payload = {"part": PARTIAL, "ids": pack_integers(integers(ids, "output ids")), "logprobs": pack_floats(checked)}
    named = [list(span) for span in spans(weights, len(ids), "weight versions")]
    return payload | ({"weights": named} if named else {})


def output_payload(prepared: Prepared, record: TurnRecord, reply: Reply) -> dict[str, Any]:
    """What a reply adds; with the prompt again only if the engine saw a different one than was prepared."""
    payload = {
        "part": OUTPUT,
        "ids": pack_integers(record.output),
        "logprobs": pack_floats(record.logprobs),
        "finish": record.finish,
        "cause": record.cause,
    }
    optional = {
        "weights": [list(span) for span in record.weight_versions],
        "response_id": record.response_id,
        "response": reply.response,
        "side": record.side_payloads,
    }
    if record.prompt is not prepared.tail:
        optional["prompt"] = _prompt(record.keep, record.prompt, record.origins)
    return payload | {name: value for name, value in optional.items() if value}


def _prompt(keep: int, ids: array[int], origins: Sequence[Span]) -> dict[str, Any]:
    return {"keep": keep, "ids": pack_integers(ids), "origins": [list(span) for span in origins]}


def item_of(message: Message) -> Item:
    """A message as an item of the transcript. Unusual messages of models and clients are kept too."""
    plain = dict(message)
    if isinstance(plain.get("content"), str):
        if plain.keys() == {"role", "content"} and plain["role"] in ("system", "user", "assistant"):
            return {"role": plain["role"], "content": plain["content"]}
        known = plain.keys() == {"role", "content", "tool_call_id"} and isinstance(plain["tool_call_id"], str)
        if known and plain["role"] == "tool":
            # Without a second copy of text that may be long; `message_of` rebuilds the message.
            return {"role": "tool", "call": plain["tool_call_id"], "content": plain["content"]}
    try:
        (item,) = to_items(plain, "openai")
    except InvalidInput:
        role, content = plain.get("role"), plain.get("content")
        item = {"role": role if role in ROLES else "user", "content": content if isinstance(content, str) else None}
        item["verbatim"] = {"format": "openai", "message": plain, "spans": 1}
        if role == "tool":
            item["call"] = str(plain.get("tool_call_id") or "")
    if not all(map(_is_sorted, plain.values())):
        # A payload's keys are sorted; the text keeps the order in which a template would write them.
        item["verbatim"]["spelled"] = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return item


def message_of(item: Item) -> dict[str, Any]:
    """The message that an item was made from, as it was stored."""
    kept = item.get("verbatim")
    if isinstance(kept, dict):
        message: dict[str, Any] = json.loads(kept["spelled"]) if "spelled" in kept else dict(kept["message"])
        return message
    if item.get("role") == "tool":
        return {"content": item.get("content"), "role": "tool", "tool_call_id": item.get("call")}
    same: dict[str, Any] = dict(item)
    return same


def _is_sorted(value: Any) -> bool:
    if isinstance(value, dict):
        names = list(value)
        return names == sorted(names) and all(map(_is_sorted, value.values()))
    return all(map(_is_sorted, value)) if isinstance(value, list) else True
