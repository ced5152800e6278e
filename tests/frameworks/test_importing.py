"""Conversations from the files of LangGraph and openai-agents; ADK's are in `test_google_adk.py`."""

import asyncio
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from agents import SQLiteSession
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph

import onrecord
from onrecord.errors import Conflict, InvalidInput
from onrecord.frameworks.importing import take_in
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.openai_agents import OnrecordSession
from onrecord.frameworks.openai_items import neutral
from onrecord.surfaces.cli import main

TABLES = """
CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, parent_checkpoint_id TEXT, type TEXT,
    checkpoint BLOB, metadata BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT, idx INTEGER, channel TEXT,
    type TEXT, value BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""
"""As langgraph-checkpoint-sqlite makes them."""


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def talking(saver: Any) -> Any:
    def model(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


def at(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def filled(path: Path, saver: InMemorySaver) -> None:
    """The file that LangGraph's SQLite saver would have of these threads, made with its own serialiser."""
    dumps = JsonPlusSerializer().dumps_typed
    with sqlite3.connect(path) as database:
        database.executescript("DROP TABLE IF EXISTS checkpoints; DROP TABLE IF EXISTS writes;" + TABLES)
        for one in reversed(list(saver.list(None))):
            conf = one.config["configurable"]
            key = (conf["thread_id"], conf["checkpoint_ns"], conf["checkpoint_id"])
            parent = one.parent_config["configurable"]["checkpoint_id"] if one.parent_config else None
            row = (*key, parent, *dumps(one.checkpoint), json.dumps(one.metadata).encode())
            database.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            for index, (task, channel, value) in enumerate(one.pending_writes or ()):
                database.execute(
                    "INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*key, task, index, channel, *dumps(value))
                )
    database.close()


def test_threads_of_langgraph_are_imported_once_and_continued(store, tmp_path):
    """All checkpoints and writes arrive; a second import adds only what is new; the thread continues with our saver."""
    theirs = InMemorySaver()
    graph = talking(theirs)
    for thread in ("a", "odd / é"):
        graph.invoke({"messages": [HumanMessage("one")]}, at(thread))
    filled(tmp_path / "own.db", theirs)
    url = f"sqlite:///{tmp_path}/own.db"
    seen: list[tuple[int, int]] = []
    done = list(take_in(store, "langgraph", url, progress=lambda *of: seen.append(of)))
    assert [(one.conversation, one.new, one.there) for one in done] == [("a", 3, 0), ("odd / é", 3, 0)]
    assert seen[-1] == (6, 6)
    ours = OnrecordSaver(store)
    for one in theirs.list(at("a")):
        same: Any = ours.get_tuple(one.config)
        assert same.checkpoint["channel_values"] == one.checkpoint["channel_values"]
        assert same.metadata == one.metadata
        assert [w[1:] for w in same.pending_writes or ()] == [w[1:] for w in one.pending_writes or ()]
    graph.invoke({"messages": [HumanMessage("two")]}, at("a"))
    filled(tmp_path / "own.db", theirs)
    assert [(one.new, one.there) for one in take_in(store, "langgraph", url)] == [(3, 3), (0, 3)]
    position = store.get("a").head.position
    assert [one.new for one in take_in(store, "langgraph", url)] == [0, 0]
    assert store.get("a").head.position == position
    said = talking(OnrecordSaver(store)).invoke({"messages": [HumanMessage("three")]}, at("a"))["messages"]
    assert [one.content for one in said] == ["one", "answer 1", "two", "answer 3", "three", "answer 5"]


def said(store: Any, thread: str) -> list[str]:
    """The newest state of a thread."""
    return [str(one.content) for one in talking(OnrecordSaver(store)).get_state(at(thread)).values["messages"]]


