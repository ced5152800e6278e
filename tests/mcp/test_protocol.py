"""The protocol itself, spoken by the SDK's own client and by hand: stdio, HTTP, both revisions, and what goes wrong."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from onrecord.connection import connect
from onrecord.surfaces.cli.main import main
from onrecord.surfaces.mcp.finding import Sessions
from onrecord.surfaces.mcp.serving import Service

COMMAND = [sys.executable, "-m", "onrecord", "mcp"]
TOKEN = "a-token-of-these-tests"
MODES = ("legacy", "2026-07-28")
OLDER_TOO = pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
"""The SDK's client warns that the older way to subscribe is gone from the newer revision; we serve both."""
HELLO = {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by-hand", "version": "1"},
}  # fmt: skip


class Raw:
    """A client that writes lines by itself."""

    def __init__(self, *options: str, cwd: str | None = None) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd
        )
        self.ask("initialize", HELLO)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def ask(self, method: str, params: dict[str, Any], number: int = 1) -> dict[str, Any]:
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return self.answer()

    def tool(self, name: str, number: int = 2, /, **given: Any) -> dict[str, Any]:
        told: dict[str, Any] = self.ask("tools/call", {"name": name, "arguments": given}, number)["result"]
        return told

    def close(self) -> tuple[int, str]:
        """End it as a client does; its exit status and what it wrote to standard error."""
        try:
            _out, err = self.process.communicate(timeout=90)
        finally:
            self.process.kill()
        return self.process.returncode, err.decode()


@pytest.fixture
def raw(tools) -> Iterator[Raw]:
    made = Raw()
    yield made
    made.close()


def decisions() -> list[str]:
    with connect() as records:
        return [event.data["text"] for event in records.get("fix-403").events(kinds=["decision.made"])]


async def something(heard: list[Any]) -> None:
    while not heard:  # noqa: ASYNC110  # what is heard comes through a callback that is not ours
        await anyio.sleep(0.05)


@asynccontextmanager
async def in_memory(mode: str, heard: Callable[[Any], None] | None = None) -> AsyncIterator[Client]:
    async def handler(message: Any) -> None:
        if heard:
            heard(message)

    service = Service(Sessions(), local=True)
    async with Client(service.server(), mode=mode, message_handler=handler) as client:
        yield client
    service.sessions.close()


@pytest.mark.parametrize("mode", MODES)
def test_both_revisions_list_and_call_everything(tools, mode):
    """Tools with schemas and annotations, resources, templates and prompts; structured answers match their schema; a wrong call is a tool error."""

    async def run() -> None:
        async with in_memory(mode) as client:
            listed = (await client.list_tools()).tools
            assert [one.name for one in listed] == ["resume", "record", "attempt", "gate", "search", "read"]
            assert all(one.output_schema and one.annotations for one in listed)
            # The SDK's client checks every structured answer against the tool's schema.
            done = await client.call_tool("record", {"kind": "decision", "text": f"In {mode}"})
            assert not done.is_error
            assert (done.structured_content or {})["session"] == "fix-403"
            for name, given in (("resume", {}), ("read", {}), ("gate", {"paths": ["a"]}), ("search", {"query": "In"}),
                                ("attempt", {"action": "foresee", "command": "make"})):  # fmt: skip
                assert not (await client.call_tool(name, given)).is_error
            wrong = await client.call_tool("record", {"kind": "decision"})
            assert wrong.is_error
            assert (wrong.meta or {})["onrecord/error"]["code"] == "invalid_input"
            uris = [str(one.uri) for one in (await client.list_resources()).resources]
            assert uris[0] == "onrecord://sessions"
            for uri in uris:
                (content,) = (await client.read_resource(uri)).contents
                assert content.model_dump()["text"]
            assert len((await client.list_resource_templates()).resource_templates) == 5
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource("onrecord://sessions/fix-403/secrets")
            for one in (await client.list_prompts()).prompts:
                assert one.description
                (message,) = (await client.get_prompt(one.name)).messages
                assert "Fix the 403 after invite acceptance" in message.content.model_dump()["text"]

    anyio.run(run)
    assert decisions() == [f"In {mode}"]


@OLDER_TOO
def test_a_subscriber_of_the_older_revision_is_notified(tools):
    """`resources/subscribe`: another process records something, and the client hears of it; after unsubscribing it does not."""
    uri = "onrecord://sessions/fix-403/brief"
    heard: list[Any] = []

    async def run() -> None:
        async with in_memory("legacy", heard.append) as client:
            await client.subscribe_resource(uri)
            with connect() as records:
                records.get("fix-403").decide("From outside")
            with anyio.fail_after(10):
                await something(heard)
            await client.unsubscribe_resource(uri)
            heard.clear()
            with connect() as records:
                records.get("fix-403").decide("Once more")
            await anyio.sleep(1.2)
            assert heard == []

    anyio.run(run)


