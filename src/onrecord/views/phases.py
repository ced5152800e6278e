"""Phases: where the work stands in its profile, and what the sections of STATE.md say.

A profile is data and is on record itself, so a log explains itself without the file the profile came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onrecord.views.view import View

if TYPE_CHECKING:
    from onrecord.log.events import Event

PENDING, IN_PROGRESS, DONE = "pending", "in progress", "DONE"
SECTION_LIMIT = 64 * 1024
"""The longest section of STATE.md, in characters."""


class Phases(View):
    """The profile, the phases entered and finished, the sections, the work log and the feature list."""

    KINDS: ClassVar = frozenset(
        {"profile.chosen", "phase.entered", "phase.finished", "section.written", "worklog.written", "feature.listed",
         "feature.judged", "milestone.reached"}
    )  # fmt: skip

    def __init__(self) -> None:
        self.profile: dict[str, Any] | None = None
        self.entered: dict[str, dict[str, Any]] = {}
        self.finished: dict[str, dict[str, Any]] = {}
        self.sections: dict[str, dict[str, Any]] = {}
        self.worklog: list[dict[str, Any]] = []
        self.features: dict[str, dict[str, Any]] = {}
        self.milestones: dict[str, dict[str, Any]] = {}

    @property
    def names(self) -> list[str]:
        """The phases of the profile, in order."""
        return [phase["name"] for phase in (self.profile or {}).get("phases", [])]

    def status(self, phase: str) -> str:
        """pending, in progress or DONE."""
        if phase in self.finished:
            return DONE
        return IN_PROGRESS if phase in self.entered else PENDING

    def current(self) -> str | None:
        """The first phase that is not done: where work goes on."""
        return next((name for name in self.names if name not in self.finished), None)

    def missing(self, phase: str) -> list[str]:
        """The sections the checkpoint of a phase needs and that say nothing yet."""
        phases = (self.profile or {}).get("phases", [])
        needed: list[str] = next((one.get("checkpoint", []) for one in phases if one["name"] == phase), [])
        return [name for name in needed if not self.text_of(name).strip()]

    def text_of(self, section: str) -> str:
        """What a section says."""
        return str(self.sections.get(section, {}).get("text", ""))

    def apply(self, event: Event) -> None:
        data = event.data
        if data is None:
            return
        stamp = {"position": event.position, "at": event.at, "by": event.by}
        match event.kind:
            case "profile.chosen":
                self.profile = data["profile"]
            case "phase.entered":
                self.entered.setdefault(data["phase"], stamp)
            case "phase.finished":
                self.finished.setdefault(data["phase"], stamp | {"retroactive": bool(data.get("retroactive"))})
            case "worklog.written":
                self.worklog.append({"text": data["text"], "phase": data.get("phase"), **stamp})
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
                self.features[data["feature"]] |= {"passes": data["passes"], "evidence": data["evidence"], **stamp}
            case "milestone.reached":
                self.milestones[data["what"]] = {**data, **stamp}
