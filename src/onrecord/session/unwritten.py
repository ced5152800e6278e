"""The end of the log, for a session without a note; a session with a note pays nothing for it."""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING
from onrecord.views.note import is_unwritten

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.views.happenings import Recent


def unwritten(session: Session) -> Recent | None:
    """The newest turns and tools, if nothing on record helps a reader; None if something does."""
    if not is_unwritten(session._whole):
        return None
    from onrecord.session.reading import recent

    return recent(session)
