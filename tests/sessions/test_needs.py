"""Which sessions need a person, why, and which command helps; over all sessions of a store, however many there are."""

import json
import os

import pytest

from onrecord import machine
from onrecord.log.head import LIVE
from onrecord.session.standing import standing, standing_of
from onrecord.views.fold import Whole
from onrecord.views.listing import LISTING_VERSION
from onrecord.views.needs import needs
from onrecord.views.render import iso

GONE = machine.identity() | {"pid": 2**22 + 1, "started": "1"}
"""A process of this machine that is not there."""
HOUR = 3_600


def said(session):
    return [(need.kind, need.why, need.command) for need in standing_of(session.refresh()).needs]


@pytest.fixture
def agent(timed):
    """Makes a session with a coding agent whose hooks recorded its start."""

    def make(name="fix", *, process=None, via="hook", who="claude", vendor="claude"):
        known = timed.named(name)
        session = timed.get(name, agent=who) if known else timed.create(name, agent=who)
        session.agents.record_start(process or machine.identity(), vendor=vendor, **({"via": via} if via else {}))
        session.agents.locate(vendor, f"{name}-{who}", cwd="/project", branch="main")
        return session

    return make


def test_a_session_that_only_worked_needs_nobody(timed, agent):
    """Neither an idle agent, nor one that left, nor a script that ended without leaving anything open."""
    session = agent()
    assert said(session) == []
    assert standing_of(session).working == ["claude"]
    session.agents.record_end()
    assert said(session) == []
    script = timed.create("script", agent="main")
    script.agents.record_start(GONE)
    script.decide("done")
    assert said(script) == []


def test_an_agent_that_waits_needs_a_person(agent):
    """Until it continues; if its process ended meanwhile, it is resumed instead."""
    session = agent()
    session.agents.record_attention_needed("May I run rm?")
    assert said(session) == [("waits", "claude is waiting: May I run rm?", "onrecord show fix")]
    session.agents.record_attention_given()
    assert said(session) == []
    dead = agent("dead", process=GONE)
    dead.agents.record_attention_needed("May I run rm?")
    assert said(dead) == [
        ("crashed", "claude ended while it was waiting: May I run rm?", "onrecord resume dead"),
    ]


def test_a_limit_needs_a_person_until_the_agent_runs_again(agent, clock):
    """With the time it ends and the command that waits; once it has passed, with the command that resumes."""
    session = agent()
    session.agents.record_interruption("usage_window", "no more", resets_at=clock() + HOUR, vendor="claude")
    session.agents.record_end()
    (need,) = standing_of(session.refresh()).needs
    assert (need.kind, need.why) == ("limit", "claude was stopped by its usage limit")
    assert (need.command, need.until) == ("onrecord resume fix --wait", int((clock() + HOUR) * 1e6))
    clock.advance(2 * HOUR)
    assert said(session) == [("limit", "the limit of claude has passed", "onrecord resume fix")]
    agent()
    assert said(session) == []


def test_a_crash_needs_a_person_and_their_own_ctrl_c_does_not(agent, timed):
    """A crash says its message; a wrapper that was killed left no word; what a person stopped they know."""
    for cause, expected in (("crash", "claude crashed: TypeError"), ("killed", "claude was killed")):
        session = agent(cause)
        session.agents.record_interruption(cause, "at x\nTypeError", vendor="claude")
        session.agents.record_end()
        assert said(session) == [("crashed", expected, f"onrecord resume {cause}")]
    stopped = agent("stopped")
    stopped.agents.record_interruption("user", "stopped by signal 2", vendor="claude")
    stopped.agents.record_end()
    assert said(stopped) == []
    (kind, why, command) = said(agent("silent", process=GONE, via=None))[0]
    assert (kind, command) == ("crashed", "onrecord resume silent")
    assert "ended without a word" in why


