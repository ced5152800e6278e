"""Training samples on the command line: one file of each kind, with what is on record and nothing else."""

import json
import subprocess
import sys

import apsw
import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import onrecord
from onrecord.errors import InvalidInput
from onrecord.rollout.recording import open_rollout
from onrecord.rollout.trainers import TRAINERS
from onrecord.rollout.turns import ChatRequest
from onrecord.surfaces.cli.catalogue import VERBS
from onrecord.surfaces.cli.main import main
from onrecord.surfaces.cli.rollout.named import is_named, named, tokenizer_of
from tests.cli.conftest import Command
from tests.rollout.world import LETTERS, aborted, answer, assistant, user


@pytest.fixture
def trained(working: Command) -> Command:
    """A store with a rollout of two turns, an aborted one, a frozen one, and a session that is not a rollout."""
    with onrecord.connect(working.url, project=str(working.project)) as records:
        for name in ("task-1", "task-2", "task-3"):
            with open_rollout(records, name).session as session:
                rollout = open_rollout(records, name, takeover=True)
                messages = [user("question")]
                for number in range(2):
                    intent = rollout.intend(rollout.prepare(ChatRequest(messages), LETTERS))
                    rollout.commit(intent, answer(f"answer {number}", weight_versions=[("v1", 9)]))
                    messages += [assistant(f"answer {number}"), user("go on")]
                if name == "task-2":
                    rollout.abort(rollout.intend(rollout.prepare(ChatRequest(messages), LETTERS)), aborted("half"))
                if name == "task-3":
                    rollout.freeze(merge=False)
                rollout.leave()
                assert session.id == rollout.session.id
    return working


def test_parquet_has_a_row_per_sample(trained):
    """Rows have session, status, tokens, mask, logprobs, origins and spans; an aborted rollout is marked as aborted."""
    file = trained.place / "samples.parquet"
    told = trained.data("rollout", "export", "task-1", "task-2", "--to", str(file), kind="rollout_export")
    assert (told["samples"], told["sessions"]) == (2, 2)
    assert told["statuses"] == {"COMPLETED": 1, "ABORTED": 1}
    rows = pq.read_table(file).to_pylist()
    assert [row["status"] for row in rows] == ["COMPLETED", "ABORTED"]
    assert sum(len(row["tokens"]) for row in rows) == told["tokens"]
    assert rows[0]["loss_mask"].count(1) == 18
    assert rows[0]["weight_versions"][0]["version"] == "v1"
    assert file.stat().st_mode & 0o777 == 0o600
    again = trained.place / "again.parquet"
    trained.ok("rollout", "export", "task-1", "task-2", "--to", str(again))
    assert again.read_bytes() == file.read_bytes(), "the same record makes the same bytes"


def test_the_three_kinds_of_file_say_the_same(trained):
    """Parquet, safetensors and npz have the same arrays and the same metadata of the samples."""
    files = {kind: trained.place / f"samples.{kind}" for kind in ("parquet", "safetensors", "npz")}
    for file in files.values():
        trained.ok("rollout", "export", "--all", "--to", str(file))
    rows = pq.read_table(files["parquet"]).to_pylist()
    tensors, archive = load_file(files["safetensors"]), np.load(files["npz"])
    for name in ("tokens", "loss_mask", "logprobs", "provenance"):
        flat = [value for row in rows for value in row[name]]
        assert tensors[name].tolist() == archive[name].tolist() == flat
        assert tensors[name].dtype == archive[name].dtype
    assert tensors["offsets"].tolist() == archive["offsets"].tolist()
    assert tensors["offsets"][-1] == len(tensors["tokens"])
    with safe_open(files["safetensors"], "np") as opened:
        about = json.loads(opened.metadata()["samples"])
    assert about == json.loads(bytes(archive["samples"]))
    assert [one["status"] for one in about] == [row["status"] for row in rows]


