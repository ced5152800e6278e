"""A phase is finished by its checkpoint, in order, and never twice."""

import pytest

from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.views.sections import lacking


def finish(session, phase):
    """Do what a phase needs, and finish it."""
    session.enter_phase(phase)
    if phase == "Plan":
        session.write_section("Design", "As simple as possible")
    if phase == "Do":
        session.start_attempt("make it")
        session.settle_attempt(None, "succeeded")
    return session.finish_phase(phase)


def test_the_start_line_is_the_first_thing_on_record(session):
    """D09: choosing the profile writes the session-start line in the same durable step, before any other action."""
    kinds = [event.kind for event in session.events()]
    assert kinds == ["session.opened", "profile.chosen", "worklog.written"]
    assert session.views.phases.worklog[0]["text"].startswith("Session started: profile small")


def test_phases_go_in_order(session):
    """D04 D05 D08: a phase cannot be entered before the one before it is done, and not again when it is done."""
    with pytest.raises(Conflict, match="phase 'Plan' is not finished: Design is missing"):
        session.enter_phase("Do")
    finish(session, "Plan")
    assert session.views.phases.current() == "Do"
    with pytest.raises(Conflict, match="is done and cannot be repeated") as refusal:
        session.enter_phase("Plan")
    assert refusal.value.hint == "the current phase is 'Do'"
    with pytest.raises(Conflict, match="already done"):
        session.finish_phase("Plan")


def test_a_phase_needs_its_checkpoint_and_a_work_log_line_is_none(session):
    """D06 D07: without the sections of its checkpoint a phase stays open, whatever the work log says."""
    session.enter_phase("Plan")
    session.log_work("Design: as simple as possible")
    with pytest.raises(Conflict, match="phase 'Plan' still needs Design"):
        session.finish_phase("Plan")
    session.write_section("Design", "x")
    assert session.finish_phase("Plan").data == {"phase": "Plan", "retroactive": False}


def test_a_checkpoint_sees_what_is_generated(session):
    """A generated section is filled by what happened: without an attempt the phase that needs attempts stays open."""
    finish(session, "Plan")
    session.enter_phase("Do")
    assert lacking(session.views, "Do") == ["Runs"]
    with pytest.raises(Conflict, match="needs Runs"):
        session.finish_phase("Do")


def test_a_phase_waits_for_its_attempt(session):
    """While an attempt is unresolved no phase is finished."""
    finish(session, "Plan")
    session.enter_phase("Do")
    session.start_attempt("make it")
    with pytest.raises(Conflict, match="attempt 1 has no outcome yet"):
        session.finish_phase("Do")
    session.settle_attempt(1, "failed", error="it broke")
    session.finish_phase("Do")


def test_a_forgotten_phase_is_repaired_on_record(session):
    """D08: --retroactive finishes a phase that was never entered, still with its checkpoint, in order, and says so."""
    with pytest.raises(Conflict, match="was not entered"):
        session.finish_phase("Plan")
    with pytest.raises(Conflict, match="needs Design"):
        session.finish_phase("Plan", retroactive=True)
    with pytest.raises(Conflict, match="'Plan' is not finished"):
        session.finish_phase("Do", retroactive=True)
    session.write_section("Design", "x")
    event = session.finish_phase("Plan", retroactive=True, why="the agent began without it")
    assert event.data == {"phase": "Plan", "retroactive": True, "why": "the agent began without it"}
    assert session.views.phases.finished["Plan"]["retroactive"]


def test_phases_are_named_by_name_or_number(session):
    """A phase may be named in any case or by its number; an unknown one is answered with those there are."""
    session.enter_phase("plan")
    session.write_section("design", "x")
    session.finish_phase("0")
    assert session.views.phases.status("Plan") == "DONE"
    with pytest.raises(NotFound, match="there is no phase 'Rest'"):
        session.enter_phase("Rest")


def test_without_a_profile_there_are_no_phases(records):
    """A session without a profile refuses phases and says how to get one."""
    plain = records.create("plain", agent="main")
    with pytest.raises(Conflict, match="no profile") as refusal:
        plain.enter_phase("Plan")
    assert "choose a profile" in refusal.value.hint


def test_a_specification_only_grows(session):
    """E06: an append section takes a first text and corrections; neither a replacement nor emptying it is possible."""
    session.write_section("Spec", "It must be fast")
    with pytest.raises(Conflict, match="cannot be replaced"):
        session.write_section("Spec", "It may be slow")
    session.write_section("Spec", "Correction: 2 s are fast enough", append=True)
    assert session.views.phases.text_of("Spec") == "It must be fast\nCorrection: 2 s are fast enough"
    with pytest.raises(Conflict, match="cannot be emptied"):
        session.empty_section("Spec")