def test_of_several_agents_the_one_is_named(agent):
    """Each agent's last stop counts for itself, and the command says which one it resumes."""
    first, second = agent("pair"), agent("pair", who="codex", vendor="codex")
    for session in (first, second):
        session.agents.record_interruption("overload", vendor=session.agent)
        session.agents.record_end()
    assert [command for _kind, _why, command in said(first)] == [
        "onrecord resume pair --agent claude --wait",
        "onrecord resume pair --agent codex --wait",
    ]
    agent("pair")
    assert [why for _kind, why, _command in said(first)] == ["codex was stopped by an overloaded model"]


def test_a_supervisor_settles_limits_and_crashes_of_its_team(agent, timed):
    """While it runs, only an agent that waits needs a person, who attaches to it; without it, the team is resumed."""
    crew = timed.create("night", agent="crew")
    crew.agents.record_start(machine.identity())
    member = agent("night")
    member.agents.record_interruption("crash", "x", vendor="claude")
    assert said(member) == []
    agent("night").agents.record_attention_needed("Trust this folder?")
    assert said(member) == [
        ("waits", "claude is waiting: Trust this folder?", "onrecord team attach claude --session night"),
    ]
    member.agents.record_attention_given()
    member.agents.record_interruption("crash", "x", vendor="claude")
    timed.get("night", agent="crew").agents.record_end()
    assert said(member)[0][2] == "onrecord team resume night"


def test_a_supervisor_that_was_killed_needs_a_person(timed):
    """One that ended as it should does not: its team was ended with it, or runs on purpose without it."""
    crew = timed.create("night", agent="crew")
    crew.agents.record_start(GONE)
    why = "the supervisor of the team ended: no process restarts its agents"
    assert said(crew) == [("crashed", why, "onrecord team resume night")]
    crew.agents.record_end()
    assert said(crew) == []


def test_attempts_that_nobody_will_settle_need_a_person(agent, timed):
    """A lost one, and one without a process whose agent left; not one that runs, or whose agent is here."""
    session, other, third = agent(), timed.get("fix", agent="other"), timed.get("fix", agent="third")
    session.attempts.start("pytest")
    other.attempts.start("make", process=machine.identity())
    assert said(session) == []
    third.attempts.start("train", process=GONE)
    assert said(session) == [
        ("attempt", "attempt 3 is lost: its process has ended (train)",
         'onrecord attempt abandon 3 --reason "its process ended" --session fix'),
    ]  # fmt: skip
    session.agents.record_end()
    assert next(why for _kind, why, _command in said(session)) == "attempt 1 has no outcome (pytest)"


def test_stale_and_blocked_findings_need_a_person(timed):
    """Stale ones count while no agent is at work: that is when a person resumes it."""
    session = timed.create("fix")
    session.findings.state("No access to the logs", label="blocked")
    anchor = {"path": "a.py", "fingerprint": "1"}
    session.evidence.record("log", id="log-1", text="seen")
    session.findings.state("The cache is stale", label="verified", evidence=["log-1"], anchors=[anchor])
    session.log.record("code.changed", {"anchors": {"a.py": "2"}})
    assert [(kind, command) for kind, _why, command in said(session)] == [
        ("blocked", "onrecord finding list --label blocked --session fix"),
        ("stale", "onrecord finding list --label stale --session fix"),
    ]
    session.close(anyway="over")
    assert said(session) == []


def test_a_process_on_another_machine_is_not_declared_dead(agent, timed, clock):
    """What cannot be seen from here counts as it is on record; a lease that expired ends that."""
    there = machine.identity() | {"host": "elsewhere"}
    session = agent(process=there)
    session.agents.record_attention_needed("May I?")
    assert [kind for kind, _why, _command in said(session)] == ["waits"]
    other = timed.create("other", agent="main")
    other.agents.record_start(there)
    lease = timed.store.acquire(other.id, "main", there, seconds=60)
    assert lease.epoch == 1
    assert standing_of(other).working == ["main"]
    clock.advance(61)
    assert standing_of(other).working == []


