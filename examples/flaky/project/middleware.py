"""Every request passes here: is there a session, and may its role enter?"""

from invites import may_enter


def handle(request: dict[str, str]) -> int:
    """The status of the reply."""
    if "session" not in request:
        return 401
    return 200 if may_enter(request["role"]) else 403
