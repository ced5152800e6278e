"""Which session a call means: named, chosen, environment, conversation, process, project; and who the agent is."""

import os
import shutil
from pathlib import Path

import pytest

from onrecord import machine
from onrecord.connection import connect
from onrecord.surfaces.mcp.finding import Caller
from onrecord.vendors.mcp_servers import conversation_in, vendor_of_client
from tests.mcp.conftest import Tools


def two_sessions() -> None:
    with connect() as records:
        records.create("other", agent="ada", objective="Another matter")


def test_the_only_live_session_of_the_project_is_meant(tools):
    """With one session nothing needs to be named; when a second one appears, the agent stays where it works."""
    assert tools.done("resume")["session"] == "fix-403"
    two_sessions()
    assert tools.done("resume")["session"] == "fix-403"


def test_where_it_is_ambiguous_resume_lets_the_agent_choose(tools):
    """`resume` lists the sessions and records nothing; the one chosen is meant from then on; other tools say what to do."""
    two_sessions()
    choice = tools.done("resume")
    assert sorted(choice["sessions"]) == ["fix-403", "other"]
    assert "Another matter" in choice["text"]
    refusal = tools.refused("record", kind="decision", text="x")
    assert (refusal["code"], "`resume`" in refusal["hint"]) == ("ambiguous_name", True)
    assert tools.done("resume", session="other")["session"] == "other"
    assert tools.done("record", kind="decision", text="Here")["session"] == "other"
    assert tools.done("record", kind="decision", text="There", session="fix-403")["session"] == "fix-403"
    assert tools.done("record", kind="decision", text="Here again")["session"] == "other"
    tools.connection = "another client"
    assert tools.refused("record", kind="decision", text="x")["code"] == "ambiguous_name", "a choice is one client's"


def test_without_a_connection_the_agent_is_asked_to_name_the_session(tools):
    """The newest revision has no connections over HTTP: the answer says to pass the session with every call."""
    two_sessions()
    tools.connection = ""
    assert tools.done("resume", session="other")["text"].startswith("Pass session=other with every call.")


def test_the_environment_names_session_and_agent(tools, monkeypatch):
    """An agent that `onrecord start` started is itself: its session and its name come from its environment."""
    two_sessions()
    monkeypatch.setenv("ONRECORD_SESSION", "other")
    monkeypatch.setenv("ONRECORD_AGENT", "solver")
    tools.done("record", kind="decision", text="As solver")
    with connect() as records:
        assert next(records.get("other").log.newest()).by == "solver"


def test_a_conversation_on_record_names_both(tools):
    """The conversation that a hook recorded leads to its session, and to its agent's name there."""
    two_sessions()
    with connect() as records:
        records.get("other", agent="painter").agents.locate("codex", "thread-1")
    tools.caller = Caller("codex-mcp-client", "codex", "thread-1")
    tools.done("record", kind="decision", text="As painter")
    with connect() as records:
        assert next(records.get("other").log.newest()).by == "painter"


def test_the_process_above_names_both(tools):
    """Where nothing names the conversation, the process that runs the server leads to its session."""
    two_sessions()
    with connect() as records:
        parent = machine.identity_of(os.getppid())
        records.get("other", agent="gemini").agents.locate("gemini", "g-1", process=parent)
    tools.caller = Caller("gemini-cli")
    tools.done("record", kind="decision", text="As gemini")
    with connect() as records:
        assert next(records.get("other").log.newest()).by == "gemini"
    tools.caller = Caller("gemini-cli", local=False)
    tools.connection = "over HTTP"
    assert tools.refused("record", kind="decision", text="x")["code"] == "ambiguous_name", (
        "its own process says nothing"
    )


def test_without_a_session_one_is_started_by_its_objective(project):
    """Nothing on record: the answer says how to start; an objective with a new name starts the session."""
    tools = Tools(project)
    refusal = tools.refused("resume")
    assert (refusal["code"], "objective" in refusal["hint"]) == ("session_not_found", True)
    assert tools.done("gate", paths=["src/auth.py"])["decision"] == "allow", "as the command line answers"
    assert not (project.parent / "data" / "store.db").exists(), "reading creates no store"
    made = tools.done("record", kind="objective", text="Fix the 403", session="fix-403")
    assert made["session"] == "fix-403"
    assert "Fix the 403" in tools.done("resume", session="fix-403")["text"]
    assert tools.refused("record", kind="objective", text="x", session="../etc")["code"] == "invalid_name"
    tools.sessions.close()


def test_a_store_that_was_replaced_is_opened_again(tools, tmp_path: Path):
    """After a backup was restored under the server, calls go to the restored store and not to the file that is gone."""
    tools.done("record", kind="decision", text="Before")
    store = Path(os.environ["ONRECORD_STORE"])
    shutil.rmtree(store.parent)
    with connect() as records:
        records.create("restored", agent="ada")
    assert tools.done("record", kind="decision", text="After")["session"] == "restored"


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("claude-code", "claude"), ("codex-mcp-client", "codex"), ("gemini-cli-mcp-client", "gemini"),
        ("qwen-code", "qwen"), ("opencode", "opencode"), ("cursor-vscode", "cursor"), ("github-copilot", ""),
        ("Claude Desktop", ""),
    ],
)  # fmt: skip
def test_clients_are_known_by_their_names(client, name):
    """A vendor's client is its vendor; others keep their own name."""
    assert vendor_of_client(client) == name


def test_vendors_name_the_conversation_in_their_own_way():
    """Codex with the call, Claude, Copilot and Qwen in the environment of the server."""
    assert conversation_in({"threadId": "t"}, {}) == ("codex", "t")
    assert conversation_in({}, {"CLAUDE_CODE_SESSION_ID": "c"}) == ("claude", "c")
    assert conversation_in({"threadId": 7}, {}) == ("", "")


@pytest.mark.parametrize("client", ["", "...", "Ünï çødé", "a" * 200, "x/../y", "-rf", "a\nb"])
def test_any_client_name_becomes_a_valid_agent(tools, client):
    """Whatever a client calls itself, what it records has a legal name."""
    tools.caller = Caller(client)
    assert tools.done("record", kind="decision", text=f"by {client!r}")["position"] == 2
