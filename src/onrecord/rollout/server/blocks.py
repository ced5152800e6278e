"""Deltas as blocks: thinking, text and calls, one after the other, for protocols that number them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.rollout.streams import TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.rollout.streams import Piece

THINKING, TEXT, CALL = "thinking", "text", "call"


class Blocks:
    """A rendering for which a message is a list of blocks. Each is opened, added to and closed before the next."""

    def __init__(self) -> None:
        self.index = -1
        self.kind = ""
        self.text = ""
        """The text of the open block, or the arguments of its call."""
        self.call: dict[str, Any] = {}
        self._number: int | None = None

    def piece(self, piece: Piece) -> bytes:
        """What the turn has just said."""
        return self.take(piece.delta)

    def take(self, delta: Mapping[str, Any]) -> bytes:
        """The events of a delta."""
        made = b""
        for name in TEXTS:
            if delta.get(name):
                kind = TEXT if name == "content" else THINKING
                made += b"" if self.kind == kind else self._next(kind)
                made += self._add(str(delta[name]))
        for call in delta.get("tool_calls") or []:
            if self.kind != CALL or call.get("index") != self._number:
                made += self._next(CALL, call)
            arguments = (call.get("function") or {}).get("arguments")
            if arguments:
                made += self._add(arguments if isinstance(arguments, str) else json.dumps(arguments))
        return made

    def finish(self) -> bytes:
        """Close the last block."""
        made = self.closed() if self.kind else b""
        self.kind = ""
        return made

    def _next(self, kind: str, call: Mapping[str, Any] | None = None) -> bytes:
        made = self.finish()
        self.index, self.kind, self.text = self.index + 1, kind, ""
        if call is not None:
            function = call.get("function") or {}
            self.call, self._number = {"id": call.get("id"), "name": function.get("name")}, call.get("index")
        return made + self.opened()

    def _add(self, text: str) -> bytes:
        self.text += text
        return self.added(text)

    def opened(self) -> bytes:
        """A block begins."""
        raise NotImplementedError

    def added(self, text: str) -> bytes:
        """Text was added to it."""
        raise NotImplementedError

    def closed(self) -> bytes:
        """It ends."""
        raise NotImplementedError
