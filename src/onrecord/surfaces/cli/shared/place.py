"""The worktree that a session's paths are relative to; and verbs whose first word is an action."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.environment import PROJECT_VARIABLE
from onrecord.errors import OnrecordError
from onrecord.log.head import LIVE
from onrecord.machine import is_gone
from onrecord.surfaces.cli.shared.call import any_number, whole_number
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.views.attempts import LOST, status_of
from onrecord.work.project import project_at, worktree_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call


def root_of(session: Session) -> Path:
    """The top of the worktree of a session."""
    return Path(worktree_for(session, os.curdir))


def look_at_code(call: Call, session: Session) -> None:
    """Compare the code with the last survey: which findings became stale, and which are no longer."""
    if session.views.findings.anchors():
        from onrecord.work.surveying import survey

        found = survey(session, root_of(session))
        view = session.views.findings
        for name in found.turned_stale:
            call.output.note(f"{name} is stale: {view.what_changed(view.findings[name])} changed since it was judged")
        for name in found.turned_settled:
            call.output.note(f"{name} is settled: {view.settled_by(view.findings[name])}")
        if found.turned_fresh:
            call.output.note(f"{', '.join(found.turned_fresh)}: the code is unchanged again")


def survey_worktree(call: Call, session: Session) -> None:
    """Compare the code that findings depend on with the worktree, and record where the code is and its new commits.

    A failure is a note: what the user asked for matters more.
    """
    if session.head.status not in LIVE:
        return
    from onrecord.work.history import record_commits

    try:
        look_at_code(call, session)
        root = root_of(session)
        names = (*project_at(str(root)).names, os.environ.get(PROJECT_VARIABLE))
        if session.head.project in names:  # never the history of another repository
            record_commits(session, root)
    except (OnrecordError, OSError) as problem:
        call.output.note(f"the worktree could not be surveyed: {problem}")


def look_around(call: Call, session: Session) -> None:
    """Before work continues: has code changed that findings depend on, and which attempts have no outcome?"""
    survey_worktree(call, session)
    views = session.views
    for attempt in views.attempts.unresolved():
        number, state = attempt["number"], status_of(attempt, is_gone)
        said = "is lost: its process has ended" if state == LOST else "has no outcome yet"
        call.output.note(f"attempt {number} {said}; record it: `onrecord attempt succeed {number}` (or fail, abandon)")


def act(call: Call, actions: Mapping[str, Callable[[Call, list[str]], int]], default: str = "") -> int:
    """Do what the first word says, with the words after it. Without any word, do the default, which only reads."""
    call.words = call.words or [default]
    action, *rest = call.words
    known = actions.get("list" if action == "ls" else action)
    if known is None:
        raise unknown_action(call, action)
    return known(call, rest)


def unknown_action(call: Call, action: str) -> UsageError:
    """The error for a word that is none of the verb's actions: it lists them, and names the nearest one."""
    from onrecord.surfaces.cli.catalogue import nearest

    names = [one.name for one in call.verb.actions]
    guess = nearest(action, names)
    return UsageError(
        f"unknown action {action!r}; `onrecord {call.verb.name}` has {', '.join(names)}",
        hint=f"did you mean `onrecord {call.verb.name} {guess}`?" if guess else None,
    )


def need_word(call: Call, action: str, name: str) -> UsageError:
    """The error for an action without a word that it needs, with an example of that action."""
    example = next((one.example for one in call.verb.actions if one.name == action), call.verb.example)
    usage = next((f"{one.name} {one.usage}" for one in call.verb.actions if one.name == action), action)
    return UsageError(
        f"{name} is missing: onrecord {call.verb.name} {usage.rstrip()}", hint=f"for example: `{example}`"
    )


def need(call: Call, words: list[str], *names: str) -> list[str]:
    """Exactly as many words as there are names."""
    action = call.words[0]
    if len(words) < len(names):
        raise need_word(call, action, names[len(words)])
    if len(words) > len(names):
        extra = words[len(names)]
        raise UsageError(
            f"unexpected argument {extra!r}",
            hint="put quotes around text with spaces",
        )
    return words


def option(call: Call, name: str, example: str = "") -> str:
    """The value of an option that an action needs; `example` is shown if the verb's own is of another action."""
    value = call.get(name)
    if value is None:
        raise UsageError(
            f"`onrecord {call.verb.name} {call.words[0]}` needs --{name}",
            hint=f"for example: `{example or call.verb.example}`",
        )
    return value


def seconds(call: Call) -> float | None:
    """The time limit, if one was given."""
    text = call.get("timeout")
    if text is None:
        return None
    value = any_number(text, "--timeout")
    if not value:
        raise UsageError("--timeout must be a number of seconds above 0")
    return value


def number_in(words: list[str]) -> int | None:
    """The number of an attempt, if one was given."""
    if len(words) > 1:
        raise UsageError(f"name one attempt, not {' '.join(words)!r}")
    return whole_number(words[0], "the number of an attempt") if words else None
