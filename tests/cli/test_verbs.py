"""Every verb does what its help says, and answers in JSON on request."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from onrecord.surfaces.cli.catalogue import VERBS, shown

pytestmark = pytest.mark.every_store

# These verbs are tested in separate files.
ELSEWHERE = {
    "demo",
    "mcp",
    "web",
    "store",
    "doctor",
    "export",
    "import",
    "backup",
    "completion",
    "gate",
    "start",
    "adopt",
    "handoff",
    "mirror",
    "restore",
    "team",
}


def test_a_bare_command_teaches_a_newcomer_and_makes_nothing(command):
    """Without a store, a bare `onrecord` names the two next commands, succeeds, and creates no file."""
    done = command.run()
    assert (done.code, done.out) == (0, "")
    assert "onrecord open" in done.err
    assert "onrecord demo" in done.err
    assert not command.store.exists()
    assert command.data(kind="overview")["sessions"] == []


def test_open_makes_a_session_once(command):
    """`open` answers `opened` first and `already_open` afterwards, with the same id."""
    first = command.data("open", "fix", "--objective", "o", "--budget", "steps=3", "--meta", "issue=7", kind="session")
    again = command.data("open", "fix", kind="session")
    assert (first["state"], again["state"]) == ("opened", "already_open")
    assert first["id"] == again["id"]
    whole = command.data("show", "fix", kind="session")
    assert whole["budget"] == {"steps": 3}
    assert whole["metadata"] == {"issue": "7"}
    assert whole["objective"]["text"] == "o"


def test_open_changes_objective_and_budget_of_a_session_that_is_there(working):
    """Opening again with another objective or budget records that, and nothing else."""
    working.ok("open", "fix-invite-403", "--objective", "Another", "--budget", "tokens=500")
    whole = working.data("show", kind="session")
    assert whole["objective"]["text"] == "Another"
    assert whole["budget"] == {"tokens": 500}


def test_list_and_its_alias_agree(working):
    """`list` and `ls` give the same sessions, newest first, and filter by status."""
    working.ok("open", "other")
    sessions = working.data("list", kind="sessions")
    assert sessions == working.data("ls", kind="sessions")
    assert [session["name"] for session in sessions] == ["other", "fix-invite-403"]
    assert [session["name"] for session in working.data("list", "--status", "active", kind="sessions")] == [
        "fix-invite-403"
    ]
    assert len(working.data("list", "--limit", "1", kind="sessions")) == 1


def test_list_without_a_store_is_empty(command):
    """A store that does not exist yet has no sessions: an answer. A tenant without sessions is an error: a typing error?"""
    if "tenant=" in command.url:
        refused = command.run("list")
        assert (refused.code, refused.out) == (4, "")
        assert re.search(r"the tenant '\w+' has no sessions\nhint: check `ONRECORD_TENANT`", refused.err)
        return
    assert command.data("list", kind="sessions") == []
    assert not command.store.exists()


def test_all_projects_are_one_option_away(working, tmp_path):
    """`list` shows this project's sessions; `--all` those of every project; `--project` another one's."""
    other = tmp_path / "other-project"
    other.mkdir()
    assert working.data("list", "--project", str(other), kind="sessions") == []
    working.ok("open", "elsewhere", "--project", str(other))
    assert [s["name"] for s in working.data("list", kind="sessions")] == ["fix-invite-403"]
    assert {s["name"] for s in working.data("list", "--all", kind="sessions")} == {"elsewhere", "fix-invite-403"}


def test_show_gives_the_note_and_everything_else(working):
    """`show` prints the note as the agent gets it, with status and lanes; `note` and its brief form print it alone."""
    text = working.ok("show")
    alone = working.ok("note")
    assert alone in text
    assert "lane main\t1 turn committed" in text
    assert working.ok("note", "--format", "brief").startswith("# fix-invite-403 (active, position ")
    whole = working.data("show", kind="session")
    assert whole["note"] == alone
    assert whole["lanes"]["main"]["committed"] == 1
    assert [decision["text"] for decision in whole["decisions"]] == ["Reproduce before touching the middleware"]
    assert whole["findings"][0]["label"] == "rejected"


def test_log_prints_events_in_order(working):
    """`log` prints position, time, actor, kind and content; `--json` the events themselves."""
    lines = [line.split("\t") for line in working.ok("log").splitlines()]
    assert [line[0] for line in lines] == [str(number) for number in range(1, len(lines) + 1)]
    assert [line[3] for line in lines[:2]] == ["session.opened", "agent.joined"]
    data = working.data("log", kind="log")
    assert [event["position"] for event in data["events"]] == list(range(1, data["position"] + 1))
    assert data["left_out"] == 0


def test_log_chooses(working):
    """`--kind`, `--after`, `--upto` and `--limit` select; stderr and the data say what was left out."""
    assert [e["kind"] for e in working.data("log", "--kind", "decision.made", kind="log")["events"]] == [
        "decision.made"
    ]
    agents = working.data("log", "-k", "agent.", kind="log")["events"]
    assert {event["kind"] for event in agents} == {"agent.joined", "agent.left"}
    between = working.data("log", "--after", "1", "--upto", "3", kind="log")["events"]
    assert [event["position"] for event in between] == [2, 3]
    assert [e["position"] for e in working.data("log", "--after", "1", "--limit", "1", kind="log")["events"]] == [2]
    last = working.data("log", "--limit", "2", kind="log")
    assert [event["position"] for event in last["events"]] == [last["position"] - 1, last["position"]]
    assert last["left_out"] == last["position"] - 2
    assert "earlier events are not shown" in working.run("log", "--limit", "2").err


def test_jsonl_is_one_event_per_line(working):
    """`log --jsonl` streams every event as one JSON object per line."""
    events = [json.loads(line) for line in working.ok("log", "--jsonl").splitlines()]
    assert events == working.data("log", kind="log")["events"]


def test_search_finds_words_in_transcript_and_facts(working):
    """`search` finds words of turns and of facts."""
    found = working.data("search", "middleware", kind="search")
    assert {hit["event"]["kind"] for hit in found["results"]} == {"decision.made", "finding.stated"}
    assert working.data("search", "3", "failed", kind="search")["results"][0]["event"]["kind"] == "turn.recorded"
    assert working.data("search", "nowhere-to-be-found", kind="search")["results"] == []
    assert "search" not in working.ok("search", "middleware", "--session", "fix-invite-403")


def test_record_takes_items_in_the_order_given(working):
    """A turn from options is well formed: the tool call belongs to the assistant, and its result answers it."""
    turn = working.data(
        "record", "--user", "u", "--assistant", "a", "--tool", "bash=x=1", "--tool", "ls=y", "--model", "m",
        "--input-tokens", "5", "--cost", "0.5", kind="turn",
    )  # fmt: skip
    assert (turn["items"], turn["agent"], turn["state"]) == (4, "main", "recorded")
    event = working.data("log", "--after", str(turn["position"] - 1), "--limit", "1", kind="log")["events"][0]
    assert event["data"]["items"] == [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a", "tool_calls": [
            {"id": "c1", "name": "bash", "arguments": {}}, {"id": "c2", "name": "ls", "arguments": {}},
        ]},
        {"role": "tool", "call": "c1", "content": "x=1"},
        {"role": "tool", "call": "c2", "content": "y"},
    ]  # fmt: skip
    usage = working.data("show", kind="session")["usage"]
    assert (usage["input_tokens"], usage["cost"]) == (5, 0.5)


@pytest.mark.parametrize("form", ["list", "lines", "one"])
def test_record_takes_json_items_on_stdin(working, form):
    """Items on stdin may be a JSON list, one object per line, or a single object; partners' messages too."""
    items = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}]
    text = {"list": json.dumps(items), "lines": "\n".join(map(json.dumps, items)), "one": json.dumps(items[0])}[form]
    turn = working.data("record", "--agent", "second", kind="turn", stdin=text)
    assert (turn["items"], turn["agent"]) == (1 if form == "one" else 2, "second")


