"""SessionStore: the sessions of one store. What `connect()` returns."""

from __future__ import annotations

import time

from onrecord import machine
from onrecord.errors import AmbiguousName, InvalidInput, NameTaken, OnrecordError, SessionNotFound
from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple, Self
from onrecord.lean_weak import WeakKeys
from onrecord.log import head as heads
from onrecord.log.codec import encode_payload, open_record, seal
from onrecord.log.events import NEW_RUN, Event
from onrecord.log.head import Head
from onrecord.log.names import check_name, is_ulid, link_id, make_event_id, make_ulid
from onrecord.log.store import LEASE_SECONDS, PAGE_LIMIT, Lease, Store
from onrecord.session.funnel import funnel_of
from onrecord.session.handle import DEFAULT_ACTOR, Session
from onrecord.views.facts import TEXT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from onrecord.session.copying import Copied
    from onrecord.session.listings import Entry
    from onrecord.session.retention import Policy, Swept
    from onrecord.session.usage import Used
    from onrecord.views.values import Json, Parent

METADATA_LIMIT = 16 * 1024
"""The largest metadata of a session, in bytes of JSON."""
SNIPPET_WIDTH = 160
"""How many characters of the found text a search result shows."""
NAMES_COMPARED = 500
"""With how many names, the newest of the project, a name that no session has is compared."""
NAMES_OFFERED = 3
"""How many of the names that are most like it an error offers."""
NAMES_ALIKE = 0.6
"""How alike an offered name is at least; 1 is the same."""


class Found(NamedTuple):
    """One search result."""

    session: Head
    event: Event
    snippet: str


