"""Git's own files, read without git: its configuration, and whether there is a commit. No pathlib: see `project`."""

from __future__ import annotations

import os

READ_BYTES = 256 * 1024
"""How much of one of git's files is read."""


def read_text(path: str) -> str:
    """The beginning of a file; "" if it cannot be read. A named pipe is not waited for."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=_without_waiting) as file:
            return file.read(READ_BYTES)
    except OSError:
        return ""


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def settings_in(config: str) -> dict[tuple[str, str, str], str]:
    """The settings of a configuration by section, subsection and key; the first value counts. Includes are not read."""
    found: dict[tuple[str, str, str], str] = {}
    section = subsection = ""
    for line in config.splitlines():
        text = line.strip()
        if text.startswith("["):
            section, _space, rest = text[1:].partition("]")[0].partition(" ")
            section, subsection = section.lower(), rest.strip().strip('"')
        elif "=" in text and text[0] not in "#;":
            key, _equals, value = text.partition("=")
            found.setdefault((section, subsection, key.strip().lower()), _plain(value))
    return found


def _plain(value: str) -> str:
    text = value.strip()
    if text.startswith('"'):
        return text[1:].partition('"')[0]
    return text.partition(" #")[0].partition(" ;")[0].strip()


def has_commit(git: str) -> bool:
    """Whether a repository has a commit; True where only git could tell."""
    head = read_text(os.path.join(git, "HEAD")).strip()
    if not head.startswith("ref: ") or os.path.isdir(os.path.join(git, "reftable")):
        return bool(head)
    branch = head.removeprefix("ref: ")
    return os.path.exists(os.path.join(git, branch)) or f" {branch}\n" in read_text(os.path.join(git, "packed-refs"))


def stands_at(worktree: str) -> dict[str, str]:
    """The revision and branch of a worktree; unknown ones are left out. git is run for unusual repositories only."""
    git = os.path.join(worktree, ".git")
    own = git if os.path.isdir(git) else os.path.join(worktree, read_text(git).removeprefix("gitdir:").strip())
    common = os.path.join(own, read_text(os.path.join(own, "commondir")).strip())
    head = read_text(os.path.join(own, "HEAD")).strip()
    name = head.removeprefix("ref: ")
    if not head or name == head:
        return {"revision": head} if head else {}
    if os.path.isdir(os.path.join(common, "reftable")):
        from pathlib import Path

        from onrecord.work.revisions import asked_of_git

        return asked_of_git(Path(worktree))
    loose = (read_text(os.path.join(folder, name)).strip() for folder in (own, common))
    revision = next(filter(None, loose), "") or _packed(common, name)
    return ({"revision": revision} if revision else {}) | {"branch": name.removeprefix("refs/heads/")}


def _packed(git: str, name: str) -> str:
    """The revision of a reference that git keeps in its one file for many, which may be long."""
    try:
        with open(
            os.path.join(git, "packed-refs"), encoding="utf-8", errors="replace", opener=_without_waiting
        ) as file:
            return next((line.partition(" ")[0] for line in file if line.rstrip("\n").endswith(f" {name}")), "")
    except OSError:
        return ""