def test_the_same_id_records_nothing_twice(working):
    """A command repeated with the same --id answers `already_recorded` with the first position."""
    first = working.data("decide", "once", "--id", "d-1", kind="event")
    again = working.data("decide", "once", "--id", "d-1", kind="event")
    assert (first["state"], again["state"]) == ("recorded", "already_recorded")
    assert first["position"] == again["position"]
    turn = working.data("record", "--user", "x", "--id", "t-1", kind="turn")
    assert working.data("record", "--user", "x", "--id", "t-1", kind="turn")["position"] == turn["position"]


def test_facts_show_up_in_the_note(working):
    """The next agent reads the objective, next action and findings that were recorded from the command line."""
    assert working.data("objective", "Make the 403 go away", kind="event")["state"] == "recorded"
    assert working.data("objective", "Make the 403 go away", kind="event")["state"] == "already_recorded"
    working.data("next", "Run it ten times", "--command", "pytest -k invite", kind="event")
    for name in ("trace-7", "trace-8"):
        working.ok("evidence", "add", "spans", "--kind", "trace", "--id", name)
    working.data("finding", "state", "The row is late", "-l", "verified", "-e", "trace-7", kind="finding")
    working.data("finding", "relabel", "f1", "open", "-e", "trace-8", "--why", "seen again", kind="finding")
    note = working.ok("note")
    for part in ("Make the 403 go away", "Run it ten times  $ pytest -k invite", "The row is late [trace-7]"):
        assert part in note
    assert [f["label"] for f in working.data("show", kind="session")["findings"]] == ["open", "verified"]