def test_a_listener_of_the_newer_revision_is_notified(tools):
    """`subscriptions/listen`: a stream of its own, for the resources it names."""
    uri, other = "onrecord://sessions/fix-403/note", "onrecord://sessions"

    async def run() -> None:
        async with in_memory("2026-07-28") as client, client.listen(resource_subscriptions=[uri, other]) as stream:
            with connect() as records:
                records.get("fix-403").decide("From outside")
            with anyio.fail_after(10):
                seen = set()
                async for event in stream:
                    seen.add(getattr(event, "uri", ""))
                    if seen == {uri, other}:
                        break

    anyio.run(run)


def test_a_stdio_client_is_served_and_the_end_of_input_ends_the_server(tools):
    """The SDK's client starts `onrecord mcp`, works with it in both revisions, and leaves no process."""

    async def run(mode: str) -> None:
        server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=dict(os.environ))
        async with Client(stdio_client(server), mode=mode) as client:
            done = await client.call_tool("record", {"kind": "decision", "text": mode})
            assert not done.is_error, done

    for mode in MODES:
        anyio.run(run, mode)
    assert decisions() == list(MODES)


def test_standard_output_is_the_protocol_and_nothing_else(raw):
    """Nonsense, an unknown method and a huge line are answered or ignored, and the next call works; the exit is clean and silent."""
    raw.send(b"this is no JSON")
    raw.send(b"[1, 2, 3]")
    unknown = raw.ask("no/such/method", {}, 5)
    while unknown.get("id") != 5:
        unknown = raw.answer()
    assert "error" in unknown
    assert raw.tool("record", 6, kind="decision", text="x" * 1_000_000)["isError"]
    assert raw.tool("record", 7, kind="decision", text="Still here")["isError"] is False
    status, err = raw.close()
    assert status == 0
    assert "Traceback" not in err
    assert decisions() == ["Still here"]


def test_a_client_that_dies_mid_call_loses_nothing_and_leaves_nothing(tools):
    """The client is killed right after it sent a call: the server ends by itself, and the log has the fact once or not at all, and verifies."""
    for number in range(2):
        client = Raw()
        client.send({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {
            "name": "record", "arguments": {"kind": "decision", "text": f"Mid-call {number}"}}})  # fmt: skip
        assert client.process.stdin is not None
        assert client.process.stdout is not None
        client.process.stdout.close()
        client.process.stdin.close()
        assert client.process.wait(90) is not None
        assert client.process.stderr is not None
        client.process.stderr.close()
    assert len(decisions()) == len(set(decisions()))
    with connect() as records:
        assert records.get("fix-403").verify().ok


def test_a_desktop_client_names_the_project(tools, tmp_path):
    """A client that starts its servers in no project passes `--project`: paths in calls are relative to that directory."""
    here = Path.cwd()
    (here / "auth.py").write_text("def accept(): ...\n")
    raw = Raw("--project", str(here), cwd="/")
    try:
        done = raw.tool("record", kind="finding", text="It accepts", label="verified", evidence=["auth.py:1-1"])
        assert not done.get("isError"), done
        assert raw.tool("gate", 3, paths=["auth.py"])["structuredContent"]["decision"] == "allow"
    finally:
        raw.close()


def test_a_server_that_is_asked_to_stop_stops(raw):
    """SIGTERM ends it at once, also while it waits for input."""
    raw.process.send_signal(signal.SIGTERM)
    assert raw.process.wait(90) == 128 + signal.SIGTERM


def test_two_clients_at_once_write_one_log(tools):
    """Two servers on one store: every fact of both is on record once, and each sees the other's."""
    clients = [Raw(), Raw()]
    try:
        for number in range(20):
            for which, client in enumerate(clients):
                client.send({"jsonrpc": "2.0", "id": 100 + number, "method": "tools/call", "params": {
                    "name": "record", "arguments": {"kind": "decision", "text": f"{which}-{number}"}}})  # fmt: skip
        for client in clients:
            for _number in range(20):
                assert client.answer()["result"]["isError"] is False
        text = clients[0].tool("read", 999, tokens=20_000)["content"][0]["text"]
        assert "1-19" in text
    finally:
        for client in clients:
            client.close()
    assert sorted(decisions()) == sorted(f"{which}-{number}" for which in range(2) for number in range(20))


