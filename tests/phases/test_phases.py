"""A phase is finished when its required sections are written, in order, and never twice."""

import pytest

from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.views.sections import lacking


def finish(session, phase):
    """Do what a phase needs, and finish it."""
    session.phases.enter(phase)
    if phase == "Plan":
        session.phases.write_section("Design", "As simple as possible")
    if phase == "Do":
        session.attempts.start("make it")
        session.attempts.settle(None, "succeeded")
    return session.phases.finish(phase)


def test_the_start_line_is_the_first_thing_on_record(session):
    """Choosing the profile writes the session-start line in the same durable step, before any other action (D09)."""
    kinds = [event.kind for event in session.events()]
    assert kinds == ["session.opened", "profile.chosen", "worklog.written"]
    assert session.views.phases.worklog[0]["text"].startswith("Session started: profile small")


def test_phases_go_in_order(session):
    """A phase cannot be entered before the previous one is done, and not again when it is done (D04, D05, D08)."""
    with pytest.raises(Conflict, match="phase 'Plan' is not finished: Design is missing"):
        session.phases.enter("Do")
    finish(session, "Plan")
    assert session.views.phases.current() == "Do"
    with pytest.raises(Conflict, match="is done and cannot be repeated") as refusal:
        session.phases.enter("Plan")
    assert refusal.value.hint == "the current phase is 'Do'"
    with pytest.raises(Conflict, match="already done"):
        session.phases.finish("Plan")


def test_a_phase_needs_its_checkpoint_and_a_work_log_line_is_none(session):
    """Without its required sections a phase stays open, whatever the work log says (D06, D07)."""
    session.phases.enter("Plan")
    session.phases.log_work("Design: as simple as possible")
    with pytest.raises(Conflict, match="phase 'Plan' still needs Design"):
        session.phases.finish("Plan")
    session.phases.write_section("Design", "x")
    assert session.phases.finish("Plan").data == {"phase": "Plan", "retroactive": False}


def test_a_work_log_line_has_the_phase_it_was_written_in(session):
    """Every line of the work log is tagged with the phase of its moment, the start line and the last one too (D09)."""
    session.phases.log_work("Read the code")
    finish(session, "Plan")
    session.phases.log_work("Wrote the code")
    session.phases.log_start()
    session.close("later", anyway="the machine is taken away")
    assert [(line["phase"], line["text"].split(",")[0].split(";")[0]) for line in session.views.phases.worklog] == [
        ("Plan", "Session started: profile small"), ("Plan", "Read the code"), ("Do", "Wrote the code"),
        ("Do", "Session continued at phase 1 Do"), ("Do", "Session ended with pending: phase Do"),
    ]  # fmt: skip


def test_a_generated_section_can_be_required(session):
    """Events fill a generated section: without an attempt the phase that needs attempts stays open."""
    finish(session, "Plan")
    session.phases.enter("Do")
    assert lacking(session.views, "Do") == ["Runs"]
    with pytest.raises(Conflict, match="needs Runs"):
        session.phases.finish("Do")


def test_a_phase_waits_for_its_attempt(session):
    """While an attempt is unresolved no phase is finished."""
    finish(session, "Plan")
    session.phases.enter("Do")
    session.attempts.start("make it")
    with pytest.raises(Conflict, match="attempt 1 has no outcome yet"):
        session.phases.finish("Do")
    session.attempts.settle(1, "failed", error="it broke")
    session.phases.finish("Do")


def test_a_forgotten_phase_is_repaired_on_record(session):
    """--retroactive finishes a phase that was never entered, still with its required sections, in order, and says so (D08)."""
    with pytest.raises(Conflict, match="was not entered"):
        session.phases.finish("Plan")
    with pytest.raises(Conflict, match="needs Design"):
        session.phases.finish("Plan", retroactive=True)
    with pytest.raises(Conflict, match="'Plan' is not finished"):
        session.phases.finish("Do", retroactive=True)
    session.phases.write_section("Design", "x")
    event = session.phases.finish("Plan", retroactive=True, why="the agent began without it")
    assert event.data == {"phase": "Plan", "retroactive": True, "why": "the agent began without it"}
    assert session.views.phases.finished["Plan"]["retroactive"]


def test_phases_are_named_by_name_or_number(session):
    """A phase may be named in any case or by its number; the error for an unknown one lists those that exist."""
    session.phases.enter("plan")
    session.phases.write_section("design", "x")
    session.phases.finish("0")
    assert session.views.phases.status("Plan") == "DONE"
    with pytest.raises(NotFound, match="there is no phase 'Rest'"):
        session.phases.enter("Rest")


