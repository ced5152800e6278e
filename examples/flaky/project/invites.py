"""Accepting an invitation gives a role. What role, if an invitation carries two?"""

ALLOWED = {"member", "admin"}


def accept(invitation: dict[str, str]) -> str:
    """The role of the person who accepts."""
    roles = {invitation["role"], "guest"}
    return next(iter(roles))


def may_enter(role: str) -> bool:
    return role in ALLOWED
