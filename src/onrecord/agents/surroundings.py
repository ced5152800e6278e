"""The surroundings of an agent's run: the environment its commands need, and the revision of its directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.environment import PROJECT_VARIABLE, STORE_VARIABLE
from onrecord.work.project import find_worktree, project_at
from onrecord.work.revisions import revision_of

if TYPE_CHECKING:
    from onrecord.session.handle import Session

_IN_MEMORY = "memory:"


def environment_for(session: Session, cwd: str) -> dict[str, str]:
    """This process's environment, with the store and project that the agent's own commands must find."""
    env = dict(os.environ)
    if session.log.url != _IN_MEMORY:
        env[STORE_VARIABLE] = session.log.url
    if project_at(cwd).key != session.head.project:
        env[PROJECT_VARIABLE] = session.head.project
    return env


def survey(cwd: str) -> dict[str, Any]:
    """Worktree, branch and revision of a directory; empty if it is not under version control."""
    if not Path(cwd).is_dir():
        return {}
    found = revision_of(Path(cwd))
    if found is None:
        return {}
    changed = f"+{found['dirty']}" if found["dirty"] else ""
    return {
        "worktree": find_worktree(cwd), "branch": found["branch"], "revision": f"{found['revision'] or ''}{changed}",
    }  # fmt: skip
