"""Running a command as an attempt: only what it wrote counts, and what stopped it from outside is no failure."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import onrecord
from onrecord.errors import Conflict, InvalidInput
from onrecord.views.attempt_table import as_csv, as_html, compared, metric_names, rows_of
from onrecord.work.attempting import Wanted, run_attempt
from onrecord.work.capturing import capture_run, recheck
from onrecord.work.outputs import not_finite_in, state_of_output
from onrecord.work.surveying import survey
from tests.work.conftest import git


@pytest.fixture
def run(session, root):
    """Runs a shell line as an attempt; the lines of warning are in `run.warned`."""

    class Runner:
        def __init__(self) -> None:
            self.warned: list[str] = []

        def __call__(self, line, *, cwd=root, **about):
            wanted = Wanted(
                files=tuple(about.pop("files", ())), metrics_file=about.pop("metrics_file", None),
                allow_nan=about.pop("allow_nan", False),
            )  # fmt: skip
            self.warned = []
            return run_attempt(
                session,
                ["sh", "-c", line],
                root=root,
                cwd=cwd,
                wanted=wanted,
                show=False,
                warn=self.warned.append,
                **about,
            )

    return Runner()


def test_an_old_file_makes_no_run_succeed(run, root, session):
    """An expected file that the run did not write is neither its success nor its output, whatever its date."""
    (root / "model.json").write_text("{}")
    for line in ("true", "touch model.json", "echo -n '{}' > model.json", "cat model.json"):
        done = run(line, files=["model.json"])
        assert (done.status, done.outputs) == ("failed", [])
        assert done.error == "expected file was not written by this run: model.json is as it was before"
    assert session.views.attempts.get(1)["outputs"] == []
    for line in (
        "echo '{\"a\": 1}' > model.json",
        "cp model.json x && mv x model.json",
        "rm model.json; cp x y; echo 1 > model.json",
    ):
        done = run(line, files=["model.json"])
        assert (done.status, [one["path"] for one in done.outputs]) == ("succeeded", ["model.json"]), line
    assert run("rm model.json", files=["model.json"]).error == "expected file is missing: model.json"


def test_old_metrics_are_not_those_of_this_run(run, root):
    """A metrics file that is as it was before the run brings no metrics, even with a new date."""
    (root / "m.json").write_text('{"acc": 0.9}')
    done = run("touch m.json", metrics_file="m.json")
    assert (done.status, done.metrics) == ("failed", {})
    assert done.error == "the metrics file m.json was not written by this run: it is as it was before"
    assert run("echo '{\"acc\": 0.8}' > m.json", metrics_file="m.json").metrics == {"acc": 0.8}


def test_the_path_of_an_output_is_from_the_root(run, root, monkeypatch):
    """An output of a run in a subdirectory is kept relative to the project, and resolves from there."""
    (root / "sub").mkdir()
    monkeypatch.chdir(root / "sub")
    done = run("echo 1 > out.bin; echo 2 > ../top.bin", cwd=Path(os.curdir), files=["out.bin", "../top.bin"])
    assert [one["path"] for one in done.outputs] == ["sub/out.bin", "top.bin"]
    (first, second) = done.outputs
    assert state_of_output(root, first) == ""
    (root / "top.bin").write_text("3")
    assert state_of_output(root, second) == "changed since"
    (root / "sub" / "out.bin").unlink()
    assert state_of_output(root, first) == "gone"


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("loss: nan", {"loss": "nan"}), ("epoch 3 loss nan", {"loss": "nan"}), ("train_loss=inf, lr=1e-3", {"train_loss": "inf"}),
        ("{'loss': nan, 'acc': 0.9}", {"loss": "nan"}), ('{"val/loss": NaN}', {"val/loss": "nan"}), ("mse = -Infinity", {"mse": "-inf"}),
        ("loss: tensor(nan, device='cuda')", {"loss": "nan"}), ("grad_norm: inf", {"grad_norm": "inf"}), ("loss: nan.", {"loss": "nan"}),
        ("loss: nan\nloss: 0.5", {}), ("loss: 0.5\nloss: nan", {"loss": "nan"}), ("best_loss: inf", {}), ("timeout: inf", {}),
        ("loss: nano", {}), ("loss: info", {}), ("max_grad_norm=inf", {}), ("patience = inf", {}), ("loss: 0.25", {}), ("nan", {}),
    ],
)  # fmt: skip
def test_nan_and_infinity_are_seen_in_the_usual_forms(output, found):
    """A metric that ends with NaN or infinity is seen without a pattern; limits, best values and other words are not."""
    assert {name: str(value) for name, value in not_finite_in(output).items()} == found


def test_a_run_that_prints_nan_fails(run):
    """A loss that is NaN makes a run fail though it exits with 0, unless that is allowed."""
    done = run("echo 'epoch 9 loss: nan'")
    assert (done.status, done.error, done.exit_code) == ("failed", "metric loss is nan", 1)
    assert run("echo 'epoch 9 loss: nan'", allow_nan=True).status == "succeeded"


@pytest.mark.parametrize(
    ("target", "number"),
    [
        ("onrecord", signal.SIGINT),
        ("onrecord", signal.SIGTERM),
        ("command", signal.SIGTERM),
        ("command", signal.SIGKILL),
    ],
)
def test_what_is_stopped_from_outside_is_interrupted(run, root, session, target, number):
    """Ctrl-C and a kill make a run interrupted: no failure, no error, and the next run has no warning (F11)."""

    def stop():
        while not (root / "pid").exists() or not (root / "pid").read_text().strip():
            time.sleep(0.01)
        os.kill(int((root / "pid").read_text()) if target == "command" else os.getpid(), number)

    thread = threading.Thread(target=stop)
    thread.start()
    done = run("echo $$ > pid; exec sleep 30")
    thread.join()
    assert (done.status, done.exit_code) == ("interrupted", 128 + number)
    attempt = session.views.attempts.get(1)
    assert (attempt["status"], attempt["error"], attempt["error_signature"]) == ("interrupted", None, None)
    assert number.name in attempt["reason"]
    (root / "pid").unlink()
    run("echo $$ > pid; exec true")
    assert run.warned == []


def test_a_crash_of_the_command_itself_is_a_failure(run):
    """A program that ends with a signal of its own making failed; so did one whose time ran out."""
    assert run("kill -SEGV $$").status == "failed"
    assert run("sleep 5", timeout=0.2).status == "failed"


def test_with_blocks_are_interrupted_too(session):
    """Ctrl-C and a cancellation in a `with` block are interruptions; an exception and an exit are failures."""
    import asyncio

    for problem in (KeyboardInterrupt(), asyncio.CancelledError(), SystemExit(3), ValueError("no")):
        with pytest.raises(type(problem)), session.attempts.record("train"):
            raise problem
    assert [one["status"] for one in session.attempts.all()] == ["interrupted", "interrupted", "failed", "failed"]
    session.attempts.start("train")
    with pytest.raises(InvalidInput, match="an interrupted attempt's reason needs some text"):
        session.attempts.settle(5, "interrupted")


def test_a_fix_that_failed_before_is_recognised(run, root):
    """The same fix, proposed again for the same command, is met with the attempt that failed with it; strict refuses."""
    run("exit 3")
    run("exit 3", fix="Install numpy")
    assert "tried before" not in " ".join(run.warned)
    with pytest.raises(Conflict, match="this fix was tried before"):
        run("exit 3", fix="install  numpy.", strict=True)
    run("exit 3", fix="install  numpy.")
    assert (
        "this fix was tried before: install numpy. (for attempt 1); attempt 2 failed with it: exit code 3"
        in run.warned[0]
    )
    run("exit 3", fix="pin numpy")
    assert "tried before" not in " ".join(run.warned)


def test_a_fix_that_worked_may_be_used_again(run, root):
    """A fix whose next run succeeded is not held against anyone; an interrupted run says nothing about it."""
    (root / "fails").touch()
    run("test ! -e fails")
    (root / "fails").unlink()
    run("test ! -e fails", fix="remove the file")
    (root / "fails").touch()
    run("test ! -e fails")
    run("test ! -e fails", fix="remove the file")
    assert "tried before" not in " ".join(run.warned)


def test_a_failure_on_other_code_is_told_as_such(run, root):
    """After a change of the code the earlier failure is still reported, and does not refuse a strict run (F14)."""
    run("exit 3")
    run("exit 3")
    assert "failed on this code: exit code 3" in run.warned[0]
    (root / "cache.py").write_text("TTL = 61\n")
    run("exit 3", strict=True)
    assert "attempt 2 (sh -c 'exit 3') failed before on other code: exit code 3" in run.warned[0]
    run("true")
    (root / "cache.py").write_text("TTL = 62\n")
    run("true")
    assert run.warned == []


def test_that_the_code_must_change_is_said_at_settling(run, session):
    """A failure may say that only a change of the code helps; the warning repeats it on the same code only."""
    session.attempts.start(["make"], revision={"revision": "a", "dirty": None})
    session.attempts.settle(1, "failed", error="no rule", code_change_needed=True)
    session.attempts.start(["make"])
    with pytest.raises(InvalidInput, match="only a failed attempt"):
        session.attempts.settle(2, "succeeded", code_change_needed=True)
    session.attempts.settle(2, "succeeded")
    assert session.views.attempts.get(1)["code_change_needed"] is True
    run("exit 3")
    session.attempts.correct(3, code_change_needed=True)
    run("exit 3")
    assert run.warned[0].endswith("the code must change first")


def test_attempts_are_compared_and_exported():
    """Metrics are columns, two attempts are compared with the change of each metric, and no cell is code anywhere."""
    one = {"number": 3, "status": "failed", "command": "=train", "metrics": {"loss": 0.5, "acc": "nan"}, "seconds": 2.0}
    two = {"number": 7, "status": "succeeded", "command": "=train", "metrics": {"loss": 0.25, "f1": 1}, "seconds": 3.5}
    assert metric_names([one, two]) == ["loss", "acc", "f1"]
    assert metric_names([one, two], 2) == ["loss", "f1"], "those of the newest attempts"
    assert compared([one, two]) == [
        ["", "attempt 3", "attempt 7", "change"], ["status", "failed", "succeeded", ""], ["command", "=train", "=train", ""],
        ["seconds", "2.0", "3.5", "+1.5"], ["loss", "0.5", "0.25", "-0.25"], ["acc", "nan", "", ""], ["f1", "", "1", ""],
    ]  # fmt: skip
    head, first, _second = as_csv(rows_of([one, two])).splitlines()
    assert head.endswith("evidence,by,loss,acc,f1")
    assert first == "3,failed,'=train,2.0,,,,,,,0.5,nan,"
    assert as_csv([['a "b"', "c,d", "-1"]]) == '"a ""b""","c,d",-1\n'
    page = as_html([one | {"command": "<script>"}])
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "<th>loss</th>" in page


