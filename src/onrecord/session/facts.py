"""`session.facts`: short facts about the work that anyone may set at any time. (`session.decide` records decisions.)"""

from __future__ import annotations

from onrecord.errors import InvalidInput
from onrecord.log.codec import encode_payload
from onrecord.session.chapter import Chapter, checked_text
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.phases import TITLE_SECTION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.views.values import Json

TITLE_WORDS = 12
"""How many words of a first prompt become the title of a session."""
SCRATCH_LIMIT = 16 * 1024
"""The largest scratch value, in bytes of JSON: larger values belong in files."""


class FactVerbs(Chapter):
    """Set the objective, the title, the next action, the reproduction and scratch values."""

    __slots__ = ()

    def set_objective(self, text: str, *, id: str | None = None) -> Event:
        """Record what the session is for. A title that was given stays the title in lists."""
        data = {"text": checked_text(text, "an objective", TEXT_LIMIT)}
        title = self._session.views.facts.title
        if title is None:
            return self._session._record("objective.set", data, id=id)
        kept = self._session._draft("session.titled", {"text": title}, id=id and f"{id}/title")
        return self._session._append_drafts(self._session._draft("objective.set", data, id=id), kept)[0]

    def set_title(self, text: str) -> Event:
        """Record a summary of the work so far, for lists; it is also the Session Title of STATE.md, if that has one."""
        title = self._session._draft("session.titled", {"text": checked_text(text, "a title", TEXT_LIMIT)})
        phases = self._session.views.phases
        if not any(one["name"] == TITLE_SECTION for one in phases.described()) or phases.text_of(TITLE_SECTION) == text:
            return self._session._append_drafts(title)[0]
        section = {"section": TITLE_SECTION, "text": text, "mode": "replace"}
        return self._session._append_drafts(title, self._session._draft("section.written", section))[0]

    def title_by_prompt(self, prompt: str) -> Event | None:
        """Title a session that has no title and no objective by the beginning of its first prompt."""
        views = self._session.views
        words = next((line.split() for line in prompt.splitlines() if line.strip()), [])
        if not words or views.head.title or views.facts.title:
            return None
        more = " …" if len(words) > TITLE_WORDS else ""
        text = " ".join(words[:TITLE_WORDS])[:TEXT_LIMIT]
        return self._session._record("session.titled", {"text": f"{text}{more}", "from": "prompt"})

    def set_next_action(self, text: str, *, command: str | None = None, id: str | None = None) -> Event:
        """Record the one thing to do next."""
        data = {"text": checked_text(text, "a next action", TEXT_LIMIT), "command": command}
        return self._session._record("next_action.set", data, id=id)

    def set_reproduction(
        self, steps: str, *, rate: str | None = None, scenario: str | None = None, id: str | None = None
    ) -> Event:
        """Record how to reproduce the problem, and how often it occurs (`3/10`)."""
        data = {"steps": checked_text(steps, "a reproduction", TEXT_LIMIT), "rate": rate, "scenario": scenario}
        return self._session._record("reproduction.recorded", data, id=id)

    def set_scratch(self, key: str, value: Json) -> Event:
        """Keep a small value under a key across restarts; None removes it."""
        if not isinstance(key, str) or not key:
            raise InvalidInput("a scratch value needs a key")
        if len(encode_payload(value)) > SCRATCH_LIMIT:
            raise InvalidInput(f"the scratch value {key!r} is over {SCRATCH_LIMIT:,} bytes", hint="keep it in a file")
        return self._session._record("scratch.set", {"key": key, "value": value})
