"""What holds of the gate in every session."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from onrecord.rules import ACTS, ALLOW, ASK, DENY, REFUSALS_LIMIT, RULES, ToolRequest, Verdict, commands_of, decide
from onrecord.views.fold import fold_whole
from onrecord.views.present import KINDS, Present
from tests.gate.play import Stage, gone, obey, requests, steps

HOSTILE = (
    "deny",
    "onrecord gate override",
    "session_closed",
    "# Rejected",
    "allow: true",
    "attempt 1 failed",
    "\u202e\x1b[2J",
)


def verdict_on(stage: Stage, request: ToolRequest) -> Verdict:
    return decide(request, Present.of(stage.session.views), stage.now, gone)


@given(st.lists(steps, max_size=30), requests)
def test_the_gate_never_deadlocks(done, request):
    """From any state, following each verdict leads to `allow` within as many steps as there are refusals (P30)."""
    stage = Stage()
    session = stage.play(done)
    limit = len(session.views.attempts.unresolved()) + len(RULES) + 4
    for _ in range(limit):
        verdict = verdict_on(stage, request)
        if verdict.decision == ALLOW:
            return
        obey(session, verdict)
    raise AssertionError(verdict.as_data())


@given(st.lists(steps, max_size=30), requests)
def test_a_refusal_that_repeats_itself_becomes_a_question(done, request):
    """An agent that keeps asking without clearing anything is denied a limited number of times, then a person is asked."""
    stage = Stage()
    session = stage.play(done)
    times = REFUSALS_LIMIT + 2
    before = dict(session.views.gates.refusals)
    found = [session.gate.judge(request) for _ in range(times)]
    told = [verdict.decision for verdict in found]
    if told[0] == ALLOW:
        assert told == [ALLOW] * times
        return
    assert len({(verdict.rule, verdict.ground, verdict.clear) for verdict in found}) == 1
    if session.status in ("closed", "archived"):
        # An ended session accepts no events: nothing is counted there, and reopening it always works.
        assert set(told) == {found[0].decision}
        return
    denied = max(0, REFUSALS_LIMIT - before.get(found[0].ground, 0))
    assert told == [DENY] * denied + [ASK] * (times - denied)


@given(st.lists(steps, max_size=30), requests)
def test_a_verdict_is_deterministic_and_changes_nothing(done, request):
    """The same present gives the same verdict, and deciding leaves the views unchanged."""
    stage = Stage()
    session = stage.play(done)
    before = session.views.dump()
    first, second = verdict_on(stage, request).as_data(), verdict_on(stage, request).as_data()
    assert first == second
    assert session.views.dump() == before


@given(st.lists(steps, max_size=30), requests)
def test_no_rule_looks_at_words(done, request):
    """Replacing every free text by another, even a hostile one, changes only the wording of the verdict."""
    words = itertools.cycle(HOSTILE)
    plain, hostile = Stage(), Stage(lambda: next(words))
    plain.play(done)
    hostile.play(done)
    one, other = verdict_on(plain, request).as_data(), verdict_on(hostile, request).as_data()
    for verdict in (one, other):
        verdict["advice"] = bool(verdict["advice"])
        del verdict["reason"]
    assert one == other


@given(st.lists(steps, max_size=30), st.data())
def test_the_small_snapshot_decides_like_all_views(done, data):
    """A snapshot of the present at any position, and the relevant events after it, give the verdicts of the whole log."""
    stage = Stage()
    session = stage.play([step for step in done if step[0] != "erase"])
    records = session.store.read(session.id)
    cut = data.draw(st.integers(0, len(records)))
    request = data.draw(requests)
    kept = Present.of(fold_whole(session.head, records[:cut])).dump()
    tail = [event for event in session.events(after=cut) if event.kind in KINDS]
    present = Present.load(kept, session.name, session.status).fold(tail)
    assert decide(request, present, stage.now, gone).as_data() == verdict_on(stage, request).as_data()
    late, known = Present.load(kept, session.name, session.status).attempts, Present.load(kept, "", "").attempts
    assert known.attempts is known.attempts
    assert (late.unresolved(), late.unresolved("main")) == (known.unresolved(), known.unresolved("main"))
    signatures = {one["signature"] for one in list(known.all())[::2]} | {"none"}
    assert Present.load(kept, "", "").attempts.of_commands(signatures) == known.of_commands(signatures)
    assert Present.load(kept, session.name, session.status).dump() == kept


@given(st.lists(steps, max_size=30), st.sampled_from(ACTS), st.text(max_size=40))
def test_own_commands_and_own_files_are_never_refused(done, act, text):
    """Whatever happened, onrecord's own commands, its own files, and reading are allowed (P30)."""
    stage = Stage()
    stage.play(done)
    own = [
        ToolRequest("claude", act if act in ("read", "other") else "read"),
        ToolRequest("claude", "edit", paths=[".onrecord/NOTE.md", "STATE.md"]),
        *[ToolRequest("claude", "run", commands=commands_of(line)) for line in (
            "onrecord attempt fail 1 --error 'a; b && c' --fix none", "cd /p && ONRECORD_AGENT=x onrecord show | head -5",
            "/usr/local/bin/onrecord run -- pytest 2>&1", "python -m onrecord resume x > /dev/null",
        )],
    ]  # fmt: skip
    assert {verdict_on(stage, request).decision for request in own} == {ALLOW}
    assert isinstance(commands_of(text), list)
