"""The two questions of `onrecord setup`: record every conversation from now on, and import the earlier ones?"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.connection import chosen_automatic, connect, set_automatic, settings, store_file
from onrecord.errors import OnrecordError
from onrecord.setup import installing
from onrecord.surfaces.cli.shared.output import counted, labelled
from onrecord.surfaces.cli.shared.wrapping import wrapped
from onrecord.vendors.port import PROJECT_SCOPE, USER_SCOPE
from onrecord.work.project import find_project, remember_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.agents.history import Past
    from onrecord.setup.installing import Target
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.vendors.port import Vendor

DAY = 86_400


def scope_name(place: Target) -> str:
    """The scope, in words."""
    return "every project" if place.scope == USER_SCOPE else "this project"


def project_of(place: Target) -> str | None:
    """What the settings call the scope: a project, or None for the user."""
    return None if place.scope == USER_SCOPE else find_project(os.curdir)


def wanted(call: Call, chosen: Sequence[Vendor], place: Target) -> bool | None:
    """Whether conversations are recorded automatically from now on; None if the user has not said so.

    A person is asked once: the answer is in the settings.
    """
    if "no-auto" in call:
        return False
    if "yes" in call:
        return True
    known = chosen_automatic(project_of(place))
    if known is not None or "dry-run" in call or not _can_ask(call):
        return known
    agents = listed([of.title for of in chosen])
    return _agrees(
        f"From now on, record every conversation of {agents} in {scope_name(place)}?\n"
        "It is kept in your own store; `onrecord setup --no-auto` switches this off.",
        "nothing was changed",
    )


def only_switches_off(call: Call, chosen: Sequence[Vendor], place: Target) -> bool:
    """Whether --no-auto was given for hooks that are installed: then no file of an agent changes."""
    places = [place._replace(scope=scope) for scope in (PROJECT_SCOPE, USER_SCOPE)]
    return "no-auto" in call and any(installing.is_set_up(of, one) for of in chosen for one in places)


def name_directory(place: Target) -> None:
    """Give a project without a repository a name that moves with it, before a conversation is recorded under its path.

    Not the home directory: every directory below it would be part of that project.
    """
    if place.scope == PROJECT_SCOPE and not settings().get("stealth") and place.root != Path.home():
        remember_directory(str(place.root))


def keep(place: Target, *, choice: bool | None) -> None:
    """Write the choice to the settings, if it is new; None removes it."""
    project = project_of(place)
    if chosen_automatic(project) is not choice:
        set_automatic(project, wanted=choice)


def import_history(call: Call, chosen: Sequence[Vendor], place: Target, *, dry: bool) -> list[dict[str, Any]]:
    """Import the conversations that these agents had here before; returns what was (or would be) imported."""
    from onrecord.agents.history import HISTORY_DAYS, import_past, past

    days = call.number("history", HISTORY_DAYS) or 0
    file = store_file(call.get("store"))
    if not days or (dry and file is not None and not os.access(file, os.F_OK)):
        return []
    directory = None if place.scope == USER_SCOPE else str(place.root)
    with connect(call.get("store")) as records:
        found = past(records, chosen, dict(os.environ), directory, time.time() - days * DAY)
        if not found or dry or not _consents(call, found, days):
            return [_told(one, "") for one in found] if dry else []
        done = []
        for number, one in enumerate(found, start=1):
            _progress(call, number, len(found))
            try:
                done.append(_told(one, import_past(records, one, dict(os.environ)).session.name))
            except (OnrecordError, OSError) as problem:
                call.output.note(f"{one.of.name} {one.location.vendor_id} was not imported: {problem}")
    return done


def _consents(call: Call, found: list[Past], days: int) -> bool:
    if "yes" in call or "history" in call:
        return True
    if not _can_ask(call):
        return False
    counts = {one.of.title: 0 for one in found}
    for one in found:
        counts[one.of.title] += 1
    whose = listed([f"{number} of {title}" if len(counts) > 1 else title for title, number in counts.items()])
    return _agrees(
        f"Import {counted(len(found), 'earlier conversation')} of the last {counted(days, 'day')} ({whose})?",
        "the agents are set up, and nothing was imported",
    )


def _told(one: Past, session: str) -> dict[str, Any]:
    return {
        "vendor": one.of.name, "vendor_id": one.location.vendor_id, "session": session, "began_at": one.began,
        "ended_at": one.ended,
    }  # fmt: skip


def _progress(call: Call, number: int, total: int) -> None:
    """One line that counts, on a terminal only."""
    if call.output.json or call.output.quiet or not sys.stderr.isatty():
        return
    sys.stderr.write(f"\rimporting conversation {number:,} of {total:,}" + ("\n" if number == total else ""))
    sys.stderr.flush()


def _can_ask(call: Call) -> bool:
    return not call.output.json and "no-input" not in call and sys.stdin.isatty() and sys.stderr.isatty()


def _agrees(question: str, after_interrupt: str) -> bool:
    """Whether the person says yes; only Enter means yes. Ctrl-C prints `after_interrupt`."""
    sys.stderr.write(wrapped(f"{question} [Y/n]") + " ")
    sys.stderr.flush()
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\n" + labelled("note", after_interrupt))
        raise
    if not answer.endswith("\n"):
        sys.stderr.write("\n")
        return False
    return answer.strip().lower() in ("", "y", "yes")


def listed(words: Sequence[str], last: str = "and") -> str:
    """Words as a sentence has them."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
