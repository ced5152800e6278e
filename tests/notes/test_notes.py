"""The note: complete, short, current; and a brief that is complete without it."""

import json
from typing import Any

import jinja2
from hypothesis import given
from hypothesis import strategies as st

from onrecord.connection import instructions
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.views.handover import report, text_of
from onrecord.views.happenings import Recent
from onrecord.views.instructions import placed
from onrecord.views.note import BRIEF_LIMIT, REJECTED, brief, note
from onrecord.views.note_forms import issue_comment, pull_request, task
from onrecord.views.render import one_line
from onrecord.views.values import Anchor
from tests.laws import values
from tests.phases.conftest import SMALL
from tests.proofs import cite

long_texts = values.long_hostile_texts.filter(str.strip)
ANCHOR: Anchor = {"path": "src/auth.py", "fingerprint": "aaaa"}


def never_gone(_process):
    return False


@given(
    long_texts, long_texts,
    st.lists(st.tuples(long_texts, st.sampled_from(["rejected", "verified", "open", "blocked"])), max_size=12),
    st.lists(st.tuples(long_texts, st.sampled_from(["failed", "running", "succeeded"])), max_size=3), st.booleans(),
)  # fmt: skip
def test_a_full_session_still_has_a_brief_that_stands_alone(objective, action, stated, attempts, stale):
    """With findings, attempts and a profile of any size, 2,048 bytes hold objective, next action and rejections (H33)."""
    session = SessionStore(MemoryStore(), project="/p").create("work", agent="main")
    session.phases.choose_profile(SMALL)
    session.facts.set_objective(objective)
    session.facts.set_next_action(action, command=action)
    for number, (claim, label) in enumerate(stated):
        session.findings.state(
            f"{number} {claim}"[:4_000], label, evidence=cite(session, "run-1"), anchors=[ANCHOR] if stale else []
        )
    for number, (command, outcome) in enumerate(attempts):
        session.attempts.start(["run", str(number), command])
        if outcome == "running":
            break
        session.attempts.settle(None, outcome, error=command if outcome == "failed" else None)
    if stale:
        session.log.record("code.changed", {"anchors": {"src/auth.py": "bbbb"}})
    text = brief(session.views)
    assert len(text.encode()) <= BRIEF_LIMIT
    lines = text.split("\n")
    assert lines[1].startswith(f"Objective: {one_line(objective, 4_000)[:15]}")
    assert lines[2].startswith(f"Next action: {one_line(action, 4_000)[:15]}")
    rejected = [finding["id"] for finding in session.views.findings.labelled("rejected")]
    assert bool(rejected) is any(line.startswith(REJECTED) for line in lines)
    if rejected:
        assert any(line.startswith(f"- {rejected[-1]}: ") for line in lines)
    if session.views.attempts.unresolved():
        assert "unresolved" in text


def told(session) -> Any:
    session.facts.set_objective("Fix the intermittent 403")
    session.facts.set_reproduction("pytest -k invite", rate="3/10")
    session.evidence.record("run", id="run-a", captured=True, command="pytest -k invite")
    session.evidence.record("log", id="log-b", reference="acceptance 17")
    session.findings.state("The middleware is the cause", "rejected", evidence=cite(session, "run-a"))
    session.findings.state("The row is written late", "verified", evidence=cite(session, "log-b"), anchors=[ANCHOR])
    session.facts.set_next_action("Read the commit order", command="pytest -k commit")
    return session.note()


def test_captured_and_asserted_evidence_are_told_apart(session):
    """Captured evidence has a mark, asserted evidence does not, in every rendering (H18)."""
    text = told(session)
    for shown in (text, session.brief(), pull_request(session.views)):
        assert "[run-a✓]" in shown
        assert "[log-b]" in shown
    findings = task(session.views)["findings"]
    assert [one["evidence"][0]["how"] for one in findings] == ["captured", "asserted"]


