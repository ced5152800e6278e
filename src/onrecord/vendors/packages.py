"""Our package (plugin or extension) where a vendor keeps its own: whether it is installed, and what it brings.

A package has the same hooks and the same server that `onrecord setup` writes, so one of the two is enough.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from onrecord.machine.files import read_regular

NAME = "onrecord"
_FROM = f"{NAME}@"
"""How plugins are called that come from a marketplace: `onrecord@MARKETPLACE`."""
UNINSTALL = {
    "claude": "claude plugin uninstall onrecord", "codex": "codex plugin remove {plugin}",
    "copilot": "copilot plugin uninstall {plugin}", "gemini": "gemini extensions uninstall onrecord",
    "qwen": "qwen extensions uninstall onrecord",
}  # fmt: skip
"""The command of each vendor that removes our package."""


class Package(NamedTuple):
    """Our package in a vendor's home."""

    folder: Path
    hooks: str
    """The text of its hooks; empty if it has none."""
    server: dict[str, Any]
    """The entry of its MCP server; empty if it has none."""
    uninstall: str


def installed_package(vendor: str, home: Path) -> Package | None:
    """The package that is installed and switched on for the user; None if there is none."""
    plugin, folder = _FINDERS[vendor](home) if vendor in _FINDERS else ("", None)
    if folder is None or not folder.is_dir():
        return None
    hooks = _text(folder / "hooks" / "hooks.json")
    about = _json(folder / f"{vendor}-extension.json") or _json(folder / ".mcp.json")
    server = _dict(_dict(about.get("mcpServers")).get(NAME))
    return Package(folder, hooks, server, UNINSTALL[vendor].format(plugin=plugin))


def _claude(home: Path) -> tuple[str, Path | None]:
    switched = _dict(_json(home / "settings.json").get("enabledPlugins"))
    for plugin, copies in _dict(_json(home / "plugins" / "installed_plugins.json").get("plugins")).items():
        places = [one["installPath"] for one in copies if isinstance(_dict(one).get("installPath"), str)] if (
            plugin.startswith(_FROM) and isinstance(copies, list) and switched.get(plugin) is not False
        ) else []  # fmt: skip
        if places:
            return plugin, Path(places[-1])
    return "", None


def _copilot(home: Path) -> tuple[str, Path | None]:
    """Copilot uses the marketplace's own folder and copies nothing."""
    settings = _json(home / "settings.json")
    markets = _dict(settings.get("extraKnownMarketplaces"))
    for plugin, on in _dict(settings.get("enabledPlugins")).items():
        source = _dict(_dict(markets.get(plugin.removeprefix(_FROM))).get("source"))
        if plugin.startswith(_FROM) and on and isinstance(source.get("path"), str):
            return plugin, Path(source["path"]) / NAME
    return "", None


def _codex(home: Path) -> tuple[str, Path | None]:
    try:
        settings = tomllib.loads(_text(home / "config.toml"))
    except tomllib.TOMLDecodeError:
        return "", None
    for plugin, about in _dict(settings.get("plugins")).items():
        if plugin.startswith(_FROM) and _dict(about).get("enabled"):
            copies = sorted((home / "plugins" / "cache" / plugin.removeprefix(_FROM) / NAME).glob("*"))
            return plugin, copies[-1] if copies else None
    return "", None


def _extension(home: Path) -> tuple[str, Path | None]:
    return NAME, home / "extensions" / NAME


_FINDERS = {"claude": _claude, "codex": _codex, "copilot": _copilot, "gemini": _extension, "qwen": _extension}


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except (OSError, ValueError):
        return ""


def _json(path: Path) -> dict[str, Any]:
    try:
        return _dict(json.loads(_text(path)))
    except ValueError:
        return {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