def test_without_a_profile_there_are_no_phases(records):
    """A session without a profile refuses phases and says how to get one."""
    plain = records.create("plain", agent="main")
    with pytest.raises(Conflict, match="no profile") as refusal:
        plain.phases.enter("Plan")
    assert "choose a profile" in refusal.value.hint


def test_a_specification_only_grows(session):
    """An append section takes a first text and corrections; neither a replacement nor emptying it is possible (E06)."""
    session.phases.write_section("Spec", "It must be fast")
    with pytest.raises(Conflict, match="cannot be replaced"):
        session.phases.write_section("Spec", "It may be slow")
    session.phases.write_section("Spec", "Correction: 2 s are fast enough", append=True)
    assert session.views.phases.text_of("Spec") == "It must be fast\nCorrection: 2 s are fast enough"
    with pytest.raises(Conflict, match="cannot be emptied"):
        session.phases.empty_section("Spec")


def test_a_generated_section_cannot_be_written(session):
    """A section that follows from the log cannot be written (E08)."""
    with pytest.raises(Conflict, match="generated from the log"):
        session.phases.write_section("Runs", "attempt 1 SUCCEEDED")
    with pytest.raises(NotFound, match="has no section"):
        session.phases.write_section("Other", "x")
    with pytest.raises(InvalidInput):
        session.phases.write_section("Design", "  ")


def test_sections_have_a_limit_also_when_they_grow(session):
    """A section is at most 64 Ki characters, however often it is appended to."""
    session.phases.write_section("Design", "x" * 60_000)
    with pytest.raises(InvalidInput, match="the limit is"):
        session.phases.write_section("Design", "x" * 6_000, append=True)


def test_closing_says_what_is_pending(session):
    """A session does not end with only a summary; the last line of its work log says what is pending, or nothing (D10, H43)."""
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
    """The line of a resume names the first unfinished phase, and the finished ones (D04, G13)."""
    finish(session, "Plan")
    line = session.phases.log_start().data
    assert line["text"] == "Session continued at phase 1 Do; phases skipped because they are done: Plan"
    assert line["phase"] == "Do"


def test_all_in_one_go_or_over_many_handles(records, session):
    """Another handle, as of another process, continues exactly where the first one stopped (D12)."""
    finish(session, "Plan")
    other = records.get("work", agent="second")
    assert other.views.phases.current() == "Do"
    finish(other, "Do")
    assert session.views.phases.status("Do") == "DONE"


def test_a_feature_passes_with_evidence_that_is_on_record(building):
    """A feature's text never changes, and it passes or fails only with evidence that resolves to something (C08)."""
    with pytest.raises(InvalidInput, match="only with evidence"):
        building.phases.judge_feature("login", passes=True, evidence=[])
    with pytest.raises(NotFound, match="there is no evidence 'trust-me'"):
        building.phases.judge_feature("login", passes=True, evidence=["trust-me"])
    with pytest.raises(NotFound, match="there is no feature"):
        building.phases.judge_feature("logins", passes=True, evidence=["run-1"])
    building.phases.judge_feature("login", passes=True, evidence=["run-1"])
    assert building.views.phases.features["login"]["passes"]
    with pytest.raises(Conflict, match="a different text"):
        building.phases.add_feature("login", "A user can log in sometimes")
    building.phases.judge_feature("login", passes=False, evidence=["run-1"])
    assert not building.views.phases.features["login"]["passes"]


def test_what_passed_is_tried_again_before_anything_else_passes(building):
    """After a resume, another feature passes only when those that passed before were tried again."""
    building.phases.judge_feature("login", passes=True, evidence=["run-1"])
    building.pause()
    building.resume()
    assert building.views.phases.unproven() == ["login"]
    with pytest.raises(Conflict, match="login passed before work was resumed"):
        building.phases.judge_feature("logout", passes=True, evidence=["run-1"])
    building.phases.judge_feature("login", passes=True, evidence=["run-1"])
    building.phases.judge_feature("logout", passes=True, evidence=["run-1"])
    assert building.views.phases.unproven() == []


def test_building_ends_when_every_feature_passes(building):
    """The phase Build is not finished while a listed feature does not pass."""
    building.phases.write_section("Specification", "A small app")
    building.phases.enter("Specify")
    building.phases.finish("Specify")
    building.phases.enter("Build")
    building.phases.write_section("How to Run", "make run")
    building.phases.judge_feature("login", passes=True, evidence=["run-1"])
    with pytest.raises(Conflict, match="needs feature logout to pass"):
        building.phases.finish("Build")
    building.phases.judge_feature("logout", passes=True, evidence=["run-1"])
    building.phases.finish("Build")