def test_a_generated_section_cannot_be_written(session):
    """E08: what follows from the log is not written by anybody."""
    with pytest.raises(Conflict, match="generated from the log"):
        session.write_section("Runs", "attempt 1 SUCCEEDED")
    with pytest.raises(NotFound, match="has no section"):
        session.write_section("Other", "x")
    with pytest.raises(InvalidInput):
        session.write_section("Design", "  ")


def test_sections_have_a_limit_also_when_they_grow(session):
    """A section is at most 64 Ki characters, however often it is appended to."""
    session.write_section("Design", "x" * 60_000)
    with pytest.raises(InvalidInput, match="the limit is"):
        session.write_section("Design", "x" * 6_000, append=True)


def test_closing_says_what_is_pending(session):
    """D10 H43: not with only a summary; and the last line of the work log is honest: what is pending, or nothing."""
    finish(session, "Plan")
    with pytest.raises(Conflict, match="cannot be closed yet; its note lacks"):
        session.close("later")
    session.close("later", anyway="the machine is taken away")
    assert session.views.facts.decisions[-1]["why"] == "the machine is taken away"
    assert session.views.phases.worklog[-1]["text"] == "Session ended with pending: phase Do, phase Tell"
    session.resume(reopen=True)
    finish(session, "Do")
    finish(session, "Tell")
    session.close("done", anyway="nothing was to be found out")
    assert session.views.phases.worklog[-1]["text"] == "Session complete: nothing pending"
    assert [event.kind for event in session.events()][-2:] == ["worklog.written", "session.closed"]


def test_going_on_says_where_and_what_is_skipped(session):
    """D04 G13: the line that says work goes on names the first phase that is not done, and those that are."""
    finish(session, "Plan")
    line = session.start_work().data
    assert line["text"] == "Session continued at phase 1 Do; phases skipped because they are done: Plan"
    assert line["phase"] == "Do"


def test_all_in_one_go_or_over_many_handles(records, session):
    """D12: another handle, as another process would have, goes on exactly where the first one stopped."""
    finish(session, "Plan")
    other = records.get("work", agent="second")
    assert other.views.phases.current() == "Do"
    finish(other, "Do")
    assert session.views.phases.status("Do") == "DONE"


def test_a_feature_passes_with_evidence_that_is_on_record(building):
    """C08: a feature's text never changes, and it passes or fails only with evidence that resolves to something."""
    with pytest.raises(InvalidInput, match="only with evidence"):
        building.judge_feature("login", passes=True, evidence=[])
    with pytest.raises(NotFound, match="there is no evidence 'trust-me'"):
        building.judge_feature("login", passes=True, evidence=["trust-me"])
    with pytest.raises(NotFound, match="there is no feature"):
        building.judge_feature("logins", passes=True, evidence=["run-1"])
    building.judge_feature("login", passes=True, evidence=["run-1"])
    assert building.views.phases.features["login"]["passes"]
    with pytest.raises(Conflict, match="a different text"):
        building.list_feature("login", "A user can log in sometimes")
    building.judge_feature("login", passes=False, evidence=["run-1"])
    assert not building.views.phases.features["login"]["passes"]


def test_what_passed_is_tried_again_before_anything_else_passes(building):
    """After work went on, another feature passes only once those that passed before were tried again."""
    building.judge_feature("login", passes=True, evidence=["run-1"])
    building.pause()
    building.resume()
    assert building.views.phases.unproven() == ["login"]
    with pytest.raises(Conflict, match="login passed before work was resumed"):
        building.judge_feature("logout", passes=True, evidence=["run-1"])
    building.judge_feature("login", passes=True, evidence=["run-1"])
    building.judge_feature("logout", passes=True, evidence=["run-1"])
    assert building.views.phases.unproven() == []


def test_building_ends_when_every_feature_passes(building):
    """The phase Build is not finished while a listed feature does not pass."""
    building.write_section("Specification", "A small app")
    building.enter_phase("Specify")
    building.finish_phase("Specify")
    building.enter_phase("Build")
    building.write_section("How to Run", "make run")
    building.judge_feature("login", passes=True, evidence=["run-1"])
    with pytest.raises(Conflict, match="needs feature logout to pass"):
        building.finish_phase("Build")
    building.judge_feature("logout", passes=True, evidence=["run-1"])
    building.finish_phase("Build")
