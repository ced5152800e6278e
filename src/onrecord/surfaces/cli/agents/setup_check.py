"""`onrecord setup --check`: run the installed hook on a temporary store where it must refuse an edit."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.connection import connect, instructions, is_automatic
from onrecord.environment import (
    AGENT_VARIABLE,
    CONFIG_VARIABLE,
    PROJECT_VARIABLE,
    SESSION_VARIABLE,
    STORE_VARIABLE,
)
from onrecord.errors import OnrecordError
from onrecord.setup import installing
from onrecord.setup.commands import HOOK_COMMAND, SERVER_COMMAND, found_by_hooks, has_server
from onrecord.setup.probing import call_tools
from onrecord.surfaces.cli.shared.exits import FAILED, OK
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.vendors.hooks import DEADLINE_SECONDS
from onrecord.vendors.mcp_servers import server_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onrecord.setup.installing import Target
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.vendors.packages import Package
    from onrecord.vendors.port import Vendor

ATTEMPT = "onrecord-setup-check"


class Answer(NamedTuple):
    """The result of running a hook."""

    works: bool
    said: str


def check(call: Call, chosen: Sequence[Vendor], place: Target) -> int:
    """For each agent: are the hooks there, do they answer, are they trusted, are the instructions current?"""
    told = [_look(of, place) for of in chosen]
    runs = found_by_hooks(dict(os.environ))
    auto = is_automatic()
    if call.output.json:
        ok = all(one["ok"] for one in told)
        data = {"scope": place.scope, "ok": ok, "agents": told, "runs": runs._asdict(), "automatic": auto}
        call.output.envelope("setup_check", data)
    else:
        _show(call, told)
        if runs.program:
            call.output.line(f"hooks run {runs.program} ({runs.version or 'it cannot be run'})")
        else:
            call.output.line("hooks find no onrecord: it is not on the PATH, and no launcher is installed")
        recorded = "every conversation" if auto else "conversations of `onrecord start` only"
        call.output.line(f"recorded here: {recorded}")
    return OK if all(one["ok"] for one in told) else FAILED


def _show(call: Call, told: list[dict[str, Any]]) -> None:
    """One line for each part of an agent; a person reads the agent's name once."""
    rows: list[list[str | Cell]] = []
    for one in told:
        for number, (line, works) in enumerate(zip(one["lines"], one["works"], strict=True)):
            name = "" if number and call.output.terminal else one["vendor"]
            rows.append([name, Cell("✓" if works else "✗", "good" if works else "bad"), line])
    call.output.table(("#", "!", "~"), rows)


def _look(of: Vendor, place: Target) -> dict[str, Any]:
    package = installing.package_of(of, place)
    own = installing.installed_commands(of, place)
    commands = own or (installing.package_commands(of, package) if package else [])
    found: list[Answer] = []
    if not commands:
        missing = f"no hooks are installed ({place.scope}); `onrecord setup {of.name} --{place.scope}` installs them"
        found.append(Answer(works=False, said=missing))
    else:
        answer = run_hook(of, commands)
        found.append(Answer(works=answer.works, said=f"{counted(len(commands), 'hook')}; {answer.said}"))
    server = installing.registered_server(of, place)
    brought = server_words(package.server) if package else []
    if server or brought:
        found.append(run_server(server or brought))
    works = all(one.works for one in found)
    if commands and has_server() and not (server or brought):
        absent = f"no MCP server is registered; `onrecord setup {of.name} --{place.scope}` registers it"
        found.append(Answer(works=False, said=absent))
    if package is not None:
        found.append(Answer(works=True, said=said_of_package(of, place, package)))
    server_wanted = SERVER_COMMAND if server else ()
    block = instructions(tools=bool(server or brought))
    for change in installing.plan(of, place, HOOK_COMMAND, block, server=server_wanted):
        if commands and change.problem:
            found.append(Answer(works=False, said=f"{change.path}: {change.problem}"))
        elif commands and change.is_needed:
            state, does = ("missing", "adds") if change.before is None else ("out of date", "updates")
            late = f"{change.path} is {state}; `onrecord setup {of.name}` {does} it"
            found.append(Answer(works=False, said=late))
    doubts = installing.doubts(of, place)
    found += [Answer(works=False, said=doubt) for doubt in doubts]
    return {"vendor": of.name, "ok": works and not doubts, "hooks": len(commands), "server": bool(server or brought),
            "package": str(package.folder) if package else None,
            "lines": [one.said for one in found], "works": [one.works for one in found]}  # fmt: skip


