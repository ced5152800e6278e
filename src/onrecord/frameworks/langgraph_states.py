"""What a checkpoint of LangGraph holds: the state that payloads make of one another, computed when it is asked for."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from onrecord.errors import PayloadErased
from onrecord.frameworks.langgraph_steps import filled, from_runs, runs_of
from onrecord.frameworks.langgraph_values import POOLED, TAG, VALUE
from onrecord.frameworks.lists import Listed

if TYPE_CHECKING:
    from onrecord.frameworks.langgraph_values import Ref

STATES_EVERY = 32
"""Of a long chain of checkpoints, every so many keep their state once it was computed."""
SHAPED = ("no_values", "no_versions", "no_seen", "no_metadata", "no_rest")
"""What a checkpoint no longer has: parts of a shape."""
_POOLED_TEXT = re.compile(rf'\{{"{TAG}":"{POOLED}","{VALUE}":(\d+)\}}')

LOST: dict[str, Any] = {}
"""A shape that was erased: what the checkpoints that have it changed is not known."""
_ORPHAN: dict[str, dict[str, Any]] = {
    "rest": {"v": 4, "ts": "1970-01-01T00:00:00+00:00"}, "metadata": {"source": "loop", "step": 0, "parents": {}},
}  # fmt: skip
"""What a checkpoint has at least, if those before it were erased."""

Key = tuple[str, str]
"""Namespace and id of a checkpoint."""


class State:
    """What a checkpoint holds, as texts."""

    __slots__ = ("metadata", "rest", "seen", "values", "versions")

    def __init__(self) -> None:
        self.values: dict[str, str | Listed[Ref]] = {}
        self.versions: dict[str, Any] = {}
        self.seen: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.rest: dict[str, Any] = {}

    def copy(self) -> State:
        """One that can be changed."""
        made = State()
        made.values, made.versions, made.seen = self.values.copy(), self.versions.copy(), self.seen.copy()
        made.metadata, made.rest = self.metadata.copy(), self.rest.copy()
        return made

    def newest(self) -> int | None:
        """The greatest version of the channels, which a shape counts from; None if they are not numbers."""
        versions = self.versions.values()
        return max(versions) if versions and all(type(one) is int for one in versions) else None

    def list_of(self, channel: str) -> Listed[Ref]:
        """The list in a channel, to be continued."""
        old = self.values.get(channel)
        return old if isinstance(old, Listed) else Listed([], 0)

    def whole(self) -> dict[str, Any]:
        """It as JSON; `restored` is the inverse."""
        values = {name: one if isinstance(one, str) else runs_of(one.refs()) for name, one in self.values.items()}
        parts: dict[str, Any] = {"versions": self.versions, "seen": self.seen, "metadata": self.metadata}
        return {"values": values, "rest": self.rest, **parts}

    @staticmethod
    def restored(whole: dict[str, Any]) -> State:
        """The state that a checkpoint has as a whole."""
        made = State()
        for name, kept in whole["values"].items():
            made.values[name] = kept if isinstance(kept, str) else Listed(refs := from_runs(kept), len(refs))
        made.versions, made.seen = whole["versions"].copy(), whole["seen"].copy()
        made.metadata, made.rest = whole["metadata"].copy(), whole["rest"].copy()
        return made

    def apply(self, put: dict[str, Any], shape: dict[str, Any], start: int = 0) -> None:
        """Become the checkpoint that this payload makes of the one that it continues.

        A shape counts texts from `start`, the number of the first one that came with this payload.
        """
        newest = (self.newest() or 0) if shape else 0
        for part in (shape, put):
            for name in SHAPED:
                for gone in part.get(name, ()):
                    getattr(self, name[3:]).pop(gone, None)
            for channel, kept in part.get("set", {}).items():
                if isinstance(kept, str):
                    self.values[channel] = kept
                else:
                    self.values[channel] = self.list_of(channel).followed_by(kept[0], [_ref(one) for one in kept[1:]])
            if "metadata" in part:
                self.metadata.update(part["metadata"])
            if "rest" in part:
                self.rest.update(part["rest"])
        for channel, template in shape.get("fill", {}).items():
            self.values[channel] = filled(template, start)
        for channel, near in shape.get("add", {}).items():
            old = self.list_of(channel)
            self.values[channel] = old.followed_by(old.length, [start + one for one in near])
        for channel, more in put.get("add", {}).items():
            old = self.list_of(channel)
            self.values[channel] = old.followed_by(old.length, more)
        for name, by in shape.get("versions", {}).items():
            self.versions[name] = by + newest
        for name, seen in shape.get("seen", {}).items():
            self.seen[name] = {one: by + newest for one, by in seen.items()}
        self.versions.update(put.get("versions", {}))
        self.seen.update(put.get("seen", {}))
        if "later" in put:
            self.rest["ts"] = later_than(self.rest["ts"], put["later"])
        if "up" in shape:
            self.metadata["step"] = (self.metadata.get("step") or 0) + shape["up"]


class Node:
    """One checkpoint: what it adds to the one it continues. Its state is computed when it is asked for."""

    __slots__ = ("_state", "base", "hidden", "is_lost", "ns", "parent", "position", "put", "run", "shape", "start")

    def __init__(
        self, ns: str, parent: str | None, position: int, base: Node | None, *, put: dict[str, Any],
        shape: dict[str, Any], start: int,
    ) -> None:  # fmt: skip
        self.ns, self.parent, self.position, self.base, self.put, self.shape = ns, parent, position, base, put, shape
        self.start = start
        self._state: State | None = None
        self.run: Any = put["metadata"].get("run_id") if "metadata" in put else None
        if self.run is None and base is not None:
            gone = "run_id" in put.get("no_metadata", ()) or "run_id" in shape.get("no_metadata", ())
            self.run = None if gone else base.run
        self.is_lost: bool = "whole" not in put and (shape is LOST or (base is not None and base.is_lost))
        """What it holds cannot be known, because its shape was erased or that of one that it continues."""
        self.hidden = False
        """Deleted, and still needed by checkpoints that continue it."""

    @property
    def state(self) -> State:
        """What it holds."""
        if self.is_lost:
            raise PayloadErased(
                f"what checkpoint {self.put['id']}, or one that it continues, has changed was erased",
                hint='graph.update_state(one.config, None, as_node="__copy__") continues at one of get_state_history',
            )
        if self._state is None:
            chain: list[Node] = []
            one: Node | None = self
            while one is not None and one._state is None and "whole" not in one.put:  # noqa: SLF001  # of its own class
                chain.append(one)
                one = one.base
            made = State() if one is None else one.known().copy()
            if one is None and chain[-1].shape:
                made.rest.update(_ORPHAN["rest"])
                made.metadata.update(_ORPHAN["metadata"])
            for number, node in enumerate(reversed(chain), 1):
                made.apply(node.put, node.shape, node.start)
                if number % STATES_EVERY == 0 and node is not self:
                    node._state = made.copy()  # noqa: SLF001  # as above
            self._state = made
        return self._state

    def known(self) -> State:
        """Its state, which is known, or which its payload has as a whole."""
        if self._state is None:
            self._state = State.restored(self.put["whole"])
        return self._state


def _ref(kept: Ref) -> Ref:
    """An element of a list; logs of earlier versions have the text of a message where later ones have its number."""
    found = _POOLED_TEXT.fullmatch(kept) if isinstance(kept, str) else None
    return int(found[1]) if found else kept


def later_than(base: str, later: int) -> str:
    """A time so many microseconds later."""
    return (datetime.fromisoformat(base) + timedelta(microseconds=later)).isoformat()