def test_listings_are_kept_and_read_again_only_after_growth(timed, agent, clock):
    """One list folds each session once; the next one folds those that grew, and both say the same."""
    for number in range(5):
        clock.advance(1)
        agent(f"fix-{number}").log.record("payload.kept", {"prompt": f"Do {number}", "agent": "claude"})
    heads = timed.every(LIVE)
    assert [head.name for head in heads] == [f"fix-{number}" for number in (4, 3, 2, 1, 0)]
    first = timed.entries(heads)
    kept = timed.store.snapshots(LISTING_VERSION, [head.session for head in heads])
    assert len(kept) == 5
    timed.store.save(heads[0].session, kept[heads[0].session]._replace(body=b"damaged"))
    clock.advance(1)
    timed.get("fix-1").facts.set_next_action("Run it")
    again = timed.entries(timed.every(LIVE))
    assert {one.head.name: one.listing["prompt"] for one in again} == {f"fix-{n}": f"Do {n}" for n in range(5)}
    assert [one.listing for one in again[1:]] == [one.listing for one in first if one.head.name != "fix-1"]
    assert again[0].listing["next"] == "Run it"
    assert [one.listing["vendor"] for one in again] == ["claude"] * 5


def test_every_session_is_looked_at_not_only_the_newest_page(timed, clock, monkeypatch):
    """The list is by need over all sessions, however many pages there are."""
    from onrecord.session import listings

    monkeypatch.setattr(listings, "PAGE_LIMIT", 3)
    for number in range(10):
        session = timed.create(f"fix-{number}")
        if number == 0:
            session.findings.state("No access to the logs", label="blocked")
        clock.advance(1)
    timed.create("over").close()
    found = [standing(entry, list, 0) for entry in timed.entries(timed.every(LIVE))]
    assert [one.entry.head.name for one in found] == [f"fix-{number}" for number in range(9, -1, -1)]
    assert [one.entry.head.name for one in found if one.needs] == ["fix-0"]


def test_the_last_prompt_is_what_a_person_asked_last(timed):
    """From recorded turns, from open ones, and from prompts on record; the newest counts, and only words."""
    session = timed.open("fix")
    assert timed.entries([session.head])[0].listing["prompt"] == ""
    session.record_turn([{"role": "user", "content": "First"}, {"role": "assistant", "content": "Yes."}])
    session.log.record("payload.kept", {"prompt": "Second\n  line", "agent": "main"})
    assert timed.entries([session.refresh().head])[0].listing["prompt"] == "Second line"
    with session.turn() as turn:
        turn.user("Third")
    session.record_turn([{"role": "assistant", "content": "Done."}])
    assert timed.entries([session.refresh().head])[0].listing["prompt"] == "Third"


def mirrored(*items):
    """A part of a mirrored conversation, as a hook or a wrapper keeps it."""
    lines = [json.dumps({"n": number}) for number in range(len(items))]
    rows = [
        {"line": number, "items": [item], "turn": "begins" if item["role"] == "user" else ""}
        for number, item in enumerate(items)
    ]
    return {"vendor": "claude", "vendor_id": "x", "lines": lines, "reading": rows}


def test_an_agent_that_asked_a_question_needs_a_person(agent):
    """Its last answer ends with one and it is still there; not once it works, was answered, or has left."""
    session = agent()
    prompt, call = {"role": "user", "content": "Fix it"}, {"id": "c1", "name": "Bash", "arguments": {}}
    ask = {"role": "assistant", "content": "Two ways exist.\n\nShall I take the **first**?"}
    session.log.record("payload.kept", mirrored(prompt, ask, ask | {"content": "Hm?", "thinking": True}))
    assert said(session) == [("question", "claude asks: Shall I take the **first**?", "onrecord show fix")]
    assert standing_of(session).entry.listing["prompt"] == "Fix it"
    session.log.record("payload.kept", mirrored({"role": "user", "content": "Yes"}))
    assert said(session) == []
    session.log.record("payload.kept", mirrored(ask | {"tool_calls": [call]}))
    assert said(session) == []
    session.log.record("payload.kept", mirrored(ask))
    assert [kind for kind, _why, _command in said(session)] == ["question"]
    session.agents.record_end()
    assert said(session) == []