def said_of_package(of: Vendor, place: Target, package: Package) -> str:
    """What the package brings; and if setup wrote the same to the user's files, how to have it once."""
    names = {"hooks": "hooks", "mcp": "the MCP server"}
    parts = " and ".join(names[part] for part in installing.brought(of, place) if part in names)
    if not installing.is_double(of, place):
        return f"the onrecord package in {package.folder} brings {parts}"
    return (
        f"the onrecord package in {package.folder} brings {parts}, and so do the files of this {place.scope}; "
        f"`{package.uninstall}` or `onrecord setup {of.name} --{place.scope} --remove` leaves one of the two"
    )


def run_server(command: Sequence[str]) -> Answer:
    """Start the registered MCP server on a temporary store, and really call its tools."""
    with tempfile.TemporaryDirectory(prefix="onrecord-check-") as folder:
        url = str(Path(folder) / "data" / "store.db")
        with connect(url, project="check") as records:
            records.create("check", agent="check", objective=ATTEMPT)
        named = {PROJECT_VARIABLE: "check", SESSION_VARIABLE: "check", AGENT_VARIABLE: "check"}
        env = dict(os.environ) | named | {STORE_VARIABLE: url, CONFIG_VARIABLE: os.devnull}
        told = call_tools(command, [("resume", {}), ("record", {"kind": "decision", "text": ATTEMPT})], env, folder)
        with connect(url, project="check") as records:
            kept = [event.data["text"] for event in records.get("check").events(kinds=["decision.made"])]
    if told.problem:
        return Answer(works=False, said=f"the MCP server does not work: {told.problem:.300}")
    if ATTEMPT not in told.text or kept != [ATTEMPT]:
        return Answer(works=False, said=f"the MCP server answers wrongly: {told.text!r:.200}")
    return Answer(works=True, said="the MCP server works: `resume` read a session, and `record` wrote to it")


def run_hook(of: Vendor, commands: Sequence[str]) -> Answer:
    """Run the hook before a tool: refused while an attempt is unresolved, allowed after it was settled."""
    event, payload = of.sample_hook("0" * 8 + "-0000-4000-8000-" + "0" * 12)
    command = next((one for one in commands if one.endswith(f" {event}")), None)
    words = shlex.split(command) if command else [*HOOK_COMMAND, "hook", of.name, event]
    with tempfile.TemporaryDirectory(prefix="onrecord-check-") as folder:
        url = str(Path(folder) / "data" / "store.db")
        call = of.parse_hook(payload | {"hook_event_name": event, "cwd": folder}, {})
        with connect(url, project="check") as records:
            session = records.create("check", agent="check")
            session.agents.locate(of.name, call.vendor_id)
            session.attempts.start(ATTEMPT)
            refused = _run(words, payload | {"cwd": folder}, url)
            session.attempts.settle(None, "succeeded")
            allowed = _run(words, payload | {"cwd": folder}, url)
    for answer in (refused, allowed):
        if isinstance(answer, str):
            return Answer(works=False, said=answer)
    if ATTEMPT not in refused[1]:
        return Answer(
            works=False,
            said=f"the hook does not refuse an edit that it should refuse (exit {refused[0]}: {refused[1]!r:.200})",
        )
    if ATTEMPT in allowed[1] or allowed[0] != 0:
        return Answer(works=False, said=f"the hook refuses an edit that it should allow (exit {allowed[0]})")
    return Answer(
        works=True, said="the hook works: it refuses an edit while an attempt has no outcome, and allows it after that"
    )


def _run(words: Sequence[str], payload: dict[str, Any], url: str) -> tuple[int, str] | str:
    ours = (SESSION_VARIABLE, AGENT_VARIABLE, PROJECT_VARIABLE, STORE_VARIABLE)
    env = {name: value for name, value in os.environ.items() if name not in ours}
    try:
        done = subprocess.run(
            words, input=json.dumps(payload).encode(), capture_output=True, check=False,
            timeout=DEADLINE_SECONDS * 3, env=env | {STORE_VARIABLE: url, CONFIG_VARIABLE: os.devnull},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError, OnrecordError) as problem:
        return f"{words[0]} cannot be run: {problem}"
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")
