"""`onrecord copy` and `onrecord log --follow` as users run them: processes that are killed, stopped with Ctrl-C, run again."""

import json
import random
import signal
import subprocess
import sys
import time

import apsw
import pytest

import onrecord
from onrecord.session.copying import COPY_PAGE
from tests.cli.conftest import PATIENCE
from tests.stores import SHARED, url_of

pytestmark = pytest.mark.every_store

PAGES = 12

SLOW_COPY = """
import sys, time
from onrecord.session import copying
from onrecord.surfaces.cli.main import main
put = copying.Copier._put
def slowly(self, *given):
    done = put(self, *given)
    print("page", flush=True)
    time.sleep(0.02)
    return done
copying.Copier._put = slowly
sys.exit(main(sys.argv[1:]))
"""
"""The command, with a line after each page that has become durable, so that a test can act in the middle of a copy."""

WRITER = """
import sys, onrecord
with onrecord.connect(sys.argv[1], project="/project") as records:
    session = records.get("followed", agent=sys.argv[2])
    for number in range(int(sys.argv[3])):
        session.decide(f"{sys.argv[2]} {number}")
"""


@pytest.fixture
def long(tmp_path) -> str:
    """A store with one session of several pages, and a fork of it."""
    path = str(tmp_path / "long.db")
    with onrecord.connect(path, project="/project") as records:
        session = records.create("long")
        for number in range(PAGES):
            drafts = [session.log.draft("worklog.written", {"text": f"{number} {line}"}) for line in range(COPY_PAGE)]
            session.log.append(*drafts)
        session.fork("fork").decide("in the fork")
    return path


@pytest.mark.parametrize("kind", SHARED)
def test_a_killed_copy_goes_on_where_it_was(long, kind, request, tmp_path, count):
    """A copy that is killed with -9 again and again leaves a valid prefix each time, and the last run completes it (A19)."""
    target = url_of(kind, request, tmp_path, "target")
    chance = random.Random(7)
    kills, seen = 0, [0]
    while kills < count(4, 10):
        with _slow_copy(long, target, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "page\n"
            time.sleep(chance.uniform(0, 0.02))
            process.kill()
            kills += 1
        with onrecord.connect(target) as records:
            (head,) = [one for one in records.sessions(project="", limit=10) if one.name == "long"]
            assert records.get(head.session).verify().ok
            assert head.position > seen[-1]
            seen.append(head.position)
    with _slow_copy(long, target, stdout=subprocess.PIPE) as process:
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    with onrecord.connect(long) as source, onrecord.connect(target) as records:
        for head in source.sessions(project=""):
            assert records.store.head(head.session) == head
            assert records.get(head.session).verify().ok


def _slow_copy(source: str, target: str, **options) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", SLOW_COPY, "copy", source, target], text=True, **options)


def test_all_sessions_are_copied_and_what_is_refused_is_named(crowd, command):
    """Everything is copied; a session with a taken name is reported with the reason, and the others arrive: status 8."""
    target = str(command.place / "target.db")
    command.ok("open", "other", "--store", target, "--project", str(crowd.project))
    data = json.loads(command.run("copy", crowd.url, target, "--json").out)["data"]
    assert {one["name"]: one["state"] for one in data["sessions"]} == dict.fromkeys(
        ("fix-invite-403", "ended", "paused"), "copied"
    )
    (refused,) = data["refused"]
    assert (refused["name"], refused["kind"]) == ("other", "name_taken")
    assert refused["hint"]
    plain = command.run("copy", crowd.url, target)
    assert plain.code == 8
    assert "already there\tpaused" in plain.out
    assert "other was not copied" in plain.err


def test_one_session_is_copied_alone_and_refusals_are_errors(crowd, command):
    """--session copies one session, --as under another name; a clash, a missing store and a contradiction are errors."""
    target = str(command.place / "target.db")
    words = ("copy", crowd.url, target, "--project", str(crowd.project))
    data = command.data(*words, "--session", "other", kind="copy")
    assert [one["name"] for one in data["sessions"]] == ["other"]
    again = command.data(*words, "-s", "other", kind="copy")
    assert again["sessions"][0]["state"] == "already_there"
    command.ok("open", "ended", "--store", target, "--project", str(crowd.project))
    command.error(*words, "-s", "ended", code=10, kind="name_taken")
    assert "copied\tsecond" in command.ok(*words, "-s", "ended", "--as", "second")
    command.error("copy", str(command.place / "nothing.db"), target, code=3, kind="not_initialised")
    assert not (command.place / "nothing.db").exists()
    command.error(*words, "--as", "third", code=2, kind="usage")
    command.error(*words, "--store", "x.db", code=2, kind="usage")
    command.error(*words, "-s", "nobody", code=4, kind="session_not_found")


@pytest.mark.on_file
def test_a_damaged_store_is_not_copied(working, command):
    """A source that another program changed is refused, and nothing of it arrives."""
    damaged = apsw.Connection(str(working.store))
    damaged.execute("UPDATE events SET kind = 'worklog.written' WHERE kind = 'decision.made'")
    damaged.close()
    target = str(command.place / "target.db")
    command.error("copy", str(working.store), target, code=5, kind="damaged_log")
    assert command.data("list", "--all", "--store", target, kind="sessions") == []


@pytest.mark.on_file  # the store is the one in `kind`, not the command's
@pytest.mark.parametrize("kind", SHARED)
def test_followers_see_what_many_processes_write(kind, request, tmp_path, command):
    """Two followers and four writer processes: both see every event once and in order; Ctrl-C ends them with 130 (B07)."""
    path = url_of(kind, request, tmp_path, "followed")
    with onrecord.connect(path, project="/project") as records:
        records.create("followed")
    words = ("log", "followed", "--follow", "--json", "--store", path, "--project", "/project")
    followers = [command.started(*words) for _ in range(2)]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, f"agent-{number}", "50"]) for number in range(4)]
    for writer in writers:
        assert writer.wait(PATIENCE) == 0
    for follower in followers:
        assert follower.stdout is not None
        events = [json.loads(follower.stdout.readline()) for _ in range(201)]
        assert [event["position"] for event in events] == list(range(1, 202))
        told = [event["data"]["text"] for event in events[1:]]
        assert sorted(told) == sorted(f"agent-{number} {step}" for number in range(4) for step in range(50))
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=PATIENCE)
        assert (follower.returncode, out, err) == (130, "", "")


def test_following_from_a_place_leaves_nothing_out(working):
    """--after a position in the future waits for it; with --limit it would leave events out and is refused."""
    end = len(working.data("log", "--limit", "0", kind="log")["events"])
    with working.started("log", "--follow", "--jsonl", "--after", str(end + 1), "--upto", str(end + 3)) as process:
        for number in range(3):
            working.ok("decide", f"decision {number}")
        out, _err = process.communicate(timeout=PATIENCE)
    assert [json.loads(line)["position"] for line in out.splitlines()] == [end + 2, end + 3]
    working.error("log", "--follow", "--after", "1", "--limit", "2", code=2, kind="usage")
