"""Git's own list of files that it ignores: STATE.md is on it, so that no `git add --all` publishes a session.

The list is `info/exclude` in git's directory. It is no part of the repository: a clone does not have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.machine.files import write_file
from onrecord.workspace.files import content_of, refuse_link

if TYPE_CHECKING:
    from pathlib import Path

EXCLUDE_MODE = 0o644
"""Of a new list: every user of the repository must be able to read it."""
STATE = b"/STATE.md"
LINES = b"""# STATE.md of onrecord stays on this machine. To share it: git add --force STATE.md
# To see it in git again, put a # before each of these lines; onrecord leaves them so.
/STATE.md
/STATE.[0-9]*.md
/STATE.kept-[0-9]*.md
"""
"""What is added to the list. The last two are the copies of a file that was replaced."""


def ignore_state(git: Path) -> None:
    """Add STATE.md to the list, unless it names the file already; a line that a person commented out stays so."""
    path = git / "info" / "exclude"
    if not (git / "HEAD").is_file():
        return  # no repository, whatever a file beside STATE.md says
    refuse_link(path.parent)
    refuse_link(path)
    there = content_of(path)
    if there is not None and STATE in there:
        return
    path.parent.mkdir(exist_ok=True)
    before = there + b"\n" * (not there.endswith(b"\n")) if there else b""
    mode = EXCLUDE_MODE if there is None else path.stat().st_mode & 0o777
    write_file(path, [before + LINES], exact_mode=mode)
