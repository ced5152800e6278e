"""Our part in a vendor's files: hooks, plugin, instructions, MCP server. Every change is planned first, then made.

A plan holds every file as it is and as it would be; nothing is written before the whole plan is known. Files are
replaced whole, through the file a link leads to, with the mode they had; a file that changed since is left alone.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import Conflict, InvalidInput, OnrecordError
from onrecord.machine.files import PRIVATE_MODE, read_regular, write_file
from onrecord.setup import folders, jsontext, servers
from onrecord.vendors.packages import installed_package
from onrecord.vendors.port import PROJECT_SCOPE, USER_SCOPE, VENDORS, vendor
from onrecord.views import instructions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onrecord.vendors.packages import Package
    from onrecord.vendors.port import HookFile, Vendor

FILE_BYTES = 16 * 1024 * 1024
"""A larger file is not one that people keep settings in."""
PUBLIC_MODE = 0o666
_PLUGIN = re.compile(r"// onrecord:plugin (\d+) ([0-9a-f]{8})\n(.*)", re.DOTALL)
PLUGIN_VERSION = 1
MANAGED = ("hooks", "plugin", "instructions", "mcp")


class Change(NamedTuple):
    """One file: its content before and after; None means no file."""

    vendor: str
    what: str
    path: Path
    before: bytes | None
    after: bytes | None
    problem: str = ""
    """Why this file is left as it is although it should change."""
    hint: str = ""
    private: bool = False
    step: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether there is something to do."""
        return self.before != self.after and not self.problem


class Target(NamedTuple):
    """Where our part belongs: a scope, the project's root, and the environment that names the homes."""

    scope: str
    root: Path
    env: Mapping[str, str]


def plan(
    of: Vendor, target: Target, command: Sequence[str], block: str, *, server: Sequence[str] = (), force: bool = False
) -> list[Change]:
    """What setting up would change. `server` is the command of the MCP server; empty: it is not registered."""
    wanted = of.hook_settings(command)

    def step(file: HookFile, text: str | None) -> str | None:
        if file.what == "instructions":
            if text is not None and instructions.is_changed(text) and not force:
                raise Conflict(
                    "the block of instructions was changed by hand", hint="force replaces it", step="force_setup"
                )
            return instructions.installed(text, block)
        if file.what == "mcp":
            return servers.with_server(of.name, file.path, text, server, force=force) if server else text
        if isinstance(wanted, str):
            if text is not None and not _is_our_plugin(text) and not force:
                raise Conflict("the plugin was changed by hand", hint="force replaces it", step="force_setup")
            return plugin_text(wanted)
        return jsontext.created(wanted) if text is None else jsontext.merged(text, wanted, is_ours(of.name))

    return _changes(of, target, step, but=(*brought(of, target), *(() if server else ("mcp",))))


def plan_removal(
    of: Vendor, target: Target, command: Sequence[str], *, server: Sequence[str] = (), force: bool = False
) -> list[Change]:
    """What removing our part would change. What another vendor here also reads stays."""
    wanted = of.hook_settings(command)

    def step(file: HookFile, text: str | None) -> str | None:
        if text is None:
            return None
        if file.what == "instructions":
            if not instructions.has_block(text) or shared_with(of, target, file.path):
                return text
            if instructions.is_changed(text) and not force:
                raise Conflict(
                    "the block of instructions was changed by hand", hint="force removes it", step="force_remove"
                )
            return instructions.removed(text)
        if file.what == "mcp":
            shared = shared_with(of, target, file.path)
            return text if shared else servers.without_server(of.name, file.path, text, server, force=force)
        if isinstance(wanted, str):
            if not _is_our_plugin(text) and not force:
                raise Conflict("the plugin was changed by hand", hint="force removes it", step="force_remove")
            return None
        ours = is_ours(of.name)
        if not jsontext.has_any(text, ours):
            return text
        return None if jsontext.is_created(text, wanted, ours) else jsontext.without(text, ours)

    return _changes(of, target, step)


def shared_with(of: Vendor, target: Target, path: Path) -> list[str]:
    """Other vendors that are set up here and read the same file."""
    return [
        name
        for name in VENDORS
        if name != of.name
        and any(file.path == path for file in vendor(name).files(target.scope, target.root, target.env))
        and is_set_up(vendor(name), target)
    ]  # fmt: skip


def is_set_up(of: Vendor, target: Target) -> bool:
    """Whether our hooks are in the vendor's files."""
    return bool(installed_commands(of, target))


def installed_commands(of: Vendor, target: Target) -> list[str]:
    """The commands of ours that the vendor's files run."""
    found: list[str] = []
    for file in of.files(target.scope, target.root, target.env):
        try:
            text = _text(_content(file.path))
            if text is None or file.what not in ("hooks", "plugin"):
                continue
            if file.what == "plugin":
                found += [str(file.path)] if _PLUGIN.match(text) else []
            else:
                found += jsontext.commands(text, is_ours(of.name))
        except (OnrecordError, OSError):
            continue
    return found


def registered_server(of: Vendor, target: Target) -> list[str]:
    """The command with which the vendor starts our MCP server; empty if it is not registered."""
    for file in of.files(target.scope, target.root, target.env):
        if file.what == "mcp":
            try:
                return servers.registered(of.name, file.path, _text(_content(file.path)))
            except (OnrecordError, OSError):
                continue
    return []


