"""`session.evidence`: something inspectable that findings, features and decisions rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import IdReused, InvalidInput, NotFound
from onrecord.session.chapter import Chapter
from onrecord.views.render import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.views.values import Evidence, Json

EVIDENCE_KINDS = (
    "run", "file", "log", "trace", "test", "commit", "branch", "url", "issue", "pull-request", "row", "note",
    "dashboard", "position", "tracker",
)  # fmt: skip
"""run: a captured command; row: of a database; position: another session's event; tracker: a run of MLflow or W&B."""
LAST = "last"
"""The name of the newest evidence; no evidence can have it as its id."""
OBSERVED = frozenset(
    {"turn.committed", "turn.recorded", "item.added", "tokens.recorded", "effect.finished", "tool.used",
     "attempt.settled", "evidence.recorded", "code.changed", "payload.kept"}
)  # fmt: skip
"""Events of a log that are evidence themselves: they say what was seen; opinions and steps of the session do not."""
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

    def resolve(self, name: str) -> str:
        """The full id of an evidence. `last` is the newest (of this agent, if it has any), `a` the newest `...-a`.

        An id itself always comes first. `NotFound` if the name resolves to nothing, `InvalidInput` if to several.
        """
        known = self._session.views.findings.evidence
        if name in known:
            return name
        if name == LAST and known:
            own = [one["id"] for one in known.values() if one["by"] == self._session.agent]
            return (own or list(known))[-1]
        made = [one for one in known.values() if _is_short_for(name, one)]
        if not made:
            raise NotFound(
                f"there is no evidence {name!r:.80}",
                hint="record the evidence first, or name one that exists",
                step="list_evidence",
            )
        day = max(_day(one["id"]) for one in made)
        newest = [one for one in made if _day(one["id"]) == day]
        newest = [one for one in newest if one.get("captured")] or newest
        if len(newest) > 1:
            raise InvalidInput(
                f"{name!r} can mean {' or '.join(one['id'] for one in newest)}", hint="give the full id",
                step="list_evidence",
            )  # fmt: skip
        return newest[0]["id"]

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
        raise InvalidInput("no evidence id is left for today", hint="give one", step="evidence_id")


def cited(session: Session, evidence: Sequence[str]) -> list[str]:
    """The full ids of what is cited; an error if any of it is not on record."""
    names = [evidence] if isinstance(evidence, str) else list(evidence)
    return list(dict.fromkeys(session.evidence.resolve(name) for name in names))


def observed(session: Session, position: int) -> list[str]:
    """An event of this log as evidence: `position 12`. An event that is an opinion is none."""
    return [f"position {position}"] if session.log.event(position).kind in OBSERVED else []


def _is_short_for(name: str, evidence: Evidence) -> bool:
    """Whether a name is the letters at the end of a made-up id, like the `a` of `run-2026-05-18-a`."""
    kind, _dash, rest = evidence["id"].partition(f"{evidence['kind']}-")
    return not kind and name.isalpha() and rest[10:] == f"-{name}" and _day(evidence["id"]) != ""


def _day(id: str) -> str:
    day = id.rpartition("-")[0][-10:]
    return day if day.replace("-", "").isdecimal() else ""


def check_evidence_id(id: str) -> str:
    """The id if it can be written in a sentence."""
    if id == LAST:
        raise InvalidInput(f"{LAST!r} always means the newest evidence, so it cannot be an id", hint="give another id")
    if not id or len(id) > EVIDENCE_ID_LIMIT or not id.isprintable() or any(letter.isspace() for letter in id):
        raise InvalidInput(f"{id!r} is not a valid evidence id", hint="like run-2026-05-18-a")
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
