"""Mirrored conversations are turns: of every vendor's real files, once each, in the lane of their agent, with their branches."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onrecord import connect
from onrecord.agents.mirroring import mirror
from onrecord.agents.resuming import Plan, put_back
from onrecord.log.readings import rows_of
from onrecord.session.reading import tail
from onrecord.vendors.port import Location, vendor
from tests.vendors.homes import DATA, at, opencode_database

CLAUDE = "aaaaaaaa-0000-4000-8000-000000000001"


def session_of(place: Path, agent: str = "claude", name: str = "fix") -> Any:
    return connect(str(place / "store.db"), project="p").create(name, agent=agent)


def mirrored(place: Path, of: str, vendor_id: str, path: Path) -> Any:
    """A session with one conversation, mirrored from a file."""
    session = session_of(place, of)
    session.agents.locate(of, vendor_id, reason="imported")
    mirror(session, of, vendor_id, {"HOME": str(place)}, location=Location(vendor_id, str(path), ""))
    return session


def words(turn: Any) -> list[str]:
    """Who says what in a turn, short."""
    return [
        f"{item['role']}: {str(item['content'])[:16]}" if item["content"] else f"{item['role']} calls"
        for item in turn.items
    ]


REAL = [
    ("claude", "projects/*/aaaaaaaa-0000-4000-8000-00000000000a.jsonl", [
        ['user: @@TOOL Bash {"co', "assistant calls", "tool: [Tool call inter", "assistant: No response requ"],
        ["user: after crash", "assistant: MOCK-REPLY turn="],
    ]),
    ("codex", "sessions/*/*/*/*01a1ddec-2375-7ee0-bade-e44cc4ed7f0c.jsonl", [
        ["user: @@TOOL exec_comm", "assistant calls", "tool: Command blocked ", "assistant: MOCK-AFTER-TOOL "],
    ]),
    ("codex", "sessions/*/*/*/*01a1ddec-c0d9-7a73-853b-ba3dbe01a3a6.jsonl", [
        ["user: first turn T2"], ["user: after truncation", "assistant: MOCK-REPLY turn="],
    ]),
    ("gemini", "tmp/*/chats/session-2026-11-15T06-47-66666666.jsonl", [
        ["user: @@TOOL run_shell", "assistant calls", "tool: Tool execution b", "assistant: MOCK-AFTER-TOOL "],
        ["user: @@TOOL write_fil", "assistant calls", "tool: Tool execution b", "assistant: MOCK-AFTER-TOOL "],
    ]),
    ("gemini", "tmp/*/chats/session-2026-11-15T06-44-33333333.jsonl", [
        ["user: one", "assistant: MOCK-REPLY turn="], ["user: two (later minut", "assistant: MOCK-REPLY turn="],
        ["user: three", "assistant: MOCK-REPLY turn="],
    ]),
    ("qwen", "projects/*/chats/33333334-bbbb-4333-8444-555555555555.jsonl", [
        ["user: @@TOOL run_shell", "assistant calls", "tool: BLOCKED-BY-PreTo", "assistant: MOCK-AFTER-TOOL "],
        ["user: @@TOOL write_fil", "assistant calls", "tool: DENIED-BY-PreToo", "assistant: MOCK-AFTER-TOOL "],
    ]),
    ("copilot", "session-state/0cb916db-26aa-40f2-86b5-1ba81b225f00/events.jsonl", [
        ['user: @@TOOL bash {"co', "assistant calls", "tool: Denied by preToo", "assistant: MOCK-AFTER-TOOL "],
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of", "pattern", "expected"), REAL, ids=[f"{of}-{index}" for index, (of, *_) in enumerate(REAL)]
)
def test_a_real_conversation_is_its_turns(tmp_path, of, pattern, expected):
    """Prompts begin turns; answers, calls and results follow; what the program itself adds is not in them."""
    (path,) = sorted((DATA / of).glob(pattern))
    session = mirrored(tmp_path, of, "c" * 36, path)
    transcript = session.transcript()
    assert [words(turn) for turn in transcript] == expected
    assert {turn.agent for turn in transcript} == {of}
    assert [turn.status for turn in transcript] == ["committed"] * len(expected)
    assert session.transcript(of).items == transcript.items


def test_opencode_s_answer_is_kept_after_its_title_changed(tmp_path):
    """A change of the conversation's own row alone (opencode makes titles later) does not hide what comes after it."""
    database = tmp_path / "opencode" / "opencode.db"
    opencode_database(database, rows=True)
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    location = at(vendor("opencode"), "ses_e220099d4ffeUtIpAUJvdKO7hy", env)
    session = session_of(tmp_path, "opencode")
    session.agents.locate("opencode", location.vendor_id, reason="imported")

    def mirrored_after(statement: str, *given: object) -> int:
        with closing(sqlite3.connect(database)) as opened, opened:
            assert opened.execute(statement, given).rowcount > 0
        return mirror(session, "opencode", location.vendor_id, env, location=location).records

    assert mirrored_after("UPDATE session SET title = 'first'") > 1
    for title in ("second", "third"):
        assert mirrored_after("UPDATE session SET title = ?", title) == 1
    later = "UPDATE message SET time_updated = time_updated + 5000 WHERE session_id = ?"
    assert mirrored_after(later, location.vendor_id) > 0