def package_of(of: Vendor, target: Target) -> Package | None:
    """Our package, if the user installed it with the vendor's own command."""
    return installed_package(of.name, of.home(target.env))


def package_commands(of: Vendor, package: Package) -> list[str]:
    """The commands of ours that a package runs as hooks."""
    return jsontext.commands(package.hooks, is_ours(of.name)) if package.hooks else []


def brought(of: Vendor, target: Target) -> tuple[str, ...]:
    """The parts that our package brings: with those in the user's files too, every hook would run twice."""
    package = package_of(of, target)
    if package is None:
        return ()
    return (*(("hooks", "plugin") if package.hooks else ()), *(("mcp",) if package.server else ()))


def is_double(of: Vendor, target: Target) -> bool:
    """Whether the user's files and the package have the same part."""
    parts = brought(of, target)
    hooks, server = "hooks" in parts and is_set_up(of, target), "mcp" in parts and registered_server(of, target)
    return bool(hooks or server)


def is_in_both_scopes(of: Vendor, target: Target) -> bool:
    """Whether our hooks are in the project's files and in the user's: a vendor may run each of them twice."""
    both = [target._replace(scope=scope) for scope in (USER_SCOPE, PROJECT_SCOPE)]
    users, projects = ({file.path for file in _files(of, one) if file.what in ("hooks", "plugin")} for one in both)
    return users.isdisjoint(projects) and all(is_set_up(of, one) for one in both)


def doubts(of: Vendor, target: Target) -> list[str]:
    """Settings that keep hooks installed here from being called."""
    if not is_set_up(of, target):
        return []
    hooks = [file.path for file in _files(of, target) if file.what in ("hooks", "plugin")]
    return [line for path in hooks for line in of.setup_warnings(path, target.env)]


def is_ours(name: str) -> Callable[[Any], bool]:
    """A test for a text: whether it is a command of ours for this vendor."""
    pattern = re.compile(rf"(?:^|[\s/'\"])onrecord['\"]?\s+hook\s+{re.escape(name)}(?:\s|$)")
    return lambda text: isinstance(text, str) and pattern.search(text) is not None


def shown(of: Vendor, file: HookFile, command: Sequence[str], server: Sequence[str]) -> str:
    """Our hooks or our server in the vendor's form, for a person to add by hand."""
    if file.what == "mcp":
        return servers.shown(of.name, file.path, server)
    wanted = of.hook_settings(command)
    return plugin_text(wanted) if isinstance(wanted, str) else jsontext.created(wanted)


def apply(change: Change, env: Mapping[str, str]) -> None:
    """Make one change. `Conflict` if the file changed since the plan was made."""
    target = Path(os.path.realpath(change.path))
    if _content(target) != change.before:
        raise Conflict(f"{change.path} changed while it was being read; it was left as it is", hint="try again")
    if change.after is None:
        target.unlink(missing_ok=True)
        folders.remove_empty(env, target)
        return
    folders.remember(env, folders.made_for(target, 0o700 if change.private else 0o777))
    mode = PRIVATE_MODE if change.private else PUBLIC_MODE
    before = target.stat().st_mode & 0o7777 if change.before is not None else None
    write_file(target, [change.after], mode=mode, exact_mode=before)


def _files(of: Vendor, target: Target) -> list[HookFile]:
    return [file for file in of.files(target.scope, target.root, target.env) if file.what in MANAGED]


def _changes(
    of: Vendor, target: Target, step: Callable[[HookFile, str | None], str | None], *, but: Sequence[str] = ()
) -> list[Change]:
    """Every change; one file may have several of our parts, and each starts from what the one before leaves."""
    made: list[Change] = []
    left: dict[Path, bytes | None] = {}
    for file in _files(of, target):
        if file.what not in but:
            made.append(_change(of, file, target, step, left))
            left[file.path] = made[-1].after
    return made


def _change(
    of: Vendor,
    file: HookFile,
    target: Target,
    step: Callable[[HookFile, str | None], str | None],
    left: Mapping[Path, bytes | None],
) -> Change:
    private = target.scope == USER_SCOPE
    before: bytes | None = None
    try:
        before = left[file.path] if file.path in left else _content(file.path)
        text = _text(before)
        after = step(file, text)
    except OnrecordError as problem:
        return Change(
            of.name, file.what, file.path, before, before, problem.message, problem.hint, private, problem.step
        )
    except OSError as problem:
        said = f"cannot be read: {problem.strerror}"
        return Change(of.name, file.what, file.path, before, before, said, "", private)
    return Change(of.name, file.what, file.path, before, None if after is None else after.encode(), private=private)


def _content(path: Path) -> bytes | None:
    try:
        if path.stat().st_size > FILE_BYTES:
            raise InvalidInput(f"{path} has more than {FILE_BYTES:,} bytes; it was left as it is")
        return read_regular(path)
    except FileNotFoundError:
        return None


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        raise InvalidInput(
            "the file is not UTF-8; it was left as it is", hint="add the hooks by hand", step="print_setup"
        ) from None


def plugin_text(text: str) -> str:
    """The plugin with a first line that shows a change by hand."""
    return f"// onrecord:plugin {PLUGIN_VERSION} {sha256(text.encode()).hexdigest()[:8]}\n{text}"


def _is_our_plugin(text: str) -> bool:
    found = _PLUGIN.fullmatch(text)
    return found is not None and sha256(found[3].encode()).hexdigest()[:8] == found[2]
