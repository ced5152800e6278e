"""Which project a directory belongs to. Reads git's files and starts no process.

Every command needs this, so it avoids pathlib: importing that costs more than the search.
"""

from __future__ import annotations

import os


def find_project(start: str) -> str:
    """The root of the repository, the same for all its worktrees; outside a repository, the directory itself."""
    here = os.path.realpath(start)
    folder = here
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return folder
        if os.path.isfile(git):
            return _main_worktree(folder, git)
        above = os.path.dirname(folder)
        if above == folder:
            return here
        folder = above


def find_worktree(start: str) -> str:
    """The top of the worktree that contains a directory; outside a worktree, the directory itself."""
    here = os.path.realpath(start)
    folder = here
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return here
        folder = above
    return folder


def worktree_for(project: str, start: str) -> str:
    """The worktree of a project to use from `start`: the one around `start` if it belongs to the project."""
    if find_project(start) != project and os.path.isdir(project):
        return find_worktree(project)
    return find_worktree(start)


def project_named(name: str) -> str:
    """The project of a directory, if there is a directory with this name; if not, the name itself."""
    return find_project(name) if os.path.isdir(name) else name


def stands_at(worktree: str) -> dict[str, str]:
    """The revision and branch of a worktree; unknown ones are left out. git is run for unusual repositories only."""
    git = os.path.join(worktree, ".git")
    try:
        own = git if os.path.isdir(git) else os.path.join(worktree, _read(git).removeprefix("gitdir:").strip())
        shared = os.path.join(own, "commondir")
        common = os.path.join(own, _read(shared).strip()) if os.path.isfile(shared) else own
        head = _read(os.path.join(own, "HEAD")).strip()
    except OSError:
        return {}
    name = head.removeprefix("ref: ")
    if name == head:
        return {"revision": head}
    if name == "refs/heads/.invalid":  # its references are in a table of git's own
        from pathlib import Path

        from onrecord.work.revisions import asked_of_git

        return asked_of_git(Path(worktree))
    revision = _reference(own, name) or _reference(common, name) or _packed_reference(common, name)
    branch = name.removeprefix("refs/heads/")
    return ({"revision": revision} if revision else {}) | {"branch": branch}


def _reference(folder: str, name: str) -> str:
    try:
        return _read(os.path.join(folder, name)).strip()
    except OSError:
        return ""


def _packed_reference(folder: str, name: str) -> str:
    try:
        lines = _read(os.path.join(folder, "packed-refs")).splitlines()
    except OSError:
        return ""
    return next((line[: -len(name) - 1] for line in lines if line.endswith(f" {name}")), "")


def _main_worktree(folder: str, pointer: str) -> str:
    """The main worktree. A linked worktree's `.git` is a file that points to the common directory beside it."""
    try:
        own = os.path.realpath(os.path.join(folder, _read(pointer).removeprefix("gitdir:").strip()))
        common = os.path.realpath(os.path.join(own, _read(os.path.join(own, "commondir")).strip()))
    except OSError:
        return folder  # a submodule, or a worktree without its repository
    return os.path.dirname(common) if os.path.basename(common) == ".git" else common


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
