"""The revision of the worktree, and what differs from it. Runs git, always with argument lists."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

from onrecord.rules import OWN_FILES

GIT_SECONDS = 10
"""The timeout of one git command."""
DIRTY_FILES_LIMIT = 20
"""How many changed files are listed by name."""
HASHED_BYTES = 8 * 1024 * 1024
"""For a larger changed file, size and modification time are hashed instead of the content."""


def revision_of(folder: Path) -> dict[str, Any] | None:
    """Revision, branch, the changed files and a hash of their content; None outside a repository."""
    top = ask_git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    root = Path(top.decode(errors="replace").strip())
    changed = changed_files(root)
    return {
        "revision": (ask_git(root, "rev-parse", "--verify", "-q", "HEAD") or b"").decode().strip() or None,
        "branch": (ask_git(root, "symbolic-ref", "-q", "--short", "HEAD") or b"").decode(errors="replace").strip()
        or None,
        "dirty": dirty_hash(root, changed),
        "changed": changed[:DIRTY_FILES_LIMIT],
        "changed_count": len(changed),
    }


def asked_of_git(folder: Path) -> dict[str, str]:
    """Only the revision and branch of a worktree, as git says; unknown ones are left out."""
    revision = (ask_git(folder, "rev-parse", "--verify", "-q", "HEAD") or b"").decode().strip()
    branch = (ask_git(folder, "symbolic-ref", "-q", "--short", "HEAD") or b"").decode(errors="replace").strip()
    return {name: value for name, value in (("revision", revision), ("branch", branch)) if value}


def content_at(root: Path, revision: str, path: str) -> bytes | None:
    """The content of a file at a revision; None if it was not there, or the revision is not known here."""
    return ask_git(root, "show", f"{revision}:{path}")


def changed_files(root: Path) -> list[str]:
    """Files that differ from the revision, new ones included, as paths below the root; without onrecord's own files."""
    listed = ask_git(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    names = [entry[3:].decode(errors="backslashreplace") for entry in (listed or b"").split(b"\0") if entry]
    return sorted(name for name in names if not name.startswith(OWN_FILES))


def dirty_hash(root: Path, changed: list[str]) -> str | None:
    """One hash over everything that differs from the revision; None if nothing does."""
    if not changed:
        return None
    whole = sha256()
    for name in changed:
        whole.update(name.encode() + b"\0")
        whole.update(_content_of(root / name))
    return whole.hexdigest()[:16]


def _content_of(file: Path) -> bytes:
    try:
        about = file.stat()
        if about.st_size > HASHED_BYTES:
            return f"{about.st_size}/{about.st_mtime_ns}".encode()
        return sha256(file.read_bytes()).digest()
    except OSError:
        return b"gone"


def ask_git(folder: Path, *question: str) -> bytes | None:
    """What git prints; None if it fails, is not there or takes too long."""
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", "--no-optional-locks", *question]
    try:
        answer = subprocess.run(command, capture_output=True, check=False, timeout=GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None