def test_opencode_s_rows_are_turns_too(tmp_path):
    """A conversation in a database: parts that change while it answers count once, in their last form."""
    database = tmp_path / "opencode" / "opencode.db"
    opencode_database(database, rows=True)
    of = vendor("opencode")
    env = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    told = {}
    for location in of.locations(env):
        if location.vendor_id in OPENCODE:
            session = session_of(tmp_path, "opencode", location.vendor_id.replace("_", "-").lower())
            session.agents.locate("opencode", location.vendor_id, reason="imported")
            mirror(session, "opencode", location.vendor_id, env, location=location)
            turns = (*session.transcript(), *session.transcript().provisional)
            told[location.vendor_id] = [(turn.status, *words(turn)) for turn in turns]
    assert told == OPENCODE


OPENCODE = {
    "ses_e21fb180affeHcH89o3LlTkBy6": [
        ("committed", 'user: "@@TOOL bash {\\"', "assistant calls"), ("interrupted", 'user: "after crash"'),
    ],
    "ses_e21fb57a2ffeI9tKFYX3qkV4PF": [
        ("committed", 'user: "@@TOOL bash {\\"', "assistant calls", "tool: BLOCKED-BY-orch-", "assistant: MOCK-AFTER-TOOL "),
    ],
    "ses_e220099d4ffeUtIpAUJvdKO7hy": [
        ("committed", 'user: "Remember the wo', "assistant: MOCK-REPLY turn="),
        ("committed", 'user: "what word"', "assistant: MOCK-REPLY turn="),
        ("committed", "user: cont", "assistant: MOCK-REPLY turn="),
        ("committed", "user: forked", "assistant: MOCK-REPLY turn="),
    ],
}  # fmt: skip


def test_cursor_s_transcript_is_turns(tmp_path):
    """Its records have neither ids nor times, and a prompt is wrapped in an element."""
    path = tmp_path / "c.jsonl"
    said = [
        ("user", "<user_query>\nfix it\n</user_query>"),
        ("assistant", "done"),
        ("user", "thanks"),
        ("assistant", "done"),
    ]
    path.write_text("".join(
        json.dumps({"role": role, "message": {"content": [{"type": "text", "text": text}]}}) + "\n" for role, text in said
    ))  # fmt: skip
    session = mirrored(tmp_path, "cursor", "c" * 36, path)
    assert [len(turn.items) for turn in session.transcript()] == [2, 2]


