"""Listings of many sessions at once: kept as snapshots, and folded again only for sessions that grew since."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from onrecord.errors import OnrecordError, StoreError
from onrecord.log.store import PAGE_LIMIT, Snapshot
from onrecord.session.handle import Session
from onrecord.views.listing import LISTING_VERSION, WORDS_LISTED, listing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from onrecord.log.head import Head
    from onrecord.log.store import Store
    from onrecord.views.values import Listing

PROMPT_KINDS = ("turn.recorded", "item.added", "payload.kept")
PROMPTS_LOOKED_AT = 60
"""In how many events at the end of a log the last prompt is searched."""
SAVED_TOGETHER = 500
"""How many listings are saved in one step."""


class Entry:
    """A session in a list: its head, and what is listed of it."""

    __slots__ = ("head", "listing")

    def __init__(self, head: Head, listed: Listing) -> None:
        self.head = head
        self.listing = listed


def entries(store: Store, heads: Sequence[Head], clock: Callable[[], float]) -> list[Entry]:
    """The listings of these sessions. Those that were folded now are saved, so that the next list reads them."""
    found, fresh = [], {}
    for start in range(0, len(heads), PAGE_LIMIT):
        page = heads[start : start + PAGE_LIMIT]
        kept = store.snapshots(LISTING_VERSION, [head.session for head in page])
        for head in page:
            known = _known(kept.get(head.session), head)
            if known is None:
                try:
                    known = listing_of(Session(store, head.session, clock=clock))
                except OnrecordError:
                    known = listing_of_nothing()  # a damaged log must not hide the others
                else:
                    body = json.dumps(known, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
                    fresh[head.session] = Snapshot(LISTING_VERSION, head.position, head.hash, body)
            found.append(Entry(head, known))
            if len(fresh) >= SAVED_TOGETHER:
                _save(store, fresh)
    _save(store, fresh)
    return found


def every_head(store: Store, project: str | None, statuses: Collection[str]) -> Iterator[Head]:
    """All sessions with one of these statuses, the newest first, page by page."""
    before: tuple[int, str] | None = None
    while page := store.heads(project=project, statuses=statuses, limit=PAGE_LIMIT, before=before):
        yield from page
        if len(page) < PAGE_LIMIT:
            return
        before = page[-1].at, page[-1].session


def listing_of(session: Session) -> Listing:
    """The listing of one session, as it is now."""
    return listing(session.views, last_prompt(session))


def listing_of_nothing() -> Listing:
    """The listing of a session that cannot be read."""
    return {
        "agents": {}, "agent": "", "vendor": None, "people": [], "branch": None, "cwd": None, "prompt": "", "next": "",
        "attempts": [], "effects": {}, "blocked": [], "stale": [],
    }  # fmt: skip


def last_prompt(session: Session) -> str:
    """What a person last asked for, as far as the end of the log shows it; "" if it does not."""
    for event in islice(session.log.newest(PROMPT_KINDS), PROMPTS_LOOKED_AT):
        data: Any = event.data
        if not isinstance(data, dict):
            continue
        if event.kind == "payload.kept":
            if isinstance(data.get("prompt"), str) and data["prompt"].strip():
                return str(data["prompt"])[: 4 * WORDS_LISTED]
            continue
        items = data.get("items") if event.kind == "turn.recorded" else [data.get("item")]
        for item in reversed(items if isinstance(items, list) else []):
            said = _said(item)
            if said:
                return said
    return ""


def _said(item: Any) -> str:
    """The words of a user's item."""
    if not isinstance(item, dict) or item.get("role") != "user":
        return ""
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return " ".join(text for text in texts if isinstance(text, str) and text.strip())[: 4 * WORDS_LISTED]


def _known(kept: Snapshot | None, head: Head) -> Listing | None:
    """A kept listing, if nothing was appended since."""
    if kept is None or (kept.position, kept.hash) != (head.position, head.hash):
        return None
    with suppress(ValueError):
        found: Listing = json.loads(kept.body)
        return found
    return None


def _save(store: Store, fresh: dict[str, Snapshot]) -> None:
    if fresh:
        with suppress(StoreError):  # listings only save time; one that could not be saved is folded again
            store.save_all(fresh)
        fresh.clear()
