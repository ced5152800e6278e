"""`session.evidence`: something inspectable that findings, features and decisions rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import IdReused, InvalidInput
from onrecord.session.chapter import Chapter
from onrecord.views.render import iso

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.views.values import Evidence, Json

EVIDENCE_KINDS = ("run", "file", "log", "trace", "test", "commit", "branch", "url", "position", "tracker")
"""run: a captured command; position: another session's event; tracker: a run id of MLflow or W&B."""
EVIDENCE_OUTPUT_LIMIT = 2_000
"""How many characters of a captured output or excerpt an evidence keeps in the durable tier."""
EVIDENCE_ID_LIMIT = 128
"""The longest id of an evidence, in characters."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class EvidenceVerbs(Chapter):
    """Record evidence, read it by its id."""

    __slots__ = ()

    def get(self, id: str) -> Evidence | None:
        """The evidence with this id, if it is on record."""
        return self._session.views.findings.evidence.get(id)

    def record(self, /, kind: str, *, id: str | None = None, captured: bool = False, **about: Json) -> Event:
        """Record something inspectable. `captured` is for what onrecord saw itself; the rest is asserted."""
        if kind not in EVIDENCE_KINDS:
            raise InvalidInput(f"evidence is one of {', '.join(EVIDENCE_KINDS)}, not {kind!r}")
        about |= {"kind": kind, "captured": captured}
        if id is not None:
            return _record_evidence(self._session, check_evidence_id(id), about)
        day = iso(int(self._session.clock() * 1e6)).partition("T")[0]
        for suffix in _suffixes():
            made = f"{kind}-{day}-{suffix}"
            if made in self._session.views.findings.evidence:
                continue
            try:
                return _record_evidence(self._session, made, about)
            except IdReused:
                continue  # another process took this letter in the same moment
        raise InvalidInput("no evidence id is left for today", hint="give one")


def check_evidence_id(id: str) -> str:
    """The id if it can be written in a sentence."""
    if not id or len(id) > EVIDENCE_ID_LIMIT or not id.isprintable() or any(letter.isspace() for letter in id):
        raise InvalidInput(f"{id!r} is no evidence id", hint="like run-2026-05-18-a")
    return id


def _record_evidence(session: Session, id: str, about: dict[str, Any]) -> Event:
    for text in ("output", "excerpt"):
        if isinstance(about.get(text), str):
            about[text] = ends_of(about[text], EVIDENCE_OUTPUT_LIMIT)
    return session._record("evidence.recorded", {"id": id, **about}, id=f"evidence/{id}")


def ends_of(text: str, limit: int) -> str:
    """The beginning and, above all, the end of a text, within a limit."""
    if len(text) <= limit:
        return text
    mark = "\n… (left out) …\n"
    first = limit // 4
    return text[:first] + mark + text[-(limit - first - len(mark)) :]


def _suffixes() -> list[str]:
    return [*_LETTERS, *(first + second for first in _LETTERS for second in _LETTERS)]
