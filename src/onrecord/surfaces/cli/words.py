"""The words of a command line: which one is the verb, which options precede it, and what other words mean."""

from __future__ import annotations

_TAKES_VALUE = frozenset({"--store", "--project", "--session", "-s", "--agent", "--limit", "-n"})
"""Options that may precede the verb; each takes a value."""
ALIASES = {
    "ls": "list", "new": "open", "status": "show", "events": "log", "find": "search",
    "grep": "search", "unarchive": "resume", "release": "hold", "rm": "erase", "delete": "erase",
    "mv": "rename", "check": "verify", "exec": "run", "attempts": "attempt", "findings": "finding",
    "turn": "record", "cp": "copy", "sync": "copy", "state": "finding state", "install": "setup", "init": "setup",
    "enable": "setup", "disable": "setup --no-auto", "uninstall": "setup --remove", "cost": "usage", "costs": "usage",
    "tokens": "usage", "view": "show", "cat": "show", "retain": "sweep", "prune": "sweep", "gc": "sweep",
    "history": "log", "ui": "web", "dashboard": "web", "serve": "web", "info": "show", "end": "close", "stop": "pause",
    "decision": "decide", "todo": "next", "report": "export --format html", "html": "export --format html",
}  # fmt: skip
"""Words people try. `ls` works; for the others the error names the verb."""


def split(words: list[str]) -> tuple[str, list[str]]:
    """The verb and everything else; options may come before it. Without a verb, the overview is meant."""
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        if words[index] in ("-h", "--help"):
            return "help", [word for word in words if word in ("--all", "-a")]
        if words[index] in ("-V", "--version"):
            return "version", words[:index] + words[index + 1 :]
        index += 2 if words[index] in _TAKES_VALUE else 1
    if index >= len(words):
        return "", words
    return words[index], words[:index] + words[index + 1 :]
