"""Evidence for tests that are about something else: findings cite only what is on record."""

from onrecord.session.handle import Session


def cite(session: Session, *ids: str) -> list[str]:
    """The ids, each of them on record as an asserted log."""
    for id in ids:
        if session.evidence.get(id) is None:
            session.evidence.record("log", id=id, reference=f"{id}.log")
    return list(ids)
