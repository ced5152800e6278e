"""`session.phases`: the profile, its phases, the sections of STATE.md, the work log and the feature list.

A phase is finished when its required sections are written, not when an agent says so.
"""

from __future__ import annotations

from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.session.chapter import Chapter, checked_text
from onrecord.session.evidence import cited
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.phases import DONE, IN_PROGRESS, SECTION_LIMIT, TITLE_SECTION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.views.phases import Phases
    from onrecord.views.values import Profile

FEATURE_NAME_LIMIT = 64
"""The longest name of a feature, in characters."""


class PhaseVerbs(Chapter):
    """Choose a profile, enter and finish phases, write sections, keep the work log and the feature list."""

    __slots__ = ()

    def choose_profile(self, profile: Profile | Mapping[str, object]) -> Event:
        """Record what kind of work this is; the work log starts with it."""
        from onrecord.session.profiles import check

        profile = check(profile)
        phases = self._session.views.phases
        known = phases.profile
        if known is not None and known["name"] != profile["name"]:
            raise Conflict(
                f"this session already has the profile {known['name']!r}",
                hint="open another session for another kind of work",
            )
        lost = [name for name in phases.entered if name not in [one["name"] for one in profile["phases"]]]
        if lost:
            raise Conflict(f"phase {lost[0]!r} was entered, but this profile does not have it")
        first = profile["phases"][0]["name"]
        chosen = self._session._draft("profile.chosen", {"profile": profile})
        if known is not None:
            return self._session._append_drafts(chosen)[0]
        line = f"Session started: profile {profile['name']}, {len(profile['phases'])} phases, first {first}"
        start = self._session._draft("worklog.written", {"text": line, "phase": first, "mark": "start"})
        title = self._session.views.facts.title
        titled = any(one["name"] == TITLE_SECTION for one in profile.get("sections") or ())
        more = {"section": TITLE_SECTION, "text": title, "mode": "replace"}
        drafts = [self._session._draft("section.written", more)] if title and titled else []
        return self._session._append_drafts(chosen, start, *drafts)[0]

    def log_start(self, how: str = "Session continued") -> Event:
        """Write the work log line that says at which phase work continues."""
        phases = self._session.views.phases
        current = phases.current()
        done = ", ".join(name for name in phases.names if name in phases.finished) or "none"
        where = f" at phase {phases.number(current)} {current}" if current else ", every phase is done"
        text = f"{how}{where}; phases skipped because they are done: {done}" if phases.names else how
        return self._session._record("worklog.written", {"text": text, "phase": current, "mark": "start"})

    def enter(self, phase: str) -> Event:
        """Enter a phase; the ones before it must be finished."""
        phases = self._session.views.phases
        phase = _known(phases, phase)
        if phases.status(phase) == DONE:
            raise Conflict(f"phase {phase!r} is done and cannot be repeated", hint=_way_on(phases))
        _refuse_open_before(self._session, phase)
        return self._session._record("phase.entered", {"phase": phase}, id=f"phase/{phase}/entered")

    def finish(self, phase: str, *, retroactive: bool = False, why: str | None = None) -> Event:
        """Finish a phase: entered, its required sections written, no attempt unresolved, earlier phases finished.

        `retroactive` finishes a phase that was worked on and never entered. It needs its required sections too; the
        repaired order and the reason are recorded.
        """
        from onrecord.views.sections import lacking

        views = self._session.views
        phases = views.phases
        phase = _known(phases, phase)
        if phases.status(phase) == DONE:
            raise Conflict(f"phase {phase!r} is already done", hint=_way_on(phases))
        _refuse_open_before(self._session, phase)
        if phases.status(phase) != IN_PROGRESS and not retroactive:
            raise Conflict(f"phase {phase!r} was not entered", hint="enter it first", step="enter_phase", phase=phase)
        if missing := lacking(views, phase):
            raise Conflict(f"phase {phase!r} still needs {', '.join(missing)}", **_how_to_fill(phases, missing[0]))
        waiting = views.attempts.unresolved()
        if waiting:
            raise Conflict(
                f"attempt {waiting[0]['number']} has no outcome yet",
                hint="record its outcome first",
                step="settle_attempt",
                number=waiting[0]["number"],
            )
        data = {"phase": phase, "retroactive": retroactive} | ({"why": why} if why else {})
        return self._session._record("phase.finished", data, id=f"phase/{phase}/finished")

    def write_section(self, section: str, text: str, *, append: bool = False, id: str | None = None) -> Event:
        """Write a section of STATE.md; protected ones only grow, generated ones cannot be written."""
        phases = self._session.views.phases
        sections = [one["name"] for one in phases.described()]
        if phases.profile is not None and section not in sections:
            near = next((one for one in sections if one.casefold() == section.casefold()), None)
            if near is None:
                raise NotFound(
                    f"the profile {phases.profile['name']!r} has no section {section!r}",
                    hint=f"its sections are {', '.join(sections)}",
                )
            section = near
        rule = phases.rule(section)
        if rule == "generated":
            raise Conflict(
                f"section {section!r} is generated from the log", hint="record the events it is generated from"
            )
        if rule == "append" and phases.text_of(section) and not append:
            raise Conflict(
                f"section {section!r} cannot be replaced", hint="append to it instead", step="append_section"
            )
        before = len(phases.text_of(section)) if append else 0
        checked_text(text, f"section {section!r}", SECTION_LIMIT - before)
        mode = "append" if append else "replace"
        data = {"section": section, "text": text, "mode": mode}
        if section != TITLE_SECTION or append or len(text) > TEXT_LIMIT:
            return self._session._record("section.written", data, id=id)
        written = self._session._draft("section.written", data, id=id)
        return self._session._append_drafts(
            written, self._session._draft("session.titled", {"text": text}, id=id and f"{id}/title")
        )[0]

    def empty_section(self, section: str) -> Event:
        """Empty a section; its text stays in the log. Only a free section can be emptied."""
        if self._session.views.phases.rule(section) != "free":
            raise Conflict(f"section {section!r} cannot be emptied")
        return self._session._record("section.written", {"section": section, "text": "", "mode": "replace"})

    def log_work(self, text: str, *, id: str | None = None) -> Event:
        """Write one line of the work log, tagged with the phase."""
        checked_text(text, "a work log line", TEXT_LIMIT)
        data = {"text": text, "phase": self._session.views.phases.current()}
        return self._session._record("worklog.written", data, id=id)

    def add_feature(self, feature: str, text: str) -> Event:
        """Add a feature to the list of what the work must be able to do. Its text never changes."""
        checked_text(text, "a feature", TEXT_LIMIT)
        if not feature or len(feature) > FEATURE_NAME_LIMIT or not feature.isprintable() or " " in feature:
            raise InvalidInput(f"{feature!r:.80} is not a valid feature name", hint="use a short word like login-works")
        known = self._session.views.phases.features.get(feature)
        if known and known["text"] != text:
            raise Conflict(
                f"feature {feature!r} already has a different text", hint="its text cannot change; add another feature"
            )
        return self._session._record(
            "feature.listed", {"feature": feature, "text": text}, id=f"feature/{feature}/listed"
        )

    def judge_feature(self, feature: str, *, passes: bool, evidence: Sequence[str]) -> Event:
        """Record that a feature passes, or no longer passes; either needs evidence that is on record.

        After a resume, features that passed before must be tested again before another one may pass.
        """
        phases = self._session.views.phases
        if feature not in phases.features:
            raise NotFound(
                f"there is no feature {feature!r}", hint="the session's features list their names", step="list_features"
            )
        named = cited(self._session, evidence)
        if not named:
            raise InvalidInput(
                "a feature can pass or fail only with evidence",
                hint="pass the id of an evidence",
                step="feature_evidence",
            )
        unproven = [name for name in phases.unproven() if name != feature]
        if passes and not phases.features[feature]["passes"] and unproven:
            raise Conflict(
                f"{', '.join(unproven[:5])} passed before work was resumed and must be tested again first",
                hint="verify those features again first",
                step="reverify",
            )
        return self._session._record("feature.judged", {"feature": feature, "passes": passes, "evidence": named})

    def completion(self) -> str:
        """The last line of the work log: what is pending when the session ends."""
        views = self._session.views
        left = [f"phase {name}" for name in views.phases.names if name not in views.phases.finished]
        left += [f"attempt {one['number']}" for one in views.attempts.unresolved()]
        left += [f"feature {name}" for name, one in views.phases.features.items() if not one["passes"]]
        return f"Session ended with pending: {', '.join(left)}" if left else "Session complete: nothing pending"


