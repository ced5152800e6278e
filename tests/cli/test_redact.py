"""`onrecord redact`: secrets in old logs are found and erased, everywhere the record keeps text."""

import json
from pathlib import Path

import pytest

import onrecord
from onrecord.session.funnel import Rules, configure
from onrecord.surfaces.cli import main

TOKEN = "ghp_" + "a1B2c3" * 6


@pytest.fixture
def leaky(working):
    """A session whose log got a secret while the policy was `keep`: in a turn, a fact, a large output."""
    store = Path(working.environment["ONRECORD_STORE"])
    with onrecord.connect(str(store), project="") as records:
        configure(records.store, lambda: Rules("keep"))
        head = records.sessions(project="", limit=1)[0]
        session = records.get(head.session)
        session.facts.set_next_action(f"export TOKEN={TOKEN}")
        session.record_turn([{"role": "user", "content": f"my key is {TOKEN}"}])
        session.log.record("payload.kept", {"text": f"{TOKEN} " + "output " * 20_000})
        session.decide("nothing secret")
        session.refresh()
        session._snapshot_at = -1_000_000  # a snapshot of the views, as a long session has one
        session._keep_snapshot()
        assert records.search(TOKEN, project="")
        session.leave()
    working.session = head.name
    return working


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_dry_run_names_rule_and_place_and_changes_nothing(leaky):
    """Every event with a secret is listed with its position, rule, place and count; the value is not printed."""
    before = json.loads(leaky.ok("show", leaky.session, "--json"))["data"]
    data = leaky.data("redact", leaky.session, "--dry-run", kind="redaction")
    assert [(row["kind"], row["rule"]) for row in data["found"]] == [
        ("next_action.set", "github-token"), ("turn.recorded", "github-token"), ("payload.kept", "github-token"),
    ]  # fmt: skip
    assert data["found"][1]["place"] == "items[0].content"
    assert (data["erased"], data["recorded_at"]) == (0, None)
    shown = leaky.run("redact", leaky.session, "--dry-run")
    assert TOKEN not in shown.out + shown.err
    assert "nothing was changed" in shown.err
    assert json.loads(leaky.ok("show", leaky.session, "--json"))["data"]["position"] == before["position"]


def test_it_erases_the_secret_from_every_file(leaky):
    """Log, large payloads, search, snapshots, write-ahead log: no file has it, and the chain verifies."""
    store = Path(leaky.environment["ONRECORD_STORE"])
    leaky.ok("search", "nothing")
    assert TOKEN.encode() in bytes_of(store.parent), "the control: it was there"
    leaky.error("redact", leaky.session, code=2, kind="usage")
    data = leaky.data("redact", leaky.session, "--yes", kind="redaction")
    assert data["erased"] == 3
    assert TOKEN.encode() not in bytes_of(store.parent)
    assert "verified" in leaky.ok("verify", leaky.session)
    assert "nothing secret" in leaky.ok("log", leaky.session)
    assert leaky.data("redact", leaky.session, "--yes", kind="redaction")["found"] == []


def test_a_held_session_is_not_touched(leaky):
    """A hold protects against this erasure like against any other."""
    leaky.ok("hold", leaky.session, "--reason", "audit")
    leaky.error("redact", leaky.session, "--yes", code=10, kind="session_held")


def test_state_md_and_note_md_are_rendered_without_it(tmp_path, monkeypatch):
    """The files that the record renders into a worktree have the secret before, and not afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONRECORD_STORE", str(tmp_path / "kept" / "store.db"))
    monkeypatch.setenv("ONRECORD_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text('[secrets]\npolicy = "keep"\n')
    assert main.main(["open", "old", "--profile", "research"]) == 0
    assert main.main(["next", f"export TOKEN={TOKEN}", "--session", "old"]) == 0
    with onrecord.connect() as records:
        records.get("old").phases.write_section("Learnings", f"it prints {TOKEN}")
    assert main.main(["state-file", "sync", "--session", "old"]) == 0
    files = [tmp_path / "STATE.md", tmp_path / ".onrecord" / "NOTE.md"]
    assert [TOKEN in path.read_text() for path in files] == [True, True]
    (tmp_path / "config.toml").unlink()
    assert main.main(["redact", "old", "--yes"]) == 0
    assert [TOKEN in path.read_text() for path in files] == [False, False]
    assert TOKEN.encode() not in bytes_of(tmp_path)
