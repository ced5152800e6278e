"""Lists of many conversations: kept as snapshots, so that only logs that grew since the last list are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.frameworks.parsing import parser_of
from onrecord.log.store import PAGE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onrecord.frameworks.conversation import Conversation
    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore

FIRST_PAGE = 50
"""How many sessions are looked at first: many callers want the newest only."""
_KINDS = ("session.opened", "payload.kept", "payload.retracted")


def listed(
    store: SessionStore, view: str, fold: Callable[[Session, Head], Any], prefix: str = ""
) -> Iterator[tuple[Head, Any]]:
    """Sessions of this project, the latest activity first, with what `fold` makes of each; None means: not listed.

    `view` names what is kept. It must change when `fold` changes its meaning.
    """
    last, limit = None, FIRST_PAGE
    while page := store.sessions(limit=limit, before=last):
        yield from what_is_made(store, [head for head in page if head.name.startswith(prefix)], view, fold)
        if len(page) < limit:
            return
        last, limit = page[-1], PAGE_LIMIT


def what_is_made(
    store: SessionStore, heads: Sequence[Head], view: str, fold: Callable[[Session, Head], Any]
) -> Iterator[tuple[Head, Any]]:
    """These sessions, each with what `fold` makes of it; None means: not listed."""
    found = store.folded(heads, view, lambda session, head: [fold(session, head)])
    for head in heads:
        (one,) = found.get(head.session) or (None,)
        if one is not None:
            yield head, one


def replay(session: Session, kept: Conversation) -> dict[str, Any]:
    """Fold the entries of a session into a conversation; what its first event says of it."""
    about: dict[str, Any] = {}
    for event in session.log.decoded(parser_of(kept.framework, kept.FIELDS), _KINDS):
        data: Any = event.data if isinstance(event.data, dict) else {}
        if event.kind == "session.opened":
            about = metadata_of(data)
        elif data.get("vendor") == kept.framework:
            kept.changed_at = event.position
            kept.fold(event, data)
    return about


def opened_with(session: Session) -> dict[str, Any]:
    """What the first event of a session says of it: the framework, and the id of the conversation there."""
    first = next(iter(session.events(upto=1)), None)
    return metadata_of(first.data if first else None)


def metadata_of(data: Any) -> dict[str, Any]:
    """The metadata that a session was opened with."""
    found = data.get("metadata") if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}
