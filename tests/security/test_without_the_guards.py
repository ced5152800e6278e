"""Controls: attacks on what runs, waits, listens and names files, each again with its defence switched off. It works."""

import asyncio
import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("starlette")

import psycopg
from starlette.datastructures import Headers

import onrecord
from onrecord.agents.resuming import plan_here
from onrecord.errors import DamagedLog
from onrecord.log.verify import Verifier
from onrecord.machine import files as machine_files
from onrecord.machine import receiving
from onrecord.rollout.server import guard as guarding
from onrecord.rollout.server.guard import Guard
from onrecord.rollout.server.settings import Settings
from onrecord.session import bundle, effects
from onrecord.session.log_access import LogVerbs
from onrecord.stores.sqlite import SQLiteStore, safety
from onrecord.surfaces.cli.shared import tokens
from onrecord.vendors.base import Base
from onrecord.vendors.known import load
from onrecord.vendors.transcripts import Location
from onrecord.work.capturing import recheck
from tests.security.test_calling_a_sound_log_damaged import erase_behind
from tests.security.test_naming_another_tenant import CONTENT, Town, counts
from tests.security.test_running_commands import hostile, supervise, touching
from tests.security.test_using_the_proxy import HALVES, HOST, left_open, port
from tests.security.test_without_the_defence import nothing

__all__ = ["port"]


@pytest.fixture
def records(tmp_path):
    with onrecord.connect(f"sqlite:///{tmp_path}/here.db", project="/here") as found:
        yield found


@pytest.fixture
def believed(monkeypatch):
    """No log remembers that it came from elsewhere."""
    monkeypatch.setattr(LogVerbs, "arrived", lambda _log: 0)


@pytest.mark.usefixtures("believed")
def test_control_a_team_of_a_bundle_runs_its_command(records, elsewhere, tmp_path, monkeypatch):
    """Without the origin of a log, the supervisor starts what an imported team names."""
    monkeypatch.chdir(tmp_path)
    mark, gift = tmp_path / "ran", elsewhere.create("gift")
    gift._record("team.formed", hostile(touching(mark), str(tmp_path)))
    session = bundle.take_in(records, bundle.lines_of(gift))
    monkeypatch.setenv("ONRECORD_STORE", str(tmp_path / "here.db"))
    supervise(records.get(session.id, agent="crew"))
    assert mark.exists()


@pytest.mark.usefixtures("believed")
def test_control_an_imported_finding_runs_its_command(records, elsewhere, tmp_path):
    """Without the origin of a log, a recheck runs what the bundle says, and no person sees it before."""
    mark, gift = tmp_path / "ran", elsewhere.create("gift")
    gift.evidence.record("run", id="e1", captured=True, argv=touching(mark), cwd=".", exit_code=0, output="")
    gift.findings.state("it works", label="verified", evidence=["e1"])
    session = bundle.take_in(records, bundle.lines_of(gift))
    recheck(session, next(iter(gift.views.findings.findings)), root=tmp_path)
    assert mark.exists()


@pytest.mark.usefixtures("believed")
def test_control_an_imported_agent_brings_its_directory(records, elsewhere, tmp_path):
    """Without the origin of a log, an agent is resumed in the directory and with the arguments that a bundle names."""
    about = {"vendor": "claude", "vendor_id": "3f0e4c5a-0000-4000-8000-000000000001", "cwd": str(tmp_path)}
    gift = elsewhere.create("gift")
    process = {"host": os.uname().nodename, "pid": 1}
    gift._record("agent.joined", {"process": process, "vendor": "claude", "arguments": ["--mcp-config", "evil.json"]})
    gift._record("agent.located", about | {"home": str(tmp_path), "transcript": str(tmp_path / "x.jsonl")})
    session = bundle.take_in(records, bundle.lines_of(gift))
    planned = plan_here(session, next(iter(session.views.roster.agents)))
    assert (planned.cwd, planned.arguments_on) == (str(tmp_path), "")


def test_control_an_effect_runs_twice(records, monkeypatch):
    """Without the question whether it runs, `rerun_unknown` runs an effect beside itself."""
    monkeypatch.setattr(effects, "_refuse_running", nothing)
    session, begun, over, ran = records.open("work"), threading.Event(), threading.Event(), []

    def slow() -> str:
        ran.append("first")
        begun.set()
        over.wait(90)
        return "done"

    def first() -> None:
        with pytest.raises(onrecord.OnrecordError):  # settled by the second run
            session.once("pay", slow)

    running = threading.Thread(target=first)
    running.start()
    assert begun.wait(90)
    session.once("pay", lambda: ran.append("again"), rerun_unknown=True)
    over.set()
    running.join()
    assert ran == ["first", "again"]


