"""The parts of the page without a browser: stretches of the timeline, the past, tokens, images, the first page."""

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onrecord.errors import EventNotFound, NotFound
from onrecord.log.item_values import Item
from onrecord.pages.entries import entries_of
from onrecord.pages.options import Options
from onrecord.rollout.recording import open_rollout
from onrecord.session.session_store import SessionStore
from onrecord.session.standing import standing_of
from onrecord.stores.memory import MemoryStore
from onrecord.web import session_page
from onrecord.web.app import Site
from onrecord.web.home import home, marked
from onrecord.web.numbering import Numbering
from onrecord.web.past import SNAPSHOT_EVERY, Past
from onrecord.web.settings import Settings
from onrecord.web.shelf import POINTS, activity
from onrecord.web.timeline import ITEMS_IN_ROW, STRETCH, parts, stretch
from onrecord.web.words import about
from tests.rollout.world import play
from tests.web import samples

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def records():
    return SessionStore(MemoryStore(), project=samples.PROJECT)


@pytest.fixture
def site(records):
    return Site(records, Settings("a-token-of-24-characters"))


def test_the_stretches_together_are_the_whole_timeline(records):
    """Every entry that a fold of the whole log has is in exactly one stretch, in the same state."""
    samples.fill(records.store)
    for head in records.sessions(project=""):
        session = records.get(head.session)
        whole = session.views
        count = (head.position - 1) // STRETCH + 1
        rows = [
            row.position for number in range(count) for row in stretch(records.store, whole, number, Options()).rows
        ]
        assert sorted(set(rows)) == sorted({entry.position for entry in entries_of(session.events(), whole)})


