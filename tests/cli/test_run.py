"""`onrecord run` with real processes: what is on record before, what is printed, and what a kill leaves."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.forking import SCRIPT
from tests.waiting import until, until_gone

PYTHON = sys.executable


@pytest.fixture
def lab(command):
    """A repository with an open session."""
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=command.project, check=True)
    command.ok("open", "l2", "--objective", "Does L2 help?")
    return command


def attempts(lab):
    return lab.data("attempt", "list", kind="attempts")


def test_a_run_that_succeeds(lab):
    """Output passes through, stdout and stderr apart; metrics and files with size and hash are on record (F06, F07)."""
    code = "import sys, json; print('loss: 0.5'); print('loss: 0.25'); sys.stderr.write('to stderr\\n'); json.dump({'test': {'acc': 0.9}}, open('m.json', 'w')); open('out.bin', 'w').write('x' * 10)"
    done = lab.run(
        "run", "--metric", "seed=3", "--metrics-file", "m.json", "--metric-pattern", r"loss=loss: (\S+)", "--expect-file", "out.bin",
        "--", PYTHON, "-c", code,
    )  # fmt: skip
    assert (done.code, done.out) == (0, "loss: 0.5\nloss: 0.25\n")
    assert "to stderr\n" in done.err
    assert "attempt 1 succeeded" in done.err
    (one,) = attempts(lab)
    assert (one["status"], one["captured"], one["exit_code"]) == ("succeeded", True, 0)
    assert one["metrics"] == {"seed": 3, "test.acc": 0.9, "loss": 0.25}
    assert [(file["path"], file["size"], len(file["sha256"])) for file in one["outputs"]] == [("out.bin", 10, 64)]
    assert one["revision"]["revision"]
    assert one["revision"]["dirty"] is None
    assert one["code_after"] != one["code"]
    evidence = lab.data("evidence", "show", one["evidence"], kind="evidence")
    assert (evidence["how"], evidence["kind"], evidence["attempt"]) == ("captured", "run", 1)
    assert "loss: 0.25" in evidence["output"]


def test_running_is_durable_before_the_command_starts(lab):
    """The command finds its own attempt RUNNING on record, with its own process (F01, F03)."""
    code = f"import subprocess; print(subprocess.run([{str(SCRIPT)!r}, 'attempt', 'list', '--json'], capture_output=True, text=True).stdout)"
    done = lab.run("run", "--", PYTHON, "-c", code)
    (seen,) = json.loads(done.out)["data"]
    assert (seen["status"], seen["number"]) == ("running", 1)
    assert seen["process"]["pid"] != seen["keeper"]["pid"]
    assert attempts(lab)[0]["status"] == "succeeded"


@pytest.mark.parametrize(
    ("options", "code", "error", "status"),
    [
        ([], "import sys; print('half'); sys.exit(3)", "half", 3),
        ([], "1/0", "ZeroDivisionError: division by zero", 1),
        ([], "import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()", "ZeroDivisionError: division by zero", 1),
        (["--expect-file", "model.pt"], "pass", "expected file is missing: model.pt", 1),
        (["--metric", "loss=nan"], "pass", "metric loss is nan", 1),
        (["--metric-pattern", r"loss=loss=(\S+)"], "print('loss=inf')", "metric loss is inf", 1),
        (["--metric-pattern", r"loss=loss=(\S+)"], "pass", r"metric loss was not found: no output matches 'loss=(\\S+)'", 1),
        (["--metrics-file", "m.json"], "open('m.json', 'w').write('{\"a\": NaN}')", "metric a is nan", 1),
        (["--metrics-file", "m.json"], "pass", "the metrics file m.json is missing", 1),
    ],
)  # fmt: skip
def test_the_failure_rule(lab, options, code, error, status):
    """Non-zero exit, traceback with exit 0, missing file, NaN or infinite metric: FAILED with the exact error (F04, F11, T14)."""
    done = lab.run("run", *options, "--", PYTHON, "-c", code)
    assert done.code == status, done
    (one,) = attempts(lab)
    assert (one["status"], one["error"]) == ("failed", error)
    assert one["evidence"]


def test_numbers_of_an_earlier_run_do_not_count(lab):
    """A metrics file that this run did not write is not its result (T14)."""
    old = lab.project / "m.json"
    old.write_text('{"loss": 0.1}')
    os.utime(old, (1, 1))
    lab.run("run", "--metrics-file", "m.json", "--", "true")
    (one,) = attempts(lab)
    assert (one["status"], one["error"], one["metrics"]) == (
        "failed",
        "the metrics file m.json was not written by this run: it is as it was before",
        {},
    )


def test_a_traceback_can_be_allowed(lab):
    """With --allow-traceback, a program that prints handled exceptions does not fail for that."""
    code = "import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()"
    assert lab.run("run", "--allow-traceback", "--", PYTHON, "-c", code).code == 0


def test_time_runs_out_while_the_child_prints(lab):
    """A timeout exits with 124; the output is bounded: most is in the transcript tier, its end in the durable tier (T12, F16)."""
    endless = 'n=0; while :; do n=$((n + 1)); echo "line $n"; done'  # a shell prints at once, on a busy machine too
    assert lab.run("run", "--timeout", "1", "--", "sh", "-c", endless).code == 124
    (one,) = attempts(lab)
    assert (one["status"], one["error"]) == ("failed", "timed out after 1 s")
    evidence = lab.data("evidence", "show", one["evidence"], "--full", kind="evidence")
    assert len(evidence["output"]) <= 2_000
    assert len(evidence["full"]) > 50_000
    assert evidence["full"].startswith("line 1\n")
    assert evidence["output_bytes"] > 100_000
    kinds = {event["kind"]: event for event in lab.data("log", kind="log")["events"]}
    assert kinds["payload.kept"]["position"] == evidence["kept_at"]
    assert len(json.dumps(kinds["evidence.recorded"]["data"])) < 8_000


def test_a_command_that_is_not_there(lab):
    """A missing command exits with 127, as in a shell; the attempt failed."""
    done = lab.run("run", "--", "no-such-command")
    assert done.code == 127
    assert attempts(lab)[0]["error"] == "no-such-command: command not found"


def test_json_answers_with_the_attempt(lab):
    """With --json stdout has only the answer, which contains the output, and the exit code is still passed on."""
    done = lab.run("run", "--json", "--", "sh", "-c", "echo hello; exit 4")
    assert (done.code, done.err) == (4, "")
    data = json.loads(done.out)["data"]
    assert (data["status"], data["output"], data["exit_code"]) == ("failed", "hello\n", 4)


def test_ctrl_c_in_a_terminal(lab):
    """Ctrl-C ends the command with its descendants, the attempt is interrupted, and the exit code is 130."""
    script = f"sleep 60 & echo $! > {lab.place}/child; echo begun; wait"
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(lab.project)
        os.execve(SCRIPT, [str(SCRIPT), "run", "--", "sh", "-c", script], lab.environment)
    until(lambda: (lab.place / "child").exists() and (lab.place / "child").read_text().strip())
    os.write(terminal, b"\x03")
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert b"begun" in shown
    until_gone(int((lab.place / "child").read_text()))
    (one,) = attempts(lab)
    assert (one["status"], one["error"]) == ("interrupted", None)
    assert one["reason"].startswith("interrupted with Ctrl-C (SIGINT)")


def test_a_harness_that_gives_up_leaves_no_running_attempt(lab):
    """SIGTERM to onrecord ends the command and settles the attempt before onrecord ends."""
    process = lab.started("run", "--", "sh", "-c", f"touch {lab.place}/ready; sleep 60")
    until((lab.place / "ready").exists)
    process.terminate()
    process.communicate(timeout=90)
    assert process.returncode == 128 + signal.SIGTERM
    assert attempts(lab)[0]["status"] == "interrupted"
    assert attempts(lab)[0]["reason"].startswith("onrecord was stopped (SIGTERM)")


def test_killed_between_running_and_the_result(lab):
    """When onrecord is killed while the command runs, the attempt is still running, then lost, then a person settles it (T01)."""
    script = f"echo $$ > {lab.place}/pid; sleep 60"
    process = lab.started("run", "--", "sh", "-c", script)
    until(lambda: (lab.place / "pid").exists() and (lab.place / "pid").read_text().strip())
    process.kill()
    process.communicate(timeout=90)
    (one,) = attempts(lab)
    assert (one["status"], one["orphaned"]) == ("running", True)
    command = int((lab.place / "pid").read_text())
    assert one["process"]["pid"] == command
    os.killpg(command, signal.SIGKILL)
    until(lambda: attempts(lab)[0]["status"] == "lost")
    assert attempts(lab)[0]["on_record"] == "running"
    refused = lab.error("run", "--", "true", code=10, kind="conflict")
    assert "is lost" in refused["message"]
    assert "attempt 1 is lost" in lab.run("attempt", "list").err
    assert "attempt 1 is lost" in lab.run("resume").err
    lab.ok("attempt", "fail", "1", "--error", "killed", "--fix", "nothing: the machine went down")
    assert lab.run("run", "--", "true").code == 0
    assert [one["status"] for one in attempts(lab)] == ["failed", "succeeded"]


def test_killed_before_the_command_starts(lab):
    """When onrecord dies while it writes RUNNING, the command does not run (T01, F03)."""
    for delay in (0.02, 0.05, 0.08, 0.12, 0.16):
        marker = lab.place / f"ran-{delay}"
        process = lab.started("run", "--agent", f"a{int(delay * 100)}", "--", "touch", str(marker))
        time.sleep(delay)
        process.kill()
        process.communicate(timeout=90)
        time.sleep(0.3)
        on_record = [one for one in attempts(lab) if one["by"] == f"a{int(delay * 100)}"]
        assert on_record or not marker.exists()


def test_repetition_is_warned_and_with_strict_refused(lab):
    """For the same command on the same code, the failed attempt, its error and its fix are shown; --strict refuses it (F14)."""
    words = ["--", PYTHON, "-c", "raise KeyError('row')"]
    lab.run("run", *words)
    lab.ok("attempt", "correct", "1", "--fix", "create the row first")
    done = lab.run("run", *words)
    assert "warning: attempt 1" in done.err
    assert "KeyError: 'row'; fix: create the row first" in done.err
    refused = lab.error("run", "--strict", *words, code=10, kind="conflict")
    assert "attempt 1" in refused["message"]
    assert "create the row first" in refused["message"]
    assert len(attempts(lab)) == 2
    (lab.project / "fix.py").write_text("row = 1\n")
    assert "warning: attempt 2" in (told := lab.run("run", "--strict", *words).err)
    assert "failed before on other code: KeyError: 'row'" in told


def test_a_fix_that_is_told_allows_another_run(lab):
    """--fix is recorded with the earlier failure, and the same code may be tried again, also with --strict (F05)."""
    lab.run("run", "--", "sh", "-c", "exit 3")
    done = lab.run("run", "--strict", "--fix", "installed numpy", "--", "sh", "-c", "exit 3")
    assert done.code == 3
    assert [one["fix"] for one in attempts(lab)] == ["installed numpy", None]
    lab.ok("open", "other")
    lab.error("run", "--session", "other", "--fix", "of what?", "--", "true", code=2, kind="invalid_input")


def test_no_work_in_a_paused_session(lab):
    """In a paused session no command runs, and nothing is recorded."""
    lab.ok("pause")
    lab.error("run", "--", "touch", "ran", code=10, kind="session_paused")
    assert not (lab.project / "ran").exists()
    assert attempts(lab) == []


def test_a_command_needs_its_dashes(lab):
    """The error explains an option of the command without `--` before it."""
    assert "two dashes" in lab.error("run", "pytest", "-x", code=2, kind="usage")["hint"]
    lab.error("run", code=2, kind="usage")


def test_a_closed_reader_does_not_end_the_run(lab):
    """When the output has no reader any more, the command continues and is recorded to its end."""
    process = lab.started(
        "run", "--", PYTHON, "-c", f"for n in range(20000): print('line', n)\nopen({str(lab.place / 'end')!r}, 'w')"
    )
    process.stdout.close()
    process.stderr.read()
    assert process.wait(90) == 0
    process.stderr.close()
    assert (lab.place / "end").exists()
    assert attempts(lab)[0]["status"] == "succeeded"


def test_a_run_notices_edits(lab):
    """Before a run the code is compared: a finding becomes stale by an edit and fresh by a revert (H28, H29)."""
    code = lab.project / "auth.py"
    code.write_text("def allowed():\n    return True\n")
    lab.ok("evidence", "file", "auth.py", "--id", "auth")
    lab.ok(
        "finding",
        "state",
        "allowed() is right",
        "--label",
        "verified",
        "--evidence",
        "auth",
        "--on",
        "auth.py::allowed",
    )
    code.write_text("def allowed():\n    return False\n")
    assert "f1 is stale: auth.py::allowed changed since" in lab.run("run", "--", PYTHON, "-c", "pass").err
    code.write_text("def allowed():\n    return True\n")
    assert "f1: the code is unchanged again" in lab.run("run", "--", PYTHON, "-c", "pass").err


def test_a_cause_is_declared_after_its_fix(lab):
    """With evidence from before the fix the cause is stated, declared and settled afterwards; without a fix it is stale."""

    def commit(text):
        (lab.project / "auth.py").write_text(f"def accept():\n    return {text}\n")
        for words in (["add", "."], ["commit", "-qm", text]):
            subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=lab.project, check=True)

    commit("403")
    lab.run("evidence", "run", "--id", "before", "--", "grep", "-q", "200", "auth.py")
    commit("200")
    lab.run("evidence", "run", "--id", "after", "--", "grep", "-q", "200", "auth.py")
    words = ("finding", "state", "accept() refuses", "-l", "verified", "-e", "before", "--on", "auth.py::accept")
    assert "the code has changed since before" in lab.run(*words).err
    assert "f1\tstale\taccept() refuses\tits evidence is older than the code" in lab.ok("finding", "list")
    lab.ok("reached", "root-cause", "--finding", "f1")
    assert "f1 is settled: verified at " in lab.ok("reached", "fix", "-e", "after")
    assert "fixed: fails at " in lab.ok("finding", "recheck", "f1")
