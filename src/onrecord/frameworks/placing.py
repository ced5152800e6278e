"""Where a conversation is kept: under a name made from its ids, or in a session that another framework or loop began.

That it is kept in such a session is on record there: every process finds it, and lists name it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onrecord.errors import Conflict
from onrecord.frameworks.conversation import Conversation
from onrecord.frameworks.listing import what_is_made
from onrecord.log.names import link_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onrecord.log.events import Draft, Event
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

_GROUP = "group/"


class Placed(Conversation):
    """A conversation that may be kept in another session than that of its own name."""

    FIELDS: ClassVar[tuple[str, ...]] = ("all", "placed")
    place = ""
    """The conversation as a part of an event id; set before anything is read."""
    placed: dict[str, Any] | None
    """What is on record of the conversation that is kept here, if it was begun elsewhere."""

    def _forget(self) -> None:
        super()._forget()
        self.placed = None
        self._is_used = False

    def located(self) -> Head | None:
        """The head of the session that has its name, or of the one that it is kept in."""
        found = super().located()
        if found is None and self.place:
            found = next(_here(self.store, self.store.linked(self.framework, self.place)), None)
            if found is not None:
                self.name = found.name
        return found

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this framework."""
        self._is_used = event.kind == "payload.kept" or not data.get("all")
        if not self._is_used:
            self.placed = None
        elif isinstance(data.get("placed"), dict):
            self.placed = data["placed"]

    def keep_in(self, name: str, group: str, about: dict[str, Any]) -> None:
        """Keep this conversation in a session that exists; `about` says what it is, `group` is what lists ask for."""
        there = self.store.get(name, agent=self.agent)
        with self.lock:
            here = self.session.id if self.catch_up() else there.id
            if here != there.id:
                raise Conflict(
                    f"conversation {self.id!r:.100} is kept in session {self.name!r} already",
                    hint="continue it there, or begin one with another id",
                )
            self.attach(there)
            self.catch_up()
            self.write(lambda: self._links(there, group, about))

    def _links(self, there: Session, group: str, about: dict[str, Any]) -> list[Draft]:
        if self.placed == about:
            return []
        if self._is_used:
            raise Conflict(
                f"session {there.name!r} keeps another conversation of {self.framework} already",
                hint="keep this one in another session",
            )
        data = {"vendor": self.framework, "placed": about}
        made = []
        for link in (self.place, f"{_GROUP}{group}"):
            is_known = there.id in self.store.linked(self.framework, link)  # it was deleted, and is kept here again
            made.append(self.draft("payload.kept", data, id=None if is_known else link_id(self.framework, link)))
        return made


def placed_in(
    store: SessionStore, framework: str, group: str, view: str, fold: Callable[[Session, Head], Any]
) -> Iterator[tuple[Head, Any]]:
    """The sessions that keep a conversation of a group and were begun elsewhere, each with what `fold` makes of it."""
    heads = list(_here(store, store.linked(framework, f"{_GROUP}{group}")))
    return what_is_made(store, heads, view, fold)


def _here(store: SessionStore, sessions: Iterable[str]) -> Iterator[Head]:
    """The heads of those sessions that belong to this project."""
    heads = (store.head(one) for one in sessions)
    return (head for head in heads if head.project in (store.project, *store.also))
