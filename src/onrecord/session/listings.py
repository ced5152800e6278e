"""Listings of many sessions at once: kept as snapshots, and folded again only for sessions that grew since."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from onrecord.errors import OnrecordError, StoreError
from onrecord.log.readings import ABORTS, BEGINS, rows_of
from onrecord.log.store import PAGE_LIMIT, Snapshot
from onrecord.session.handle import Session
from onrecord.views.listing import LISTING_VERSION, WORDS_LISTED, LastWords, listing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from onrecord.log.events import Event
    from onrecord.log.head import Head
    from onrecord.log.item_values import Item
    from onrecord.log.readings import Row
    from onrecord.log.store import Store
    from onrecord.views.listing import Asked, Listing

R = TypeVar("R")

PROMPT_KINDS = ("turn.recorded", "item.added", "payload.kept")
PROMPTS_LOOKED_AT = 60
"""In how many events at the end of a log the last prompt is searched."""
KEPT_LIMIT = 16_384
"""The longest listing that is kept, in bytes; a longer one is folded each time."""
SAVED_TOGETHER = 500
"""How many listings are saved in one step."""


SPEAKERS = ("user", "assistant", "tool")


class Entry:
    """A session in a list: its head, and what is listed of it."""

    __slots__ = ("head", "listing")

    def __init__(self, head: Head, listed: Listing) -> None:
        self.head = head
        self.listing = listed

    @property
    def active_at(self) -> int:
        """When something last happened in it; a look at the worktree does not count."""
        return self.listing["active_at"] or self.head.at


def entries(store: Store, heads: Sequence[Head], clock: Callable[[], float]) -> list[Entry]:
    """The listings of these sessions. Those that were folded now are saved, so that the next list reads them."""
    found = folded(store, heads, clock, LISTING_VERSION, lambda session, _head: listing_of(session))
    return [Entry(head, found.get(head.session) or listing_of_nothing()) for head in heads]


def folded(
    store: Store, heads: Sequence[Head], clock: Callable[[], float], view: str, fold: Callable[[Session, Head], R]
) -> dict[str, R]:
    """What `fold` makes of each session, as JSON, by id: kept from the last time if nothing was appended since.

    A session that cannot be read is left out: a damaged log must not hide the others.
    """
    found: dict[str, R] = {}
    fresh: dict[str, Snapshot] = {}
    for start in range(0, len(heads), PAGE_LIMIT):
        page = heads[start : start + PAGE_LIMIT]
        kept = store.snapshots(view, [head.session for head in page])
        for head in page:
            known: R | None = _known(kept.get(head.session), head)
            if known is None:
                try:
                    known = fold(Session(store, head.session, clock=clock), head)
                except OnrecordError:
                    continue
                body = json.dumps(known, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
                if len(body) <= KEPT_LIMIT:
                    fresh[head.session] = Snapshot(view, head.position, head.hash, body)
            found[head.session] = known
            if len(fresh) >= SAVED_TOGETHER:
                _save(store, fresh)
    _save(store, fresh)
    return found


def every_head(store: Store, project: str | None, statuses: Collection[str]) -> Iterator[Head]:
    """All sessions of a project with one of these statuses, the newest first, page by page."""
    before: tuple[int, str] | None = None
    while page := store.heads(project=project, statuses=statuses, limit=PAGE_LIMIT, before=before):
        yield from page
        if len(page) < PAGE_LIMIT:
            return
        before = page[-1].at, page[-1].session


def listing_of(session: Session) -> Listing:
    """The listing of one session, as it is now."""
    return listing(session.views, last_words(session))


def listing_of_nothing() -> Listing:
    """The listing of a session that cannot be read."""
    return {
        "agents": {}, "agent": "", "vendor": None, "people": [], "branch": None, "cwd": None, "prompt": "",
        "question": None, "next": "", "attempts": [], "effects": {}, "blocked": [], "stale": [], "active_at": 0,
        "rests": None, "past": False,
    }  # fmt: skip


def last_words(session: Session) -> LastWords:
    """What was said last, as far as the end of the log shows it: the prompt, and a question that ends the answer."""
    question: Asked | None = None
    rests: str | None = None
    for event in islice(session.log.newest(PROMPT_KINDS), PROMPTS_LOOKED_AT):
        if rests is None and _is_aborted(event):
            rests = event.by
        for item in reversed(_spoken(event)):
            said = _text(item)
            if item["role"] == "user" and said:
                return LastWords(said[: 4 * WORDS_LISTED], question, rests or "")
            if rests is None and is_question(item, said):
                asked = said.strip().rpartition("\n")[2]
                question = {"agent": event.by, "text": asked, "position": event.position, "at": event.at}
            if rests is None:
                rests = event.by if is_answer(item) else ""
    return LastWords("", question, rests)


def is_answer(item: Item) -> bool:
    """Whether an item is an answer, and not the beginning of more work."""
    return item["role"] == "assistant" and not item.get("tool_calls")


def is_question(item: Item, said: str) -> bool:
    """Whether an item is an answer that ends with a question."""
    return is_answer(item) and said.rstrip(" *_`\n").endswith("?")


def _is_aborted(event: Event) -> bool:
    """Whether the last thing that a part of a conversation has is that its turn was aborted."""
    data: Any = event.data if isinstance(event.data, dict) else {}
    rows = [row for row in rows_of(data) if not row.lane] if event.kind == "payload.kept" else []
    return bool(rows) and rows[-1].turn == ABORTS


def _spoken(event: Event) -> list[Item]:
    """What an event says, without thinking, summaries and what an agent said to a subagent."""
    data: Any = event.data if isinstance(event.data, dict) else {}
    if event.kind == "payload.kept":
        # A prompt that was recorded by itself; or mirrored records of a conversation.
        found: Any = [{"role": "user", "content": data.get("prompt")}] if data.get("prompt") else []
        found += [item for row in rows_of(data) if not row.lane for item in _asked_or_said(row)]
    else:
        found = data.get("items") if event.kind == "turn.recorded" else [data.get("item")]
    items: list[Any] = found if isinstance(found, list) else []
    return [item for item in items if _is_said(item)]


def _is_said(item: Any) -> bool:
    speaks = isinstance(item, dict) and item.get("role") in SPEAKERS
    return speaks and not (item.get("thinking") or item.get("summary"))


def _asked_or_said(row: Row) -> list[Item]:
    """The items of a record; what the program itself put into the conversation is not a prompt."""
    return row.items if row.turn == BEGINS else [item for item in row.items if item["role"] != "user"]


def _text(item: Item) -> str:
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return " ".join(text for text in texts if isinstance(text, str) and text.strip())


def _known(kept: Snapshot | None, head: Head) -> Any:
    """What was kept of a session, if nothing was appended since."""
    if kept is None or (kept.position, kept.hash) != (head.position, head.hash):
        return None
    with suppress(ValueError):
        return json.loads(kept.body.decode())
    return None


def _save(store: Store, fresh: dict[str, Snapshot]) -> None:
    if fresh:
        with suppress(StoreError):  # listings only save time; one that could not be saved is folded again
            store.save_all(fresh)
        fresh.clear()