def test_a_text_may_come_from_stdin(working):
    """`-` in place of a text reads it from stdin."""
    position = working.data("decide", "-", kind="event", stdin="from a pipe\n")["position"]
    event = working.data("log", "--after", str(position - 1), kind="log")["events"][0]
    assert event["data"]["text"] == "from a pipe"


@pytest.mark.parametrize(
    ("steps", "states"),
    [
        (["pause", "pause"], ["paused", "already_paused"]),
        (["pause", "resume", "resume"], ["paused", "resumed", "already_resumed"]),
        (["resume"], ["already_active"]),
        (["close --anyway x", "close", "archive", "archive", "close"],
         ["closed", "already_closed", "archived", "already_archived", "already_archived"]),
        (["close --anyway x", "resume --reopen", "resume --reopen"], ["closed", "resumed", "already_resumed"]),
        (["pause", "resume --reopen"], ["paused", "resumed"]),
    ],
)  # fmt: skip
def test_lifecycle_steps_may_be_repeated(working, steps, states):
    """A step that was already taken is answered with `already_...` and exit code 0, and appends nothing."""
    answers = [working.data(*step.split(), "fix-invite-403", "--reason", "r", kind="session") for step in steps]
    assert [answer["state"] for answer in answers] == states
    for before, after in pairwise(answers):
        assert (after["position"] == before["position"]) is after["state"].startswith("already")


def test_rename_and_fork(working):
    """A session can be renamed, by its old name or as the only live one; a fork shares its history."""
    renamed = working.data("rename", "invite-403", kind="session")
    assert (renamed["name"], renamed["was"], renamed["state"]) == ("invite-403", "fix-invite-403", "renamed")
    assert working.data("rename", "invite-403", "invite-403", kind="session")["state"] == "already_named"
    fork = working.data("fork", "invite-403", "try-b", "--at", "4", kind="session")
    assert (fork["name"], fork["forked_at"], fork["parent"]) == ("try-b", 4, renamed["id"])
    assert len(working.data("log", "try-b", kind="log")["events"]) == 5


def test_at_and_diff_travel_in_time(working):
    """`at` shows the note at a position; `diff` shows what changed in meaning, with or without naming the session."""
    end = working.data("show", kind="session")["position"]
    past = working.data("at", "1", kind="moment")
    assert (past["position"], past["decisions"]) == (1, [])
    assert "Reproduce" not in working.ok("at", "fix-invite-403", "1")
    named = working.data("diff", "fix-invite-403", "1", str(end), kind="diff")
    assert named == working.data("diff", "1", kind="diff")
    assert {"decision", "finding f1", "turn of main"} <= {change["what"] for change in named["changes"]}
    assert "decision\t-\tReproduce before touching the middleware" in working.ok("diff", "1")


def test_verify_and_checkpoint(working):
    """`verify` reports the chain; a checkpoint written to a file is checked against it later."""
    report = working.data("verify", kind="verification")
    assert report["ok"]
    assert report["sessions"][0]["problems"] == []
    file = working.data("checkpoint", "--out", str(working.place / "point.json"), kind="checkpoint_file")["file"]
    working.ok("decide", "go on")
    assert working.data("verify", "--checkpoint", file, kind="verification")["ok"]
    every = working.data("checkpoint", "--all", kind="checkpoint")
    assert [point["session"] for point in every] == [report["sessions"][0]["session"]["id"]]
    assert working.data("verify", "--all", "--checkpoint", file, kind="verification")["ok"]