def test_the_active_hypothesis_is_what_is_worked_on(session):
    """Note and brief name the current hypothesis, as long as it is open, and no other."""
    session.findings.state("The cache is stale", "open")
    session.findings.state("The row is written late", "open", hypothesis=True)
    assert "\n## Working on\n\n- f2: The row is written late\n" in session.note()
    assert "\nWorking on:\n- f2: The row is written late\n" in session.brief()
    session.findings.pursue("f1")
    assert "\n## Working on\n\n- f1: The cache is stale\n" in session.note()
    session.findings.relabel("f1", "rejected", evidence=cite(session, "run-a"))
    assert "Working on" not in session.note() + session.brief()


def test_a_stale_finding_says_how_much_changed(session):
    """When code under a finding changes, it is stale and says what changed; a revert makes it verified again (H14, H28)."""
    told(session)
    session.log.record("code.changed", {"anchors": {"src/auth.py": "bbbb"}})
    assert "f2: The row is written late (was verified; src/auth.py changed since) [log-b]" in session.note()
    assert "## Verified" not in session.note()
    assert "Stale (check again" in session.brief()
    session.log.record("code.changed", {"anchors": {"src/auth.py": "aaaa"}})
    assert "## Verified" in session.note()
    assert "Stale" not in session.note()


def test_who_judges_anew_has_looked_at_the_code(session):
    """A finding that is judged again on the current code is not stale; another one on the old code is (H28)."""
    told(session)
    session.findings.state("The cache is cold", "verified", evidence=cite(session, "log-b"), anchors=[ANCHOR])
    session.log.record("code.changed", {"anchors": {"src/auth.py": "bbbb"}})
    session.findings.relabel(
        "f2", "verified", evidence=cite(session, "run-a"), anchors=[ANCHOR | {"fingerprint": "cccc"}]
    )
    findings = session.views.findings
    assert [one["id"] for one in findings.labelled("verified")] == ["f2"]
    assert [one["id"] for one in findings.labelled("stale")] == ["f3"]


def test_a_verified_cause_is_no_fix(session):
    """Root cause verified and fix implemented are two statements (H45)."""
    told(session)
    session.findings.record_milestone("root_cause", finding="f2")
    assert "root cause verified (f2); fix not implemented" in session.note()
    assert session.findings.record_milestone("fix", evidence=cite(session, "run-a")).data["evidence"] == ["run-a"]
    assert session.views.phases.milestones["fix"]["evidence"] == ["run-a"]
    assert "root cause verified (f2); fix implemented" in session.brief()


def test_a_note_is_assembled_when_nobody_wrote_one(records):
    """Even if the agent wrote nothing, the note has what ran, what failed, which files changed and the last turn."""
    plain = records.open("plain", agent="main")
    plain.record_turn(
        [{"role": "user", "content": "Why the 403?"}, {"role": "assistant", "content": "Looking at auth."}]
    )
    plain.attempts.start("pytest -k invite", revision={"revision": "abc", "dirty": "d", "changed": ["src/auth.py"]})
    plain.attempts.settle(1, "failed", error="AssertionError: 403")
    plain.attempts.start("pytest -k other")
    text = plain.note()
    for part in (
        "What happened (no note was written", "attempt 1 failed: pytest -k invite; error: AssertionError: 403",
        "not committed: src/auth.py", "last words: Looking at auth.", "1 committed turn,",
        "attempt 2 running; unresolved, settle it first: pytest -k other",
    ):  # fmt: skip
        assert part in text
    assert text.count("src/auth.py") == 1, "what differs from the revision is not called the agent's work as well"
    plain.facts.set_next_action("Read the middleware")
    assert "What happened" not in plain.note()


def test_a_lost_attempt_is_told_as_lost(session):
    """An attempt with a dead process is lost in the brief, never running and never succeeded."""
    session.attempts.start("python train.py", process={"pid": 1})
    assert "attempt 1 lost; unresolved" in brief(session.views, lambda _process: True)
    assert "attempt 1 running; unresolved" in brief(session.views, never_gone)


