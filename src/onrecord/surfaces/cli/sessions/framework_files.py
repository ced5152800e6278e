"""`onrecord import langgraph FILE`: conversations from the SQLite files that agent frameworks keep themselves."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from onrecord.errors import Conflict, InvalidInput
from onrecord.frameworks.importing import UNITS, Imported, take_in
from onrecord.surfaces.cli.shared.exits import FAILED, OK, PARTIAL, UsageError
from onrecord.surfaces.cli.shared.output import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.surfaces.cli.shared.call import Call

QUIET_SECONDS = 2.0
"""How long an import may take before it says how far it is."""
SHOWN_SECONDS = 0.2
"""How often it says so."""
_VENDORS_OPTIONS = ("all", "session", "agent", "as", "update")


def import_framework(call: Call) -> int:
    """Import every conversation of a framework's own file; again only what is new."""
    framework, what = call.positional["FILE"], call.positional.get("WHAT")
    if what is None:
        raise UsageError(
            f"which file of {framework} should be imported?", hint=f"`onrecord import {framework} sqlite:///FILE`"
        )
    for name in _VENDORS_OPTIONS:
        if name in call:
            raise UsageError(
                f"--{name} does not apply to a file of {framework}: each conversation becomes its own session"
            )
    unit = UNITS[framework]
    done: list[Imported] = []
    try:
        for one in take_in(call.records(), framework, what, progress=_progress(call, unit)):
            done.append(one)  # noqa: PERF402  # what was imported is shown also if an error follows
    except ImportError as problem:
        raise UsageError(str(problem)) from None
    except (InvalidInput, Conflict):
        if len(done) < 2 or not any(one.why_not for one in done):  # noqa: PLR2004  # one conversation: its error says it
            raise
    states = [_state(one) for one in done]
    status = _status(done)
    if call.output.json:
        data = [
            one._asdict() | {"framework": framework, "state": state} for one, state in zip(done, states, strict=True)
        ]
        call.output.envelope("imports", data)
        return status
    for one, state in zip(done, states, strict=True):
        if state == "not_imported":
            call.output.line(f"not imported: {one.conversation or repr(one.conversation)}: {one.why_not}")
            continue
        call.output.line(f"{state.replace('_', ' ')}: {one.session}, {counted(one.new, f'new {unit}')}")
        if one.why_not:
            call.output.line(f"  the rest was left out: {one.why_not}")
        if one.gone:
            call.output.line(f"  {counted(one.gone, unit)} on record, no longer in the file")
        if one.fork_of:
            call.output.line(f"  a fork of {one.fork_of}: both were continued, here and in the file")
    if not done:
        call.output.note(f"{what} has no conversations")
    return status


def _state(one: Imported) -> str:
    if one.why_not:
        return "partly_imported" if one.new or one.there else "not_imported"
    return "imported" if one.new and not one.there else "updated" if one.new else "already_imported"


def _status(done: list[Imported]) -> int:
    """Whether everything was imported, a part of it, or nothing."""
    if not any(one.why_not for one in done):
        return OK
    return FAILED if all(_state(one) == "not_imported" for one in done) else PARTIAL


def _progress(call: Call, unit: str) -> Callable[[int, int], None] | None:
    """One line on the terminal that says how far it is, once it takes longer than two seconds."""
    if call.output.json or call.output.quiet or not sys.stderr.isatty():
        return None
    begun = shown = time.monotonic()

    def tell(number: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - begun < QUIET_SECONDS or (now - shown < SHOWN_SECONDS and number < total):
            return
        shown = now
        sys.stderr.write(f"\rimporting {unit} {number:,} of {total:,}" + ("\n" if number == total else ""))
        sys.stderr.flush()

    return tell
