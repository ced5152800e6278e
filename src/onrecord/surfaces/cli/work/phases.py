"""Phases, profiles, sections, the work log and the feature list. Every verb first reads STATE.md back."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from onrecord.errors import Conflict
from onrecord.machine.files import refuse_special
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import Cell
from onrecord.surfaces.cli.shared.place import need_word, unknown_action
from onrecord.surfaces.cli.shared.shapes import describe, receipt_data
from onrecord.surfaces.cli.work import state_file
from onrecord.views.phases import DONE, IN_PROGRESS
from onrecord.views.sections import lacking

if TYPE_CHECKING:
    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.values import Json, Profile


def phase(call: Call) -> int:
    """Enter or finish a phase, or list them."""
    action, named = call.positional.get("ACTION", "list"), call.positional.get("PHASE")
    if action not in ("enter", "finish", "list"):
        raise unknown_action(call, action)
    session = call.session()
    state_file.before(call, session)
    if action == "list":
        return _list_phases(call, session)
    wanted = named or session.views.phases.current()
    if wanted is None and session.views.phases.profile:
        raise Conflict("every phase is done", hint=f"close the session: `onrecord close {session.name}`")
    known = session.head.position
    if action == "enter":
        event = session.phases.enter(wanted or "")
    else:
        event = session.phases.finish(wanted or "", retroactive="retroactive" in call, why=call.get("why"))
    done = "entered" if action == "enter" else "finished"
    state = done if event.position > known else f"already_{done}"
    current = session.views.phases.current()
    rest = "every phase is done" if current is None else ""
    if action == "finish" and current:
        session.phases.enter(current)
        rest = f"entered {current}{_needs(session, current)}"
    return _answer(
        call, session, event, state, f"{event.data['phase']} {state.replace('_', ' ')}" + (f"; {rest}" if rest else "")
    )


def _needs(session: Session, phase: str) -> str:
    """What a phase still needs, for the end of a sentence."""
    missing = lacking(session.views, phase)
    return f", which needs {', '.join(missing)}" if missing else ""


def what_comes_first(session: Session) -> str:
    """The first phase that is not done, what it needs, and the command that enters it."""
    current = session.views.phases.current()
    if current is None:
        return "every phase is done"
    entered = session.views.phases.status(current) == IN_PROGRESS
    how = "" if entered else f": `onrecord phase enter {quote(current)}`"
    return f"{'the current' if entered else 'the first'} phase is {current}{_needs(session, current)}{how}"


def _list_phases(call: Call, session: Session) -> int:
    views = session.views
    phases = views.phases
    rows: list[dict[str, Json]] = [
        {
            "number": phases.number(name), "name": name, "status": phases.status(name),
            "needs": [] if name in phases.finished else lacking(views, name),
            "retroactive": name in phases.finished and phases.finished[name]["retroactive"],
        }
        for name in phases.names
    ]  # fmt: skip
    if call.output.json:
        data = {
            "session": session.id,
            "profile": phases.profile["name"] if phases.profile else None,
            "current": phases.current(),
        }
        call.output.envelope("phases", data | {"phases": rows})
        return 0
    styles = {DONE: "quiet", IN_PROGRESS: "strong"}
    table = [
        [str(row["number"]), row["name"], Cell(row["status"], styles.get(row["status"], "")),
         ", ".join(row["needs"])]
        for row in rows
    ]  # fmt: skip
    call.output.table((">", "#phase", "!status", "~still needs"), table)
    if not rows:
        call.output.note(
            "this session has no profile; choose one: `onrecord profile choose bugfix` (or research, or build)"
        )
    return 0


def profile(call: Call) -> int:
    """Choose the session's profile, or list, show or check profiles."""
    from onrecord.connection import load_profile, profile_files

    action, named = call.positional.get("ACTION", "list"), call.positional.get("PROFILE")
    if action == "list":
        found: list[dict[str, Json]] = [{**load_profile(path), "file": path} for path in profile_files().values()]
        if call.output.json:
            call.output.envelope("profiles", found)
            return 0
        rows = [[one["name"], ", ".join(phase["name"] for phase in one["phases"]), one["about"]] for one in found]
        call.output.table(("#profile", "~phases", "~about"), rows)
        return 0
    if action not in ("show", "check", "choose"):
        raise unknown_action(call, action)
    if named is None:
        raise need_word(call, action, "FILE" if action == "check" else "PROFILE")
    chosen = load_profile(named)
    if action == "choose":
        session = call.session()
        event, state = choose(session, chosen)
        return _answer(call, session, event, state, f"{session.name} now has the profile {chosen['name']}")
    if call.output.json:
        call.output.envelope("profile", chosen)
        return 0
    call.output.table((), [[chosen["name"], chosen["about"]]])
    rows = [[str(one["number"]), one["name"], ", ".join(one["checkpoint"]), one["goal"]] for one in chosen["phases"]]
    call.output.table((">", "#phase", "~required sections", "~goal"), rows)
    call.output.table(("#section", "!rule", "~description"),
                      [[one["name"], one["rule"], one["description"]] for one in chosen["sections"]])  # fmt: skip
    return 0


