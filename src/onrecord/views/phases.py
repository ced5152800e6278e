"""Phases: the progress of the work through its profile, and the sections of STATE.md.

A profile is data and is recorded too, so a log can be read without the file the profile came from.
"""

from __future__ import annotations

from onrecord.views.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from onrecord.log.events import Event
    from onrecord.views.values import (
        Feature,
        FinishedPhase,
        Milestone,
        Phase,
        Profile,
        Section,
        SectionText,
        Stamp,
        WorklogLine,
        WorkStart,
    )  # fmt: skip

TITLE_SECTION = "Session Title"
"""The section of STATE.md that is the session's title: writing one writes the other."""
PENDING, IN_PROGRESS, DONE = "pending", "in progress", "DONE"
SECTION_LIMIT = 64 * 1024
"""The longest section of STATE.md, in characters."""
_PROFILE: dict[str, Any] = {"name": "", "about": "", "instructions": ""}
_PHASE: dict[str, Any] = {"goal": "", "checkpoint": [], "all_features": False}
_SECTION: dict[str, Any] = {"description": "", "rule": "free"}
STARTS_KEPT = 100
"""How many starts of work the view remembers; the log has them all."""


class Phases(View):
    """The profile, the phases entered and finished, the sections, the work log and the feature list."""

    KINDS: ClassVar = frozenset(
        {"profile.chosen", "phase.entered", "phase.finished", "section.written", "worklog.written", "feature.listed",
         "feature.judged", "milestone.reached", "session.resumed"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.profile: Profile | None = None
        self.entered: dict[str, Stamp] = {}
        self.finished: dict[str, FinishedPhase] = {}
        self.sections: dict[str, SectionText] = {}
        self.worklog: list[WorklogLine] = []
        self.features: dict[str, Feature] = {}
        self.milestones: dict[str, Milestone] = {}
        self.starts: list[WorkStart] = []
        """When work began or was resumed: position and time of each, the last `STARTS_KEPT`."""

    @property
    def names(self) -> list[str]:
        """The phases of the profile, in order."""
        return [phase["name"] for phase in self.listed()]

    def listed(self) -> list[Phase]:
        """The phases of the profile as it describes them."""
        return list(self.profile.get("phases", [])) if self.profile else []

    def described(self) -> list[Section]:
        """The sections of the profile as it describes them."""
        return list(self.profile.get("sections", [])) if self.profile else []

    def number(self, phase: str) -> int:
        """The number of a phase."""
        return next((one.get("number", place) for place, one in enumerate(self.listed()) if one["name"] == phase), 0)

    def rule(self, section: str) -> str:
        """free, append or generated; without a profile every section is free."""
        return next((str(one.get("rule", "free")) for one in self.described() if one["name"] == section), "free")

    def unproven(self) -> list[str]:
        """Features that passed before the last resume and have not been tested again since."""
        since = self.starts[-1]["position"] if self.starts else 0
        return [name for name, one in self.features.items() if one["passes"] and one["position"] < since]

    def status(self, phase: str) -> str:
        """pending, in progress or DONE."""
        if phase in self.finished:
            return DONE
        return IN_PROGRESS if phase in self.entered else PENDING

    def current(self) -> str | None:
        """The first phase that is not done: work continues there."""
        return next((name for name in self.names if name not in self.finished), None)

    def text_of(self, section: str) -> str:
        """What a section says."""
        known = self.sections.get(section)
        return str(known["text"]) if known else ""

    def apply(self, event: Event) -> None:
        data = event.data
        if data is None:
            return
        stamp: Stamp = {"position": event.position, "at": event.at, "by": event.by}
        match event.kind:
            case "profile.chosen":
                self.profile = _sound(data["profile"])
            case "phase.entered":
                self.entered.setdefault(data["phase"], stamp)
            case "phase.finished":
                about: FinishedPhase = {
                    **stamp, "retroactive": bool(data.get("retroactive")), "why": data.get("why")
                }  # fmt: skip
                self.finished.setdefault(data["phase"], about)
            case "session.resumed":
                self._start(stamp)
            case "worklog.written":
                self.worklog.append({"text": data["text"], "phase": data.get("phase"), **stamp})
                if data.get("mark") == "start":
                    self._start(stamp)
            case "section.written":
                before = self.text_of(data["section"])
                appended = f"{before}\n{data['text']}" if before else data["text"]
                text = appended if data.get("mode") == "append" else data["text"]
                self.sections[data["section"]] = {"text": text, **stamp}
            case "feature.listed":
                self.features.setdefault(
                    data["feature"], {"text": data["text"], "passes": False, "evidence": [], **stamp}
                )
            case "feature.judged" if data["feature"] in self.features:
                self.features[data["feature"]] |= {
                    "passes": data["passes"], "evidence": data["evidence"], "position": event.position, "at": event.at,
                    "by": event.by,
                }  # fmt: skip
            case "milestone.reached":
                self.milestones[data["what"]] = {"finding": None, "evidence": []} | data | stamp

    def _start(self, stamp: Stamp) -> None:
        self.starts.append({"position": stamp["position"], "at": stamp["at"]})
        del self.starts[:-STARTS_KEPT]


def _sound(profile: Any) -> Profile | None:
    """A profile as views may rely on it: a log of another version or from a bundle may have any JSON in its place."""
    if not isinstance(profile, dict):
        return None
    phases = [_fitting(one, _PHASE | {"number": place}) for place, one in enumerate(_named(profile.get("phases")))]
    sections = [_fitting(one, _SECTION) for one in _named(profile.get("sections"))]
    sound: Any = _fitting(profile, _PROFILE) | {"phases": phases, "sections": sections}
    return sound  # type: ignore[no-any-return]  # every field was checked


def _named(rows: Any) -> list[dict[str, Any]]:
    return [one for one in rows if isinstance(one, dict) and type(one.get("name")) is str] if type(rows) is list else []


def _fitting(table: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """A table of a profile, with the default in place of a value that is missing or of another type."""
    return table | {name: one for name, one in defaults.items() if type(table.get(name)) is not type(one)}