def test_a_thread_that_went_on_here_is_imported_into_a_fork(store, tmp_path):
    """Its newest state stays ours; the fork follows the file, import after import, until it is continued here as well."""
    theirs, ours = InMemorySaver(), OnrecordSaver(store)

    def imported() -> Any:
        filled(tmp_path / "own.db", theirs)
        return [tuple(one)[:5] for one in take_in(store, "langgraph", str(tmp_path / "own.db"))]

    def say(saver: Any, text: str, thread: str = "a") -> None:
        talking(saver).invoke({"messages": [HumanMessage(text)]}, at(thread))

    say(theirs, "one")
    say(theirs, "other", "b")
    imported()
    say(ours, "ours")
    assert imported() == [("a", "a", 0, 3, None), ("b", "b", 0, 3, None)]
    say(theirs, "theirs")
    say(theirs, "other again", "b")
    assert imported() == [("a", "a-import-1", 3, 3, "a"), ("b", "b", 3, 3, None)]
    assert said(store, "a") == ["one", "answer 1", "ours", "answer 3"]
    assert said(store, "a-import-1") == ["one", "answer 1", "theirs", "answer 3"]
    say(theirs, "more")
    assert imported()[0] == ("a", "a-import-1", 3, 6, "a")
    assert imported()[0] == ("a", "a-import-1", 0, 9, "a")
    say(ours, "in the fork", "a-import-1")
    say(theirs, "even more")
    assert imported()[0] == ("a", "a-import-2", 3, 9, "a")
    assert said(store, "a") == ["one", "answer 1", "ours", "answer 3"]
    assert said(store, "a-import-1")[-2:] == ["in the fork", "answer 7"]
    assert said(store, "a-import-2") == [*said(store, "a-import-1")[:6], "even more", "answer 7"]
    for one in theirs.list(at("a")):
        conf = one.config["configurable"] | {"thread_id": "a-import-2"}
        same: Any = ours.get_tuple({"configurable": conf})
        assert same.checkpoint["channel_values"] == one.checkpoint["channel_values"]
        assert [w[1:] for w in same.pending_writes or ()] == [w[1:] for w in one.pending_writes or ()]


def test_a_thread_that_goes_on_here_during_an_import_is_imported_into_a_fork(store, tmp_path):
    """A run between two checkpoints of an import stays the newest of its thread; the rest of the file is in the fork."""
    theirs = InMemorySaver()
    for text in ("one", "two"):
        talking(theirs).invoke({"messages": [HumanMessage(text)]}, at("a"))
    filled(tmp_path / "own.db", theirs)

    def meanwhile(done: int, _total: int) -> None:
        if done == 3:
            talking(OnrecordSaver(store)).invoke({"messages": [HumanMessage("ours")]}, at("a"))

    (done,) = take_in(store, "langgraph", str(tmp_path / "own.db"), progress=meanwhile)
    assert (done.session, done.new, done.there, done.fork_of) == ("a-import-1", 6, 0, "a")
    assert said(store, "a") == ["one", "answer 1", "ours", "answer 3"]
    assert said(store, "a-import-1") == ["one", "answer 1", "two", "answer 3"]


def test_a_thread_of_a_file_that_begins_anew_is_imported_into_a_fork(store, tmp_path):
    """A thread of the same name that has no checkpoint in common is not mixed with the one on record."""
    talking(OnrecordSaver(store)).invoke({"messages": [HumanMessage("ours")]}, at("a"))
    theirs = InMemorySaver()
    talking(theirs).invoke({"messages": [HumanMessage("theirs")]}, at("a"))
    filled(tmp_path / "own.db", theirs)
    (done,) = take_in(store, "langgraph", str(tmp_path / "own.db"))
    assert (done.session, done.new, done.there, done.fork_of) == ("a-import-1", 3, 0, "a")
    assert (said(store, "a"), said(store, "a-import-1")) == (["ours", "answer 1"], ["theirs", "answer 1"])