def choose(session: Session, chosen: Profile) -> tuple[Event, str]:
    """Choose a profile, unless it is this one already."""
    if session.views.phases.profile == chosen:
        last = max(event.position for event in session.events(kinds=["profile.chosen"]))
        return session.log.event(last), "already_chosen"
    return session.phases.choose_profile(chosen), "chosen"


def section(call: Call) -> int:
    """Write a section of STATE.md."""
    text, file = call.get("text"), call.get("file")
    if text is not None and file is not None:
        raise UsageError("give --text or --file, not both", hint=f"for example: `{call.verb.example}`")
    if file is not None:
        try:
            refuse_special(Path(file).expanduser())
            text = Path(file).expanduser().read_text(encoding="utf-8")
        except OSError as problem:
            raise UsageError(f"{file} cannot be read: {problem.strerror}") from None
    elif text is None:
        if sys.stdin.isatty():
            raise UsageError(
                "the text is missing: give --text, --file or standard input", hint=f"for example: `{call.verb.example}`"
            )
        text = sys.stdin.read()
    session = call.session()
    state_file.before(call, session)
    event = session.phases.write_section(call.positional["SECTION"], text.rstrip("\n"), append="append" in call)
    return _answer(call, session, event, "recorded", f"wrote section {event.data['section']}")


def worklog(call: Call) -> int:
    """Write one line of the work log."""
    session, text = call.session(), call.text("TEXT")
    state_file.before(call, session)
    return _answer(call, session, session.phases.log_work(text), "recorded", "added to the work log")


def feature(call: Call) -> int:
    """Add a feature, let it pass or fail with evidence, try those that passed again, or list them."""
    action, named = call.positional.get("ACTION", "list"), call.positional.get("FEATURE")
    if action not in ("list", "add", "pass", "fail", "reverify"):
        raise unknown_action(call, action)
    session = call.session()
    if action == "list":
        return _list_features(call, session)
    state_file.before(call, session)
    evidence = call.many("evidence")
    if action == "reverify":
        return _reverify(call, session, [named] if named else session.views.phases.unproven(), evidence)
    if named is None:
        raise need_word(call, action, "NAME")
    if action == "add":
        if "TEXT" not in call.positional:
            raise UsageError(
                "the text is missing", hint=f'for example: `onrecord feature add {named} "Users can log in"`'
            )
        known = named in session.views.phases.features
        event = session.phases.add_feature(named, call.text("TEXT"))
        return _answer(call, session, event, "already_listed" if known else "listed", f"added feature {named}")
    event = session.phases.judge_feature(named, passes=action == "pass", evidence=evidence)
    return _answer(call, session, event, "recorded", f"feature {named} {'passes' if action == 'pass' else 'fails'}")


def _reverify(call: Call, session: Session, names: list[str], evidence: list[str]) -> int:
    event = None
    for name in names:
        known = session.views.phases.features.get(name)
        if not known or not known["passes"]:
            raise Conflict(f"feature {name!r} does not pass, so it cannot be reverified", step="list_features")
        event = session.phases.judge_feature(name, passes=True, evidence=evidence)
    if event is None:
        data = {"state": "already_verified", "session": session.id, "position": session.head.position}
        return call.output.done("event", data, "no feature needs to be reverified")
    return _answer(call, session, event, "recorded", f"reverified: {', '.join(names)}")


def _list_features(call: Call, session: Session) -> int:
    phases = session.views.phases
    again = phases.unproven()
    rows: list[dict[str, Json]] = [
        {"feature": name, "again": name in again, **one} for name, one in phases.features.items()
    ]
    if call.output.json:
        passing = sum(one["passes"] for one in rows)
        call.output.envelope("features", {"session": session.id, "features": rows, "passing": passing})
        return 0
    table = [
        [row["feature"], "reverify" if row["again"] else "passes" if row["passes"] else "does not pass", row["text"],
         ", ".join(row["evidence"])]
        for row in rows
    ]  # fmt: skip
    call.output.table(("#feature", "!state", "*text", "~evidence"), table)
    return 0


def _answer(call: Call, session: Session, event: Event, state: str, sentence: str) -> int:
    data = receipt_data(session.views.head, event, state)
    state_file.after(call, session)
    return call.output.done("event", data, f"{sentence} (position {event.position}: {describe(event)})")