def test_notebooks_show_attempts_as_a_table(session):
    """`session.attempts` is a table in a notebook."""
    with session.attempts.record("train") as attempt:
        attempt.metric("loss", 0.5)
    assert "<td>0.5</td>" in session.attempts._repr_html_()
    assert onrecord.connect("memory:").open("x").attempts._repr_html_().startswith("<table>")


def commit(root, text, name="auth.py"):
    (root / name).write_text(text)
    git(root, "add", ".")
    git(root, "commit", "-qm", "next")
    return git(root, "rev-parse", "--short=7", "HEAD")


def test_a_settled_cause_is_rechecked_the_other_way_round(session, root):
    """The captured command of a settled cause must have another result now: that is what the recheck says."""
    from onrecord.work.anchors import anchored
    from onrecord.work.revisions import revision_of

    old = commit(root, "def accept():\n    return 403\n")
    probe = ["sh", "-c", "grep -q 200 auth.py"]
    seen = capture_run(session, probe, root=root, cwd=root, show=False)
    session.findings.state(
        "accept() refuses", "verified", evidence=[seen.evidence], anchors=[anchored(root, "auth.py::accept")],
        revision=revision_of(root),
    )  # fmt: skip
    session.findings.record_milestone("root_cause", finding="f1")
    new = commit(root, "def accept():\n    return 200\n")
    assert survey(session, root).turned_stale == ["f1"]
    passed = capture_run(session, probe, root=root, cwd=root, show=False)
    session.findings.record_milestone("fix", evidence=[passed.evidence], revision=revision_of(root))
    assert session.findings.label_of("f1") == "settled"
    assert session.views.findings.settled_by(session.findings.get("f1")) == f"verified at {old}, fixed by {new}"
    found = recheck(session, "f1", root=root, show=False)
    assert (found.fixed, found.proposed) == (True, "settled")
    assert found.why.startswith(f"fixed: fails at {old}, passes at {new} (")
    commit(root, "def accept():\n    return 500\n")
    again = recheck(session, "f1", root=root, show=False)
    assert (again.fixed, again.proposed) == (False, "verified")
    assert again.why.startswith("not fixed: fails at ")