def test_options_say_how_samples_are_made(trained):
    """Each turn gives a sample, none longer than allowed; a frozen rollout is exported as it was frozen."""
    file = str(trained.place / "samples.npz")
    told = trained.data("rollout", "export", "task-1", "--turns", "--to", file, kind="rollout_export")
    assert told["samples"] == 2
    told = trained.data(
        "rollout", "export", "task-1", "--max-seq-len", "40", "--to", file, "--force", kind="rollout_export"
    )
    assert (told["statuses"], told["tokens"] <= 40) == ({"TRUNCATED": 1}, True)
    told = trained.data("rollout", "export", "task-3", "--to", file, "--force", kind="rollout_export")
    assert told["samples"] == 2, "frozen as a sample per turn"


def test_a_session_that_is_named_twice_is_exported_once(trained):
    """Named by its name, again, and by its id, one session gives one sample."""
    file = trained.place / "samples.parquet"
    trained.ok("rollout", "export", "task-1", "--to", str(file))
    (row,) = pq.read_table(file).to_pylist()
    names = ("task-1", "task-1", row["session"], "task-2")
    told = trained.data("rollout", "export", *names, "--to", str(file), "--force", kind="rollout_export")
    assert (told["sessions"], told["samples"]) == (2, 2)


def test_a_session_that_is_no_rollout_is_named(trained):
    """A named session without samples is reported with the reason; among all sessions it is skipped."""
    file = str(trained.place / "samples.npz")
    told = trained.data("rollout", "export", "fix-invite-403", "task-1", "--to", file, kind="rollout_export", code=8)
    assert list(told["without"]) == ["fix-invite-403"]
    assert told["samples"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("export", "task-1"),
        ("export", "task-1", "--to", "samples.csv"),
        ("export", "task-1", "--to", "samples"),
        ("export", "--to", "samples.npz"),
        ("export", "task-1", "--all", "--to", "samples.npz"),
        ("exprot", "task-1", "--to", "samples.npz"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_read(trained, words):
    """A missing file, an unknown file type and no session are one clear error each."""
    error = trained.run("rollout", *words, "--json")
    assert error.code == 2
    assert json.loads(error.err)["error"]["hint"]


def test_the_log_tells_how_many_ids(trained):
    """`onrecord log` shows how many ids a step has, and does not print them."""
    told = trained.ok("log", "task-2", "--kind", "tokens.recorded")
    assert told.splitlines()[-1].endswith("output: 4 ids, abort")
    assert "i32le" not in told


def test_the_sentence_counts_the_rollouts(trained):
    """Among all sessions of a store, those that are not rollouts are not counted; with --quiet nothing is printed."""
    words = ("rollout", "export", "--all", "--to", str(trained.place / "samples.npz"), "--force")
    assert " of 3 sessions, to " in trained.ok(*words)
    assert trained.ok(*words, "--quiet") == ""


def test_a_long_export_tells_how_far_it_is(trained, monkeypatch, capsys):
    """When the export takes long, stderr shows how many sessions of how many are done; with --quiet it does not."""
    for name in ("PATIENCE_SECONDS", "_EVERY_SECONDS"):
        monkeypatch.setattr(f"onrecord.surfaces.cli.upkeep.prove.{name}", 0)
    file = str(trained.place / "samples.npz")
    words = ["rollout", "export", "task-1", "task-2", "--to", file, "--force", "--store", str(trained.store)]
    monkeypatch.chdir(trained.project)
    assert main(words) == 0
    assert "sessions exported: 1 of 2 (50%)\nsessions exported: 2 of 2 (100%)\n" in capsys.readouterr().err
    assert main([*words, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_an_existing_file_is_kept(trained):
    """An existing file is replaced only with --force."""
    file = trained.place / "samples.npz"
    file.write_text("mine")
    trained.error("rollout", "export", "task-1", "--to", str(file), code=2, kind="usage")
    assert file.read_text() == "mine"


def test_without_the_extra_one_sentence_says_what_to_install(trained):
    """Where pyarrow is not installed, the error names it and the command that installs it."""
    hidden = (
        "import sys; sys.modules['pyarrow'] = None; "
        "from onrecord.surfaces.entry import main; "
        f"sys.argv = ['onrecord', 'rollout', 'export', 'task-1', '--to', {str(trained.place / 's.parquet')!r}]; "
        "sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden], env=trained.environment, cwd=trained.project, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert 'pip install "onrecord[rollout]"' in done.stderr


def test_all_leaves_out_what_a_trainer_has(trained):
    """`--all` exports neither acknowledged nor deleted rollouts, and says so; a named one is exported all the same."""
    with onrecord.connect(trained.url, project=str(trained.project)) as records:
        done = open_rollout(records, "task-1")
        done.acknowledge(done.freeze().digest)
        open_rollout(records, "task-2").retire("deleted", unacknowledged=True)
    file = trained.place / "samples.parquet"
    told = trained.data("rollout", "export", "--all", "--to", str(file), kind="rollout_export")
    assert told["skipped"] == {"task-1": "acknowledged", "task-2": "retired"}
    assert {row["session"] for row in pq.read_table(file).to_pylist()} == {records.find("task-3").session}
    told = trained.data("rollout", "export", "task-1", "--to", str(file), "--force", kind="rollout_export")
    assert told["samples"] == 1


def test_what_was_sampled_and_is_in_no_sample_is_said(trained):
    """The export counts the tokens of replaced turns: in its sentence, in JSON and in the row of the session."""
    with onrecord.connect(trained.url, project=str(trained.project)) as records:
        rollout = open_rollout(records, "task-1")
        messages = [user("question"), assistant("answer 0"), user("another question")]
        rollout.commit(rollout.intend(rollout.prepare(ChatRequest(messages), LETTERS)), answer("another answer"))
        rollout.leave()
    file, lost = trained.place / "samples.parquet", len("answer 1.")
    told = trained.data("rollout", "export", "task-1", "--to", str(file), kind="rollout_export")
    assert told["discarded_tokens"] == lost
    assert [row["discarded_tokens"] for row in pq.read_table(file).to_pylist()] == [lost]
    said = trained.run("rollout", "export", "task-1", "--to", str(file), "--force")
    assert f"{lost} sampled tokens on record are in no sample" in said.out + said.err


def test_options_do_not_change_frozen_samples(trained):
    """A note names the rollouts that were frozen with other options; with the same options, or none, there is none."""
    file, note = str(trained.place / "samples.parquet"), "task-3: frozen with other options, which are kept"
    for options, noted in (([], False), (["--turns"], False), (["--turns", "--max-seq-len", "10"], True)):
        said = trained.run("rollout", "export", "task-1", "task-3", "--to", file, "--force", *options)
        assert (note in said.out + said.err) is noted
        assert "task-1" not in said.err
    assert [len(row["tokens"]) <= 10 for row in pq.read_table(file).to_pylist()].count(False) == 2


def test_a_rollout_that_branches_continue_is_no_sample_of_its_own(trained):
    """With --all its turns come once per branch; what it discarded is counted; by its name, its branches are noted."""
    with onrecord.connect(trained.url, project=str(trained.project)) as records:
        trunk = open_rollout(records, "task-1")
        ids = [trunk.branch(name).id for name in ("b", "c")]
        for id in ids:
            rollout = open_rollout(records, id)
            messages = [user("question"), assistant("answer 0"), user("go on"), assistant("answer 1"), user(id)]
            rollout.commit(rollout.intend(rollout.prepare(ChatRequest(messages), LETTERS)), answer("last"))
            rollout.leave()
        trunk.leave()
    file = trained.place / "samples.parquet"
    told = trained.data("rollout", "export", "--all", "--to", str(file), kind="rollout_export")
    assert told["skipped"] == {"task-1": "continued"}
    named = {row["session"] for row in pq.read_table(file).to_pylist()}
    assert named >= set(ids)
    assert trunk.session.id not in named
    told = trained.data("rollout", "export", "task-1", "b", "--to", str(file), "--force", kind="rollout_export")
    assert (told["samples"], told["branches"]) == (2, {"task-1": 1})
    said = trained.run("rollout", "export", "task-1", "--to", str(file), "--force")
    assert "task-1 has 2 branches that you did not name" in said.out + said.err


def test_damaged_logs_are_not_exported(trained):
    """A changed byte on disk keeps the session out of the file, with the position; the others are exported."""
    with onrecord.connect(trained.url, project=str(trained.project)) as records:
        number = records.find("task-1").session
    db = apsw.Connection(trained.url)
    change = "UPDATE events SET payload = CAST(replace(CAST(payload AS TEXT), 'stop', 'stpp') AS BLOB) WHERE id LIKE ?"
    (one,) = db.execute("SELECT number FROM sessions WHERE id = ?", (number,))
    db.execute(change + " AND key >> 32 = ?", ("%/output", one[0]))
    db.close()
    file = str(trained.place / "samples.npz")
    told = trained.data("rollout", "export", "--all", "--to", file, kind="rollout_export", code=8)
    assert "damaged at position" in told["without"]["task-1"]
    assert told["samples"] == 3


def test_code_of_your_own_is_named_as_module_and_name(tmp_path, monkeypatch):
    """`module:name` finds modules of the current directory; what cannot be found or used is one clear error."""
    (tmp_path / "my_rollouts.py").write_text(
        "class Letters:\n    def prompt(self): ...\n    def suffix(self): ...\n    def repair(self): ...\n"
        "letters = Letters()\nseven = 7\ndef same(stored, given): return True\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert named("my_rollouts:same", "matcher")({}, {}) is True
    for text in ("my_rollouts:letters", "my_rollouts:Letters"):
        assert type(tokenizer_of(named(text, "tokenizer"), text)).__name__ == "Letters"
    for text, why in (
        ("my_rollouts:seven", "cannot be called"),
        ("my_rollouts:nothing", "cannot find"),
        ("no_such_module:x", "cannot find"),
        ("models/policy", "needs module:name"),
    ):
        with pytest.raises(InvalidInput, match=why):
            named(text, "matcher")
    with pytest.raises(InvalidInput, match="is not a tokenizer"):
        tokenizer_of(lambda: 7, "x:y")
    (tmp_path / "broken_rollouts.py").write_text("1 / 0\n")
    with pytest.raises(InvalidInput, match="broken_rollouts raised ZeroDivisionError: division by zero"):
        named("broken_rollouts:x", "matcher")
    with pytest.raises(InvalidInput, match="x:y raised ValueError: invalid literal"):
        tokenizer_of(lambda: int("x"), "x:y")
    assert not is_named("models/policy")
    assert not is_named("C:/models")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("export", "task-1", "--to", "x.npz", "--branches"), "`onrecord rollout export` has no option --branches"),
        (
            ("serve", "--upstream", "http://127.0.0.1:9", "--tokenizer", "x", "--max-seq-len", "9"),
            "no option --max-seq",
        ),
    ],
)
def test_an_option_of_the_other_action_is_refused(trained, words, why):
    """An option that would have no effect is an error that says which action has it."""
    error = trained.error("rollout", *words, code=2, kind="usage")
    assert why in error["message"]
    trained.ok(*error["hint"].split("`")[1].split()[1:])


def test_a_trainer_gets_its_own_form(trained):
    """`--for` writes JSON Lines in a framework's form: a line per sample, or one for a whole batch; choices agree."""
    file = trained.place / "samples.jsonl"
    names = ("task-1", "task-2")
    trained.ok("rollout", "export", *names, "--for", "slime", "--to", str(file))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["status"] for row in rows] == ["completed", "aborted"]
    trained.ok("rollout", "export", *names, "--for", "trl", "--to", str(file), "--force")
    assert len(json.loads(file.read_text())["completion_ids"]) == 2
    trained.error("rollout", "export", *names, "--for", "verl", "--to", "x.parquet", code=2, kind="usage")
    verb = next(verb for verb in VERBS if verb.name == "rollout")
    (option,) = (option for option in verb.options if option.flag == "--for")
    assert set(option.choices) == set(TRAINERS)
