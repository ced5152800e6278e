"""A chapter: the verbs of a session that belong together, as in `session.attempts.start(...)`.

A chapter has no state but its session, so it is created for one call and dropped after it.
"""

from __future__ import annotations

from onrecord.errors import InvalidInput

TYPE_CHECKING = False
REASON_LIMIT = 2_000
"""How much of an exception's text is recorded as the reason of an abort, in characters."""

if TYPE_CHECKING:
    from onrecord.session.handle import Session


class Chapter:
    """What every chapter has: the session that its verbs append to."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of session {self._session.name!r}>"


def checked_text(text: object, what: str, limit: int) -> str:
    """The text, if it is not blank and short enough."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"{what} needs some text")
    if len(text) > limit:
        raise InvalidInput(
            f"{what} has {len(text):,} characters; the limit is {limit:,}",
            hint="shorten it; put the details into a file and name the file",
        )
    return text


def told(problem: BaseException) -> str:
    """What went wrong, as text that can be recorded whatever it contains."""
    if type(problem).__name__ == "CancelledError" and not (problem.args and isinstance(problem.args[0], str)):
        return "cancelled"  # asyncio's, which this layer does not know; it may carry what the call returned
    try:
        text = f"{type(problem).__name__}: {problem}" if str(problem) else repr(problem)
    except Exception:  # noqa: BLE001  # some errors fail to say what they are
        text = type(problem).__name__
    return text.encode("utf-8", "backslashreplace").decode()[:REASON_LIMIT]
