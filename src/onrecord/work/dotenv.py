"""The project's .env files: variables whose values agents should not repeat."""

from __future__ import annotations

import os

from onrecord.work.project import find_worktree

DOTENV_FILES, DOTENV_BYTES = 10, 64 * 1024
"""How many .env files of a project are read, and how much of each."""


def dotenv(directory: str) -> dict[str, str]:
    """The variables of the .env files at the top of a directory's worktree."""
    found: dict[str, str] = {}
    try:
        with os.scandir(find_worktree(directory)) as entries:
            files = sorted(one.path for one in entries if one.name == ".env" or one.name.startswith(".env."))
        for path in files[:DOTENV_FILES]:
            if os.path.isfile(path):
                from onrecord.redaction.known import variables_of

                with open(path, "rb") as file:
                    found |= variables_of(file.read(DOTENV_BYTES).decode(errors="replace"))
    except OSError:
        return found
    return found
