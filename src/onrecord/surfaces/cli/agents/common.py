"""What the verbs of coding agents share: the environment of an agent, where it stands, and how its end is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.agents.wrapping import Ask, Wrapped
from onrecord.connect import PROJECT_VARIABLE, STORE_VARIABLE
from onrecord.errors import AmbiguousName, NotFound
from onrecord.surfaces.cli.shared.exits import FAILED, UsageError
from onrecord.surfaces.cli.shared.output import counted
from onrecord.vendors.port import KILLED, USER, VENDORS, vendor
from onrecord.views.render import iso
from onrecord.work.project import find_project, find_worktree
from onrecord.work.revisions import revision_of

if TYPE_CHECKING:
    from onrecord.agents.wrapping import Outcome
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.vendors.port import Hazard, Vendor


def vendor_named(word: str) -> Vendor:
    """The vendor a person names."""
    if word not in VENDORS:
        raise UsageError(f"unknown coding agent {word!r:.60}", hint=f"use one of {', '.join(VENDORS)}")
    return vendor(word)


def environment(session: Session, cwd: str) -> dict[str, str]:
    """This process's environment, with the store and project that an agent's own commands are to find."""
    env = dict(os.environ)
    if session.store.url != "memory:":
        env[STORE_VARIABLE] = session.store.url
    if find_project(cwd) != session.head.project:
        env[PROJECT_VARIABLE] = session.head.project
    return env


def survey(cwd: str) -> dict[str, Any]:
    """Worktree, branch and revision of a directory; nothing of what is not under version control."""
    if not Path(cwd).is_dir():
        return {}
    found = revision_of(Path(cwd))
    if found is None:
        return {}
    changed = f"+{found['dirty']}" if found["dirty"] else ""
    return {
        "worktree": find_worktree(cwd), "branch": found["branch"], "revision": f"{found['revision'] or ''}{changed}",
    }  # fmt: skip


def wrapped(call: Call, session: Session, of: Vendor, cwd: str) -> Wrapped:
    """What a run of an agent needs."""
    return Wrapped(session, of, environment(session, cwd), survey, show=not call.output.json)


def asked(call: Call, extra: list[str]) -> Ask:
    """What the agent is to do: --prompt, or standard input with --headless; on a terminal the person says it."""
    prompt, opening = call.get("prompt") or "", call.get("opening") or ""
    headless = bool(prompt) or "headless" in call
    if headless and not prompt and not sys.stdin.isatty():
        prompt = sys.stdin.read().strip()
    return Ask(prompt, headless, [*call.many("argument"), *extra], anew=opening)


def need_terminal(ask: Ask) -> None:
    """An agent that is not headless needs a person in front of it."""
    if not ask.headless and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("an interactive agent needs a terminal", hint="run it without one: `--prompt TEXT`")


def consenting(call: Call) -> Any:
    """Asks before a user's file is changed; what cannot be asked and was not agreed to is not done."""

    def consent(hazard: Hazard) -> bool:
        files = ", ".join(hazard.touches)
        if "yes" in call:
            call.output.note(f"{hazard.message}: {hazard.fix} ({files})")
            return True
        try:
            call.confirm(f"{hazard.message}. {hazard.fix}? This changes {files}.")
        except Exception as refusal:  # noqa: BLE001  # declined, or nobody can be asked: both mean no
            call.output.note(f"{hazard.message}; not changed: {refusal}")
            return False
        return True

    return consent


def agent_of(call: Call, session: Session) -> str:
    """Whose conversation is meant: the named agent's, or that of the only one that has one."""
    named = call.get("agent")
    having = [name for name, one in session.views.roster.agents.items() if one["links"]]
    if named:
        if named not in having:
            raise NotFound(f"{session.name} has no conversation of agent {named!r:.80}")
        return named
    if not having:
        raise NotFound(
            f"{session.name} has no conversation of a coding agent", hint="start an agent: `onrecord start claude`"
        )
    if len(having) > 1:
        raise AmbiguousName(
            f"{len(having)} agents have conversations in {session.name}: {', '.join(having)}",
            hint=f"name one: `--agent {having[0]}`",
        )
    return having[0]


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """How a run ended, as data."""
    why = outcome.why
    return {
        "exit_status": outcome.status, "finished": outcome.finished, "cause": why.cause, "message": why.message,
        "resets_at": why.resets_at, "vendor_id": outcome.vendor_id, "orphans": outcome.orphans,
        "interruption": outcome.interruption.position if outcome.interruption else None,
        "problems": outcome.problems,
    }  # fmt: skip


def tell_outcome(call: Call, session: Session, outcome: Outcome) -> None:
    """What a person should know after an agent has ended."""
    for problem in outcome.problems:
        call.output.note(f"not everything could be recorded: {problem}")
    if outcome.orphans:
        call.output.note(f"stopped {counted(len(outcome.orphans), 'process', 'processes')} that it left running")
    if outcome.vendor_id is None:
        call.output.note("the id of its conversation is unknown; `onrecord setup` installs the hook that reports it")
    if not outcome.finished:
        why = outcome.why
        until = f", until {iso(int(why.resets_at * 1e6))}" if why.resets_at else ""
        told = why.message and why.cause not in (KILLED, USER)  # what it said before is not why it was ended
        about = f": {why.message.splitlines()[-1][:200]}" if told else ""
        call.output.note(f"the agent was interrupted ({why.cause}{until}){about}")
        call.output.note(f"`onrecord resume {session.name} --agent {session.agent}` resumes it")


def exit_status(outcome: Outcome) -> int:
    """The agent's own exit status; one that merely stopped is never a success."""
    if outcome.finished:
        return 0
    if outcome.status < 0:
        return 128 - outcome.status
    return outcome.status or FAILED
