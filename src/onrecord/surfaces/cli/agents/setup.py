"""`onrecord setup`: install hooks and instructions in the files of coding agents, or remove them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.connection import instructions
from onrecord.errors import OnrecordError
from onrecord.setup import installing
from onrecord.setup.commands import (
    HOOK_COMMAND,
    SERVER_COMMAND,
    for_one_run,
    has_server,
    installed_vendors,
    installing_with,
    leave_launcher,
)
from onrecord.surfaces.cli.agents import setup_auto
from onrecord.surfaces.cli.agents.common import vendor_named
from onrecord.surfaces.cli.shared.call import from_home
from onrecord.surfaces.cli.shared.exits import FAILED, OK, PARTIAL, UsageError
from onrecord.surfaces.cli.shared.hints import BY_STEP
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.shared.wrapping import wrapped
from onrecord.vendors.port import PROJECT_SCOPE, USER_SCOPE, VENDORS
from onrecord.work.project import find_worktree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.setup.installing import Change, Target
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.vendors.port import Vendor

ASKS = {"claude": 'claude asks once whether to use the MCP server onrecord: choose "Use this MCP server"'}
"""What an agent asks at its next start because of a server in a file of the project."""
_WAYS = ("check", "remove", "dry-run", "print")


def setup(call: Call) -> int:
    """Add our part to the files of the named agents, or of the installed ones; or check, print or remove it."""
    ways = [way for way in _WAYS if way in call]
    if len([way for way in ways if way != "dry-run"]) > 1 or {"check", "dry-run"} <= set(ways):
        raise UsageError(f"use only one of --{' and --'.join(ways)}", hint=f"for example: `{call.verb.example}`")
    if "user" in call and "project" in call:
        raise UsageError("use --user or --project, not both", hint=f"for example: `{call.verb.example}`")
    if "yes" in call and "no-auto" in call:
        raise UsageError("use --yes or --no-auto, not both", hint=f"for example: `{call.verb.example}`")
    names = [*dict.fromkeys(call.words)]
    chosen = [vendor_named(name) for name in names] or installed_vendors()
    if not chosen:
        raise UsageError(
            "no coding agent is installed",
            hint=f"install one ({', '.join(VENDORS)}), or set it up before you install it: `onrecord setup claude`",
        )
    scope = USER_SCOPE if "user" in call else PROJECT_SCOPE
    place = installing.Target(scope, Path(find_worktree(os.curdir)), os.environ)
    if "check" in call:
        from onrecord.surfaces.cli.agents.setup_check import check

        return check(call, chosen, place)
    if "print" in call:
        return _print(call, chosen, place, HOOK_COMMAND)
    if "remove" in call:
        return _change(call, chosen, place)
    if setup_auto.only_switches_off(call, chosen, place):
        return _switch_off(call, place)
    return _change(call, chosen, place)


def _switch_off(call: Call, place: Target) -> int:
    """Hooks are installed: only the setting changes."""
    if "dry-run" not in call:
        setup_auto.keep(place, choice=False)
    data = {"scope": place.scope, "changes": [], "warnings": [], "automatic": False, "history": []}
    done = "would be off" if "dry-run" in call else "is off"
    return call.output.done("setup", data, f"automatic recording {done} in {setup_auto.scope_name(place)}")


def _print(call: Call, chosen: list[Vendor], place: Target, command: Sequence[str]) -> int:
    block = instructions(tools=_has_tools(call))
    data: list[dict[str, Any]] = [
        {
            "vendor": of.name,
            "files": [
                {"what": file.what, "path": str(file.path),
                 "text": block if file.what == "instructions" else installing.shown(of, file, command, SERVER_COMMAND)}
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


def _change(call: Call, chosen: list[Vendor], place: Target) -> int:
    dry, removing = "dry-run" in call, "remove" in call
    choice = None if removing else setup_auto.wanted(call, chosen, place)
    if choice and not dry:
        setup_auto.name_directory(place)
    told = _changed(call, chosen, place)
    doubts = [] if removing or dry else _doubts(chosen, place)
    if not call.output.json:
        _show(call, place, told, doubts)
    history: list[dict[str, Any]] = []
    if not dry:
        setup_auto.keep(place, choice=choice)
    if not removing:
        if not dry:
            leave_launcher(place.env)
        if choice or "history" in call:
            history = setup_auto.import_history(call, chosen, place, dry=dry)
    if call.output.json:
        data = {"scope": place.scope, "command": shlex.join(HOOK_COMMAND), "changes": told, "warnings": doubts,
                "automatic": choice, "history": history}  # fmt: skip
        call.output.envelope("setup", data)
    elif not removing:
        _say_what_follows(call, chosen, place, history, choice=choice)
    wrong = [one for one in told if one["problem"]]
    return OK if not wrong else PARTIAL if len(wrong) < len(told) else FAILED


def _has_tools(call: Call) -> bool:
    """Whether agents get the tools of our MCP server."""
    return has_server() and "no-tools" not in call


def _doubts(chosen: list[Vendor], place: Target) -> list[str]:
    """What keeps hooks from being called, and settings with which a plain start harms other conversations.

    Setup leaves such a setting to the user: nothing in the file would show at a removal what it was before.
    """
    hooks = [line for of in chosen for line in installing.doubts(of, place)]
    hooks += _packages(chosen, place) + _both_scopes(chosen, place)
    return hooks + [f"{one.message}; {one.fix}" for of in chosen for one in of.start_hazards(place.env)]


def _packages(chosen: list[Vendor], place: Target) -> list[str]:
    """Agents whose user installed our package: setup added only what it does not bring."""
    from onrecord.surfaces.cli.agents.setup_check import said_of_package

    found = [(of, package) for of in chosen if (package := installing.package_of(of, place)) is not None]
    return [f"{of.name}: {said_of_package(of, place, package)}; setup added the rest" for of, package in found]


def _both_scopes(chosen: list[Vendor], place: Target) -> list[str]:
    """Agents that have our hooks for this project and for the user: nothing is recorded twice, but hooks run twice."""
    return [
        f"{of.name}: its hooks are installed for every project and for this one, so each may run twice; "
        f"`onrecord setup {of.name} --project --remove` leaves one of the two"
        for of in chosen
        if installing.is_in_both_scopes(of, place)
    ]


def _changed(call: Call, chosen: list[Vendor], place: Target) -> list[dict[str, Any]]:
    """Every file of the agents, and what became of it."""
    force, dry, removing = "force" in call, "dry-run" in call, "remove" in call
    told: list[dict[str, Any]] = []
    for of in chosen:
        if removing:
            planned = installing.plan_removal(of, place, HOOK_COMMAND, server=SERVER_COMMAND, force=force)
        else:
            server, block = SERVER_COMMAND if _has_tools(call) else (), instructions(tools=_has_tools(call))
            planned = installing.plan(of, place, HOOK_COMMAND, block, server=server, force=force)
        for change in planned:
            if dry and change.is_needed:
                _diff(call, change)
            told.append(_told(change, *_do(change, place, dry=dry)))
    return told


def _show(call: Call, place: Target, told: list[dict[str, Any]], doubts: list[str]) -> None:
    """Each file and what became of it; a person reads paths from the project's directory on."""

    def short(text: str) -> str:
        whole = f"{place.root}{os.sep}"
        return from_home(text.replace(whole, "")) if call.output.terminal else text

    agents = [*dict.fromkeys(one["vendor"] for one in told)]
    if call.output.terminal and told and all(one["state"] == "unchanged" for one in told):
        call.output.write(wrapped(f"already set up: {', '.join(agents)}; no file was changed") + "\n")
    else:
        rows = [[one["vendor"], one["what"], one["state"], short(one["path"])] for one in told]
        call.output.table(("#agent", "!part", "!state", "*file"), rows)
    for one in told:
        if one["problem"]:
            call.output.note(f"{short(one['path'])}: {one['problem']}" + (f"; {one['hint']}" if one["hint"] else ""))
        elif (one["what"], one["state"]) == ("mcp", "added") and place.scope == PROJECT_SCOPE and one["vendor"] in ASKS:
            call.output.note(ASKS[one["vendor"]])
    for line in doubts:
        call.output.note(short(line))