def resident(pid: int) -> int:
    """The memory of a process, in KiB."""
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_thousand_calls_leave_the_memory_flat(raw):
    """After warming up, 1,000 calls of four tools add at most 8 MiB to the server."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("resume", {}),
        ("gate", {"paths": ["cache.py"]}),
        ("read", {"tokens": 200}),
        ("search", {"query": "invite"}),
    ]
    for number in range(100):
        name, given = calls[number % 4]
        raw.tool(name, 1_000 + number, **given)
    before = resident(raw.process.pid)
    for number in range(1_000):
        name, given = calls[number % 4]
        assert raw.tool(name, 2_000 + number, **given)["isError"] is False
    assert resident(raw.process.pid) - before < 8 * 1024


@pytest.fixture
def http(tools, monkeypatch) -> Iterator[str]:
    """The server over HTTP; its URL."""
    monkeypatch.setenv("ONRECORD_MCP_TOKEN", TOKEN)
    server = subprocess.Popen([*COMMAND, "--http", "--port", "0", "--json"], stdout=subprocess.PIPE)
    assert server.stdout is not None
    yield json.loads(server.stdout.readline())["data"]["url"]
    server.terminate()
    server.stdout.close()
    assert server.wait(90) == 0


@OLDER_TOO
def test_over_http_only_a_client_with_the_token_is_served(http):
    """Without the token, with a wrong one, from a web page or under another host name: refused. With it: both revisions work, and streams notify."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    accept = {"accept": "application/json, text/event-stream"}
    right = {**accept, "authorization": f"Bearer {TOKEN}"}
    for headers, status in (
        (accept, 401), ({**accept, "authorization": "Bearer wrong"}, 401), ({**accept, "authorization": TOKEN}, 401),
        ({**right, "origin": "https://evil.example"}, 403), ({**right, "host": "evil.example"}, 421), (right, 200),
    ):  # fmt: skip
        assert httpx2.post(http, json=body, headers=headers).status_code == status, headers

    async def run(mode: str) -> None:
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}) as web:
            heard: list[Any] = []

            async def handler(message: Any) -> None:
                heard.append(message)

            transport = streamable_http_client(http, http_client=web)
            async with Client(transport, mode=mode, message_handler=handler) as client:
                if mode == "legacy":
                    await client.subscribe_resource("onrecord://sessions/fix-403/brief")
                done = await client.call_tool("record", {"kind": "decision", "text": f"Over HTTP in {mode}"})
                assert not done.is_error, done
                if mode == "legacy":
                    with anyio.fail_after(10):
                        await something(heard)

    for mode in MODES:
        anyio.run(run, mode)
    assert decisions() == [f"Over HTTP in {mode}" for mode in MODES]


def test_a_token_of_its_own_is_private(tools, tmp_path):
    """Without a token, one is made in a file that only its owner can read; one that others can read is refused."""
    with subprocess.Popen([*COMMAND, "--http", "--port", "0", "--json"], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())["data"]
        server.terminate()  # right after the announcement: it stops cleanly at that moment, too
        assert server.wait(90) == 0
    file = Path(told["token_file"])
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(file.read_text().strip()) == 64
    file.chmod(0o644)
    done = subprocess.run([*COMMAND, "--http", "--port", "0"], capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode != 0
    assert f"chmod 600 {file}" in done.stderr


def test_wrong_options_are_refused(tools, capsys):
    """`--port` without `--http`, a port in use and a missing token file: one sentence and a hint each."""
    for words, says in ((["--port", "1"], "--port is for --http"), (["--http", "--token-file", "none"], "token file"),
                        (["--http", "--port", "70000"], "the port must be 0 to 65535, not 70000")):  # fmt: skip
        assert main(["mcp", *words]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert says in printed.err


def test_without_the_sdk_the_command_says_what_to_install(tools, tmp_path):
    """The extra is missing: one sentence with the command that installs it, and every other command still works."""
    (tmp_path / "mcp_types.py").write_text("raise ImportError('gone', name='mcp_types')\n")
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False, timeout=90, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'pip install "onrecord[mcp]"' in done.stderr


def test_only_this_command_loads_the_sdk(tools):
    """A command line and a hook never import the protocol's library."""
    check = "import sys; sys.argv = ['onrecord', 'list']; from onrecord.surfaces.entry import main; main(); print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=90)
    assert done.stdout.splitlines()[-1] == "False"