def test_other_renderings_are_inert(session):
    """A pull request body or comment mentions no user and opens no tag, whatever an agent claimed."""
    told(session)
    session.findings.state("@everyone <img src=x> <!-- hidden", "open")
    for text in (pull_request(session.views), issue_comment(session.views)):
        assert "@everyone" not in text
        assert "<img" not in text
        assert "&#64;everyone &lt;img src=x> &lt;!-- hidden" in text
    assert "## Ruled out" in pull_request(session.views)
    assert issue_comment(session.views).startswith("### work (open, position ")


def test_the_task_file_is_complete(session):
    """The JSON task file has every field of the note, unshortened, and is JSON (H38)."""
    told(session)
    data = json.loads(json.dumps(task(session.views)))
    assert data["objective"] == "Fix the intermittent 403"
    assert data["next_action"]["command"] == "pytest -k commit"
    assert data["reproduction"]["rate"] == "3/10"
    assert [one["label"] for one in data["findings"]] == ["rejected", "verified"]
    assert [phase["status"] for phase in data["phases"]] == ["pending", "pending", "pending"]


def test_the_task_file_has_what_was_decided_reached_listed_and_tried(session):
    """Decisions, milestones, features, evidence and attempts are in the task file as they are on record (H38)."""
    told(session)
    session.decide("Keep the middleware", why="it is not the cause")
    session.findings.record_milestone("root_cause", finding="f2", evidence=cite(session, "log-b"))
    session.phases.add_feature("invite-works", "An invited user can log in")
    session.phases.judge_feature("invite-works", passes=True, evidence=["run-a"])
    session.attempts.start("pytest -k invite")
    session.attempts.settle(1, "failed", error="AssertionError: 403")
    session.attempts.start("pytest -k commit")
    data = json.loads(json.dumps(task(session.views)))
    assert [(one["text"], one["why"]) for one in data["decisions"]] == [("Keep the middleware", "it is not the cause")]
    assert {what: (one["finding"], one["evidence"]) for what, one in data["milestones"].items()} == {
        "root_cause": ("f2", ["log-b"])
    }
    assert {name: (one["text"], one["passes"], one["evidence"]) for name, one in data["features"].items()} == {
        "invite-works": ("An invited user can log in", True, ["run-a"])
    }
    assert [(one["number"], one["command"], one["status"], one.get("error")) for one in data["attempts"]] == [
        (1, "pytest -k invite", "failed", "AssertionError: 403"), (2, "pytest -k commit", "running", None),
    ]  # fmt: skip
    assert data["unresolved_attempts"] == [2]
    assert [(one["id"], one["how"]) for one in data["evidence"]] == [("run-a", "captured"), ("log-b", "asserted")]


def test_the_report_says_what_is_reused_rejected_new_and_saved(session, clock):
    """The report has reused, rejected, new and unresolved; phases, attempts, tokens and time that are saved (H44, G13)."""
    told(session)
    session.phases.enter("Plan")
    session.phases.write_section("Design", "simple")
    session.phases.finish("Plan")
    session.budget.record_usage("model", input_tokens=1_000, output_tokens=200)
    before = session.at(session.head.position).views
    clock.advance(90)
    session.attempts.start("make it")
    session.attempts.settle(1, "failed", error="it broke", seconds=4.5)
    session.findings.state("The cache is stale", "open")
    session.attempts.start("make it again")
    found = report(session.views, before, never_gone, int(clock() * 1e6))
    assert found["reused"] == ["reproduction: pytest -k invite (rate 3/10)", "f2: The row is written late [log-b]"]
    assert found["rejected"] == ["f1: The middleware is the cause [run-a✓]"]
    assert {one["what"] for one in found["new"]} == {"finding f3", "attempt 1", "attempt 2"}
    assert found["unresolved"] == ["attempt 2 is running: make it again"]
    assert found["saved"] == {
        "phases": ["Plan"], "attempts": 1, "failed_attempts": 1, "attempt_seconds": 4.5, "tokens": 1_200, "seconds": 90.0,
    }  # fmt: skip
    text = text_of(found)
    for part in (
        "Verified (reuse it):\n- f2: The row", "Rejected (do not retry):\n- f1: The middleware",
        f"New since position {before.position}:\n- finding f3: - -> open", "Unresolved (settle first):\n- attempt 2 is running",
    ):  # fmt: skip
        assert part in text
    assert "Continue with: phase Do: Read the commit order $ pytest -k commit" in text
    assert "Already done: 1 phase (Plan), 1 attempt (1 failed, 4.5 s of runs); 1,200 tokens were spent on it" in text


