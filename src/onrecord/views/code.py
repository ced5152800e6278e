"""Code: which revision and branch the work was last seen on, what differed from it, and the commits on record.

Every event that carries a revision moves it. Commits are recorded with `code.changed`, so that an agent on a machine
without this repository's history reads them too.
"""

from __future__ import annotations

from onrecord.views.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, ClassVar

    from onrecord.log.events import Event
    from onrecord.views.values import CodeState, RecordedCommit

COMMITS_KEPT = 40
"""How many commits the view remembers: the newest; the log has them all."""
FILES_KEPT = 60
"""How many changed files the view remembers: the newest."""
SHORT_REVISION = 10
"""How many characters of a revision are shown."""


class Code(View):
    """The last revision on record, and the commits that were made during the work."""

    KINDS: ClassVar = frozenset(
        {"code.changed", "attempt.started", "attempt.settled", "evidence.recorded", "agent.located"}
    )

    def __init__(self) -> None:
        self.seen: CodeState | None = None
        self.first: str | None = None
        """The revision that was seen first."""
        self.noted: str | None = None
        """The revision up to which commits are on record."""
        self.commits: list[RecordedCommit] = []
        self.count = 0
        """How many commits are on record."""
        self.files: list[str] = []
        """Files that were seen changed or are part of a commit, the newest last; also those never committed."""

    def apply(self, event: Event) -> None:
        data: Any = event.data or {}
        revision = data.get("revision_after") or data.get("revision")
        if isinstance(revision, str):  # an agent's location
            name, _plus, dirty = revision.partition("+")
            revision = {"revision": name, "branch": data.get("branch"), "dirty": dirty or self._known_dirty(name)}
        if isinstance(revision, dict) and revision.get("revision"):
            self._see(revision, event.position)
        if event.kind == "code.changed" and "commits" in data:
            self.noted = data.get("upto") or self.noted
            known = {one["revision"] for one in self.commits}
            new = [one | {"position": event.position} for one in data["commits"] if one["revision"] not in known]
            self.count += len(new)
            self.commits = [*self.commits, *new][-COMMITS_KEPT:]
            for one in new:
                self._touch(one.get("files") or ())

    def _known_dirty(self, revision: str) -> bool:
        """Whether files differed when last looked at: a hook records only the revision."""
        return self.seen is not None and self.seen["dirty"] and self.seen["revision"] == revision

    def _see(self, revision: dict[str, Any], position: int) -> None:
        before = self.seen
        dirty = revision.get("dirty")
        changed = revision.get("changed")
        if changed is None:
            # Not every event lists the files; the last list still holds as long as something differs.
            changed = before["changed"] if before and dirty and before["revision"] == revision["revision"] else []
        self.first = self.first or revision["revision"]
        self._touch(changed)
        self.seen = {
            "revision": revision["revision"], "branch": revision.get("branch") or (before and before["branch"]),
            "dirty": bool(dirty), "changed": list(changed), "position": position,
        }  # fmt: skip

    def _touch(self, names: Iterable[str]) -> None:
        new = list(names)
        self.files = [*(name for name in self.files if name not in new), *new][-FILES_KEPT:]


def code_line(code: Code) -> str:
    """Branch, revision and what differs from it, in one line; empty if no revision is on record."""
    seen = code.seen
    if seen is None:
        return ""
    where = f"branch {seen['branch']} at " if seen["branch"] else "revision "
    changed = seen["changed"]
    differs = f"; not committed: {', '.join(changed)}" if changed else "; with changes" if seen["dirty"] else ""
    return f"{where}{seen['revision'][:SHORT_REVISION]} (position {seen['position']}){differs}"


def code_lines(code: Code) -> list[str]:
    """Where the code is, and which files were changed during the work."""
    elsewhere = [name for name in code.files if not code.seen or name not in code.seen["changed"]]
    lines = [code_line(code), f"files changed so far: {', '.join(elsewhere)}" if elsewhere else ""]
    return [line for line in lines if line]


def commit_lines(code: Code) -> list[str]:
    """The commits on record, the oldest first: revision, subject and files."""
    return [
        f"{one['revision'][:SHORT_REVISION]} {one['subject']}"
        + (f" ({', '.join(one['files'])})" if one.get("files") else "")
        for one in code.commits
    ]