@pytest.mark.on_file
def test_a_checkpoint_finds_a_rolled_back_store(working):
    """When events that a checkpoint covers are gone, `verify` says so and exits with 1."""
    working.ok("backup", str(working.place / "old.db"))
    working.ok("decide", "later lost")
    working.ok("open", "later-session")
    points = str(working.place / "points.json")
    working.ok("checkpoint", "--all", "--out", points)
    working.ok("backup", "--restore", str(working.place / "old.db"), "--yes")
    report = working.data("verify", "--all", "--checkpoint", points, kind="verification", code=1)
    assert [problem["cause"] for problem in report["sessions"][0]["problems"]] == ["checkpoint"]
    assert len(report["missing"]) == 1


def test_hold_protects_against_erase(working):
    """Under a hold nothing is erased; after its release the payload is erased and the chain still verifies."""
    assert working.data("hold", "--reason", "incident", kind="session")["state"] == "held"
    assert working.data("hold", kind="session")["state"] == "already_held"
    erase = ("erase", "--position", "3", "--reason", "a password", "--yes")
    assert working.error(*erase, code=10, kind="session_held")
    assert working.data("hold", "--release", "--reason", "over", kind="session")["state"] == "released"
    assert working.data("hold", "--release", kind="session")["state"] == "already_released"
    assert working.data(*erase, kind="erasure")["count"] == 1
    assert working.data("verify", kind="verification")["sessions"][0]["erased"] == 1
    assert "(erased)" in working.ok("log")


def test_erase_asks_first(working):
    """Without a terminal an erasure needs --yes; everything needs --all; both need a reason."""
    working.error("erase", "--all", "--reason", "r", code=2, kind="usage")
    working.error("erase", "--all", "--yes", code=2, kind="usage")
    working.error("erase", "--reason", "r", "--yes", code=2, kind="usage")
    working.data("erase", "--all", "--reason", "r", "--yes", kind="erasure")
    assert working.data("list", kind="sessions")[0]["status"] == "erased"
    working.error("open", "fix-invite-403", code=10, kind="session_erased")


def test_sweep_says_what_it_would_do(working):
    """`sweep --dry-run` lists what is due with bytes and changes nothing; without it, the sweep is done."""
    settings = working.place / "config.toml"
    settings.write_text("[retention]\nerase_closed_after = 0\narchive_closed_after = -1\n")
    working.environment["ONRECORD_CONFIG"] = str(settings)
    assert working.data("sweep", "--dry-run", kind="sweep")["swept"] == []
    working.ok("close", "--reason", "done", "--anyway", "its note is of no use to this test")
    plan = working.data("sweep", "--dry-run", kind="sweep")
    assert [(swept["action"], swept["name"]) for swept in plan["swept"]] == [("erase", "fix-invite-403")]
    assert plan["bytes"] > 0
    working.error("sweep", code=2, kind="usage")
    done = working.data("sweep", "--yes", kind="sweep")
    assert done["bytes"] == plan["bytes"]
    assert working.data("sweep", "--yes", kind="sweep")["swept"] == []
    assert working.data("verify", "fix-invite-403", kind="verification")["ok"]


def test_version_and_help(command):
    """`version` and `help` work without a store; `help --all` names every verb, and each verb has an example."""
    assert command.ok("version") == command.ok("--version")
    assert command.data("version", kind="version")["onrecord"] in command.ok("version")
    text = command.ok("help", "--all")
    told = command.data("help", kind="help")
    for verb in shown():
        assert f"  {verb.name} " in text
        assert verb.example.startswith(("onrecord ", "eval "))
        assert verb.name in {entry["name"] for entry in told["verbs"]}
    assert told["exits"]["7"]
    assert command.ok("--help") == command.ok("help") != text
    assert not command.store.exists()


@pytest.mark.parametrize("verb", [verb.name for verb in shown()])
def test_every_verb_has_short_help_with_an_example(command, verb):
    """`onrecord VERB --help` fits a screen, shows the usage and one example."""
    text = command.ok(verb, "--help")
    assert text == command.ok("help", verb)
    assert text.startswith(f"usage: onrecord {verb}")
    assert "\nexample: " in text
    assert len(text.splitlines()) <= 40


def test_every_verb_is_tested_here():
    """Every verb has a test."""
    tested = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for verb in VERBS:
        assert not verb.group or f'"{verb.name}"' in tested or verb.name in ELSEWHERE, verb.name


def test_quiet_answers_with_the_position_alone(working):
    """With --quiet a change answers with its position, and no notes are written."""
    done = working.run("decide", "quietly", "--quiet", "--session", "fix")
    assert done.out.strip().isdigit()
    assert done.err == ""