def test_a_file_that_lost_old_checkpoints_is_imported_into_the_same_thread(store, tmp_path):
    """What the file no longer has is on record; what continues it is no fork."""
    theirs = InMemorySaver()
    talking(theirs).invoke({"messages": [HumanMessage("one")]}, at("a"))
    filled(tmp_path / "own.db", theirs)
    list(take_in(store, "langgraph", str(tmp_path / "own.db")))
    old = [one.config["configurable"]["checkpoint_id"] for one in theirs.list(at("a"))]
    talking(theirs).invoke({"messages": [HumanMessage("two")]}, at("a"))
    filled(tmp_path / "own.db", theirs)
    with sqlite3.connect(tmp_path / "own.db") as database:
        database.executemany("DELETE FROM checkpoints WHERE checkpoint_id = ?", [(one,) for one in old])
    database.close()
    (done,) = take_in(store, "langgraph", str(tmp_path / "own.db"))
    assert (done.session, done.new, done.there, done.fork_of) == ("a", 3, 0, None)
    assert said(store, "a") == ["one", "answer 1", "two", "answer 3"]


def test_the_command_says_that_it_imported_into_a_fork(store, tmp_path, monkeypatch, capsys):
    """`onrecord import langgraph FILE` names the fork and the session that was continued."""
    monkeypatch.setenv("ONRECORD_STORE", f"sqlite:///{tmp_path}/x.db")
    monkeypatch.setenv("ONRECORD_PROJECT", "p")
    talking(OnrecordSaver(store)).invoke({"messages": [HumanMessage("ours")]}, at("a"))
    theirs = InMemorySaver()
    talking(theirs).invoke({"messages": [HumanMessage("theirs")]}, at("a"))
    filled(tmp_path / "own.db", theirs)
    assert main.main(["import", "langgraph", str(tmp_path / "own.db")]) == 0
    assert capsys.readouterr().out == (
        "imported: a-import-1, 3 new checkpoints\n  a fork of a: both were continued, here and in the file\n"
    )


def test_two_imports_at_once_keep_each_checkpoint_once_and_in_order(store, tmp_path):
    """A second import that is quicker changes nothing: no checkpoint is put again, the newest one stays the newest."""
    theirs = InMemorySaver()
    for text in ("one", "two", "three"):
        talking(theirs).invoke({"messages": [HumanMessage(text)]}, at("a"))
    filled(tmp_path / "own.db", theirs)
    url = str(tmp_path / "own.db")
    quicker: list[Any] = []

    def meanwhile(done: int, _total: int) -> None:
        if done == 2:
            with onrecord.connect(str(tmp_path / "x.db"), project="p") as other:
                quicker.extend(take_in(other, "langgraph", url))

    assert [(one.new, one.there) for one in take_in(store, "langgraph", url, progress=meanwhile)] == [(2, 7)]
    assert [(one.new, one.there) for one in quicker] == [(7, 2)]
    order = [one.config["configurable"]["checkpoint_id"] for one in OnrecordSaver(store).list(at("a"))]
    assert order == [one.config["configurable"]["checkpoint_id"] for one in theirs.list(at("a"))]


def test_two_imports_at_once_keep_each_item_once(store, tmp_path, monkeypatch):
    """The import that was overtaken finds the items of the other one, and adds none of them again."""
    own = SQLiteSession("s", tmp_path / "own.db")
    asyncio.run(own.add_items([{"role": "user", "content": "hi"}]))
    own.close()
    others = [take_in(store, "openai-agents", str(tmp_path / "own.db"))]
    found: list[list[int]] = []

    def meanwhile(item: Any) -> Any:
        if others:
            found.append([one.new for one in others.pop()])
        return neutral(item)

    monkeypatch.setattr("onrecord.frameworks.importing.neutral", meanwhile)
    assert [(one.new, one.there) for one in take_in(store, "openai-agents", str(tmp_path / "own.db"))] == [(0, 1)]
    assert found == [[1]]
    kept = [event for event in store.get("s").events() if event.kind == "payload.kept"]
    assert len(kept) == 1


