"""Which revision the worktree stands at, and what differs from it. Asks git, which is always given argument lists."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

GIT_SECONDS = 10
"""How long one question to git may take."""
DIRTY_FILES_LIMIT = 200
"""How many changed files are listed by name."""


def revision_of(folder: Path) -> dict[str, Any] | None:
    """Revision, branch, the changed files and a hash of their content; None outside of a repository."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    root = Path(top.decode(errors="replace").strip())
    changed = changed_files(root)
    return {
        "revision": (_git(root, "rev-parse", "--verify", "-q", "HEAD") or b"").decode().strip() or None,
        "branch": (_git(root, "symbolic-ref", "-q", "--short", "HEAD") or b"").decode(errors="replace").strip() or None,
        "dirty": dirty_hash(root, changed),
        "changed": changed[:DIRTY_FILES_LIMIT],
    }


def changed_files(root: Path) -> list[str]:
    """Files that differ from the revision, new ones included, as paths below the root."""
    told = _git(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    return sorted(entry[3:].decode(errors="surrogateescape") for entry in (told or b"").split(b"\0") if entry)


def dirty_hash(root: Path, changed: list[str]) -> str | None:
    """One hash over what differs from the revision; None when nothing does."""
    if not changed:
        return None
    whole = sha256()
    for name in changed:
        whole.update(name.encode(errors="surrogateescape") + b"\0")
        try:
            whole.update(sha256((root / name).read_bytes()).digest())
        except OSError:
            whole.update(b"gone")
    return whole.hexdigest()[:16]


def _git(folder: Path, *question: str) -> bytes | None:
    command = ["git", "-C", str(folder), "--no-optional-locks", *question]
    try:
        answer = subprocess.run(command, capture_output=True, check=False, timeout=GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None
