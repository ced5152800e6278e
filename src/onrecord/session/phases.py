"""The verbs of phases and profiles: a phase is finished by its checkpoint, not by saying so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.phases import DONE, IN_PROGRESS, SECTION_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.log.events import Event
    from onrecord.session.verbs import Conducted


class PhaseVerbs:
    """Choose a profile, enter and finish phases, write sections, keep the work log and the feature list."""

    def choose_profile(self: Conducted, profile: dict[str, Any]) -> Event:
        """Say what kind of work this is. A profile is checked by `profiles.check` before it comes here."""
        known = self.views.phases.profile
        if known is not None and known["name"] != profile["name"]:
            raise Conflict(
                f"this session has the profile {known['name']!r}", hint="another kind of work is another session"
            )
        return self.record("profile.chosen", {"profile": profile})

    def enter_phase(self: Conducted, phase: str) -> Event:
        """Begin a phase; the one before it must be finished."""
        phases = self.views.phases
        _known(phases.names, phase)
        if phases.status(phase) == DONE:
            raise Conflict(f"phase {phase!r} is done; it is not repeated", hint=f"go on with {phases.current()!r}")
        for before in phases.names[: phases.names.index(phase)]:
            if phases.status(before) != DONE:
                lacking = phases.missing(before)
                raise Conflict(
                    f"phase {before!r} is not finished" + (f": {', '.join(lacking)} is empty" if lacking else ""),
                    hint=f"onrecord phase finish {before!r} comes first (--retroactive repairs a forgotten one)",
                )
        return self.record("phase.entered", {"phase": phase}, id=f"phase/{phase}/entered")

    def finish_phase(self: Conducted, phase: str, *, retroactive: bool = False) -> Event:
        """Finish a phase: its checkpoint must be filled and no attempt unresolved."""
        phases = self.views.phases
        _known(phases.names, phase)
        if phases.status(phase) == DONE:
            raise Conflict(f"phase {phase!r} is done already")
        if phases.status(phase) != IN_PROGRESS and not retroactive:
            raise Conflict(f"phase {phase!r} was not entered", hint=f"onrecord phase enter {phase!r}, or --retroactive")
        lacking = phases.missing(phase)
        if lacking:
            raise Conflict(
                f"the checkpoint of {phase!r} needs {', '.join(lacking)}",
                hint=f"onrecord section {lacking[0]!r} --text ...; a line in the work log is no substitute",
            )
        waiting = self.views.attempts.unresolved()
        if waiting:
            raise Conflict(f"attempt {waiting[0]['number']} is unresolved", hint="onrecord attempt list")
        return self.record("phase.finished", {"phase": phase, "retroactive": retroactive}, id=f"phase/{phase}/finished")

    def write_section(self: Conducted, section: str, text: str, *, append: bool = False) -> Event:
        """Write a section of STATE.md; protected ones only grow, generated ones cannot be written."""
        phases = self.views.phases
        about = next((one for one in (phases.profile or {}).get("sections", []) if one["name"] == section), None)
        if phases.profile is not None and about is None:
            raise NotFound(f"the profile {phases.profile['name']!r} has no section {section!r}")
        self.require_text(text, f"section {section!r}", SECTION_LIMIT)
        rule = (about or {}).get("rule", "free")
        if rule == "generated":
            raise Conflict(f"section {section!r} is made from the log", hint="it follows from attempts and phases")
        if rule == "append" and phases.text_of(section) and not append:
            raise Conflict(f"section {section!r} only grows", hint="add a correction with --append")
        mode = "append" if append else "replace"
        return self.record("section.written", {"section": section, "text": text, "mode": mode})

    def log_work(self: Conducted, text: str) -> Event:
        """Write one line of the work log, tagged with the phase."""
        self.require_text(text, "a work log line", TEXT_LIMIT)
        return self.record("worklog.written", {"text": text, "phase": self.views.phases.current()})

    def list_feature(self: Conducted, feature: str, text: str) -> Event:
        """Put something on the list of what the work must be able to do."""
        self.require_text(text, "a feature", TEXT_LIMIT)
        return self.record("feature.listed", {"feature": feature, "text": text}, id=f"feature/{feature}/listed")

    def judge_feature(self: Conducted, feature: str, *, passes: bool, evidence: Sequence[str]) -> Event:
        """Say that a feature passes, or does not any more; either needs evidence. Its text never changes."""
        if feature not in self.views.phases.features:
            raise NotFound(f"no feature is named {feature!r}", hint="onrecord feature list")
        named = [evidence] if isinstance(evidence, str) else list(evidence)
        if not named:
            raise InvalidInput(
                "a feature passes or fails with evidence only", hint="onrecord run -- COMMAND gives an id"
            )
        return self.record("feature.judged", {"feature": feature, "passes": passes, "evidence": named})


def _known(names: list[str], phase: str) -> None:
    if not names:
        raise Conflict("this session has no profile", hint="onrecord open NAME --profile research, bugfix or build")
    if phase not in names:
        raise NotFound(f"no phase is named {phase!r}", hint=f"one of {', '.join(names)}")
