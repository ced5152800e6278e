"""A conversation that an agent had by itself, seen through every surface; and files that must not be imported."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from onrecord import connect
from onrecord.surfaces.cli import main
from tests.agents.test_turns import CLAUDE, Talk
from tests.vendors.homes import DATA


class Here:
    """The tests' own process, set up as for a command."""

    def __init__(self, place: Path, monkeypatch: Any, capsys: Any) -> None:
        self.project = place / "project"
        self.project.mkdir()
        self.url = str(place / "store.db")
        self._capsys = capsys
        monkeypatch.chdir(self.project)
        for name in ("ONRECORD_SESSION", "ONRECORD_AGENT", "CLAUDE_CONFIG_DIR", "QWEN_HOME", "GEMINI_CLI_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (("ONRECORD_STORE", self.url), ("HOME", str(place)), ("COLUMNS", "100")):
            monkeypatch.setenv(name, value)

    def run(self, *words: str, code: int = 0) -> str:
        """What a command prints."""
        assert main.main(list(words)) == code, self._capsys.readouterr()
        told = self._capsys.readouterr()
        return str(told.out if code == 0 else told.err)

    def data(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))["data"]


@pytest.fixture
def here(tmp_path, monkeypatch, capsys) -> Here:
    return Here(tmp_path, monkeypatch, capsys)


@pytest.fixture
def talk(here, tmp_path) -> Talk:
    """A conversation in which an agent worked and wrote down nothing."""
    session = connect(here.url, project=str(here.project)).create("fix", agent="claude")
    made = Talk(tmp_path, CLAUDE, session)
    made.ask("why does the invitation endpoint answer 403?")
    made.call("t1", command="pytest -k invitation")
    made.result("t1", "Exit code 1\nAssertionError: 403 == 200", is_error=True)
    made.call("t2", "Edit", file_path="src/guard.py", old_string="deny", new_string="allow members")
    made.result("t2", "The file src/guard.py has been updated.")
    made.call("t3", command="git commit -am 'Members may invite'")
    made.result("t3", "[main 1a2b3c4] Members may invite\n 1 file changed")
    made.answer("The guard rejected members; now it allows them.")
    made.mirror()
    return made


def test_everything_shows_a_conversation(here, talk):
    """Note, brief, continue, export in every format, search, context, at, diff and fork have what was said and done."""
    expected = (
        "asked last: why does the invitation endpoint answer 403?", "pytest -k invitation (exit 1)",
        "files changed: src/guard.py", "commit 1a2b3c4: Members may invite",
        "last words: The guard rejected members; now it allows them.",
    )  # fmt: skip
    session = talk.session
    for text in (session.note(), session.brief(), here.run("note", "fix"), here.run("continue", "fix", "--dry-run")):
        assert all(part in text for part in expected), text
    assert len(session.brief().encode()) <= 2048
    markdown = here.run("export", "fix", "--format", "markdown")
    assert "`edit src/guard.py` (+1 \u22121)\n\n```diff\n@@ -1 +1 @@\n-deny\n+allow members\n```" in markdown
    assert "> **user:** why does the invitation endpoint answer 403?" in markdown
    for dialect in ("neutral", "openai", "anthropic"):
        messages = json.loads(here.run("export", "fix", "--format", "messages", "--dialect", dialect))
        assert messages[0]["content"] == "why does the invitation endpoint answer 403?"
        assert "1 file changed" in json.dumps(messages)
    assert [item["role"] for item in session.context(4_000).items] == ["user", *["assistant", "tool"] * 3, "assistant"]
    (found,) = here.data("search", "invitation endpoint")["results"]
    assert found["snippet"].startswith("why does the invitation endpoint")
    assert here.data("search", "parentUuid")["results"] == []
    assert "payload.kept" not in [hit["event"]["kind"] for hit in here.data("search", talk.id[:8])["results"]]
    before = session.views.position
    talk.ask("and now the documentation, please")
    talk.mirror()
    assert "asked last: why does" in session.at(before).note()
    assert "was doing" in session.note()
    assert [one["what"] for one in session.diff(1)] == ["turn of claude"]
    fork = session.fork("other", before)
    assert [len(turn.items) for turn in fork.transcript()] == [8]
    assert "why does the invitation" in here.run("log", "fix")


def test_a_hook_knows_how_a_command_of_the_transcript_ended(talk):
    """A transcript often does not say that a command succeeded; the exit code that the hook of this call saw is shown."""
    assert "ran: git commit -am 'Members may invite'\n" in talk.session.note()
    talk.session.agents.record_tool("Bash", "run", call="t3", command="git commit", exit_code=0)
    talk.session.agents.record_tool("Bash", "run", call="t1", command="pytest", exit_code=0)
    note = talk.session.note()
    assert "ran: git commit -am 'Members may invite' (exit 0)" in note
    assert "commit 1a2b3c4: Members may invite" in note
    assert "pytest -k invitation (exit 1)" in note, "what the transcript says is not overruled"


def test_what_hooks_recorded_happened_too(here):
    """Without a transcript, the note says which commands ran and which files changed; with one, nothing is said twice."""
    session = connect(here.url, project=str(here.project)).create("fix", agent="claude")
    session.agents.record_tool("Bash", "run", call="t1", command="make all", exit_code=2)
    session.agents.record_tool("Edit", "edit", call="t2", paths=["src/a.py"])
    assert "ran: make all (exit 2)" in session.brief()
    assert "files changed: src/a.py" in session.note()
    session.facts.set_next_action("fix the build")
    assert "ran: make all" not in session.note(), "an agent that wrote a note is not overruled"