class Talk:
    """A conversation of Claude Code that a test writes record by record, with its tree."""

    def __init__(self, place: Path, vendor_id: str = CLAUDE, session: Any = None) -> None:
        self.id = vendor_id
        self.path = place / "home" / "projects" / "-p" / f"{vendor_id}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.env = {"CLAUDE_CONFIG_DIR": str(place / "home"), "HOME": str(place)}
        self.session = session or session_of(place)
        self.session.agents.locate("claude", vendor_id, reason="startup")
        self.last: str | None = None
        self.count = 0

    def add(self, kind: str, content: Any, *, id: str = "", parent: str | None = "", **about: Any) -> str:
        self.count += 1
        id = id or f"{self.id[:8]}-record-{self.count:04}"
        record = {
            "type": kind, "uuid": id, "parentUuid": self.last if parent == "" else parent, "sessionId": self.id,
            "timestamp": f"2026-11-15T06:00:{self.count % 60:02}Z", "cwd": "/p",
            "message": {"role": kind, "content": content}, **about,
        }  # fmt: skip
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.last = self.last if about.get("isSidechain") else id
        return id

    def ask(self, text: Any, **about: Any) -> str:
        return self.add("user", text, **about)

    def answer(self, text: str, **about: Any) -> str:
        return self.add("assistant", [{"type": "text", "text": text}], **about)

    def call(self, id: str, name: str = "Bash", **given: Any) -> str:
        return self.add("assistant", [{"type": "tool_use", "id": id, "name": name, "input": given}])

    def result(self, id: str, text: str, **about: Any) -> str:
        part = {"type": "tool_result", "tool_use_id": id, "content": text} | about
        return self.add("user", [part])

    def mirror(self, session: Any = None) -> Any:
        mirror(session or self.session, "claude", self.id, self.env)
        return self.session.transcript()


@pytest.fixture
def talk(tmp_path) -> Talk:
    return Talk(tmp_path)


def prompts(turns: Any) -> list[str]:
    return [str(turn.items[0]["content"]) for turn in turns]


def test_a_turn_grows_until_it_is_answered(talk):
    """A turn runs while its agent works, is committed by its answer, and is interrupted if the process ends before."""
    talk.session.agents.record_start(None)
    talk.ask("please fix the parser")
    assert [turn.status for turn in talk.mirror().provisional] == ["running"]
    talk.call("c1", command="pytest")
    talk.mirror()
    talk.result("c1", "3 passed")
    (turn,) = talk.mirror().provisional
    assert (turn.status, turn.ended, len(turn.items)) == ("running", 0, 3)
    talk.session.agents.record_end()
    assert [turn.status for turn in talk.mirror().provisional] == ["interrupted"]
    talk.session.agents.record_start(None)
    talk.answer("It works now.")
    transcript = talk.mirror()
    assert not transcript.provisional
    assert [len(turn.items) for turn in transcript] == [4]
    talk.ask("thank you")
    transcript = talk.mirror()
    assert (prompts(transcript), prompts(transcript.provisional)) == (["please fix the parser"], ["thank you"])


def test_who_mirrors_does_not_matter(talk):
    """When a person copies a conversation, its turns are in the lane of the agent that it belongs to."""
    talk.ask("hello there")
    talk.answer("hello")
    by_hand = connect(talk.session.log.url, project="p").get("fix")
    assert by_hand.agent == "human"
    assert [turn.agent for turn in talk.mirror(by_hand)] == ["claude"]
    assert len(talk.session.transcript("claude")) == 1
    assert not talk.session.transcript("human").committed


def test_a_branch_that_its_user_left_is_provisional(talk, monkeypatch):
    """After going back to an earlier prompt, the turns after it are abandoned, also when each part was mirrored alone."""
    talk.ask("the first question")
    fork = talk.answer("the first answer")
    talk.mirror()
    talk.ask("a wrong turn")
    talk.answer("a wrong answer")
    talk.ask("even further")
    talk.answer("even worse")
    talk.mirror()
    talk.ask("a better idea", parent=fork)
    talk.answer("a better answer")
    transcript = talk.mirror()
    assert prompts(transcript) == ["the first question", "a better idea"]
    assert [(turn.items[0]["content"], turn.status) for turn in transcript.superseded] == [
        ("a wrong turn", "abandoned"), ("even further", "abandoned"),
    ]  # fmt: skip
    again = Talk(
        talk.path.parents[3], "bbbbbbbb-0000-4000-8000-000000000001", session_of(talk.path.parents[3], name="b")
    )
    again.path.write_text(talk.path.read_text())
    assert prompts(again.mirror()) == ["the first question", "a better idea"]


