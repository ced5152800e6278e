"""Controls: each attack again with its defence switched off. It works, so the tests of the defence show something."""

import shutil
import sys
import tracemalloc

import pytest

import onrecord
from onrecord.log import codec, tip
from onrecord.log.verify import Verifier
from onrecord.session import bundle, handle, unpacking
from onrecord.session.derived import Rederived
from onrecord.stores.sqlite import safety
from onrecord.stores.sqlite.writer import Writer
from onrecord.surfaces.cli.sessions.bundles import BundleFile
from onrecord.views import fold
from onrecord.views.fold import VIEWS_VERSION
from onrecord.work.capturing import capture_run
from onrecord.workspace import files
from tests.security.conftest import packed
from tests.security.test_calling_a_sound_log_damaged import erase_behind
from tests.security.test_deceiving_a_reader import forge
from tests.security.test_exhausting_an_import import rewritten, second
from tests.security.test_writing_twice import in_child

TOKEN = "ghp_" + "a1B2c3" * 6


def nothing(*_arguments: object, **_names: object) -> None:
    """A defence that does nothing."""


@pytest.fixture
def records(tmp_path):
    with onrecord.connect(f"sqlite:///{tmp_path}/here.db", project="/here") as found:
        yield found


def test_control_a_float_as_cause_breaks_a_log_for_good(records, monkeypatch):
    """Without the check of headers, `because=1.0` is acknowledged, and the log never verifies again."""
    monkeypatch.setattr(tip, "check_header", nothing)
    session = records.create("work")
    session.log.append(session.log.draft("note.kept", {"text": "x"})._replace(because=1.0))
    assert [problem.cause for problem in session.verify().problems] == ["chain"]


def test_control_an_erasure_behind_a_reader_looks_like_damage(records, monkeypatch):
    """A verification that does not read on to the erasure calls a sound log damaged."""
    session = records.create("work")
    for number in range(6):
        session.decide(f"number {number}")
    monkeypatch.setattr(Verifier, "unexplained", lambda _verifier: False)
    erase_behind(session, monkeypatch)
    assert [problem.cause for problem in session.verify().problems] == ["missing"]


def test_control_a_forged_snapshot_is_believed(records, monkeypatch):
    """A verification that derives nothing again finds nothing, and every reader gets the lie."""
    session = records.open("work", objective="the truth")
    for number in range(1, 300):
        session.decide(f"number {number}")
    forge(session, VIEWS_VERSION, 'number 1"', 'a lie"')
    monkeypatch.setattr(Rederived, "feed", nothing)
    assert session.verify().ok
    assert onrecord.Session(session.store, session.id).views.facts.decisions[0]["text"] == "a lie"


def test_control_a_moment_of_no_calendar_is_imported(records, elsewhere, monkeypatch):
    """Without the range of a header, a bundle with a moment after the year 9999 is written."""
    session = elsewhere.create("gift")
    session.log.record("note.kept", {"text": "x"})
    monkeypatch.setattr(codec, "AT_LIMIT", 2**62)
    monkeypatch.setattr(unpacking, "AT_LIMIT", 2**62, raising=False)
    bundle.take_in(records, rewritten(list(bundle.lines_of(session)), second(at=10**18)))
    assert [head.at for head in records.sessions(project="")] == [10**18]


def test_control_a_forked_child_commits_its_parents_turn(records, monkeypatch):
    """Without the question whose lease it is, a child writes into the turn of its parent."""
    monkeypatch.setattr(handle, "refuse_inherited", nothing)
    session = records.open("work")
    turn = session.turn(request="x")
    assert in_child(lambda: turn.add({"role": "assistant", "content": "from the child"})) != "LeaseLost"


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_control_appends_vanish_with_a_store_that_is_gone(tmp_path, monkeypatch, how):
    """Without a look at the file, appends to a deleted store are acknowledged, and are nowhere afterwards."""
    monkeypatch.setattr(Writer, "_identity", lambda _writer: (0, 0))
    path = tmp_path / "gone" / "here.db"
    with onrecord.connect(f"sqlite:///{path}") as records:
        session = records.open("work")
        path.unlink() if how == "deleted" else shutil.move(path, tmp_path / "there.db")
        assert session.decide("acknowledged").position > 1
    with onrecord.connect(f"sqlite:///{path}") as records:
        assert records.sessions(project="") == []


def test_control_a_value_of_another_type_makes_a_note_raise(records, monkeypatch):
    """Where neither the door nor the folds look at types, a text in place of a moment stops every note."""
    monkeypatch.setattr(codec, "SHAPES", {})
    monkeypatch.setattr(fold, "misfit", lambda *_event: "")
    session = records.create("work")
    session._record("objective.set", {"text": {"not": "text"}})
    with pytest.raises((TypeError, AttributeError)):
        onrecord.Session(session.store, session.id).note()


def test_control_a_bomb_that_is_read_at_once_fills_the_memory(tmp_path):
    """The same file, unpacked as a whole: more than the memory that an import may take."""
    bomb = packed(["x" * 1_000_000 + "\n"] * 200, tmp_path / "bomb.onrecord")
    assert bomb.stat().st_size < 100_000
    tracemalloc.start()
    try:
        assert len(list(BundleFile(bomb))) == 200
        assert tracemalloc.get_traced_memory()[1] > 40_000_000
    finally:
        tracemalloc.stop()


def test_control_a_dangling_link_decides_where_a_store_is_made(tmp_path, monkeypatch):
    """Without the question whose link it is, a store is made where the link leads."""
    monkeypatch.setattr(safety, "refuse_planted", nothing)
    (tmp_path / "store.db").symlink_to(tmp_path / "made-by-a-link.db")
    onrecord.connect(str(tmp_path / "store.db")).close()
    assert (tmp_path / "made-by-a-link.db").exists()


def test_control_a_linked_folder_moves_the_note_outside(tmp_path):
    """A writer that follows the link writes outside of the repository."""
    outside, root = tmp_path / "outside", tmp_path / "repository"
    outside.mkdir()
    root.mkdir()
    (root / files.FOLDER).symlink_to(outside)
    files.write(root / files.FOLDER / "NOTE.md", b"x")
    assert (outside / "NOTE.md").exists()


def test_control_a_lane_stays_with_a_store_that_was_not_closed(tmp_path):
    """What `close` releases is held until then: another handle is refused."""
    url = f"sqlite:///{tmp_path}/here.db"
    with onrecord.connect(url) as records, onrecord.connect(url) as other:
        records.open("work")
        assert [lease.lane for lease in other.leases(other.find("work").session)] == ["main"]


@pytest.mark.parametrize("policy", ["redact", "keep"])
def test_a_secret_in_two_writes_of_a_command_is_replaced(tmp_path, monkeypatch, policy):
    """What a command prints is looked at as a whole, however it arrives; under `keep`, the control, the store has it."""
    monkeypatch.setenv("ONRECORD_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text(f'[secrets]\npolicy = "{policy}"\n')
    halves = f"sys.stdout.write('{TOKEN[:20]}'); sys.stdout.flush(); time.sleep(0.2); print('{TOKEN[20:]}')"
    (tmp_path / "say.py").write_text(f"import sys, time; {halves}")
    with onrecord.connect(str(tmp_path / "kept" / "here.db"), project="/here") as store:
        session = store.open("work")
        capture_run(session, [sys.executable, "say.py"], root=tmp_path, cwd=tmp_path)
    found = [TOKEN.encode() in path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert any(found) is (policy == "keep")