def _say_what_follows(
    call: Call, chosen: list[Vendor], place: Target, history: list[dict[str, Any]], *, choice: bool | None
) -> None:
    """What is recorded from now on, what was imported, and what to type next."""
    dry, where = "dry-run" in call, setup_auto.scope_name(place)
    if not has_server() and "no-tools" not in call:
        add = installing_with("mcp")
        call.output.note(f"agents get no tools of onrecord; `{add}`, then set up again, adds them")
    if choice:
        would = "would be" if dry else "is"
        call.output.note(
            f"every conversation in {where} {would} recorded from now on; `onrecord setup --no-auto` switches this off"
        )
    elif choice is None:
        again = shlex.join(["onrecord", "setup", *call.words, *(["--user"] if place.scope == USER_SCOPE else [])])
        call.output.note(f"only conversations of `onrecord start` are recorded; `{again} --yes` records every one")
    if history:
        would = (
            "would be imported" if dry else f"imported; `onrecord list` shows {'it' if len(history) == 1 else 'them'}"
        )
        call.output.note(f"{counted(len(history), 'conversation')} {would}")
    if choice and not dry:
        names = setup_auto.listed([of.programs[0] for of in chosen], "or")
        runner = for_one_run()
        call.output.note(f"start {names} as usual; then `{runner or 'onrecord'}` shows what is on record")
        if runner:
            call.output.note(f"hooks run `{runner}`, too; `{installing_with()}` makes them faster")


def _do(change: Change, place: Target, *, dry: bool) -> tuple[str, str]:
    """The state of the file after the change, and the problem, if there is one."""
    if change.problem:
        return "left alone", change.problem
    if not change.is_needed:
        return "unchanged", ""
    state = "added" if change.before is None else "removed" if change.after is None else "changed"
    if dry:
        return f"would be {state}", ""
    try:
        installing.apply(change, place.env)
    except OnrecordError as problem:
        return "left alone", problem.message
    except OSError as problem:
        return "left alone", problem.strerror or str(problem)
    return state, ""


def _told(change: Change, state: str, problem: str) -> dict[str, Any]:
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