def test_control_an_erasure_behind_a_reader_stops_its_export_and_its_copy(records, monkeypatch):
    """Without reading on to the erasure, export and copy call a sound log damaged."""
    session = records.create("work")
    for number in range(6):
        session.decide(f"number {number}")
    monkeypatch.setattr(Verifier, "unexplained", lambda _verifier: False)
    erase_behind(session, monkeypatch)
    with pytest.raises(DamagedLog):
        list(bundle.lines_of(session))
    erase_behind(session, monkeypatch, times=2)
    with onrecord.connect("memory:") as there, pytest.raises(DamagedLog):
        records.copy("work", there)


def test_control_any_page_may_use_the_proxy(monkeypatch):
    """Without the comparison of origins and without the list of forms, pages and forms of other programs pass."""
    guard = Guard(app=None, settings=Settings("http://127.0.0.1:1"))  # type: ignore[arg-type]  # it is not called
    monkeypatch.setattr(Guard, "_is_own", lambda *_page: True)
    monkeypatch.setattr(guarding, "FORM_TYPES", ())
    for origin in ("http://127.0.0.1:9999", "http://evil.example", "null"):
        headers = Headers({"host": HOST, "origin": origin, "content-type": "text/plain"})
        assert guard.refusal(headers, "POST") is None


def test_control_half_open_requests_stay(port, monkeypatch):
    """Without the limit of slow requests, every client that never finishes one stays connected."""
    monkeypatch.setattr(receiving, "SLOW_LIMIT", 1_000)
    monkeypatch.setattr(receiving, "REQUEST_SECONDS", 600.0)
    assert asyncio.run(left_open(port, HALVES["half a header"], 40, 40)) == 40


def test_control_a_short_and_open_token_file_is_taken(tmp_path, monkeypatch):
    """Without the two checks, a token of one letter that all may read guards the proxy."""
    token = tmp_path / "token"
    token.write_text("x")
    token.chmod(0o644)
    monkeypatch.setattr(tokens, "_OTHERS", 0)
    monkeypatch.setattr(tokens, "TOKEN_CHARACTERS", 1)
    assert tokens.read_token(token) == "x"


def test_control_what_killed_processes_left_stays(tmp_path, monkeypatch):
    """Where every process counts as alive, the parts of files that killed ones left are there for ever."""
    left = tmp_path / ".note.part-999999999"
    left.touch()
    monkeypatch.setattr(machine_files, "started", lambda _process: 1.0)
    machine_files.write_file(tmp_path / "note", [b"x"])
    assert left.exists()


def test_control_an_id_becomes_a_path(tmp_path, monkeypatch):
    """Without the form of ids, a conversation is written where its id leads: outside of the vendor's folder."""
    of, home = load("claude"), tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(Base, "is_id", lambda *_id: True)
    where = Location("../../../../taken", "", "", str(tmp_path))
    placed = of.put_back(where, iter(['{"type":"user"}']), {"HOME": str(home)}, str(tmp_path))
    assert not Path(os.path.realpath(placed.path)).is_relative_to(home / ".claude"), placed


def test_control_a_foreign_file_is_closed_to_others(tmp_path, monkeypatch):
    """A store that tightens modes before it knows what it opens changes those of any file."""
    text, check = tmp_path / "notes.txt", safety.check
    text.write_text("my notes\n" * 100)
    text.chmod(0o644)

    def hasty(path: str) -> bool:
        made = check(path)
        safety.tighten(path)
        return made

    monkeypatch.setattr(safety, "check", hasty)
    with pytest.raises(onrecord.OnrecordError):
        SQLiteStore(str(text))
    assert text.stat().st_mode & 0o777 == 0o600


def test_control_a_planted_link_is_followed(tmp_path, monkeypatch):
    """Without the question whose link it is, the store that a link of another user leads to is opened and tightened."""
    target, link = tmp_path / "target.db", tmp_path / "store.db"
    SQLiteStore(str(target)).close()
    target.chmod(0o644)
    link.symlink_to(target)
    monkeypatch.setattr(safety, "refuse_planted", nothing)
    SQLiteStore(str(link)).close()
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(120)
def test_control_without_row_security_a_login_reads_another_tenant(postgres):
    """Where the owner switches the policies off, naming the victim in the setting shows its rows."""
    town = Town(postgres)
    try:
        assert counts(town, "mallory") == [0] * len(CONTENT)
        with closing(psycopg.connect(town.admin, autocommit=True)) as owner:
            for table in CONTENT:
                owner.execute(f"ALTER TABLE onrecord.{table} DISABLE ROW LEVEL SECURITY".encode())
        assert all(counts(town, "mallory"))
    finally:
        town.bench.teardown_method()