def test_a_class_that_is_named_in_a_file_is_not_called(store, tmp_path):
    """A checkpoint whose bytes name a function is imported as data, or refused; nothing runs."""
    theirs = InMemorySaver()
    talking(theirs).invoke({"messages": [HumanMessage("one")]}, at("a"))
    filled(tmp_path / "own.db", theirs)
    canary = tmp_path / "canary"
    bomb = ormsgpack.Ext(0, ormsgpack.packb(("os", "system", f"touch {canary}")))
    with sqlite3.connect(tmp_path / "own.db") as database:
        values: dict[str, Any] = {"v": 4, "id": "x", "ts": "", "channel_values": {"n": bomb}, "channel_versions": {}}
        packed = ormsgpack.packb(values | {"versions_seen": {}})
        database.execute("INSERT INTO checkpoints VALUES ('a', '', 'x', NULL, 'msgpack', ?, '{}')", (packed,))
    database.close()
    list(take_in(store, "langgraph", str(tmp_path / "own.db")))
    assert not canary.exists()


def test_conversations_of_openai_agents_are_imported_once(store, tmp_path):
    """Items arrive in their order, later ones with the next import, and are read by our session and the transcript."""
    path = tmp_path / "own.db"

    def say(*texts: str) -> None:
        own = SQLiteSession("s", path)
        asyncio.run(own.add_items([{"role": "user", "content": text} for text in texts]))
        own.close()

    say("one", "two")
    assert [(one.session, one.new, one.there) for one in take_in(store, "openai-agents", str(path))] == [("s", 2, 0)]
    say("three")
    assert [(one.new, one.there) for one in take_in(store, "openai-agents", str(path))] == [(1, 2)]
    items: Any = asyncio.run(OnrecordSession("s", store).get_items())
    assert [item["content"] for item in items] == ["one", "two", "three"]
    assert [item["content"] for item in store.get("s").transcript().items] == ["one", "two"]  # the last turn is open


def test_conversations_of_openai_agents_are_imported_without_its_sdk(store, tmp_path, monkeypatch):
    """The file is read as data: where openai-agents is not installed, its conversations can be imported all the same."""
    own = SQLiteSession("s", tmp_path / "own.db")
    asyncio.run(own.add_items([{"role": "user", "content": "hi"}]))
    own.close()
    for name in [one for one in sys.modules if one.partition(".")[0] == "agents" or one.endswith(".openai_agents")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "agents", None)
    assert [one.new for one in take_in(store, "openai-agents", str(tmp_path / "own.db"))] == [1]


def test_a_row_that_cannot_be_read_is_one_sentence(store, tmp_path):
    """A damaged item is named as what it is; the conversations before it are on record."""
    for name in ("a", "b"):
        own = SQLiteSession(name, tmp_path / "own.db")
        asyncio.run(own.add_items([{"role": "user", "content": "hi"}]))
        own.close()
    with sqlite3.connect(tmp_path / "own.db") as database:
        database.execute("UPDATE agent_messages SET message_data = '{\"role\":' WHERE session_id = 'b'")
    database.close()
    found = take_in(store, "openai-agents", str(tmp_path / "own.db"))
    assert next(found).conversation == "a"
    with pytest.raises(InvalidInput, match=r"conversation 'b' of .*own\.db has an item that cannot be read: Expecting"):
        assert [one.conversation for one in found if one.why_not] == ["b"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE checkpoints SET checkpoint = x'93010203'", "a value of type list where a dict should be"),
        ("UPDATE checkpoints SET checkpoint = x'c1'", "invalid type"),
        ("UPDATE checkpoints SET metadata = '5'", "a value of type int where a dict should be"),
        ("UPDATE checkpoints SET metadata = 5", "the JSON object must be str"),
        ("UPDATE writes SET type = 'pickle'", "Unknown serialization type: pickle"),
        ("UPDATE writes SET type = NULL", "Unknown serialization type: None"),
    ],
)
def test_damaged_bytes_of_langgraph_are_one_sentence(store, tmp_path, change, words):
    """Whatever LangGraph's reader makes of damaged bytes, the import says what cannot be read, and of which file."""
    theirs = InMemorySaver()
    talking(theirs).invoke({"messages": [HumanMessage("one")]}, at("a"))
    filled(tmp_path / "own.db", theirs)
    with sqlite3.connect(tmp_path / "own.db") as database:
        database.execute(change)
    database.close()
    with pytest.raises(
        InvalidInput, match=f"conversation 'a' of .*own.db has a checkpoint that cannot be read: {words}"
    ):
        list(take_in(store, "langgraph", str(tmp_path / "own.db")))


