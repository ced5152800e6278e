"""A framework that is missing or too old is one sentence, with the command that installs it."""

import asyncio
import sys
import types
from contextlib import nullcontext
from typing import Any

import pytest

import onrecord
from onrecord.frameworks import requiring
from onrecord.frameworks.conversation import Conversation
from onrecord.frameworks.requiring import required


def test_a_missing_framework_is_one_sentence_with_the_command(monkeypatch):
    """The import of an adapter says which framework it needs, from which version, and how to install it."""
    for name in ["agents", *(one for one in sys.modules if one.startswith("agents."))]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "onrecord.frameworks.openai_agents", raising=False)
    with pytest.raises(ImportError) as found:
        __import__("onrecord.frameworks.openai_agents")
    sentence = "this adapter needs openai-agents 0.24 or newer: pip install 'onrecord[openai-agents]'"
    assert str(found.value) == sentence


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


OTHERS = [
    ("agent_framework", "agent-framework 1.23", "agent-framework"),
    ("mcp_events", "mcp 2.3", "mcp"),
    ("pydantic_ai", "pydantic-ai 2.66", "pydantic-ai"),
    ("pydantic_steps", "pydantic-ai-harness 0.62", "pydantic-ai-harness"),
    ("strands", "strands 1.62", "strands"),
    ("strands_storage", "strands 1.62", "strands"),
]


@pytest.mark.parametrize(("module", "needs", "extra"), OTHERS)
def test_every_adapter_says_what_it_needs(monkeypatch, module, needs, extra):
    """Each adapter whose framework is not there names the oldest version and the command."""
    framework = {"mcp_events": "mcp", "strands_storage": "strands", "pydantic_steps": "pydantic_ai"}.get(module, module)
    for name in [framework, *(one for one in sys.modules if one.startswith(f"{framework}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [one for one in sys.modules if one.startswith("onrecord.frameworks.") and framework in one]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError) as found:
        __import__(f"onrecord.frameworks.{module}")
    assert str(found.value) == f"this adapter needs {needs} or newer: pip install 'onrecord[{extra}]'"


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