def test_an_agent_that_has_answered_is_idle(agent, timed):
    """While its process runs it is idle before the first prompt and after an answer or an abort, else at work; a script is at work."""
    session = agent()
    prompt, call = {"role": "user", "content": "Fix it"}, {"id": "c1", "name": "Bash", "arguments": {}}
    answer = {"role": "assistant", "content": "Done."}
    assert standing_of(session.refresh()).idle == ["claude"]
    for items, idle in (
        ([prompt], []), ([answer | {"tool_calls": [call]}], []), ([{"role": "tool", "content": "ok", "id": "c1"}], []),
        ([answer], ["claude"]), ([prompt], []),
    ):  # fmt: skip
        session.log.record("payload.kept", mirrored(*items))
        one = standing_of(session.refresh())
        assert (one.working, one.idle, one.busy) == (["claude"], idle, not idle), items
    aborted = mirrored({"role": "user", "content": "[Request interrupted by user]"})
    aborted["reading"][0]["turn"] = "aborts"
    session.log.record("payload.kept", aborted)
    assert standing_of(session.refresh()).idle == ["claude"]
    script = timed.create("script", agent="main")
    script.agents.record_start(machine.identity())
    assert standing_of(script).busy


def test_a_look_is_not_activity(timed, agent, clock):
    """The survey of a `show` neither dates the session nor its note; what happens next does, also after a snapshot."""
    session = agent()
    session.decide("Read from the primary")
    then = session.head.at
    clock.advance(HOUR)
    for revision in ("a" * 40, "b" * 40):
        session.log.record("code.changed", {"anchors": {}, "revision": {"revision": revision}, "commits": []})
    fresh = timed.get("fix")
    (entry,) = timed.entries([fresh.head])
    assert (entry.active_at, fresh.views.active_at, session.views.active_at) == (then, then, then)
    assert f"last activity {iso(then)}" in fresh.note()
    assert Whole.load(fresh.views.dump()).active_at == then
    session.decide("Not from the replica")
    (entry,) = timed.entries([timed.find("fix")])
    assert entry.active_at == session.head.at > then


def test_an_erased_prompt_leaves_the_lists(timed):
    """After an erasure no kept listing has what was erased."""
    session = timed.create("fix")
    event = session.log.record("payload.kept", {"prompt": "my password is x", "agent": "main"})
    assert timed.entries([session.head])[0].listing["prompt"] == "my password is x"
    session.log.erase("a password", positions=[event.position])
    assert timed.entries([timed.find("fix")])[0].listing["prompt"] == ""


def test_a_damaged_session_hides_no_other(timed, agent, monkeypatch):
    """A log that cannot be folded is listed without details."""
    from onrecord.errors import DamagedLog
    from onrecord.session import listings

    agent("good")
    timed.create("bad")
    whole = listings.listing_of

    def failing(session):
        if session.head.name == "bad":
            raise DamagedLog("broken")
        return whole(session)

    monkeypatch.setattr(listings, "listing_of", failing)
    found = {one.head.name: one.listing["agent"] for one in timed.entries(timed.every(LIVE))}
    assert found == {"bad": "", "good": "claude"}


def test_needs_is_a_pure_function_of_the_listing(timed, agent):
    """The same listing, time and processes give the same needs; an ended session has none."""
    session = agent()
    session.agents.record_attention_needed("May I?")
    (entry,) = timed.entries([session.refresh().head])
    once = needs(entry.head, entry.listing, 0, ["claude"], lambda _process: False)
    assert once == needs(entry.head, entry.listing, 0, ["claude"], lambda _process: False)
    assert standing(entry, session.log.leases, 0).needs == once
    assert needs(entry.head._replace(status="closed"), entry.listing, 0, [], lambda _process: False) == []
    assert os.getpid() == entry.listing["agents"]["claude"]["process"]["pid"]
