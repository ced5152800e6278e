"""An attacker who can write the store's file wants readers to believe what no event says."""

import json

import pytest

import onrecord
from onrecord.log.verify import COVERS, LEAVES_OUT
from onrecord.surfaces.cli.main import main
from onrecord.views.fold import VIEWS_VERSION, Whole
from onrecord.views.listing import LISTING_VERSION
from onrecord.views.present import PRESENT_VERSION
from onrecord.views.snapshot import Parts, joined
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


def forge(session: onrecord.Session, view: str, old: str, new: str, *, damaged: str = "") -> None:
    """Change a kept view so that it is believed: the same hash of its event, hashes of its own."""
    kept = session.store.snapshot(session.id, view)
    assert kept is not None, "the session is long enough to have it"
    parts = {"": kept.body}
    if view == VIEWS_VERSION:
        found = Parts(kept.body)
        parts = {name: found.raw(name) for name in Whole.VIEWS} | {"": json.dumps(found.about).encode()}
    changed = {name: body.decode().replace(old, new).encode() for name, body in parts.items()}
    assert changed != parts
    assert all(json.loads(line) is not None for body in changed.values() for line in body.splitlines())
    whole = changed.pop("")
    if view == VIEWS_VERSION:
        whole = joined(json.loads(whole), changed)
        if damaged:
            at = whole.rindex(changed[damaged])
            whole = whole[:at] + b"[" + whole[at + 1 :]
    session.store.save(session.id, kept._replace(body=whole))


@pytest.mark.parametrize(
    ("view", "old", "new"),
    [
        (VIEWS_VERSION, 'number 1"', 'a lie"'),
        (VIEWS_VERSION, '"status": "open"', '"status": "closed"'),
        (VIEWS_VERSION, '"misfits": []', '"misfits": [3]'),
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


def test_a_damaged_part_hides_no_forged_one(session):
    """A damaged view is derived from the log and deceives no reader; a forged one beside it is a problem all the same."""
    forge(session, VIEWS_VERSION, 'number 1"', 'a lie"', damaged="attempts")
    assert [problem.cause for problem in session.verify().problems] == ["snapshot"]


def test_a_damaged_part_is_no_problem_and_deceives_no_reader(session):
    """A snapshot with one damaged view is used for the others; what it says is what the log says."""
    kept = session.store.snapshot(session.id, VIEWS_VERSION)
    part = Parts(kept.body).raw("facts")
    at = kept.body.rindex(part)
    session.store.save(session.id, kept._replace(body=kept.body[:at] + b"[" + kept.body[at + 1 :]))
    read = onrecord.Session(session.store, session.id).views
    assert [one["text"] for one in read.facts.decisions] == [f"number {number}" for number in range(1, 300)]
    assert session.verify().ok


def test_verify_says_what_it_covers(tmp_path, monkeypatch, capsys):
    """The report lists what was derived again and what was not; a changed name is not found, as it says: the control."""
    import apsw

    for name in ("ONRECORD_STORE", "ONRECORD_CONFIG", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with onrecord.connect() as records:
        records.create("work")
    main(["verify", "--all"])
    assert "Not checked: the search index, the name and project" in capsys.readouterr().err
    for change, ok in (("name = 'other'", True), ("title = 'a lie'", False)):
        apsw.Connection(str(tmp_path / "ONRECORD_STORE")).execute(f"UPDATE sessions SET {change}")
        assert (main(["verify", "--all", "--json"]) == 0) is ok
        told = json.loads(capsys.readouterr().out)["data"]
        assert told["covers"] == list(COVERS)
        assert told["leaves_out"] == list(LEAVES_OUT)