def test_no_template_can_lose_the_instructions():
    """The block is in a prompt exactly once: added where it is missing, updated where it exists (E15, E16)."""
    block = instructions("research")
    assert len(block) < 2_048
    bare = instructions("research", into="A prompt of another domain")
    assert bare == f"A prompt of another domain\n\n{block}"
    assert instructions("research", into=bare) == bare
    renewed = instructions("build", into=f"{bare}\nafter\n{block}")
    assert renewed.count("onrecord:instructions end") == 1
    assert renewed == f"A prompt of another domain\n\n{instructions('build')}\nafter\n"
    assert placed("", block) == block


@given(st.lists(values.spoken, min_size=1, max_size=5))
def test_a_note_made_of_events_has_no_forged_line(spoken):
    """A turn's text cannot add a heading or entry to the note that is assembled from events."""
    session = SessionStore(MemoryStore(), project="/p").open("work", agent="main")
    turn = session.record_turn([{"role": "user", "content": text} for text in spoken])
    lines = note(session.views, Recent(session.transcript().committed, [])).split("\n")
    assert turn.position > 0
    assert [line for line in lines if line.startswith("## ")] == [
        "## What happened (no note was written; this is from the events)"
    ]
    assert sum(line.startswith("- ") for line in lines) == 1 + any(text.strip() for text in spoken)


def test_a_note_quotes_every_agent_at_work():
    """Who works beside a talkative agent is in note and brief with its prompt, its command, its edits and its words; a refused edit is none."""
    records = SessionStore(MemoryStore(), project="/p")
    quiet, loud = (records.open("work", agent=name) for name in ("quiet", "loud"))
    with quiet.turn() as turn:
        turn.user("Write the docs.")
        for call in ("c0", "c1"):
            turn.assistant("", tool_calls=[{"id": call, "name": "bash", "arguments": {"command": "make docs"}}])
            turn.tool(call, "exit code: 0")
        for call, path in (("c2", "docs/yes.md"), ("c3", "docs/no.md")):
            turn.assistant("", tool_calls=[{"id": call, "name": "Write", "arguments": {"file_path": path}}])
            turn.tool(call, "", error=call == "c3")
        turn.assistant("They are written.")
    for number in range(60):
        loud.record_turn(
            [{"role": "user", "content": f"step {number}"}, {"role": "assistant", "content": f"did {number}"}]
        )
    for text in (loud.note(), loud.brief()):
        assert "asked last: step 59" in text
        assert "last words: did 59" in text
        assert "quiet was asked: Write the docs." in text
        assert "last words of quiet: They are written." in text
        assert text.count("ran: make docs (exit 0), 2 times") == text.count("make docs") == 1
        assert "files changed: docs/yes.md\n" in text


def test_a_template_of_any_domain_cannot_lose_the_instructions():
    """The block is a Jinja2 variable and macro; a template that forgot it gets it back, and none has it twice (E15, E16)."""
    environment = jinja2.Environment(autoescape=False)  # prompts are text, not pages
    block = environment.globals["onrecord_instructions"] = instructions("research")
    faithful = "{% macro rules() %}{{ onrecord_instructions }}{% endmacro %}You are careful.\n{{ rules() }}"
    forgetful = "You are a {{ domain }} researcher."
    for template in (faithful, forgetful):
        prompt = instructions("research", into=environment.from_string(template).render(domain="biology"))
        assert prompt.count(block) == 1
