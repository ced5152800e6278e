"""NOTE.md: the session's note as a file. It is written only over this session's own note, and never read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.errors import Conflict
from onrecord.views.note_forms import headed
from onrecord.workspace.files import content_of, refuse_link, write

if TYPE_CHECKING:
    from pathlib import Path

    from onrecord.session.handle import Session

_HEAD = "<!-- onrecord:note session="


def refresh_note(session: Session, path: Path, *, create: bool = False) -> Path | None:
    """Render NOTE.md again if it is this session's; with `create`, also if this session has none yet."""
    refuse_link(path)
    there = content_of(path)
    ours = there is not None and there.startswith(f"{_HEAD}{session.id} ".encode())
    if there is not None and not there.startswith(_HEAD.encode()):
        if not create:
            return None
        raise Conflict(
            f"{path} is not a file of onrecord; it was not changed", hint="write another file", step="note_out"
        )
    if not create and not ours and (there is not None or session.views.phases.profile is None):
        return None
    write(path, headed(session.views, session.note()).encode())
    return path
