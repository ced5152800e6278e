"""The desk: the sessions on pages, kept open, and their parts rendered once for all viewers of the same."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from contextlib import suppress
from datetime import date
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from onrecord.errors import InvalidInput, NotFound
from onrecord.log.codec import open_records
from onrecord.log.names import is_ulid
from onrecord.log.readings import at_pointer
from onrecord.log.shapes import UNREADABLE
from onrecord.pages.inspector import changes_table, inspector
from onrecord.pages.lanes import Picture, draw_lanes
from onrecord.pages.options import Options
from onrecord.pages.text import shown
from onrecord.session.handle import Session
from onrecord.views.diff import changes
from onrecord.views.fold import BODIES, Whole
from onrecord.web import session_page, tab_views
from onrecord.web.frame import document
from onrecord.web.home import used_words
from onrecord.web.numbering import Numbering
from onrecord.web.past import Past
from onrecord.web.session_page import TABS, Look
from onrecord.web.shelf import used_of
from onrecord.web.sturdy import sturdy
from onrecord.web.timeline import STRETCH, Stretch, stretch, stretch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore
    from onrecord.web.frame import Frame
    from onrecord.web.shelf import Shelf

OPEN_SESSIONS = 64
"""How many sessions stay open: those that were looked at last."""
ANSWERS_KEPT = 256
"""How many rendered parts are kept, so that many viewers of one event cost one rendering."""
EXPLAINED = 20_000
"""Up to which position an event is explained by what it changed: that folds the log up to it."""
IMAGE_LIMIT = 8 * 1024 * 1024
"""The largest image of a conversation that is shown, in bytes."""
TODAY_SECONDS = 5
"""How long the sum of today may be old."""
RUNNING_SHOWN = 600_000_000
"""How long after the last event a running turn is drawn, in microseconds."""
IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif", b"GIF89a": "image/gif",
    b"RIFF": "image/webp",
}  # fmt: skip
"""What may be shown as an image, by its first bytes. SVG is not: it can carry script."""


class Desk:
    """Renders the parts of sessions."""

    def __init__(self, records: SessionStore, shelf: Shelf, frame: Frame) -> None:
        self._records = records
        self._shelf = shelf
        self._frame = frame
        self._past = Past(records.store)
        self._numbering = Numbering(records.store, STRETCH)
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._wholes: OrderedDict[str, Whole] = OrderedDict()
        self._answers: OrderedDict[tuple[Any, ...], str] = OrderedDict()
        self._pictures: OrderedDict[str, tuple[int, Picture]] = OrderedDict()
        self._verified: dict[str, tuple[int, bool]] = {}
        self._today: dict[bool, tuple[int, str]] = {}
        self._lock = RLock()
        self._drawing = RLock()
        """One picture is drawn at a time; meanwhile everything else is answered."""

    def now(self) -> int:
        """The present moment in microseconds."""
        return int(self._records.clock() * 1e6)

    # Sessions on pages

    def handle(self, name: str) -> Session:
        """The open session of this id, or name."""
        id_ = name if is_ulid(name) else self._records.find(name).session
        with self._lock:
            known = self._open.get(id_)
            if known is None:
                known = self._open[id_] = self._records.handle(id_)
                known.refresh()  # raises if there is no such session
                while len(self._open) > OPEN_SESSIONS:
                    self._open.popitem(last=False)
            self._open.move_to_end(id_)
            return known

    def look(self, name: str, at: int | None) -> Look:
        """A session now, or as it was."""
        try:
            session = self.handle(name)
        except BaseException:
            self._open.pop(name, None)
            raise
        head = session.log.head()
        is_past = at is not None and at < head.position
        whole = self._past.at(session.id, at) if is_past and at is not None else self._present(session)
        standing = self._shelf.get(session.id)
        used = used_of(whole.spend) if is_past else self._shelf.used(head)
        return Look(session, whole, head.position, standing, used, self.now(), is_past)

    def _present(self, session: Session) -> Whole:
        """The newest views, as a copy that no other thread folds events into while a page is drawn from it."""
        with self._lock:
            views = session.views
            known = self._wholes.get(session.id)
            if known is None or known.head != views.head:
                known = self._wholes[session.id] = Whole.load(views.dump())
                self._wholes.move_to_end(session.id)
                while len(self._wholes) > OPEN_SESSIONS:
                    self._wholes.popitem(last=False)
            return known

    # The page and its parts

    def page(self, name: str, tab: str, at: int | None, upto: int | None) -> str:
        """The whole page of a session."""
        if tab not in TABS:
            raise NotFound(f"there is no tab {tab!r:.40}")
        look = self.look(name, at)
        view = self._timeline(look) if tab == "timeline" else self._tab(look, tab, upto)
        rollout = tab_views.has_rollout(look.whole)
        return session_page.page(self._frame, look, tab, view, rollout=rollout, stretch=STRETCH)

    def _timeline(self, look: Look) -> str:
        """The last two stretches, so that a page is readable before its script runs; the script draws the rest."""
        last = stretch_of(look.position)
        rows = [row for number in range(max(0, last - 1), last + 1) for row in self._stretch(look, number).rows]
        first = "".join(row.html for row in rows)
        return (
            f'<div id="timeline" tabindex="0" role="region" aria-label="Timeline"><div id="rows">{first}</div></div>'
            '<button type="button" id="fresh" hidden></button>'
        )

    def _stretch(self, look: Look, number: int) -> Stretch:
        options = Options(media=partial(self._address_of, look.session.id))
        before = self._numbering.before(look.whole, number) if number * STRETCH < look.position else None
        return stretch(self._records.store, look.whole, number, options, before)

    def rows(self, name: str, number: int, at: int | None) -> str:
        """One stretch of the timeline, as JSON."""
        look = self.look(name, at)

        def make() -> str:
            found = self._stretch(look, number)
            rows = [[row.position, row.html] for row in found.rows]
            return json.dumps({"upto": look.position, "settled": found.settled, "rows": rows}, ensure_ascii=False)

        return self._once(("rows", look.session.id, number, look.position, look.whole.head.hash), make)

    def look_json(self, name: str, at: int | None) -> str:
        """What surrounds the timeline, as JSON."""
        look = self.look(name, at)
        rollout = tab_views.has_rollout(look.whole)
        parts = {
            "position": look.position, "now": look.now, "chips": session_page.chips(look),
            "left": session_page.left(look), "where": session_page.slider_label(look),
            "used": used_words(look.used),
            "tabs": {name: count for name, _title, count in session_page.counts(look, rollout=rollout)},
        }  # fmt: skip
        return json.dumps(parts, ensure_ascii=False)

    def view(self, name: str, tab: str, at: int | None, upto: int | None) -> str:
        """One tab."""
        if tab not in TABS:
            raise NotFound(f"there is no tab {tab!r:.40}")
        look = self.look(name, at)
        return self._timeline(look) if tab == "timeline" else self._tab(look, tab, upto)

    def _tab(self, look: Look, tab: str, upto: int | None) -> str:
        if tab == "rollout":
            from onrecord.web.token_view import tokens_of

            return sturdy(partial(tokens_of, look))
        if tab == "log":
            query = {"tab": "log"} | ({"at": str(look.position)} if look.is_past else {})
            address = f"{self._frame.base}/s/{look.session.id}?{urlencode(query)}"
            return tab_views.log(look, upto, address)
        views: dict[str, Callable[[Look], str]] = {
            "findings": tab_views.findings, "attempts": tab_views.attempts, "team": tab_views.team,
            "files": tab_views.files, "cost": tab_views.cost, "note": tab_views.note_view,
        }  # fmt: skip
        return sturdy(partial(views[tab], look))

    def lanes(self, name: str) -> str:
        """The picture of a session over time; only what is new is folded into it."""
        session = self.handle(name)
        head = session.log.head()

        def make() -> str:
            with self._drawing:
                seen, picture = self._pictures.pop(session.id, (0, Picture()))
                records = self._records.store.read(session.id, after=seen, upto=head.position, bodies=BODIES)
                if seen and any(record.kind == "payload.erased" for record in records):
                    # The picture may still have what was erased since.
                    picture = Picture()
                    records = self._records.store.read(session.id, upto=head.position, bodies=BODIES)
                for event in open_records(records):
                    with suppress(*UNREADABLE):
                        picture.apply(event)
                self._pictures[session.id] = head.position, picture
                while len(self._pictures) > OPEN_SESSIONS:
                    self._pictures.popitem(last=False)
                return draw_lanes(picture, now=self._end(session, head))

        return self._once(("lanes", session.id, head.hash), make)

    def _end(self, session: Session, head: Head) -> int | None:
        """Until when running turns are drawn: now, while an agent is at work."""
        one = self._shelf.get(session.id)
        return min(self.now(), head.at + RUNNING_SHOWN) if one is not None and one.working else None

    def event(self, name: str, position: int) -> str:
        """One event, with what it changed."""
        session = self.handle(name)
        event = session.log.event(position)
        known = self._verified.get(session.id)
        verified = known[1] if known and known[0] >= position else None
        what = []
        if 1 < position <= EXPLAINED:
            before, after = self._past.at(session.id, position - 1), self._past.at(session.id, position)
            with suppress(*UNREADABLE):
                what = changes(before, after, [])
        return inspector(event, verified=verified, changes=what)

    def compare(self, name: str, before: int, after: int) -> str:
        """What changed in meaning from one position to another."""
        if before > after:
            raise InvalidInput(f"position {before} comes after {after}", hint="give the earlier position first")
        session = self.handle(name)
        old, new = (self._past.at(session.id, position) for position in (before, after))
        return sturdy(lambda: changes_table(changes(old, new, [])))

    def verify(self, name: str) -> dict[str, Any]:
        """Recompute the chain of a session."""
        session = self.handle(name)
        report = session.verify()
        self._verified[session.id] = session.log.head().position, report.ok
        problems = [f"{one.position}: {one.detail}" for one in report.problems[:3]] if not report.ok else []
        return {"ok": report.ok, "problems": problems}

    # Images

    def _address_of(self, session: str, part: Mapping[str, Any]) -> str | None:
        """The address of an image of a conversation; None if it cannot be shown."""
        at = part.get("at")
        if not isinstance(at, list) or len(at) != 3 or not isinstance(at[2], str):  # noqa: PLR2004  # position, line, pointer
            return None
        if not isinstance(at[0], int) or not isinstance(at[1], int):
            return None
        return f"{self._frame.base}/s/{session}/media/{at[0]}/{at[1]}?{urlencode({'p': at[2]})}"

    def media(self, name: str, position: int, line: int, pointer: str) -> tuple[str, bytes]:
        """An image that a record of a conversation carries: its type and its bytes."""
        data = self.handle(name).log.event(position).data
        try:
            text = at_pointer(json.loads(data["lines"][line]), pointer)
            body = base64.b64decode(text.partition("base64,")[2] or text, validate=True)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError):
            raise NotFound("there is no image here") from None
        for start, type_ in IMAGES.items():
            if body.startswith(start) and len(body) <= IMAGE_LIMIT:
                return type_, body
        raise NotFound("this is not an image that can be shown")

    # Cost

    def used_today(self, *, everywhere: bool) -> str:
        """What was used today, in words; counted again every few seconds."""
        now = self.now()
        known = self._today.get(everywhere)
        if known is None or now - known[0] > TODAY_SECONDS * 1e6:
            today = (date.fromtimestamp(now / 1e6) - date(1970, 1, 1)).days  # noqa: DTZ012  # days are local ones
            words = tab_views.used_words(self._records.usage(project="" if everywhere else None, since=today))
            known = self._today[everywhere] = now, words
        return known[1]

    def cost_page(self, *, everywhere: bool) -> str:
        """What all sessions used."""
        frame = self._frame
        tables = tab_views.costs_of_all(self._records.usage(project="" if everywhere else None))
        where = "all projects" if everywhere else frame.project_name
        other = "" if everywhere else "?all=1"
        label = f"only {frame.project_name}" if everywhere else "all projects"
        body = (
            f'<header><h1><a href="{frame.base}/">onrecord</a></h1><span class="crumb">{shown(where)} · cost</span>'
            f'<a class="chip" href="{frame.base}/cost{other}">{shown(label)}</a></header>'
            f'<main class="wrap">{tables}</main>'
        )
        return document(frame, "Cost · onrecord", body, view="plain", data={})

    def _once(self, key: tuple[Any, ...], make: Callable[[], str]) -> str:
        """An answer, rendered once for everybody who asks the same."""
        with self._lock:
            found = self._answers.get(key)
        if found is None:
            found = make()
            with self._lock:
                self._answers[key] = found
                while len(self._answers) > ANSWERS_KEPT:
                    self._answers.popitem(last=False)
        return found