def test_a_tool_that_hook_and_transcript_report_is_listed_once(talk):
    """The hook's report and the transcript name the same call."""
    talk.session.agents.record_tool("Bash", "run", call="t1", command="pytest -k invitation", exit_code=1)
    assert talk.session.note().count("pytest -k invitation") == 1


def test_a_hook_that_does_not_name_the_call_reports_it_once_too(here, talk):
    """Gemini's and Copilot's hooks name no call: the same command or file of the same agent is the same call."""
    talk.session.agents.record_tool("Bash", "run", command="git commit -am 'Members may invite'", exit_code=0)
    talk.session.agents.record_tool("Edit", "edit", paths=["guard.py"])
    talk.session.agents.record_tool("Bash", "run", command="make all", exit_code=2)
    note = talk.session.note()
    assert note.count("Members may invite'") == 1
    assert "ran: git commit -am 'Members may invite' (exit 0)" in note
    assert "files changed: guard.py\n" in note, "a file has one path"
    markdown = here.run("export", "fix", "--format", "markdown")
    transcript = markdown.partition("## Transcript")[2]
    assert transcript.count("git commit -am") == 1
    assert transcript.count("guard.py`") == 1
    assert "- $ make all exit 2 (claude, " in transcript, "a call that only the hook knows is listed"
    other = connect(here.url, project=str(here.project)).get("fix", agent="other")
    other.agents.record_tool("Bash", "run", command="pytest -k invitation", exit_code=0)
    assert "ran: pytest -k invitation (exit 0)" in other.note(), "another agent's call is another one"


def imported(here: Here, of: str, path: Path, *more: str) -> Any:
    return here.data("import", of, str(path), *more)[0]


def test_a_file_of_another_program_is_not_imported(here, tmp_path):
    """Claude's and Qwen's files are not taken for each other, nor a capture of a program's output for its transcript."""
    claude = next((DATA / "claude").glob("projects/*/*a.jsonl"))
    qwen = next((DATA / "qwen").glob("projects/*/chats/33333334*.jsonl"))
    for of, path, hint in (("qwen", claude, "Claude Code"), ("claude", qwen, "Qwen Code"),
                           ("claude", DATA / "claude" / "stream.jsonl", "")):  # fmt: skip
        said = here.run("import", of, str(path), code=2)
        assert "nothing was imported" in said
        assert hint in said
    assert connect(here.url, project=str(here.project)).sessions() == []
    assert imported(here, "claude", claude)["state"] == "imported"
    folder = tmp_path / ".claude" / "projects" / "-p"
    folder.mkdir(parents=True)
    good = {"type": "user", "uuid": "u1", "sessionId": CLAUDE, "cwd": str(here.project),
            "message": {"role": "user", "content": "hello there"}}  # fmt: skip
    (folder / f"{CLAUDE}.jsonl").write_text(json.dumps(good))
    bad = qwen.read_text().replace("/home/dev/qwen/proj", str(here.project))
    (folder / "bbbbbbbb-0000-4000-8000-000000000001.jsonl").write_text(bad)
    assert [one["vendor_id"] for one in here.data("import", "claude", "--all")] == [CLAUDE], (
        "one bad file stops no other"
    )


def test_a_stub_does_not_replace_the_conversation(here, tmp_path):
    """Gemini's stub after the real file is refused; the hook that names it does not hide the real one; all can be restored."""
    home = tmp_path / ".gemini"
    shutil.copytree(DATA / "gemini", home)
    real, stub = sorted(home.glob("tmp/p3/chats/*33333333.jsonl"))
    name = imported(here, "gemini", real)["name"]
    assert "has no message" in here.run("import", "gemini", str(stub), code=10)
    session = connect(here.url, project=str(here.project)).get(name, agent="gemini")
    (link,) = session.views.roster.agents["gemini"]["links"]
    session.agents.locate("gemini", link["id"], transcript=str(stub))
    assert here.data("mirror", name)[0]["path"] == str(real)
    assert len(session.transcript()) == 3
    was = real.read_text()
    real.unlink()
    assert here.data("mirror", name)[0]["path"] == str(stub)
    assert len(session.transcript()) == 3
    (tmp_path / "moved").mkdir()
    done = here.data("restore", name, "--cwd", str(tmp_path / "moved"), "--yes")
    assert (done["generation"], done["generations"]) == (0, [0, 1])
    assert Path(done["transcript"]).name == real.name
    assert len(Path(done["transcript"]).read_text().splitlines()) == len(was.splitlines())
    Path(done["transcript"]).unlink()
    assert here.data("restore", name, "--cwd", str(tmp_path / "moved"), "--generation", "1", "--yes")["generation"] == 1
    refused = here.run("restore", name, "--generation", "7", "--yes", code=4)
    assert "no generation 7" in refused
    assert "it has generation 0, 1" in refused


def test_imported_history_is_not_meant_while_other_work_is_live(here):
    """Without a name, a command means the session that is at work, however many conversations were imported."""
    files = sorted((DATA / "claude").glob("projects/*/aaaaaaaa-*.jsonl"))[:2]
    first, second = (imported(here, "claude", file)["name"] for file in files)
    assert first in here.run("note", code=4), "of several that are past, none is meant"
    records = connect(here.url, project=str(here.project))
    records.create("today", agent="claude")
    assert here.data("show")["name"] == "today"
    records.get(second, agent="claude").agents.record_start(None, vendor="claude")
    assert "2 live sessions: " in here.run("note", code=4), "an imported one that an agent joined is at work too"
