"""Attempts that onrecord does not launch, from the command line."""

import os
import re
import sys

import pytest

pytestmark = pytest.mark.every_store
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_start_and_succeed(command):
    """`attempt start` is RUNNING; `succeed` takes metrics and existing files, and they differ from captured ones."""
    command.ok("open", "work")
    (command.project / "model.pt").write_text("weights")
    started = command.data("attempt", "start", "--", "sbatch", "train.sh", kind="attempt")
    assert (started["number"], started["status"], started["command"]) == (1, "running", "sbatch train.sh")
    command.error("attempt", "succeed", "--output", "gone.pt", code=2, kind="invalid_input")
    command.error("attempt", "succeed", "--metric", "loss=nan", code=2, kind="invalid_input")
    done = command.data("attempt", "succeed", "--metric", "loss=0.5", "--output", "model.pt", kind="attempt")
    assert (done["status"], done["captured"], done["metrics"]) == ("succeeded", False, {"loss": 0.5})
    assert done["outputs"][0]["size"] == 7
    assert "asserted" in command.ok("attempt", "list")
    assert "asserted" in command.ok("attempt", "show", "1")


def test_fail_abandon_and_correct(command):
    """A failure needs its error, an abandoned attempt its reason; a settled attempt only gains details."""
    command.ok("open", "work")
    command.ok("attempt", "start", "--", "make")
    command.error("attempt", "fail", code=2, kind="usage")
    command.error("attempt", "abandon", code=2, kind="usage")
    command.error("attempt", "start", "--", "make", "again", code=10, kind="conflict")
    command.ok("attempt", "fail", "--error", "boom")
    command.error("attempt", "succeed", "1", code=10, kind="conflict")
    command.ok("attempt", "correct", "1", "--fix", "cleaned", "--remark", "twice")
    command.ok("attempt", "start", "--", "make")
    command.ok("attempt", "abandon", "2", "--reason", "took too long")
    one, two = command.data("attempt", "list", kind="attempts")
    assert (one["status"], one["error"], one["fix"]) == ("failed", "boom", "cleaned")
    assert (two["status"], two["reason"]) == ("abandoned", "took too long")
    assert command.data("attempt", "show", "1", kind="attempt")["corrections"][0]["remark"] == "twice"
    text = command.ok("attempt", "show", "1")
    assert "fix\tcleaned\n" in text
    assert "remark\ttwice\n" in text


def test_lists_compare_and_export(command):
    """Metrics are columns of the list; two attempts are compared; both are exported as CSV."""
    command.ok("open", "work")
    for loss in ("0.5", "0.25"):
        command.ok("attempt", "start", "--", "make", loss)
        command.ok("attempt", "succeed", "--metric", f"loss={loss}", "--metric", "acc=0.9")
    assert command.ok("attempt", "list").splitlines()[0].startswith("1\tsucceeded\tmake 0.5\t0.9\t0.5\t\tasserted")
    assert "loss\t0.5\t0.25\t-0.25" in command.ok("attempt", "compare", "1", "2")
    assert command.ok("attempt", "compare", "1", "2", "--csv").splitlines()[0] == ",attempt 1,attempt 2,change"
    assert command.ok("attempt", "list", "--csv").splitlines()[1].startswith("1,succeeded,make 0.5,")
    data = command.data("attempt", "compare", "2", "1", kind="comparison")
    assert [one["number"] for one in data["attempts"]] == [2, 1]
    command.error("attempt", "compare", "1", code=2, kind="usage")
    command.error("attempt", "compare", "1", "9", code=4, kind="not_found")