def test_a_wrong_file_is_one_sentence(store, tmp_path):
    """No file, a directory, no SQLite, no such tables, another scheme, a session of another kind: each says what is wrong."""
    (tmp_path / "text").write_text("no database, but long enough to be one" * 40)
    sqlite3.connect(tmp_path / "empty.db").close()
    for framework, what, error, words in (
        ("langgraph", tmp_path / "nothing", InvalidInput, "does not exist"),
        ("langgraph", tmp_path, InvalidInput, "is a directory, not a SQLite file"),
        ("langgraph", tmp_path / "text", InvalidInput, "cannot be read as a SQLite file"),
        ("google-adk", tmp_path / "empty.db", InvalidInput, "is not a store of google-adk: it has no table sessions"),
        ("langgraph", "postgres://x/y", InvalidInput, "is no SQLite file"),
        ("crewai", "x", InvalidInput, "conversations of 'crewai' cannot be imported"),
    ):
        with pytest.raises(error, match=words):
            list(take_in(store, framework, str(what)))
    store.create("s")
    own = SQLiteSession("s", tmp_path / "own.db")
    asyncio.run(own.add_items([{"role": "user", "content": "hi"}]))
    own.close()
    with pytest.raises(Conflict, match="there is a session 's' already"):
        list(take_in(store, "openai-agents", str(tmp_path / "own.db")))


def own_file(path: Path, **conversations: list[str]) -> str:
    """A file of openai-agents with these conversations; words are added to those that are there."""
    for name, texts in conversations.items():
        own = SQLiteSession(name, path)
        asyncio.run(own.add_items([{"role": "user", "content": text} for text in texts]))
        own.close()
    return str(path)


def test_a_second_file_with_the_same_id_is_not_mixed_in(store, tmp_path):
    """Its rows have the same or other numbers, but another content: it is refused, and taken in after a rename."""
    first = own_file(tmp_path / "monday.db", s=["monday", "use ghp_" + "a1B2c3" * 6])
    list(take_in(store, "openai-agents", first))
    second = own_file(tmp_path / "tuesday.db", s=["tuesday", "tuesday too", "and more"])
    third = own_file(tmp_path / "friday.db", other=["x"] * 9, s=["friday"])
    for file in (second, third):
        position = store.get("s").head.position
        with pytest.raises(Conflict, match="session 's' has another conversation with the id 's'"):
            list(take_in(store, "openai-agents", file))
        assert store.get("s").head.position == position
    assert [(one.new, one.there) for one in take_in(store, "openai-agents", first)] == [(0, 2)]
    store.get("s").rename("monday")
    assert [(one.new, one.there) for one in take_in(store, "openai-agents", second)] == [(3, 0)]
    items: Any = asyncio.run(OnrecordSession("s", store).get_items())
    assert [item["content"] for item in items] == ["tuesday", "tuesday too", "and more"]


def test_a_session_that_another_framework_or_we_began_is_not_mixed_in(store, tmp_path):
    """An id such as `1` says nothing: what is no import of this conversation is refused."""
    talking(OnrecordSaver(store)).invoke({"messages": [HumanMessage("graph")]}, at("1"))
    asyncio.run(OnrecordSession("2", store).add_items([{"role": "user", "content": "ours"}]))
    for name, words in (("1", "there is a session '1' already"), ("2", "session '2' has another conversation")):
        with pytest.raises(Conflict, match=words):
            list(take_in(store, "openai-agents", own_file(tmp_path / f"{name}.db", **{name: ["theirs"]})))
    theirs = InMemorySaver()
    talking(theirs).invoke({"messages": [HumanMessage("theirs")]}, at("2"))
    filled(tmp_path / "graph.db", theirs)
    with pytest.raises(Conflict, match="there is a session '2' already"):
        list(take_in(store, "langgraph", str(tmp_path / "graph.db")))


