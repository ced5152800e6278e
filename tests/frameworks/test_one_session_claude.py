"""One session, every framework: LangGraph begins it; openai-agents, a plain loop and the real Claude continue it.

It runs where Claude's SDK and the other two are installed: `./dev frameworks claude-agent-sdk`.
"""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, project_key_for_directory, query
from langchain_core.messages import HumanMessage

import onrecord
from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore
from onrecord.frameworks.langgraph import OnrecordSaver
from onrecord.frameworks.langgraph_tools import messages_of_others
from onrecord.frameworks.openai_agents import OnrecordSession
from tests.e2e.clis import Claude
from tests.e2e.modelserver import ModelServer
from tests.frameworks.test_one_session import graph_on, read_by

NAME = "order-42"
SESSION = "5a7c492e-0d78-48c2-a966-9e95f0cee71a"
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@pytest.fixture
def server():
    made = ModelServer(socket.create_server(("127.0.0.1", 0)))
    yield made
    made.close()


def asked_claude(place: Path, server: ModelServer, prompt: str) -> str:
    """What the real command line answers, with new files of its own, in a process's first store."""

    async def answer() -> str:
        with onrecord.connect(str(place / "x.db"), project="p") as store:
            options = ClaudeAgentOptions(
                cwd=str(place), session_store=OnrecordSessionStore(store), session_store_flush="eager", resume=SESSION,
                env={**Claude().environment(server.url), "HOME": str(place / "home")},
            )  # fmt: skip
            said = [one async for one in query(prompt=prompt, options=options) if isinstance(one, ResultMessage)]
            return str(said[-1].result)

    return asyncio.run(answer())


def texts_sent(server: ModelServer) -> list[str]:
    """What the model of Claude was given last, as texts; without what the command line adds of its own."""
    found = []
    for message in server.conversation()[-1].body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts if message["role"] != "system" else ():
            match part:
                case {"type": "text", "text": str(text)} if not text.startswith("<system-reminder>"):
                    found.append(text)
                case {"type": "image", "source": {"data": str(data)}}:
                    found.append(f"image of {len(data)}")
                case {"type": "tool_use"}:
                    found.append(f"{part['name']} {json.dumps(part['input'])}")
                case {"type": "tool_result"}:
                    found.append(f"result {part['content']}")
    return found


def test_the_real_claude_continues_what_the_others_began_and_they_continue_what_it_said(tmp_path, server):
    """Its model reads every turn before, tool calls and images too; and all read what Claude said."""
    (tmp_path / "home").mkdir()
    config: Any = {"configurable": {"thread_id": NAME}}
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        saver = OnrecordSaver(store)
        graph_on(saver, "from the graph").invoke({"messages": [HumanMessage("one: begin")]}, config)
        model = ScriptedModel([[assistant_message("from the agents")]])
        asyncio.run(Runner.run(Agent(name="a", model=model), "two: continue", session=OnrecordSession(NAME, store)))
        with store.open(NAME, agent="main") as ours, ours.turn() as turn:
            url = {"url": f"data:image/png;base64,{DOT}"}
            turn.user([{"type": "text", "text": "three: plain"}, {"type": "image_url", "image_url": url}])
            turn.assistant("", tool_calls=[{"id": "c", "name": "look", "arguments": {"at": 1}}])
            turn.tool("c", "seen")
            turn.assistant("from the loop")
        OnrecordSessionStore(store).keep_in(project_key_for_directory(str(tmp_path)), SESSION, NAME)

    earlier = [
        "one: begin", "from the graph", "two: continue", "from the agents", "three: plain", f"image of {len(DOT)}",
        'look {"at": 1}', "result seen", "from the loop",
    ]  # fmt: skip
    assert asked_claude(tmp_path, server, "four: [[say from claude]]") == "from claude"
    assert texts_sent(server) == [*earlier, "four: [[say from claude]]"]

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        model = ScriptedModel([[assistant_message("again")]])
        asyncio.run(Runner.run(Agent(name="a", model=model), "five: back", session=OnrecordSession(NAME, store)))
        assert read_by(model)[-3:] == ["four: [[say from claude]]", "from claude", "five: back"]

    assert asked_claude(tmp_path, server, "six: [[say the end]]") == "the end"
    said = [*earlier, "four: [[say from claude]]", "from claude", "five: back", "again", "six: [[say the end]]"]
    assert texts_sent(server) == said

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        carried = [message.content for message in messages_of_others(OnrecordSaver(store), NAME)]
        assert carried[-2:] == ["six: [[say the end]]", "the end"]
        session = store.get(NAME, agent="main")
        spoken = [item["content"] for item in session.transcript().items if isinstance(item["content"], str)]
        order = ["one", "two", "four", "five", "six"]
        assert [text.partition(":")[0] for text in spoken if ": " in text] == order
        assert [head.name for head in store.sessions()] == [NAME]
        assert session.messages("anthropic")[-1] == {"role": "assistant", "content": "the end"}
        assert session.verify().ok
