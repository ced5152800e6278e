"""The words of a command line: which one is the verb, and which options precede it."""

from __future__ import annotations

_TAKES_VALUE = frozenset({"--store", "--project", "--session", "-s", "--agent", "--limit", "-n"})
"""Options that may precede the verb; each takes a value."""


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