def test_items_that_left_the_file_are_named_and_those_popped_here_stay_away(store, tmp_path, monkeypatch, capsys):
    """What the framework removed stays on record and is said; what our session removed is not imported again."""
    file = own_file(tmp_path / "own.db", s=["one", "two", "three"])
    list(take_in(store, "openai-agents", file))
    asyncio.run(OnrecordSession("s", store).pop_item())
    own = SQLiteSession("s", file)
    asyncio.run(own.pop_item())
    asyncio.run(own.pop_item())
    own.close()
    own_file(tmp_path / "own.db", s=["four"])
    (done,) = take_in(store, "openai-agents", file)
    assert (done.new, done.there, done.gone) == (1, 1, 1)
    items: Any = asyncio.run(OnrecordSession("s", store).get_items())
    assert [item["content"] for item in items] == ["one", "two", "four"]
    monkeypatch.chdir(tmp_path)
    assert main.main(["import", "openai-agents", file, "--store", str(tmp_path / "x.db"), "--project", "p"]) == 0
    assert "  1 item on record, no longer in the file\n" in capsys.readouterr().out


def test_a_conversation_that_cannot_be_taken_does_not_stop_the_others(store, tmp_path, monkeypatch, capsys):
    """It is named with the reason, the others are imported, and the exit status says that something is missing."""
    store.create("loop")
    file = own_file(tmp_path / "own.db", aa=["hi"], bad=["x"], loop=["x"], num=["x"], zz=["ho"])
    with sqlite3.connect(file) as database:
        database.execute(
            "UPDATE agent_messages SET message_data = CAST(x'7b22ff223a317d' AS TEXT) WHERE session_id = 'bad'"
        )
        for table in ("agent_sessions", "agent_messages"):
            database.execute(f"UPDATE {table} SET session_id = CAST(x'61ff' AS TEXT) WHERE session_id = 'num'")
        database.execute("INSERT INTO agent_sessions VALUES ('', '2000', '2000')")
        database.execute("INSERT INTO agent_messages VALUES (99, '', '{}', '2000')")
    database.close()
    monkeypatch.chdir(tmp_path)
    words = ["import", "openai-agents", file, "--store", str(tmp_path / "x.db"), "--project", "p"]
    assert main.main(words) == 8
    out = capsys.readouterr().out
    for line in (
        "imported: aa, 1 new item", "imported: zz, 1 new item", "not imported: '': a conversation needs an id",
        "not imported: bad: conversation 'bad' of", "its text is not UTF-8",
        "not imported: loop: there is a session 'loop' already", "not imported: a\\udcff: ",
    ):  # fmt: skip
        assert line in out
    assert main.main([*words, "--json"]) == 8
    states = {one["conversation"]: one["state"] for one in json.loads(capsys.readouterr().out)["data"]}
    assert states["aa"] == states["zz"] == "already_imported"
    assert states["bad"] == states["loop"] == "not_imported"
    with pytest.raises(InvalidInput, match="4 conversations were left out"):
        list(take_in(store, "openai-agents", file))


def test_a_damaged_thread_does_not_stop_the_others(store, tmp_path, monkeypatch, capsys):
    """What was read of it before is on record, and the command says that the rest is missing."""
    theirs = InMemorySaver()
    for thread in ("a", "b", "c"):
        talking(theirs).invoke({"messages": [HumanMessage("one")]}, at(thread))
    filled(tmp_path / "own.db", theirs)
    with sqlite3.connect(tmp_path / "own.db") as database:
        last = "(SELECT max(rowid) FROM checkpoints WHERE thread_id = 'b')"
        database.execute(f"UPDATE checkpoints SET checkpoint = x'c1' WHERE rowid = {last}")
    database.close()
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "own.db")
    assert main.main(["import", "langgraph", file, "--store", str(tmp_path / "x.db"), "--project", "p"]) == 8
    out = capsys.readouterr().out
    assert "imported: a, 3 new checkpoints\npartly imported: b, 2 new checkpoints\n  the rest was left out: " in out
    assert out.endswith("imported: c, 3 new checkpoints\n")