def test_a_list_of_attempts_never_cuts_evidence(command):
    """Metrics get as many columns as there is room for, the others are part of the result; the id of the evidence is whole."""
    command.ok("open", "work")
    metrics = {f"metric_{name}": 0.125 for name in "abcdef"}
    (command.project / "train.py").write_text(f"import json\njson.dump({metrics}, open('m.json', 'w'))\n")
    command.ok("run", "--metrics-file", "m.json", "--", sys.executable, "train.py")
    (known,) = command.data("attempt", "list", kind="attempts")
    for columns, named in ((60, 0), (80, 2), (120, 6)):
        heading, row = COLOUR.sub("", command.on_terminal("attempt", "list", columns=columns).out).splitlines()
        assert f" {known['evidence']}" in row
        assert max(len(heading), len(row)) <= columns
        assert heading.count("metric_") == named
        assert ("metric_" in row) == (named < len(metrics))
    told = []
    for number, rate in ((2, "0.1"), (3, "0.01")):
        command.ok("attempt", "start", "--", "python", "the/training/script.py", "--rate", rate)
        told.append(command.on_terminal("attempt", "abandon", str(number), "--reason", "not needed", columns=40).out)
    assert max(len(line) for one in told for line in one.splitlines()) <= 40
    shown = COLOUR.sub("", command.on_terminal("attempt", "list", columns=60).out)
    assert "…--rate 0.1 " in shown, "where commands differ they are not cut"
    assert "…--rate 0.01 " in shown


def test_an_interruption_and_a_needed_change_can_be_said(command):
    """The caller that settles an attempt may say that it was interrupted, or that the code must change first."""
    command.ok("open", "work")
    command.ok("attempt", "start", "--", "make")
    command.error("attempt", "interrupt", code=2, kind="usage")
    done = command.data("attempt", "interrupt", "--reason", "the node was rebooted", kind="attempt")
    assert (done["status"], done["reason"], done["error"]) == ("interrupted", "the node was rebooted", None)
    assert command.data("attempt", "start", "--", "make", kind="attempt")["warnings"] == []
    command.ok("attempt", "fail", "--error", "no rule", "--code-change-needed", "--fix", "add the rule")
    assert "no rule; the code must change first; fix: add the rule" in command.ok("attempt", "list")
    command.ok("attempt", "start", "--", "make")
    again = command.data("attempt", "fail", "--error", "no rule", "--fix", "Add the rule.", kind="attempt")
    assert again["warnings"] == [
        "this fix was tried before: Add the rule. (for attempt 2); attempt 3 failed with it: no rule"
    ]


def test_an_older_file_is_not_an_output(command):
    """A file that was written before the attempt started cannot be its output."""
    command.ok("open", "work")
    old = command.project / "model.pt"
    old.write_text("weights")
    os.utime(old, (1, 1))
    command.ok("attempt", "start", "--", "sbatch", "train.sh")
    command.error("attempt", "succeed", "--output", "model.pt", code=2, kind="invalid_input")
    old.write_text("new weights")
    assert (
        command.data("attempt", "succeed", "--output", "model.pt", kind="attempt")["outputs"][0]["path"] == "model.pt"
    )
    old.unlink()
    assert "; gone)" in command.ok("attempt", "show", "1")


def test_errors_name_the_way(command):
    """Unknown actions, numbers and words get an error that lists the valid ones."""
    command.ok("open", "work")
    assert "abandon" in command.error("attempt", "abandn", code=2, kind="usage")["hint"]
    command.error("attempt", "show", "7", code=4, kind="not_found")
    command.error("attempt", "show", "x", code=2, kind="usage")
    command.error("attempt", "succeed", code=4, kind="not_found")
    command.error("attempt", "start", code=2, kind="usage")
    assert command.data("attempt", "list", kind="attempts") == []


def test_start_warns_and_refuses_repetition(command):
    """A failure on the same code is reported before the command is started by hand; --strict refuses (F14)."""
    command.ok("open", "work")
    command.ok("attempt", "start", "--", "make")
    command.ok("attempt", "fail", "--error", "boom", "--fix", "clean")
    command.error("attempt", "start", "--strict", "--", "make", code=10, kind="conflict")
    data = command.data("attempt", "start", "--", "make", kind="attempt")
    assert "boom; fix: clean" in data["warnings"][0]


def test_text_of_agents_does_not_act(command):
    """Control characters of an error are shown, not executed; in the list an error stays on its line."""
    command.ok("open", "work")
    command.ok("attempt", "start", "--", "make")
    command.ok("attempt", "fail", "--error", "red \x1b[31m\nsecond\tline")
    listed = command.ok("attempt", "list")
    assert "\x1b" not in listed
    assert len(listed.splitlines()) == 1
