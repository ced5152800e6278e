"""An attacker who can write the store's file wants readers to believe what no event says."""

import json

import pytest

import onrecord
from onrecord.log import digest
from onrecord.views.fold import DIGEST_BYTES, VIEWS_VERSION
from onrecord.views.listing import LISTING_VERSION
from onrecord.views.present import PRESENT_VERSION
from tests.stores import EVERY, url_of


@pytest.fixture(params=EVERY)
def session(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="/here") as records:
        made = records.open("work", objective="the truth")
        for number in range(1, 300):
            made.decide(f"number {number}")
        made.leave()
        records.entries(records.sessions())
        yield records.get("work")


def forge(session: onrecord.Session, view: str, old: str, new: str) -> None:
    """Change a kept view so that it is believed: the same hash of its event, a digest of its own."""
    kept = session.store.snapshot(session.id, view)
    assert kept is not None, "the session is long enough to have it"
    body = kept.body[DIGEST_BYTES:] if view == VIEWS_VERSION else kept.body
    changed = body.decode().replace(old, new).encode()
    assert changed != body
    json.loads(changed)
    own = digest.sha256(changed).digest() if view == VIEWS_VERSION else b""
    session.store.save(session.id, kept._replace(body=own + changed))


@pytest.mark.parametrize(
    ("view", "old", "new"),
    [
        (VIEWS_VERSION, 'number 1"', 'a lie"'),
        (PRESENT_VERSION, '"count":0', '"count":7'),
        (LISTING_VERSION, '"next":""', '"next":"a lie"'),
    ],
)  # fmt: skip
def test_a_forged_snapshot_is_found(session, view, old, new):
    """Verification derives every kept view again, also with a checkpoint: a forged one is a problem; deleting it mends it."""
    point = session.log.checkpoint()
    assert session.verify(point).ok, "the control: snapshots as they were made"
    forge(session, view, old, new)
    problems = session.verify(point).problems
    assert [problem.cause for problem in problems] == ["snapshot"], problems
    session.store.tidy() if hasattr(session.store, "tidy") else session.store._snapshots.clear()
    assert session.verify(point).ok
