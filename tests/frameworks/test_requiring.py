"""A framework that is missing or too old is one sentence, with the command that installs it."""

import asyncio
import sqlite3
import subprocess
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import onrecord
from onrecord.frameworks import importing, requiring
from onrecord.frameworks.conversation import Conversation
from onrecord.frameworks.requiring import required

HIDDEN = """
import runpy, sys

hidden, *sys.argv = sys.argv[1:]


class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden.split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hiding())
"""
"""The beginning of a process in which some packages are not installed: their names are its first argument."""
EVERYTHING = (
    "agent_framework agents claude_agent_sdk google langchain_core langgraph langgraph_sdk mcp mcp_types openai ormsgpack "
    "pydantic pydantic_ai pydantic_ai_harness pydantic_core strands"
)
"""What the extras install, as far as an adapter could import it."""
OWN_STORES = {
    "langgraph": """
        CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata);
        CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value);
    """,
    "google-adk": "CREATE TABLE sessions (id); CREATE TABLE events (id);",
    "openai-agents": """
        CREATE TABLE agent_sessions (session_id, created_at); INSERT INTO agent_sessions VALUES ('s', 1);
        CREATE TABLE agent_messages (id, session_id, message_data);
        INSERT INTO agent_messages VALUES (1, 's', '{"role": "user", "content": "hi"}');
    """,
}
"""Enough of the file of each framework to be recognised."""
ADAPTERS = [
    ("agent_framework", "agent-framework 1.23", "agent-framework", "agent_framework"),
    ("google_adk", "google-adk 2.13", "google-adk", "google"),
    ("langgraph", "langgraph 1.2", "langgraph", "langgraph", "langchain_core"),
    ("langgraph_store", "langgraph 1.2", "langgraph", "langgraph", "langchain_core"),
    ("langgraph_tools", "langgraph 1.2", "langgraph", "langgraph", "langchain_core"),
    ("mcp_events", "mcp 2.3", "mcp", "mcp", "mcp_types"),
    ("openai_agents", "openai-agents 0.24", "openai-agents", "agents"),
    ("pydantic_ai", "pydantic-ai 2.66", "pydantic-ai", "pydantic_ai"),
    ("pydantic_steps", "pydantic-ai-harness 0.62", "pydantic-ai-harness", "pydantic_ai", "pydantic_ai_harness"),
    ("strands", "strands 1.62", "strands", "strands"),
    ("strands_storage", "strands 1.62", "strands", "strands"),
]
"""Every adapter, what it needs, its extra, and the packages of which each may be missing alone."""