def test_turns_have_the_numbers_of_their_lanes_wherever_one_looks_first(records):
    """As a fold of the whole log counts them: aborted ones too, of two agents, in a fork, in any order of looking."""
    parent = records.create("numbered", agent="claude").acquire()
    other = records.get("numbered", agent="codex").acquire()
    for number in range(400):
        agent = parent if number % 3 else other
        if number % 7:
            agent.log.append(
                agent.log.draft("turn.recorded", {"items": [{"role": "assistant", "content": "a"}]}), fenced=True
            )
        else:
            turn = agent.turn()
            turn.abort("no answer") if number % 2 else turn.commit()
    child = parent.fork("numbered-2", at=333)
    for session in (parent.refresh(), child):
        whole = session.views
        counted = {one.position: one.number for one in entries_of(session.events(), whole, {}) if one.number}
        count = (whole.position - 1) // STRETCH + 1
        for order in ([count - 1, *range(count)], [count // 2, 1, count - 2, 0], [1, 0], [count - 2]):
            numbering = Numbering(records.store, STRETCH)
            for place in order:
                drawn = stretch(records.store, whole, place, Options(), numbering.before(whole, place)).rows
                said = {row.position: int(found[1]) for row in drawn if (found := re.search(r"turn (\d+)", row.html))}
                first, last = place * STRETCH, (place + 1) * STRETCH
                assert said == {at: number for at, number in counted.items() if first < at <= last}


def test_mirrored_turns_have_numbers_too(records, monkeypatch):
    """A vendor's conversation between turns of our own: one count for each lane, the same in the report and on any stretch."""
    session = records.create("mixed", agent="claude").acquire()
    offset = 0
    for number in range(90):
        if number % 10 == 0:
            session.log.append(
                session.log.draft("turn.recorded", {"items": [{"role": "assistant", "content": "a"}]}), fenced=True
            )
        lines = [json.dumps({"said": f"question {number}"}), json.dumps({"said": f"answer {number}"})]
        roles = ("user", "assistant")
        rows = [
            {"line": line, "id": f"{number}-{line}", "items": [{"role": role, "content": {"$": "/said"}}]}
            | ({"turn": "begins"} if role == "user" else {})
            for line, role in enumerate(roles)
        ]
        about = {"vendor": "claude", "vendor_id": "v", "generation": 0, "mark_before": [0]} if not number else {}
        parts = ((lines[:1], rows[:1]), (lines[1:], [rows[1] | {"line": 0}])) if number % 2 else ((lines, rows),)
        for kept, reading in parts:
            data = {"lines": kept, "reading": reading, "mark_after": [offset + 1, {}], **about}
            session.log.record("payload.kept", data, id=f"mirror/claude/v/0/{offset}")
            offset += 1
    whole = session.refresh().views
    counted = {one.position: one.number for one in entries_of(session.events(), whole, {}) if one.number}
    assert sorted(counted.values()) == list(range(1, 100)), "90 mirrored turns and 9 of our own"
    last = (whole.position - 1) // STRETCH
    for order in ([last], [1, 0, last], range(last + 1)):
        numbering = Numbering(records.store, STRETCH)
        for place in order:
            drawn = stretch(records.store, whole, place, Options(), numbering.before(whole, place)).rows
            said = {row.position: int(found[1]) for row in drawn if (found := re.search(r"turn (\d+)", row.html))}
            first, end = place * STRETCH, (place + 1) * STRETCH
            assert said == {at: number for at, number in counted.items() if first < at <= end}
    monkeypatch.setattr("onrecord.web.numbering.COUNTING_SECONDS", -1)
    assert Numbering(records.store, STRETCH).before(whole, last) is None, (
        "a long conversation is counted over several requests"
    )


def test_a_turn_that_ends_much_later_is_drawn_as_it_ended(records):
    """The read continues after the stretch until the turn has its end; until then the stretch may still change."""
    session = records.create("slow", agent="claude").acquire()
    turn = session.turn()
    for number in range(3 * STRETCH):
        turn.add({"role": "assistant", "content": f"part {number}"})
    drawn = stretch(records.store, session.views, 0, Options())
    assert not drawn.settled
    assert "running" in "".join(row.html for row in drawn.rows)
    turn.commit()
    session.decide("later")
    for number in range(5):
        session.phases.log_work(str(number))
    drawn = stretch(records.store, session.views, 0, Options())
    assert drawn.settled
    text = "".join(row.html for row in drawn.rows)
    assert "running" not in text
    assert f"part {3 * STRETCH - 1}" in text
    assert len(drawn.rows) > 3 * STRETCH // ITEMS_IN_ROW
    said = ["continued" in row.html for row in drawn.rows if "part" in row.html]
    assert said == [False] + [True] * (len(said) - 1), "only the first row has what the turn used"


def test_a_call_and_its_answer_stay_in_one_row():
    """A long turn is split between calls, and never between a call and its answer; nothing is lost."""
    items: list[Item] = []
    for number in range(40):
        items.append({"role": "assistant", "content": "", "tool_calls": [{"id": str(number), "name": "run"}]})
        items.append({"role": "tool", "call": str(number), "content": "done"})
    groups = list(parts(items))
    assert [item for group in groups for item in group] == items
    for group in groups:
        calls = {call["id"] for item in group for call in item.get("tool_calls", ())}
        assert calls == {item["call"] for item in group if item["role"] == "tool"}


def test_the_past_is_what_a_fold_from_the_beginning_gives(records):
    """At any position and in any order; after an erasure, without what was erased."""
    session = records.create("past")
    for number in range(SNAPSHOT_EVERY + 50):
        session.phases.log_work(f"line {number}")
    session.decide("a secret")
    at = session.head.position
    past = Past(records.store)
    for position in (3, SNAPSHOT_EVERY + 20, SNAPSHOT_EVERY - 1, 7, at, 1):
        assert past.at(session.id, position).dump() == session.at(position).views.dump()
    session.log.erase("it was a secret", positions=[at])
    assert past.at(session.id, at).facts.decisions == session.at(at).views.facts.decisions == []
    with pytest.raises(EventNotFound):
        past.at(session.id, at + 50)


def test_the_tokens_of_a_rollout_are_coloured_by_their_origin(records, site):
    """Sampled ids carry their logprob; those of prompts say that they are not in the loss."""
    rollout = open_rollout(records, "task-17")
    play(rollout, 2)
    page = site.desk.page(rollout.session.id, "rollout", None, None)
    assert page.count('class="tok sampled') > 2
    assert "logprob -0.5" in page
    assert 'class="tok template"' in page
    assert "<h2>Turn 2 · COMPLETED</h2>" in page
    assert 'data-tab="rollout"' in page
    other = records.create("no-rollout")
    assert 'data-tab="rollout"' not in site.desk.page(other.id, "timeline", None, None)


def test_a_file_names_the_agent_that_changed_it(records, site):
    """What hooks recorded of edits: who, with which tool, how often, with a link to the last event; also in the past."""
    session = records.create("edited", agent="claude")
    session.agents.record_tool("Edit", "edit", call="c1", paths=["src/auth.py"])
    session.agents.record_tool("Read", "read", call="c2", paths=["src/only_read.py"])
    last = session.agents.record_tool("Write", "edit", call="c3", paths=["src/auth.py"])
    page = site.desk.page(session.id, "files", None, None)
    assert "changed by claude with Write (2 times so far)" in page
    assert f'href="#e{last.position}"' in page
    assert "only_read" not in page
    assert "changed by claude with Edit ·" in site.desk.page(session.id, "files", last.position - 1, None)


def test_a_file_that_only_a_conversation_shows_as_edited_is_listed(records, site):
    """By the calls of tools, from the top of the worktree: once with its hook, never if it failed or only read."""
    session = records.create("unhooked", agent="claude").acquire()
    session.agents.locate("claude", "v-1", cwd="/w/shop/api", worktree="/w/shop")
    calls = [("c1", "Edit", "/w/shop/src/auth.py"), ("c2", "Write", "/w/shop/src/no.py"), ("c3", "Read", "/w/shop/r.py"),
             ("c4", "Edit", "/w/shop/src/auth.py"), ("c5", "Write", "/elsewhere/notes.md")]  # fmt: skip
    items: list[Any] = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": id_, "name": tool, "arguments": {"file_path": path}}],
        }
        for id_, tool, path in calls
    ]
    items += [{"role": "tool", "call": id_, "content": "", "error": id_ == "c2"} for id_, _tool, _path in calls]
    turn = session.record_turn(items)
    session.agents.record_tool("Edit", "edit", call="c4", paths=["src/auth.py"])
    page = site.desk.page(session.id, "files", None, None)
    found = re.findall(r"<li><code>([^<]+)</code>", page.partition('id="view"')[2])
    assert found == ["/elsewhere/notes.md", "src/auth.py"]
    assert "changed by claude with Edit (2 times so far)" in page
    assert f'href="#e{turn.position}"' in page
    assert "No changed file" in site.desk.page(session.id, "files", turn.position - 1, None)


