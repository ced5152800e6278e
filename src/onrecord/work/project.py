"""Which project a directory belongs to. Found by reading git's files: no process is started for it.

Every command asks this, so it does without pathlib, which costs more than all of the asking.
"""

from __future__ import annotations

import os


def find_project(start: str) -> str:
    """The root of the repository, the same for all its worktrees; outside of one, the directory itself."""
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
    """The top of the worktree a directory is in, where its files are; outside of one, the directory itself."""
    here = os.path.realpath(start)
    folder = here
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return here
        folder = above
    return folder


def worktree_for(project: str, start: str) -> str:
    """Where a project's files are for somebody who stands in `start`: there, if it is one of its worktrees."""
    if find_project(start) != project and os.path.isdir(project):
        return find_worktree(project)
    return find_worktree(start)


def project_named(name: str) -> str:
    """The project a person means: the one of a directory, if there is such a directory; else the name itself."""
    return find_project(name) if os.path.isdir(name) else name


def _main_worktree(folder: str, pointer: str) -> str:
    """A linked worktree's `.git` is a file that leads to the common directory beside the main one."""
    try:
        own = os.path.realpath(os.path.join(folder, _read(pointer).removeprefix("gitdir:").strip()))
        common = os.path.realpath(os.path.join(own, _read(os.path.join(own, "commondir")).strip()))
    except OSError:
        return folder  # a submodule, or a worktree whose repository is gone
    return os.path.dirname(common) if os.path.basename(common) == ".git" else common


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
