"""The revision of the worktree, and what differs from it. Runs git, always with argument lists."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

from onrecord.machine.files import read_regular
from onrecord.rules import OWN_FILES

GIT_SECONDS = 10
"""The timeout of one git command."""
DIRTY_FILES_LIMIT = 20
"""How many changed files are listed by name."""
HASHED_BYTES = 8 * 1024 * 1024
"""For a larger changed file, size and modification time are hashed instead of the content."""

_STATUS = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames")
_FIELDS_BEFORE = {b"1": 8, b"u": 10, b"?": 1}
"""How many fields stand before the path of a changed, an unmerged and a new file."""
_NO_COMMIT, _NO_BRANCH = "(initial)", "(detached)"


def revision_of(folder: Path) -> dict[str, Any] | None:
    """Revision, branch, the changed files and a hash of their content; None outside a repository."""
    top = ask_git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    root = Path(top.decode(errors="replace").strip())
    answer = ask_git(root, *_STATUS, "--branch", "--no-ahead-behind")
    standing = asked_of_git(root) if answer is None else _standing(answer)
    changed = _changed(answer)
    return {
        "revision": standing.get("revision"),
        "branch": standing.get("branch"),
        "dirty": dirty_hash(root, changed),
        "changed": changed[:DIRTY_FILES_LIMIT],
        "changed_count": len(changed),
    }


def asked_of_git(folder: Path) -> dict[str, str]:
    """Only the revision and branch of a worktree, as git says; unknown ones are left out."""
    revision = (ask_git(folder, "rev-parse", "--verify", "-q", "HEAD") or b"").decode().strip()
    branch = (ask_git(folder, "symbolic-ref", "-q", "--short", "HEAD") or b"").decode(errors="replace").strip()
    return {name: value for name, value in (("revision", revision), ("branch", branch)) if value}


def _standing(answer: bytes) -> dict[str, str]:
    """The same, from the headers of git's status."""
    headers = [line[2:].decode(errors="replace").split(" ", 1) for line in _lines(answer) if line.startswith(b"# ")]
    names = {"branch.oid": "revision", "branch.head": "branch"}
    return {names[name]: value for name, value in headers if name in names and value not in (_NO_COMMIT, _NO_BRANCH)}


def content_at(root: Path, revision: str, path: str) -> bytes | None:
    """The content of a file at a revision; None if it was not there, or the revision is not known here."""
    return ask_git(root, "show", f"{revision}:{path}")


def changed_files(root: Path) -> list[str]:
    """Files that differ from the revision, new ones included, as paths below the root; without onrecord's own files."""
    return _changed(ask_git(root, *_STATUS))


def _changed(answer: bytes | None) -> list[str]:
    found = [line.split(b" ", _FIELDS_BEFORE[line[:1]]) for line in _lines(answer) if line[:1] in _FIELDS_BEFORE]
    names = [fields[-1].decode(errors="backslashreplace") for fields in found]
    return sorted(name for name in names if not name.startswith(OWN_FILES))


def _lines(answer: bytes | None) -> list[bytes]:
    return (answer or b"").split(b"\0")


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
        return sha256(read_regular(file)).digest()
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
