"""`onrecord setup`: install hooks and instructions in the files of coding agents, or remove them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onrecord
from onrecord.connect import instructions
from onrecord.errors import OnrecordError
from onrecord.setup import installing
from onrecord.surfaces.cli.shared.exits import FAILED, OK, PARTIAL, UsageError
from onrecord.surfaces.cli.shared.hints import BY_STEP
from onrecord.vendors.port import PROJECT_SCOPE, USER_SCOPE, VENDORS, vendor
from onrecord.work.project import find_worktree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.setup.installing import Change, Place
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.vendors.port import Vendor

LOOK_SECONDS = 20.0
"""How long asking an interpreter for its onrecord may take."""
_WAYS = ("check", "remove", "dry-run", "print")


def setup(call: Call) -> int:
    """Merge our part into the files of the named agents, or of those that are installed; or one of the other ways."""
    ways = [way for way in _WAYS if way in call]
    if len([way for way in ways if way != "dry-run"]) > 1 or {"check", "dry-run"} <= set(ways):
        raise UsageError(f"use only one of --{' and --'.join(ways)}", hint=f"for example: `{call.verb.example}`")
    if "user" in call and "project" in call:
        raise UsageError("use --user or --project, not both", hint=f"for example: `{call.verb.example}`")
    names = [*dict.fromkeys(call.words)]
    chosen = [vendor(name) for name in names] or installed_vendors()
    if not chosen:
        raise UsageError("no coding agent is installed", hint=f"name one of {', '.join(VENDORS)}")
    scope = USER_SCOPE if "user" in call else PROJECT_SCOPE
    place = installing.Place(scope, Path(find_worktree(os.curdir)), os.environ)
    if "check" in call:
        from onrecord.surfaces.cli.agents.setup_check import check

        return check(call, chosen, place)
    command = hook_command(call)
    if "print" in call:
        return _print(call, chosen, place, command)
    return _change(call, chosen, place, command)


def installed_vendors() -> list[Vendor]:
    """Agents whose program is on PATH or that have a home here."""
    found = []
    for name in VENDORS:
        one = vendor(name)
        if any(shutil.which(program) for program in one.programs) or one.home(os.environ).is_dir():
            found.append(one)
    return found


def hook_command(call: Call | None = None) -> list[str]:
    """How a hook runs this very onrecord, from whatever directory and environment the agent gives it.

    `-I` keeps modules of the agent's directory and its PYTHON variables out: a project that has a `json.py` must not
    run inside the hook. Where this onrecord is only found through PYTHONPATH, `-P` keeps the directory out.
    """
    isolated = [sys.executable, "-I", "-m", "onrecord"]
    ask = [*isolated[:2], "-c", "import onrecord; print(onrecord.__file__)"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=LOOK_SECONDS, cwd="/").stdout
    except (OSError, subprocess.SubprocessError):
        told = ""
    if told.strip() == onrecord.__file__:
        return isolated
    if call is not None:
        call.output.note("this onrecord is found through PYTHONPATH; agents need the same PYTHONPATH for their hooks")
    return [sys.executable, "-P", "-m", "onrecord"]


def _print(call: Call, chosen: list[Vendor], place: Place, command: Sequence[str]) -> int:
    block = instructions()
    data: list[dict[str, Any]] = [
        {
            "vendor": of.name,
            "files": [
                {"what": file.what, "path": str(file.path),
                 "text": block if file.what == "instructions" else installing.shown(of, command)}
                for file in of.files(place.scope, place.root, place.env) if file.what in installing.MANAGED
            ],
        }
        for of in chosen
    ]  # fmt: skip
    if call.output.json:
        call.output.envelope("setup_text", {"scope": place.scope, "vendors": data})
        return OK
    for one in data:
        for file in one["files"]:
            call.output.write(f"--- {file['path']} ({one['vendor']}, {file['what']})\n{file['text']}\n")
    return OK


def _change(call: Call, chosen: list[Vendor], place: Place, command: Sequence[str]) -> int:
    force, dry, removing = "force" in call, "dry-run" in call, "remove" in call
    changes: list[tuple[Change, str]] = []
    for of in chosen:
        planned = (
            installing.plan_removal(of, place, command, force=force)
            if removing
            else installing.plan(of, place, command, instructions(), force=force)
        )
        for change in planned:
            if dry and change.is_needed:
                _diff(call, change)
            changes.append((change, _do(change, dry=dry)))
    told = [_told(change, state) for change, state in changes]
    doubts = [] if removing or dry else [line for of in chosen for line in installing.doubts(of, place)]
    if call.output.json:
        data = {"scope": place.scope, "command": shlex.join(command), "changes": told, "warnings": doubts}
        call.output.envelope("setup", data)
    else:
        rows = [[one["vendor"], one["what"], one["state"], one["path"]] for one in told]
        call.output.table(("#agent", "!part", "!state", "*file"), rows)
        for one in told:
            if one["problem"]:
                call.output.note(f"{one['path']}: {one['problem']}" + (f"; {one['hint']}" if one["hint"] else ""))
        for line in doubts:
            call.output.note(line)
    wrong = [one for one in told if one["problem"]]
    return OK if not wrong else PARTIAL if len(wrong) < len(told) else FAILED


def _do(change: Change, *, dry: bool) -> str:
    if change.problem:
        return "left alone"
    if not change.is_needed:
        return "unchanged"
    state = "added" if change.before is None else "removed" if change.after is None else "changed"
    if dry:
        return f"would be {state}"
    try:
        installing.apply(change)
    except OnrecordError as problem:
        return f"left alone: {problem.message}"
    except OSError as problem:
        return f"left alone: {problem.strerror}"
    return state


def _told(change: Change, state: str) -> dict[str, Any]:
    problem = change.problem
    if state.startswith("left alone: "):
        state, problem = "left alone", state.removeprefix("left alone: ")
    return {
        "vendor": change.vendor, "what": change.what, "path": str(change.path), "state": state, "problem": problem,
        "hint": BY_STEP.get(change.step) or change.hint,
    }  # fmt: skip


def _diff(call: Call, change: Change) -> None:
    if call.output.json:
        return
    from difflib import unified_diff

    before = (change.before or b"").decode(errors="replace").splitlines(keepends=True)
    after = (change.after or b"").decode(errors="replace").splitlines(keepends=True)
    for line in unified_diff(before, after, str(change.path), str(change.path)):
        call.output.line(line.rstrip("\r\n"))