def _known(phases: Phases, phase: str) -> str:
    names = phases.names
    if not names:
        raise Conflict("this session has no profile", hint="choose a profile first", step="choose_profile")
    found = next((name for name in names if name.casefold() == phase.casefold()), None)
    if found is None and phase.isdigit() and int(phase) < len(names):
        found = names[int(phase)]
    if found is None:
        raise NotFound(f"there is no phase {phase!r}", hint=f"the phases are {', '.join(names)}")
    return found


def _refuse_open_before(session: Session, phase: str) -> None:
    from onrecord.views.sections import lacking

    views = session.views
    for before in views.phases.names[: views.phases.names.index(phase)]:
        if views.phases.status(before) != DONE:
            missing = lacking(views, before)
            raise Conflict(
                f"phase {before!r} is not finished" + (f": {', '.join(missing)} is missing" if missing else ""),
                hint=f"finish {before!r} first",
                step="finish_phase",
                phase=before,
            )


def _way_on(phases: Phases) -> str:
    current = phases.current()
    return f"the current phase is {current!r}" if current else "every phase is done; close the session"


def _how_to_fill(phases: Phases, name: str) -> dict[str, str]:
    sections = {one["name"]: one for one in phases.described()}
    if name not in sections:
        return {"hint": "some features do not pass yet", "step": "list_features"}
    if sections[name]["rule"] == "generated":
        return {"hint": f"it is generated from {sections[name]['from']}: {sections[name]['description']}"}
    return {
        "hint": f"write the section {name!r}; the work log does not replace it",
        "step": "write_section",
        "section": name,
    }


def refuse_summary(session: Session, anyway: str | None) -> None:
    """Refuse to close a session with only a summary; `anyway` allows it and is recorded."""
    from onrecord.views.check import obstacles

    gaps = obstacles(session.views)
    if not gaps:
        return
    missing = ", ".join(dict.fromkeys(gap.field for gap in gaps))
    if anyway is None:
        raise Conflict(
            f"{session.views.head.name} cannot be closed yet; its note lacks: {missing}",
            hint="record what is missing, or pass anyway=reason",
            step="complete_note",
            name=session.views.head.name,
        )
    why = checked_text(anyway, "closing an unfinished session", TEXT_LIMIT)
    session._record("decision.made", {"text": f"Closed although the note lacks: {missing}", "why": why})
