"""The documents are run: every Python block in order, its output compared with the block that follows."""

import asyncio
import contextlib
import io
import re
import socket
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import onrecord
from tests.e2e import wire
from tests.e2e.modelserver import ModelServer

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXECUTED = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "guide").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#]+)\)")


PROMPTS = {
    "Pay invoice 17.": '[[call pay {"invoice": 17}]] [[say Invoice 17 is paid.]]',
    "Pay invoice 18.": '[[call pay {"invoice": 18}]] [[say Invoice 18 is paid.]]',
    "Pay every invoice.": "".join(f'[[call pay {{"invoice": {number}}}]]' for number in range(100)),
}
"""What the model does that the documents talk to."""


@pytest.fixture
def models(monkeypatch):
    """A model server where the vendors' SDKs look for one."""
    steps = wire.steps

    def scripted(prompt: str) -> list[wire.Step]:
        return steps(PROMPTS.get(prompt, prompt))

    monkeypatch.setattr(wire, "steps", scripted)
    with closing(ModelServer(socket.create_server(("127.0.0.1", 0)))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        yield


@pytest.mark.parametrize("name", EXECUTED)
def test_examples_do_what_the_document_says(name, request, tmp_path, monkeypatch):
    """Every example runs, in order, and prints exactly what is shown below it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("ONRECORD_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text()
    if "DATABASE_URL" in text:
        monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("postgres").fresh_database())
    if "OpenAI()" in text:
        request.getfixturevalue("models")
    blocks = FENCE.findall(text)
    namespace: dict[str, object] = {"__name__": "document"}
    for number, (language, body) in enumerate(blocks):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, f"{name}, block {number + 1}", "exec"), namespace)  # the point of this test
        following = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        if following[0] == "output":
            assert printed.getvalue().rstrip() == following[1].rstrip()


def test_the_frameworks_in_the_readme_are_used_as_shown(tmp_path, monkeypatch):
    """The lines for openai-agents and LangGraph are run, with models that answer from a script; the sessions are there."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("ONRECORD_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    (shown,) = (
        body for _kind, body in FENCE.findall((ROOT / "README.md").read_text()) if "onrecord.frameworks" in body
    )
    agents, langgraph, _adk = shown.split("\n\n")
    agent = Agent(name="refunds", model=ScriptedModel([[assistant_message("Refunded.")]]))
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _state: {"messages": [AIMessage("Rain.")]})
    builder.add_edge(START, "model")
    given = {"onrecord": onrecord, "Runner": Runner, "agent": agent, "builder": builder}
    for lines in (agents, langgraph):
        running = eval(compile(lines, "README.md", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT), given)  # the point of this test
        if running is not None:
            asyncio.run(running)
    graph: Any = given["graph"]
    graph.invoke({"messages": [HumanMessage("The weather?")]}, {"configurable": {"thread_id": "bergen"}})
    with onrecord.connect() as store:
        said = {one: [item["content"] for item in store.get(one).transcript().items] for one in ("refund-42", "bergen")}
    assert said == {"refund-42": ["Refund order 42.", "Refunded."], "bergen": ["The weather?", "Rain."]}


def test_links_lead_somewhere():
    """Every relative link in the documents leads to a file that exists."""
    dead = [
        f"{path.relative_to(ROOT)} -> {target}"
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for target in LINK.findall(path.read_text())
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert not dead


def test_the_readme_says_it_on_one_screen_and_has_both_commands():
    """The two commands are among the first lines, and CI runs exactly the second one."""
    first_screen = (ROOT / "README.md").read_text().splitlines()[:30]
    assert "$ ./dev demo" in first_screen
    assert "$ ./dev test" in first_screen
    assert "./dev test" in (ROOT / ".ci" / "run").read_text()


def test_the_index_of_decisions_has_their_titles():
    """The index lists a decision once, with the title that its page has; every page begins with its number."""
    folder = ROOT / "docs" / "decisions"
    pages = sorted(folder.glob("0*.md"))
    titles = {page.name: page.read_text().splitlines()[0].removeprefix("# ") for page in pages}
    assert [name for name, title in titles.items() if not title.startswith(f"{int(name[:4])}. ")] == []
    listed = re.findall(r"^- \[(.+)\]\((\S+)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert [(name, title) for title, name in listed if titles.get(name) != title] == []
    assert len({name for _title, name in listed}) == len(listed)