def test_an_image_of_a_conversation_is_served_only_if_it_is_one(records, site):
    """A PNG is; an SVG, a text and a pointer to nothing are not, whatever they claim to be."""
    session = records.create("images")
    record = {
        "image": base64.b64encode(PIXEL).decode(),
        "svg": base64.b64encode(b"<svg onload=x>").decode(),
        "text": "no",
    }
    event = session.log.append(session.log.draft("payload.kept", {
        "vendor": "claude", "vendor_id": "v", "lines": [json.dumps(record)], "mark_before": [0],
    }))[0]  # fmt: skip
    assert site.desk.media(session.id, event.position, 0, "/image") == ("image/png", PIXEL)
    for pointer in ("/svg", "/text", "/nothing", "", "/image/~j"):
        with pytest.raises(NotFound):
            site.desk.media(session.id, event.position, 0, pointer)
    with pytest.raises(NotFound):
        site.desk.media(session.id, event.position, 9, "/image")


def test_an_empty_store_says_how_to_begin(site):
    """The first page of a store without sessions has a sentence and a command, also for the other projects."""
    assert "onrecord start claude" in home(site.frame, site.shelf, (samples.PROJECT,), "", 0)
    assert "onrecord demo" in home(site.frame, site.shelf, None, "", 0)


def test_a_session_that_waits_for_a_limit_says_what_comes_next(records):
    """The reason has the limit already; every other need is said in a sentence."""
    samples.fill(records.store)
    told = {name: about(standing_of(records.get(name))) for name in ("fix-invite-403", "nightly-migration")}
    assert told["fix-invite-403"].endswith(" · next: Read memberships from the primary after accept")
    assert "attempt 1 is lost" in told["nightly-migration"]


def test_the_shelf_follows_sessions_of_any_age(records, site):
    """New, changed and finished sessions are in their place after a refresh; one with an old time after the next whole look."""
    first = records.create("one")
    records.create("two")
    needing, others = site.shelf.listed(None)
    assert (needing.total, [one.entry.head.name for one in others.shown]) == (0, ["two", "one"])
    first.findings.state("no access", "blocked")
    needing, others = site.shelf.listed(None)
    assert ([one.entry.head.name for one in needing.shown], others.total) == (["one"], 1)
    first.close("done", anyway="not needed")
    assert site.shelf.listed(None)[0].total == 0
    assert [one.entry.head.name for one in site.shelf.listed(None)[1].shown] == ["two", "one"]
    assert site.shelf.listed(None, "TW")[1].total == 1
    assert site.shelf.listed(["elsewhere"])[1].total == 0


def test_marks_and_sparklines_are_exact():
    """Words are marked inside of escaped text; activity counts every event once."""
    assert marked("a <b>Fox</b> & a fox", ["fox"]) == "a &lt;b&gt;<mark>Fox</mark>&lt;/b&gt; &amp; a <mark>fox</mark>"
    line = activity([(position, position * 10) for position in range(1, 1_001)])
    assert len(line) == POINTS
    assert sum(line) == pytest.approx(1_000, rel=0.05)
    assert activity([(1, 5)])[0] > 0


def test_many_viewers_read_while_a_session_grows(records, site, monkeypatch):
    """Pages are drawn from a copy of the views: an event that arrives meanwhile changes no page that is being drawn."""
    session = records.create("busy")
    session.findings.state("claim 0")
    drawn: list[int] = []

    def draw(whole, _gone, _end):
        before = len(whole.findings.findings)
        session.findings.state(f"claim {len(drawn) + 1}")
        with ThreadPoolExecutor(1) as another_viewer:
            if not drawn:
                drawn.append(before)
                another_viewer.submit(site.desk.look_json, session.id, None).result()
        drawn.append(len(whole.findings.findings) - before)
        return ""

    monkeypatch.setattr(session_page, "panel", draw)
    site.desk.look_json(session.id, None)
    assert drawn == [1, 0, 0]
