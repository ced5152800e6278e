"""Where a command stands: the worktree that the session's paths are relative to; and words that name an action."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.machine import is_gone
from onrecord.surfaces.cli.shared.call import any_number, whole_number
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.views.attempts import LOST, status_of
from onrecord.work.project import worktree_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call


def root_of(session: Session) -> Path:
    """The top of the worktree this command is about."""
    return Path(worktree_for(session.head.project, os.curdir))


def look_at_code(call: Call, session: Session) -> None:
    """Notice edits since the last look: which findings turned stale, and which are fresh again."""
    if session.views.findings.anchors():
        from onrecord.work.surveying import survey

        found = survey(session, root_of(session))
        for name in found.turned_stale:
            count = found.stale[name]
            call.output.note(f"{name} is stale: {count} file{'' if count == 1 else 's'} changed since it was judged")
        if found.turned_fresh:
            call.output.note(f"{', '.join(found.turned_fresh)}: the code is again as it was judged on")


def look_around(call: Call, session: Session) -> None:
    """Before work goes on: does the code still stand that findings rest on, and how did the attempts end?"""
    look_at_code(call, session)
    views = session.views
    for attempt in views.attempts.unresolved():
        number, state = attempt["number"], status_of(attempt, is_gone)
        said = "is lost: its process is gone" if state == LOST else "is unresolved"
        call.output.note(f"attempt {number} {said}; onrecord attempt succeed, fail or abandon {number} settles it")


def act(call: Call, actions: Mapping[str, Callable[[Call, list[str]], int]]) -> int:
    """Do what the first word says, with the words after it."""
    action, *rest = call.words
    known = actions.get("list" if action == "ls" else action)
    if known is None:
        from onrecord.surfaces.cli.catalogue import nearest

        guess = nearest(action, list(actions))
        raise UsageError(
            f"onrecord {call.verb.name} has no action {action!r}; it has {', '.join(actions)}",
            hint=f"did you mean `onrecord {call.verb.name} {guess}`?" if guess else f"onrecord help {call.verb.name}",
        )
    return known(call, rest)


def need(call: Call, words: list[str], *names: str) -> list[str]:
    """Exactly the words that are named; a `-` among them stands for standard input."""
    action = call.words[0]
    if len(words) < len(names):
        raise UsageError(
            f"{names[len(words)]} is missing: onrecord {call.verb.name} {action} {' '.join(names)}",
            hint=f"for example: {call.verb.example}",
        )
    if len(words) > len(names):
        extra = words[len(names)]
        raise UsageError(
            f"onrecord {call.verb.name} {action} does not know what to do with {extra!r}",
            hint=f"quote a text that has spaces; onrecord help {call.verb.name}",
        )
    return words


def option(call: Call, name: str, example: str = "") -> str:
    """The value of an option an action cannot do without; `example` where the verb's own is of another action."""
    value = call.get(name)
    if value is None:
        raise UsageError(
            f"--{name} is missing: onrecord {call.verb.name} {call.words[0]}", hint=example or call.verb.example
        )
    return value


def seconds(call: Call) -> float | None:
    """The time limit, if one was given."""
    text = call.get("timeout")
    if text is None:
        return None
    value = any_number(text, "--timeout")
    if not value:
        raise UsageError("--timeout is a number of seconds above 0")
    return value


def number_in(words: list[str]) -> int | None:
    """The number of an attempt, if one was given."""
    if len(words) > 1:
        raise UsageError(f"one attempt at a time, not {' '.join(words)!r}")
    return whole_number(words[0], "the number of an attempt") if words else None
