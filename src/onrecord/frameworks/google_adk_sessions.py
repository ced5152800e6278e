"""One session of ADK as a fold of one session's log, and the names of both."""

from __future__ import annotations

from bisect import bisect
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.frameworks.conversation import Entry, session_name
from onrecord.frameworks.google_adk_events import from_neutral
from onrecord.frameworks.placing import Placed
from onrecord.frameworks.requiring import required
from onrecord.log.names import NAME_LIMIT

with required("google-adk", "google", "2.13"):
    from google.adk.events.event import Event as AdkEvent

if TYPE_CHECKING:
    from onrecord.log.events import Event

FRAMEWORK = "google-adk"
SHARED = "adk/"
"""How the ids of events begin that change shared state; that of the event that changed it follows."""
_DIGEST = 8


class Kept(Placed):
    """One session of ADK; or the state that sessions of a user, or of an app, share."""

    FIELDS = ("all", "at", "forked_as", "keys", "lines", "placed", "shared", "state")

    def _forget(self) -> None:
        super()._forget()
        self._clear()
        self.state: dict[str, Any] = {}
        self.updated = 0.0
        self.is_there = False
        self.unshared: dict[str, dict[str, Any]] = {}
        """What events change of shared state, by their ids, until it is known that it is shared."""
        self.shared: set[str] = set()
        """The ids of the changes that this shared state has, also of those that were erased."""

    def _clear(self) -> None:
        self.lines: list[str] = []
        """The events, as JSON text."""
        self.times: list[float] = []
        """When each of them was made."""
        self._keys: list[str] = []
        self._positions: list[int] = []
        self._entries: dict[str, Entry] = {}
        self._made = 0
        """How many of the events are among the entries."""

    @property
    def entries(self) -> dict[str, Entry]:
        """The events by their ids; made when someone asks, which a process that only resumes does not."""
        for number in range(self._made, len(self._keys)):
            key = self._keys[number]
            self._entries[key] = Entry(key, self._positions[number], self.lines[number])
        self._made = len(self._keys)
        return self._entries

    @entries.setter
    def entries(self, entries: dict[str, Entry]) -> None:
        self._entries = entries

    def _apply(self, event: Event) -> None:
        if event.id.startswith(SHARED):
            self.shared.add(event.id)
        super()._apply(event)

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this session."""
        super().fold(event, data)
        if event.kind == "payload.retracted":
            self.state, self.is_there, self.unshared = {}, False, {}
            self._clear()
            return
        self.is_there = True
        self.updated = data.get("at", self.updated)
        if data.get("state"):
            self.state |= data["state"]
        for key, line in zip(data.get("keys") or (), data.get("lines") or (), strict=False):
            self._keys.append(key)
            self._positions.append(event.position)
            self.lines.append(line)
            self.times.append(self.updated)
        if self.placed and "placed" in data:
            self.id, self.updated = self.placed["conversation"], event.at / 1e6
        if data.get("shared"):
            self.unshared[event.id] = data["shared"]
        if isinstance(data.get("forked_as"), str):
            self.id = data["forked_as"]

    def events(self, since: float | None, count: int | None) -> list[AdkEvent]:
        """Own events word for word, and turns of others as events of another agent; perhaps only the latest ones."""
        whole: list[tuple[float, str | AdkEvent]] = []
        at = 0
        for turn in self.turns_of_others():
            upto = bisect(self._positions, turn.position)
            whole += zip(self.times[at:upto], self.lines[at:upto], strict=True)
            made_at = whole[-1][0] if whole else self.updated
            whole += [(made_at, event) for event in from_neutral(turn, made_at)]
            at = upto
        whole += zip(self.times[at:], self.lines[at:], strict=True)
        wanted = [one for made_at, one in whole if since is None or made_at >= since]
        if count is not None:
            wanted = wanted[-count:] if count else []
        validate = AdkEvent.__pydantic_validator__.validate_json  # as `model_validate_json`, found once
        return [validate(one) if isinstance(one, str) else one for one in wanted]


def prefix_of(app_name: str, user_id: str | None) -> str:
    """How the names of an app's sessions begin; with a user, of that user's sessions."""
    first = f"a{sha256(app_name.encode()).hexdigest()[:_DIGEST]}-"
    return first if user_id is None else f"{first}{sha256(user_id.encode()).hexdigest()[:_DIGEST]}-"


def short(session_id: str) -> str:
    """An id of ADK as the end of a name."""
    if not session_id:
        raise InvalidInput("a session id must have text")
    name = session_name(session_id)
    return name if len(name) + 2 * (_DIGEST + 1) + 1 <= NAME_LIMIT else session_name("x", session_id)[-16:]
