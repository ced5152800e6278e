"""Which project a directory belongs to. Found by reading git's files: no process is started for it."""

from __future__ import annotations

from pathlib import Path


def find_project(start: Path) -> str:
    """The root of the repository, the same for all its worktrees; outside of one, the directory itself."""
    here = start.resolve()
    for folder in (here, *here.parents):
        git = folder / ".git"
        if git.is_dir():
            return str(folder)
        if git.is_file():
            return str(_main_worktree(folder, git))
    return str(here)


def project_named(name: str) -> str:
    """The project a person means: the one of a directory, if there is such a directory; else the name itself."""
    return find_project(Path(name)) if Path(name).is_dir() else name


def _main_worktree(folder: Path, pointer: Path) -> Path:
    """A linked worktree's `.git` is a file that leads to the common directory beside the main one."""
    try:
        target = pointer.read_text(errors="replace").removeprefix("gitdir:").strip()
        own = (folder / target).resolve()
        common = (own / (own / "commondir").read_text().strip()).resolve()
    except OSError:
        return folder  # a submodule, or a worktree whose repository is gone
    return common.parent if common.name == ".git" else common