class SessionStore:
    """Open, find, list and search sessions."""

    def __init__(
        self, store: Store, *, project: str = "", also: Sequence[str] = (), place: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.store = store
        self.project = project
        """The project of new sessions."""
        self.also = tuple(also)
        """Other names of this project: sessions under them belong to it too."""
        self.place = place
        """The project's directory, recorded with new sessions; "" if it has none."""
        self.clock = clock
        self._opened: WeakKeys[Session, None] = WeakKeys()

    def __repr__(self) -> str:
        return f"<SessionStore {self.url}, project {self.project!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lanes of the sessions that `open` returned, then close files and connections."""
        for session in self._opened:
            try:
                session.leave()
            except OnrecordError:
                continue  # what cannot be released expires
        self.store.close()

    @property
    def url(self) -> str:
        """The address of the store, as `connect` takes it."""
        return self.store.url

    def open(
        self, name: str, *, agent: str = "main", objective: str | None = None,
        metadata: Mapping[str, Json] | None = None, budget: Mapping[str, float] | None = None,
        takeover: bool = False, lease_seconds: float = LEASE_SECONDS,
    ) -> Session:  # fmt: skip
        """Open a session for work as `agent`: a new one, or the one of this name as its last process left it.

        Takes the lease on the agent's lane: no other process adds turns to it. Metadata counts only for a new session.
        """
        check_name(agent, "agent")
        session = self._find_or_create(name, agent, objective, metadata, _checked(budget))
        heads.refuse_ended(session.head)
        session.acquire(takeover=takeover, seconds=lease_seconds)
        self._opened[session] = None
        known = session.views
        if objective and known.facts.purpose != objective:
            session.facts.set_objective(objective)
        if budget and known.spend.budget != budget:
            session.budget.set(**budget)
        return session

    def create(
        self, name: str, *, agent: str = DEFAULT_ACTOR, objective: str | None = None,
        metadata: Mapping[str, Json] | None = None, budget: Mapping[str, float] | None = None,
        parent: Parent | None = None,
    ) -> Session:  # fmt: skip
        """Make a new session; `NameTaken` if the project has one of this name."""
        check_name(name)
        if objective is not None and (not isinstance(objective, str) or len(objective) > TEXT_LIMIT):
            raise InvalidInput(
                f"an objective must be text of at most {TEXT_LIMIT:,} characters",
                hint="shorten it, or keep it in a file",
            )
        if len(encode_payload(metadata or {})) > METADATA_LIMIT:
            raise InvalidInput(f"the metadata is over {METADATA_LIMIT:,} bytes", hint="keep large values in files")
        if self.also and any(self.store.heads(project=one, name=name, limit=1) for one in self.also):
            raise NameTaken(f"this project already has a session named {name!r}")
        entropy, now = machine.entropy(33), self.clock()
        data = {
            "name": name, "project": self.project, "objective": objective, "metadata": dict(metadata or {}),
            "budget": _checked(budget), "parent": parent,
        } | ({"place": self.place} if self.place else {})  # fmt: skip
        id_ = make_ulid(int(now * 1e3), entropy[:10])
        first = make_event_id(int(now * 1e3), entropy[10:17])
        draft = seal(
            "session.opened", data, id=first, at=int(now * 1e6), by=check_name(agent, "agent"), run=NEW_RUN,
            salt=entropy[17:],
        )  # fmt: skip
        (passed,), notices = funnel_of(self.store).passed((draft,), lambda: self.project)
        where, *_noticed = self.store.create(heads.fresh(id_, passed), [passed, *notices])
        session = self.handle(id_, agent=agent)
        session.run = where.run  # creating the session was this process's first opening of it
        return session

    def get(self, name: str, *, agent: str = DEFAULT_ACTOR) -> Session:
        """The session of this name or id; a unique beginning of either is enough. Takes no lease."""
        return self.handle(self.find(name).session, agent=agent)

    def handle(self, id: str, *, agent: str = DEFAULT_ACTOR) -> Session:
        """The session with exactly this id. Nothing is read: if there is no such session, its first verb raises."""
        return Session(self.store, id, agent=agent, clock=self.clock)

    def head(self, id: str) -> Head:
        """The head of the session with exactly this id."""
        return self.store.head(id)

    def children(self, id: str) -> list[Head]:
        """The sessions that were forked from the one with this id."""
        return self.store.children(id)

    def find(self, name: str) -> Head:
        """The head of the session with this name or id."""
        if not isinstance(name, str) or not name:
            raise SessionNotFound("the name or id of the session is missing")
        if is_ulid(name.upper()):
            return self.head(name.upper())
        exact = self._here(name=name, limit=2) or self.store.heads(name=name, limit=5)
        if len(exact) == 1:
            return exact[0]
        near = exact or self._here(prefix=name, limit=5) or self.store.heads(prefix=name, limit=5)
        if not near:
            raise self._nothing_named(name)
        if len(near) > 1:
            options = ", ".join(f"{head.name} ({head.session})" for head in near)
            raise AmbiguousName(f"{name!r} matches more than one session: {options}")
        return near[0]

    def _nothing_named(self, name: str) -> SessionNotFound:
        """The error for a name that no session has; it names sessions of this project that are called alike."""
        from difflib import get_close_matches

        known = [*dict.fromkeys(head.name for head in self._here(limit=NAMES_COMPARED))]
        near = get_close_matches(name, known, n=NAMES_OFFERED, cutoff=NAMES_ALIKE)
        said = f"there is no session {name!r}"
        if not near:
            return SessionNotFound(said)
        return SessionNotFound(said, hint=f"did you mean {' or '.join(near)}?", name=name, near=near)

    def named(self, name: str) -> Head | None:
        """The session of this project with exactly this name, if there is one."""
        found = self._here(name=name, limit=1)
        return found[0] if found else None

    def _here(self, **wanted: Any) -> list[Head]:
        """Sessions of this project, under whichever of its names, by last activity."""
        if not self.also:
            return self.store.heads(project=self.project, **wanted)
        found = [head for one in (self.project, *self.also) for head in self.store.heads(project=one, **wanted)]
        found.sort(key=lambda head: (head.at, head.session), reverse=True)
        return found[: wanted["limit"]]

    def linked(self, vendor: str, vendor_id: str) -> list[str]:
        """The ids of the sessions that have this vendor conversation on record, the newest event first."""
        return self.store.linked(link_id(vendor, vendor_id))

    def leases(self, session: str) -> list[Lease]:
        """The leases on the lanes of a session, given by its id."""
        return self.store.leases(session)

    def sessions(
        self, *, project: str | None = None, status: str | Collection[str] | None = None, limit: int = 50,
        before: Head | None = None,
    ) -> list[Head]:  # fmt: skip
        """Sessions by last activity, newest first. `project` "" means every project; None means this one."""
        if not 1 <= limit <= PAGE_LIMIT:
            raise InvalidInput(f"the limit must be 1 to {PAGE_LIMIT:,} sessions, not {limit}")
        statuses = (status,) if isinstance(status, str) else status
        for wanted in statuses or ():
            if wanted not in heads.STATUSES:
                raise InvalidInput(f"a session's status must be one of {', '.join(heads.STATUSES)}, not {wanted!r}")
        last = (before.at, before.session) if before else None
        if project is None:
            return self._here(statuses=statuses, limit=limit, before=last)
        return self.store.heads(project=project or None, statuses=statuses, limit=limit, before=last)

    def entries(self, sessions: Sequence[Head]) -> list[Entry]:
        """These sessions with what lists show of them: agent, vendor, last prompt, and what may need a person."""
        from onrecord.session.listings import entries

        return entries(self.store, sessions, self.clock)

    def folded(self, sessions: Sequence[Head], view: str, fold: Callable[[Session, Head], Json]) -> Mapping[str, Json]:
        """What `fold` makes of each session, as JSON, by id; kept under the name `view` until the session grows.

        A session that cannot be read is left out. If `fold` changes its meaning, the name must change.
        """
        from onrecord.session.listings import folded

        return folded(self.store, sessions, self.clock, view, fold)

    def every(self, status: Collection[str], *, project: str | None = None) -> list[Head]:
        """All sessions with one of these statuses, the newest first. `project` "" means every project."""
        from onrecord.session.listings import every_head

        places = (self.project, *self.also) if project is None else [project or None]
        found = [head for one in places for head in every_head(self.store, one, status)]
        return found if len(places) == 1 else sorted(found, key=lambda head: (head.at, head.session), reverse=True)

    def search(
        self, query: str, *, project: str | None = None, session: str | None = None, limit: int = 20
    ) -> list[Found]:
        """Events of transcript and facts that have all words of the query. `project` "" means every project."""
        from onrecord.log.text import fits, said_in, text_of, words_of

        within = self.find(session).session if session else None
        places = [None] if within else (self.project, *self.also) if project is None else [project or None]
        hits = [hit for one in places for hit in self.store.search(query, project=one, session=within, limit=limit)]
        found = []
        for hit in hits[:limit]:
            (record,) = self.store.read(hit.session, after=hit.position - 1, upto=hit.position)
            event = open_record(record)
            said = said_in(event.data)
            shown = said if fits(words_of(said), words_of(query)) else text_of(event.data)
            found.append(Found(self.store.head(hit.session), event, snippet(shown, query)))
        return found

    def usage(self, *, project: str | None = None, session: str | None = None, since: int = 0) -> Iterator[Used]:
        """What sessions used, by day, agent and model, since a day (its number since 1970).

        `project` "" means every project; None means this one. A call that vendors copied counts once.
        """
        from onrecord.session.usage import usage, used_by

        if session is not None:
            return used_by(self.store, self.find(session), since)
        return usage(self.store, self.project if project is None else project or None, since)

    def child(
        self, parent: Session, name: str, *, budget: Mapping[str, float], agent: str = DEFAULT_ACTOR,
        objective: str | None = None, metadata: Mapping[str, Json] | None = None,
    ) -> Session:  # fmt: skip
        """Create a session under another one, with a slice of what is left of its budget."""
        left = parent.views.spend.remaining(int(self.clock() * 1e6))
        for limit, amount in _checked(budget).items():
            if limit in left and amount > left[limit]:
                raise InvalidInput(
                    f"{parent.name!r} has {left[limit]:g} {limit} left; it cannot give {amount:g} to another session"
                )
        check_name(name)
        if self.named(name):
            raise NameTaken(f"this project already has a session named {name!r}")
        # The slice first: a crash in between wastes a part of the budget, and never spends it twice.
        event = parent._record("budget.sliced", {"child": name, "limits": dict(budget)}, id=f"slice/{name}")
        above: Parent = {"session": parent.id, "position": event.position}
        return self.create(name, agent=agent, objective=objective, metadata=metadata, budget=budget, parent=above)

    def copy(self, name: str, to: SessionStore, *, rename: str | None = None, into: str | None = None) -> list[Copied]:
        """Copy a session to another store, verified before and after; or add what is new to the copy that is there.

        Sessions it was forked from are copied too if they are missing. Name and project stay unless others are given.
        """
        from onrecord.session.copying import Copier

        return Copier(self.store, to.store).copy(self.find(name).session, name=rename, project=into)

    def sweep(self, policy: Policy | None = None, *, dry_run: bool = False) -> Iterator[Swept]:
        """Apply the retention policy to every session of the store."""
        from onrecord.session.retention import Policy, sweep

        now = int(self.clock() * 1e6)
        return sweep(self.store, self._for_retention, policy or Policy(), now, dry_run=dry_run)

    def erase_everything(self, reason: str, *, dry_run: bool = False) -> Iterator[Swept]:
        """Erase the content of every session of the store (in PostgreSQL: of the tenant); holds are respected."""
        from onrecord.session.retention import erase_every

        return erase_every(self.store, self._for_retention, reason, dry_run=dry_run)

    def erase_again(self) -> list[str]:
        """Erase sessions whose key was destroyed, after an older copy of the store is back; returns their names."""
        from onrecord.session.retention import erase_again

        return erase_again(self.store, self.handle)

    def _for_retention(self, id_: str) -> Session:
        return self.handle(id_, agent="retention")

    def _find_or_create(
        self,
        name: str,
        agent: str,
        objective: str | None,
        metadata: Mapping[str, Json] | None,
        budget: dict[str, float],
    ) -> Session:
        if isinstance(name, str) and is_ulid(name.upper()):
            return self.get(name, agent=agent)
        check_name(name)
        known = self.named(name)
        if known is None:
            try:
                return self.create(name, agent=agent, objective=objective, metadata=metadata, budget=budget)
            except NameTaken:
                # Another process was quicker; both mean the same session.
                known = self.find(name)
        return self.handle(known.session, agent=agent)


def _checked(budget: Mapping[str, float] | None) -> dict[str, float]:
    """The budget, checked; imported here because a process that records one event sets none."""
    if not budget:
        return {}
    from onrecord.session.budget import check_budget

    return check_budget(budget)


def snippet(text: str, query: str) -> str:
    """The part of a text around the first word of a query."""
    from onrecord.log.text import words_of

    flat = " ".join(text.split())
    first = (words_of(query) or [""])[0]
    start = max(0, flat.casefold().find(first) - SNIPPET_WIDTH // 3)
    part = flat[start : start + SNIPPET_WIDTH]
    return ("…" if start else "") + part + ("…" if start + SNIPPET_WIDTH < len(flat) else "")
