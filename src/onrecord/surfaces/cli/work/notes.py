"""The note and what belongs to it: note, note check, note none, continue, instructions, reproduction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord import machine
from onrecord.log.head import LIVE
from onrecord.surfaces.cli.shared.exits import FAILED, UsageError
from onrecord.surfaces.cli.shared.output import Cell, dump
from onrecord.surfaces.cli.shared.place import survey_worktree
from onrecord.surfaces.cli.shared.shapes import describe, receipt_data
from onrecord.surfaces.cli.work import state_file
from onrecord.views.check import (
    INSUFFICIENT,
    NONE_FIELDS,
    NONE_KEY,
    check,
    is_reason,
    nothing_on_purpose,
    obstacles,
)
from onrecord.views.handover import report, saved, saved_line, text_of
from onrecord.views.note import is_unwritten
from onrecord.views.note_forms import headed, issue_comment, pull_request, task
from onrecord.views.render import visible
from onrecord.workspace.files import STEALTH_KEY, write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.check import Gap


def note(call: Call) -> int:
    """The note in one of its formats; `check` grades it, `none` records that a field is empty on purpose."""
    what, rest = call.positional.pop("WHAT", ""), call.positional.pop("NAME", "")
    if what == "none":
        return _none(call, rest)
    if what == "check":
        call.positional |= {"NAME": rest} if rest else {}
        return _check(call)
    if rest:
        raise UsageError(f"unexpected argument {rest!r}", hint=f"for example: `{call.verb.example}`")
    call.positional |= {"NAME": what} if what else {}
    session = call.session()
    if "stealth" in call and session.views.facts.scratch.get(STEALTH_KEY) is not True:
        session.facts.set_scratch(STEALTH_KEY, value=True)
    survey_worktree(call, session)
    state_file.before(call, session)
    form, out = call.get("format") or "markdown", call.get("out")
    text = render(session, form)
    if "write" in call or out:
        return _write(call, session, text, out)
    if call.output.json:
        data = {"session": session.id, "position": session.head.position, "format": form, "text": text}
        call.output.envelope("note", data)
    elif call.output.terminal and form in ("markdown", "brief", "terminal"):
        from onrecord.surfaces.cli.shared.pretty import print_page

        print_page(text)
    else:
        call.output.write(visible(text, lines=True))
    return 0


def render(session: Session, form: str) -> str:
    """The note in one form."""
    views = session.views
    if form == "brief":
        return session.brief()
    if form == "json":
        return dump(task(views, machine.is_gone), indent=2) + "\n"
    if form == "pr":
        return pull_request(views, machine.is_gone)
    if form == "issue":
        from onrecord.session.reading import recent

        return issue_comment(views, recent(session), machine.is_gone)
    return session.note()


def _write(call: Call, session: Session, text: str, out: str | None) -> int:
    if out is None:
        path = state_file.create_note(call, session)
    else:
        path = Path(out).expanduser()
        special = path.is_symlink() or (path.exists() and not path.is_file())
        if special:
            raise UsageError(f"{path} is not a regular file", hint="name another file")
        if path.exists() and "force" not in call and not _is_note(path):
            raise UsageError(f"{path} exists and is not a note of onrecord", hint="`--force` replaces a file")
        body = text if call.get("format") == "json" else headed(session.views, text)
        write(path, body.encode())
    data = {"session": session.id, "position": session.head.position, "file": str(path)}
    return call.output.done("note_file", data, f"wrote {path}, position {session.head.position}")


def _is_note(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(4_096)
    return start.startswith(b"<!-- onrecord:note ") or b'"task_version"' in start


def _check(call: Call) -> int:
    session = call.session()
    survey_worktree(call, session)
    state_file.before(call, session)
    grade, gaps = check(session.views)
    closable = not obstacles(session.views)
    if call.output.json:
        found = [gap._asdict() for gap in gaps]
        data = {"session": session.id, "grade": grade, "closable": closable, "gaps": found}
        call.output.envelope("note_check", data)
    else:
        means = {"complete": "a new agent can continue from the note alone",
                 "usable": "a new agent can continue, but some things could be clearer",
                 "insufficient": "a new agent would have to guess or repeat work"}[grade]  # fmt: skip
        call.output.line(f"{grade}: {means}")
        _print_gaps(call, gaps)
        if grade == INSUFFICIENT:
            why = "it has no profile, finding or attempt" if closable else "`onrecord close` needs the same"
            call.output.note(f"{why}, so it {'can' if closable else 'cannot'} be closed as it is")
    return FAILED if grade == INSUFFICIENT else 0


def _print_gaps(call: Call, gaps: Iterable[Gap]) -> None:
    """What is missing, each with the command below it: a command that wraps inside a column cannot be copied."""
    if not call.output.terminal:
        call.output.table(("field", "problem", "command"), [[gap.field, gap.problem, gap.clear] for gap in gaps])
        return
    from onrecord.surfaces.cli.shared.pretty import print_block

    for gap in gaps:
        print_block([Cell(gap.field, "attention" if gap.essential else "strong"), Cell(gap.problem, "")])
        call.output.line(f"   {gap.clear}")


def _none(call: Call, field: str) -> int:
    why = call.get("why")
    if field not in NONE_FIELDS or not why:
        raise UsageError(
            f"`onrecord note none` needs a field ({', '.join(NONE_FIELDS)}) and --why",
            hint='for example: `onrecord note none rejected --why "nothing was tried yet"`',
        )
    if not is_reason(why):
        raise UsageError(f"--why {why!r:.40} says nothing", hint="write why there is nothing, in a few words")
    session = call.session()
    said = nothing_on_purpose(session.views) | {field: why}
    event = session.facts.set_scratch(NONE_KEY, said)
    state_file.after(call, session)
    data = receipt_data(session.head, event, "recorded")
    return call.output.done("event", data, f"recorded that there is nothing for {field}: {why}")


def continue_work(call: Call) -> int:
    """Print the continuation report, and record in the work log that work continues."""
    session = call.session()
    views = session.views
    dry = "dry-run" in call or views.head.status not in LIVE
    if not dry:
        survey_worktree(call, session)
        state_file.before(call, session)
        views = session.views
    starts = views.phases.starts
    last = starts[-1]["position"] if starts else 0
    from onrecord.session.reading import recent

    happened = recent(session) if is_unwritten(views) else None
    told = report(views, session.at(last).views if last else None, machine.is_gone, call.now(), recent=happened)
    if not dry:
        session.phases.log_start()
        state_file.after(call, session)
    if call.output.json:
        call.output.envelope("continuation", told)
    elif call.output.terminal:
        from onrecord.surfaces.cli.shared.pretty import print_page

        print_page(text_of(told))
    else:
        call.output.write(text_of(told))
    return 0


def tell_saved(call: Call, session: Session) -> dict[str, Any]:
    """Print the current phase and what need not be done again; the same as data."""
    views = session.views
    if views.phases.profile is None:
        return {}
    current = views.phases.current()
    where = f"the current phase is {current}" if current else "every phase is done"
    kept = saved(views, call.now())
    call.output.note(f"{where}. {saved_line(kept)}")
    return {"phase": current, "saved": kept}


def instructions(call: Call) -> int:
    """Print the short block an agent needs."""
    from onrecord.connection import instructions as block_of

    name: Any = call.get("profile")
    session = _session_or_none(call) if name is None else None
    if session is not None and _profile_arrived(session):
        text = f"{block_of()}{_as_data(session)}"
    else:
        text = visible(block_of(session.views.phases.profile if session else name), lines=True)
    if call.output.json:
        call.output.envelope("instructions", {"text": text})
    else:
        call.output.write(text)
    return 0


def _session_or_none(call: Call) -> Session | None:
    try:
        return call.session()
    except Exception:  # noqa: BLE001  # without a session the general block is the answer
        return None


def _profile_arrived(session: Session) -> bool:
    """Whether the profile was chosen elsewhere: in a bundle, a copy or a backup that came into this store."""
    chosen = next(iter(session.log.newest(("profile.chosen",))), None)
    return chosen is not None and chosen.position <= session.log.arrived()


def _as_data(session: Session) -> str:
    """The words of a profile that someone else chose: an agent may read them, and need not obey them."""
    from onrecord.agents.fencing import ABOUT, fence

    profile = session.views.phases.profile
    if profile is None:
        return ""
    phases = ", ".join(one["name"] for one in profile["phases"])
    words = visible(f"{profile['name']}: {phases}\n{profile['instructions']}", lines=True)
    return fence(words, about=f"The profile of this session came from elsewhere. {ABOUT}")


def reproduction(call: Call) -> int:
    """Record how to reproduce the problem, where, and how often it happens."""
    session = call.session()
    event = session.facts.set_reproduction(call.text("STEPS"), rate=call.get("rate"), scenario=call.get("scenario"))
    state_file.after(call, session)
    data = receipt_data(session.head, event, "recorded")
    return call.output.done("event", data, f"recorded at position {event.position}: {describe(event)}")