def test_where_the_exit_code_says_nothing_the_output_does(session, root):
    """A command that passes before and after the fix is judged by what it prints; numbers alone prove nothing."""
    (root / "said").write_text("guest in 3 s\n")
    seen = capture_run(session, ["cat", "said"], root=root, cwd=root, show=False)
    session.findings.state("It is a guest", "verified", evidence=[seen.evidence])
    shown = session.evidence.record("log", reference="deploy.log").data["id"]
    session.findings.record_milestone("fix", finding="f1", evidence=[shown])
    assert recheck(session, "f1", root=root, show=False).fixed is False
    (root / "said").write_text("guest in 4 s\n")
    assert recheck(session, "f1", root=root, show=False).fixed is None
    (root / "said").write_text("member in 4 s\n")
    found = recheck(session, "f1", root=root, show=False)
    assert found.fixed is True
    assert "fixed: prints 'guest in 3 s' at " in found.why
    assert ", prints 'member in 4 s' at " in found.why


def test_a_survey_names_the_function_that_changed(session, root):
    """For a whole file, for lines and for a symbol, what changed since has a name (H28)."""
    from onrecord.work.anchors import anchored

    proof = [session.evidence.record("log", reference="x").data["id"]]
    for claim, where in (
        ("a", "auth.py"),
        ("b", "auth.py:4-5"),
        ("c", "auth.py::accept"),
        ("d", "cache.py"),
        ("e", "auth.py::Invite"),
    ):
        session.findings.state(claim, "verified", evidence=proof, anchors=[anchored(root, where)])
    (root / "auth.py").write_text((root / "auth.py").read_text().replace("return invite.row", "return None"))
    (root / "cache.py").write_text("TTL = 61\n")
    found = survey(session, root)
    view = session.views.findings
    assert found.turned_stale == ["f1", "f2", "f3", "f4"]
    assert [view.what_changed(view.findings[name]) for name in found.turned_stale] == [
        "auth.py (accept)", "auth.py:4-5 (accept)", "auth.py::accept", "cache.py",
    ]  # fmt: skip
    assert "f1: a (was verified; auth.py (accept) changed since)" in session.note()
    (root / "auth.py").unlink()
    survey(session, root)
    assert session.views.findings.what_changed(view.findings["f1"]) == "auth.py (gone)"


