"""The repository's history since work was last recorded: the commits that the next agent must know about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.log.head import LIVE
from onrecord.rules import OWN_FILES
from onrecord.work.revisions import ask_git, revision_of

if TYPE_CHECKING:
    from onrecord.session.handle import Session

COMMITS_LIMIT = 20
"""How many commits one survey records: the newest."""
COMMIT_FILES = 5
"""How many files of a commit are named."""
SUBJECT_LIMIT = 120
"""How many characters of a commit's subject are kept."""


def record_commits(session: Session, root: Path | str) -> int | None:
    """Record where the code is and the commits made since the last such record; None if there is nothing new."""
    code = session.views.code
    if session.head.status not in LIVE:
        return None
    revision = revision_of(Path(root))
    if revision is None or not revision["revision"]:
        return None
    since, now = code.noted or code.first, revision["revision"]
    seen = code.seen
    same = seen and (seen["revision"], seen["branch"], seen["changed"]) == (
        now,
        revision["branch"],
        revision["changed"],
    )
    if same and code.noted == now:
        return None
    found = commits_between(Path(root), since, now) if since and since != now else []
    data = {"anchors": {}, "revision": revision, "commits": found, "since": since, "upto": now}
    return session.log.record("code.changed", data).position


def commits_between(root: Path, since: str, now: str) -> list[dict[str, Any]]:
    """The commits after one revision up to another, the oldest first, each with its subject and some of its files."""
    if not _is_hash(since) or not _is_hash(now):
        return []
    wanted = (f"{since}..{now}", f"--max-count={COMMITS_LIMIT}", "--no-merges", "--name-only", "--format=%x1e%H%x1f%s")
    told = ask_git(root, "log", *wanted, "--")
    commits = []
    for part in (told or b"").decode(errors="replace").split("\x1e")[1:]:
        first, _end, files = part.partition("\n")
        name, _separator, subject = first.partition("\x1f")
        named = [line for line in files.splitlines() if line and not line.startswith(OWN_FILES)][:COMMIT_FILES]
        commits.append({"revision": name, "subject": subject[:SUBJECT_LIMIT], "files": named})
    return commits[::-1]


def _is_hash(revision: str) -> bool:
    return bool(revision) and all(letter in "0123456789abcdef" for letter in revision)