def without(packages: str, script: str, *arguments: str, where: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh process in which these packages are not installed."""
    command = [sys.executable, "-c", HIDDEN + script, packages, *arguments]
    return subprocess.run(command, cwd=where, text=True, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize(("module", "needs", "extra", "packages"), [(*one[:3], one[3:]) for one in ADAPTERS])
def test_an_adapter_without_its_framework_is_one_sentence_with_the_command(module, needs, extra, packages):
    """Whatever is missing of a framework, the import of its adapter says what it needs and how to install it."""
    for hidden in (EVERYTHING, *packages):
        done = without(hidden, f"import onrecord.frameworks.{module}")
        sentence = f"ImportError: this adapter needs {needs} or newer: pip install 'onrecord[{extra}]'"
        assert done.stderr.splitlines()[-1:] == [sentence], hidden


def test_every_adapter_is_among_them():
    """A new adapter is in the list above; the one for Claude's SDK works without it, and its hooks say what they need."""
    folder = Path(requiring.__file__).parent
    adapters = {one.stem for one in folder.glob("*.py") if "\nclass Onrecord" in one.read_text()}
    assert adapters | {"langgraph_tools"} == {one[0] for one in ADAPTERS} | {"claude_agent_sdk"}
    script = """
import onrecord
from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore
OnrecordSessionStore(onrecord.connect("memory:", project="p")).hooks()
"""
    done = without(EVERYTHING, script)
    sentence = "this adapter needs claude-agent-sdk 0.2.182 or newer: pip install 'onrecord[claude-agent-sdk]'"
    assert done.stderr.splitlines()[-1:] == [f"ImportError: {sentence}"]


@pytest.mark.parametrize("framework", importing.TABLES)
def test_an_import_without_the_framework_is_one_sentence_with_the_command(tmp_path, framework):
    """`onrecord import FRAMEWORK FILE` says how to install what it needs; openai-agents needs nothing."""
    with sqlite3.connect(tmp_path / "own.db") as database:
        database.executescript(OWN_STORES[framework])
    database.close()
    run = 'runpy.run_module("onrecord", run_name="__main__")'
    arguments = ("onrecord", "--store", str(tmp_path / "x.db"), "import", framework, str(tmp_path / "own.db"))
    done = without(EVERYTHING, run, *arguments, where=tmp_path)
    needs = {"langgraph": "langgraph 1.2", "google-adk": "google-adk 2.13"}.get(framework)
    if needs is None:
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert done.stdout == "imported: s, 1 new item\n"
    else:
        sentence = f"this adapter needs {needs} or newer: pip install 'onrecord[{framework}]'"
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def test_a_framework_that_is_too_old_is_the_same_sentence(monkeypatch):
    """A name that an older version does not have is answered alike."""
    monkeypatch.setitem(sys.modules, "anything", types.ModuleType("anything"))
    wanted = r"anything 3 or newer: pip install 'onrecord\[anything\]'"
    with pytest.raises(ImportError, match=wanted), required("anything", "anything", "3"):
        from anything import Newer  # type: ignore[import-not-found]  # noqa: F401  # that it is missing is the point


@pytest.mark.parametrize(
    ("installed", "oldest", "refused"),
    [("1.1.9", "1.2", True), ("0.24.0", "0.24", False), ("1.10", "1.2", False), ("1.2.0rc1", "1.2", False),
     ("2.0.dev1", "1.2", False), ("0.2.181", "0.2.182", True), ("local", "1.2", False)],
)  # fmt: skip
def test_a_version_that_has_every_name_may_still_be_too_old(monkeypatch, installed, oldest, refused):
    """The installed version is compared, and named; one that is no row of numbers is trusted."""
    monkeypatch.setattr(requiring, "version_of", lambda _extra: installed)
    expected = (
        pytest.raises(ImportError, match=rf"needs json {oldest} or newer, not {installed}: pip")
        if refused
        else nullcontext()
    )
    with expected, required("json", "json", oldest):
        import json  # noqa: F401  # in place of a framework


def test_a_part_of_the_framework_that_is_too_old_is_named(monkeypatch):
    """LangGraph's checkpointers are a distribution of their own: its version is compared, and named, too."""
    monkeypatch.setattr(requiring, "version_of", {"langgraph": "1.2.20", "langgraph-checkpoint": "4.2.9"}.get)
    monkeypatch.delitem(sys.modules, "onrecord.frameworks.langgraph", raising=False)
    with pytest.raises(ImportError) as found:
        __import__("onrecord.frameworks.langgraph")
    sentence = "this adapter needs langgraph-checkpoint 4.3 or newer, not 4.2.9: pip install 'onrecord[langgraph]'"
    assert str(found.value) == sentence


def test_a_url_in_place_of_a_store_is_one_sentence():
    """A newcomer who passes the address of a store, and not the store, reads what to pass."""
    url: Any = "sqlite:///x.db"
    with pytest.raises(onrecord.errors.InvalidInput, match="an adapter takes a store, not str") as found:
        Conversation(url, "any", "talk")
    assert found.value.hint == "pass onrecord.connect() or connect(URL)"


def test_another_missing_module_is_not_blamed_on_the_framework():
    """An import that fails for a reason of its own stays as it is."""
    with pytest.raises(ImportError, match="nothing_of_the_kind"), required("anything", "anything", "3"):
        import nothing_of_the_kind  # type: ignore[import-not-found]  # noqa: F401  # as above


def test_a_claude_sdk_without_summaries_is_too_old(monkeypatch, tmp_path):
    """The store for Claude's SDK needs the SDK's fold of summaries, and says so; nothing of the batch is written."""
    from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore

    monkeypatch.setitem(sys.modules, "claude_agent_sdk", types.ModuleType("claude_agent_sdk"))
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        ours = OnrecordSessionStore(store)
        key = {"project_key": "p", "session_id": "s"}
        with pytest.raises(ImportError, match=r"claude-agent-sdk 0\.2\.182 or newer: pip install"):
            asyncio.run(ours.append(key, [{"type": "user", "uuid": "u"}]))
        assert asyncio.run(ours.load(key)) is None
