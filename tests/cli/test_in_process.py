"""What a test cannot cause from outside in reasonable time: slow verification, a sweep that stops half-way."""

import json

import pytest

from onrecord.errors import StoreFull
from onrecord.session.retention import Swept
from onrecord.session.session_store import SessionStore
from onrecord.surfaces.cli import main
from onrecord.surfaces.cli.upkeep import prove


@pytest.fixture
def here(working, monkeypatch):
    """The tests' own process, set up as for a command."""
    monkeypatch.chdir(working.project)
    monkeypatch.setenv("ONRECORD_STORE", working.url)
    monkeypatch.delenv("ONRECORD_SESSION", raising=False)
    return working


def test_slow_verification_tells_how_far_it_is(here, monkeypatch, capsys):
    """When verification takes long, stderr shows progress; stdout has only data."""
    monkeypatch.setattr(prove, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(prove, "_EVERY_SECONDS", 0.0)
    assert main.main(["verify"]) == 0
    told = capsys.readouterr()
    progress, covers = told.err.splitlines()
    assert progress == "events verified: 6 of 6 (100%)"
    assert covers.startswith("note: checked: ")
    assert told.out.count("\n") == 1
    assert main.main(["verify", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_sweep_that_stops_half_way_is_partial(here, monkeypatch, capsys):
    """A sweep that an error ends after some sessions reports what was done and what stopped it, and exits with 8."""

    def half(_self, _policy=None, *, dry_run=False):
        yield Swept("01", "first", "erase", "closed", 3, 300)
        if not dry_run:
            raise StoreFull("no space left")

    monkeypatch.setattr(SessionStore, "sweep", half)
    assert main.main(["sweep", "--yes", "--json"]) == 8
    data = json.loads(capsys.readouterr().out)["data"]
    assert [swept["name"] for swept in data["swept"]] == ["first"]
    assert data["stopped"] == {"kind": "store_full", "message": "no space left"}
    assert main.main(["sweep", "--yes"]) == 8
    assert "run the command again" in capsys.readouterr().err