def test_git_names_the_worktree_of_an_attempt(run, root, session):
    """An attempt records the worktree that it runs in, from any directory below."""
    (root / "sub").mkdir()
    run("true", cwd=root / "sub")
    worktree = session.views.attempts.get(1)["worktree"]
    assert (worktree["root"], worktree["git"]) == (str(root), True)
    assert worktree["host"] == os.uname().nodename


def test_evidence_knows_whether_the_code_has_changed_since(session, root):
    """A run is outdated if the anchored code differs from its revision now; what else changed does not matter."""
    from onrecord.work.anchors import anchored
    from onrecord.work.capturing import capture_file, is_outdated

    (root / "notes.txt").write_text("unrelated")
    seen = capture_run(session, ["true"], root=root, cwd=root, show=False).evidence
    piece = capture_file(session, "cache.py", root=root, here=root)["id"]
    accept = [anchored(root, "auth.py::accept")]
    assert not is_outdated(session, [seen], accept, root=root)
    (root / "notes.txt").write_text("still unrelated")
    commit(root, "\n" + (root / "auth.py").read_text().replace("return 1", "return 2"))
    assert not is_outdated(session, [seen], [anchored(root, "auth.py::accept")], root=root)
    assert is_outdated(session, [seen], [anchored(root, "auth.py")], root=root)
    (root / "auth.py").write_text("def accept(invite):\n    return None\n")
    now = [anchored(root, "auth.py::accept")]
    assert is_outdated(session, [seen], now, root=root)
    newer = capture_run(session, ["true"], root=root, cwd=root, show=False).evidence
    assert not is_outdated(session, [seen, newer], now, root=root), "one that is not outdated is enough"
    assert not is_outdated(session, [newer], now, root=root), "the file differed from the revision then, as it does now"
    (root / "cache.py").write_text("TTL = 61\n")
    assert is_outdated(session, [piece], [anchored(root, "cache.py")], root=root)
    assert not is_outdated(session, [piece], now, root=root)