def test_tools_that_ran_side_by_side_stay_in_their_turn(talk):
    """Calls that were made together have several branches in the file; a prompt after them continues the turn."""
    talk.ask("look at both files")
    first = talk.call("c1", command="cat a")
    second = talk.call("c2", command="cat b")
    talk.add("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "A"}], parent=first)
    talk.add("user", [{"type": "tool_result", "tool_use_id": "c2", "content": "B"}], parent=second)
    leaf = talk.answer("both are fine")
    talk.add("user", "late", parent=first, isMeta=True)
    talk.ask("good, go on", parent=leaf)
    talk.answer("done")
    transcript = talk.mirror()
    assert prompts(transcript) == ["look at both files", "good, go on"]
    assert not transcript.superseded


def test_thinking_summaries_images_and_interruptions_are_told_apart(talk):
    """Thinking is marked and no model gets it as speech; a summary is one; an image is named and stays where it is."""
    data = "iVBORw0KGgo" * 50
    talk.ask([{"type": "text", "text": "what is in this picture?"},
              {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}])  # fmt: skip
    talk.add("assistant", [{"type": "thinking", "thinking": "it looks like a cat", "signature": "s"}])
    talk.answer("A cat.")
    talk.ask("This session is being continued. Summary: cats were discussed.", isCompactSummary=True, parent=None)
    talk.ask("and this one?")
    talk.ask("[Request interrupted by user]")
    transcript = talk.mirror()
    (first,), (second,) = transcript.committed, transcript.provisional
    picture = first.items[0]["content"][1]
    assert (picture["type"], picture["media_type"], picture["bytes"]) == ("media", "image/png", len(data) * 3 // 4)
    position, line, pointer = picture["at"]
    kept = json.loads(talk.session.log.event(position).data["lines"][line])
    assert (kept["message"]["content"][1]["source"]["data"], pointer) == (data, "/message/content/1/source/data")
    assert [item.get("thinking", False) for item in first.items] == [False, True, False, False]
    assert first.items[3] == {"role": "system", "summary": True, "content": first.items[3]["content"]}
    assert second.status == "aborted"
    talk.session.record_turn([{"role": "user", "content": "our own"}])
    for dialect in ("openai", "anthropic"):
        said = json.dumps(talk.session.context().messages(dialect))
        assert "looks like a cat" not in said
        assert "image/png" in said
        assert data not in said


def test_a_subagent_in_the_file_has_a_lane_of_its_own(talk):
    """What a subagent says is not mixed with the agent's turns."""
    talk.ask("delegate this")
    talk.call("c1", "Task", prompt="count the files")
    talk.ask("count the files", isSidechain=True, agentId="a1b2", parent=None)
    talk.answer("there are 12", isSidechain=True, agentId="a1b2")
    talk.result("c1", "there are 12")
    talk.answer("12 files")
    transcript = talk.mirror()
    assert {turn.agent: len(turn.items) for turn in transcript} == {"claude": 4, "claude/a1b2": 2}
    assert len(talk.session.transcript("claude")) == 1
    assert len(talk.session.transcript("claude/a1b2")) == 1


def test_nothing_is_there_twice(talk, tmp_path):
    """A rewritten file, a fork of the conversation and a turn of our own repeat what was said; the transcript does not."""
    talk.ask("question one")
    talk.answer("answer one")
    talk.mirror()
    whole = talk.path.read_text()
    talk.path.write_text(json.dumps({"type": "mode", "sessionId": talk.id}) + "\n" + whole)
    transcript = talk.mirror()
    assert [len(turn.items) for turn in transcript] == [2]
    fork = Talk(tmp_path, "cccccccc-0000-4000-8000-000000000001", talk.session)
    fork.path.write_text(whole.replace(talk.id, fork.id))
    fork.ask("question two", parent=talk.last)
    fork.answer("answer two")
    assert prompts(fork.mirror()) == ["question one", "question two"]
    talk.session.record_turn(
        [{"role": "user", "content": "question two"}, {"role": "assistant", "content": "answer two"}]
    )
    assert prompts(talk.session.transcript()) == ["question one", "question two"]


def test_a_very_long_record_is_shown_cut(talk, monkeypatch):
    """A record that one event cannot keep is whole on record; its turn shows how it begins."""
    from onrecord.agents import mirroring

    monkeypatch.setattr(mirroring, "PIECE_CHARACTERS", 10_000)
    talk.ask("short")
    talk.answer("x" * 25_000)
    talk.ask("after it")
    transcript = talk.mirror()
    assert [len(str(item["content"])) for turn in (*transcript, *transcript.provisional) for item in turn.items] == [
        5, 4097, 8,
    ]  # fmt: skip


def test_a_log_without_readings_is_read_once_more(talk):
    """What was mirrored before there were readings joins the transcript when its file is mirrored next; else it stays out."""
    talk.ask("hello there")
    talk.answer("good morning")
    lines, size = talk.path.read_text().splitlines(), talk.path.stat().st_size
    old = {"vendor": "claude", "vendor_id": talk.id, "generation": 0, "lines": lines, "torn": 0,
           "mark_before": [0, None], "mark_after": [size, None]}  # fmt: skip
    talk.session.log.record("payload.kept", old, id=f"mirror/claude/{talk.id}/0/0")
    assert not talk.session.transcript().committed
    assert [len(turn.items) for turn in talk.mirror()] == [2]
    position = talk.session.head.position
    assert len(talk.mirror()) == 1
    assert talk.session.head.position == position
    erased = session_of(talk.path.parents[3], name="erased")
    erased.agents.locate("claude", talk.id, reason="startup")
    first = erased.log.record("payload.kept", old, id=f"mirror/claude/{talk.id}/0/0")
    erased.log.record("payload.kept", old | {"lines": []}, id=f"mirror/claude/{talk.id}/0/{size}")
    erased.log.erase("a password", positions=[first.position])
    mirror(erased, "claude", talk.id, talk.env)
    assert not erased.transcript().committed


def test_a_reading_from_elsewhere_breaks_nothing(talk):
    """Rows that cannot be read are left out."""
    talk.session.log.record("payload.kept", {"lines": [1, None], "reading": [{"line": 7}, 3, {"line": 0, "items": 5}]})
    assert not talk.session.transcript().committed
    assert not list(
        rows_of({"lines": ["{}"], "reading": [{"line": 0, "items": [{"role": "user", "content": {"$": "/x"}}]}]})
    )


def test_files_beside_a_conversation_are_kept_and_put_back(talk, tmp_path):
    """Subagents' transcripts are turns of their own lane; tools' results and they are restored with the conversation."""
    talk.ask("delegate this")
    talk.answer("done")
    folder = talk.path.with_suffix("")
    (folder / "subagents").mkdir(parents=True)
    (folder / "tool-results").mkdir()
    sub = folder / "subagents" / "agent-a1b2.jsonl"
    said = [("user", "count the files"), ("assistant", "there are 12")]
    for number, (role, text) in enumerate(said):
        record = {"type": role, "uuid": f"s{number}", "sessionId": talk.id, "isSidechain": True, "agentId": "a1b2",
                  "message": {"role": role, "content": text}}  # fmt: skip
        with sub.open("a") as file:
            file.write(json.dumps(record) + "\n")
        talk.mirror()
    result = folder / "tool-results" / "toolu_1.txt"
    for text in ("a long result\nof a tool", "a longer result\nof a tool\n"):
        result.write_text(text)
        talk.mirror()
    position = talk.session.head.position
    transcript = talk.mirror()
    assert talk.session.head.position == position, "nothing is kept twice"
    assert {turn.agent: len(turn.items) for turn in transcript} == {"claude": 2, "claude/agent-a1b2": 2}
    before = {path.name: path.read_bytes() for path in (talk.path, sub, result)}
    shutil.rmtree(tmp_path / "home")
    (tmp_path / "elsewhere").mkdir()
    planned = plan_of(talk, tmp_path / "elsewhere")
    location = put_back(talk.session, planned)
    again = Path(location.path).with_suffix("")
    found = [Path(location.path), again / "subagents" / sub.name, again / "tool-results" / result.name]
    assert {path.name: path.read_bytes() for path in found} == before
    assert {oct(path.stat().st_mode & 0o777) for path in found} == {"0o600"}


def plan_of(talk: Talk, cwd: Path) -> Any:
    link = talk.session.views.roster.link("claude", talk.id)
    return Plan("claude", link, vendor("claude"), talk.env, str(cwd), None)


def test_a_file_named_elsewhere_is_not_written(talk, tmp_path):
    """A record from another machine cannot name a file outside of the conversation's folder."""
    talk.ask("hello there")
    talk.mirror()
    for name in ("../../evil.txt", "/tmp/evil.txt"):
        talk.session.log.record(
            "payload.kept", {"lines": ["x"], "reading": []}, id=f"mirror/claude/{talk.id}/+{name}/0/0"
        )
    talk.path.unlink()
    (tmp_path / "elsewhere").mkdir()
    location = put_back(talk.session, plan_of(talk, tmp_path / "elsewhere"))
    assert not list(tmp_path.rglob("evil*"))
    assert not Path(location.path).with_suffix("").exists()


def test_a_long_turn_is_found_from_its_end(talk):
    """A turn of hundreds of parts is in the note and in the tail, although it began far before the end of the log."""
    talk.ask("an early question")
    talk.answer("an early answer")
    talk.ask("this will take long")
    for number in range(120):
        talk.call(f"c{number}", command=f"make step-{number}")
        mirror(talk.session, "claude", talk.id, talk.env)
    assert "asked last: this will take long" in talk.session.brief()
    assert "make step-119" in talk.session.brief()
    (turn,) = tail(talk.session)
    assert (turn.status, len(turn.items)) == ("interrupted", 121)
    assert tail(talk.session) == talk.session.transcript().provisional


def test_a_mirrored_conversation_is_compacted_like_turns_of_our_own(talk):
    """A summary covers mirrored turns in contexts; later ones follow it, and what is missing is counted."""
    for number in range(4):
        talk.ask(f"question {number}")
        talk.answer(f"answer {number}")
        talk.mirror()
    with connect(talk.session.log.url, project="p").open("fix", agent="claude") as session:
        assert session.context(4_000).left_out == 0
        assert session.compact(lambda items: f"{len(items)} items").turns == 4
        talk.ask("question 4")
        talk.answer("answer 4")
        talk.mirror()
        told = session.context(4_000)
    assert (told.summary, [item["content"] for item in told.items]) == ("8 items", ["question 4", "answer 4"])
    assert told.left_out == 4


def test_a_command_begins_a_turn_only_if_the_model_answers_it(talk):
    """A command that the program runs itself is no turn; one that becomes a prompt is, and is shown as it was typed."""
    talk.ask("hello there")
    talk.answer("hello")
    talk.ask("<local-command-caveat>The command below was run directly.</local-command-caveat>", isMeta=True)
    talk.ask(
        "<command-name>/model</command-name>\n<command-message>model</command-message>\n<command-args></command-args>"
    )
    talk.ask("<local-command-stdout>Set model to opus</local-command-stdout>")
    assert prompts(talk.mirror()) == ["hello there"]
    talk.ask(
        "<command-message>review</command-message>\n<command-name>/review</command-name>\n<command-args>403</command-args>"
    )
    talk.ask("Review the change with care.", isMeta=True)
    talk.answer("It is fine.")
    transcript = talk.mirror()
    assert prompts(transcript) == ["hello there", "/review 403"]
    assert [(turn.reason, len(turn.items)) for turn in transcript] == [("", 2), ("", 3)]
