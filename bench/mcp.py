"""The MCP server: a tool call on a long session over an empty tool of the same SDK, and the start over a bare server's.

Both servers are asked in turns by the same client, which writes and reads lines, so the client costs both the same.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.gate import AGENT, EVENTS, fill
from bench.report import Figure, ratio, timed

CALL_MS, START = 5.0, 1.5
"""The aims: what a call adds to an empty tool, and the start to the first answer over that of a bare server."""
AFTER_NEWS = "resume after new events"
BARE = """
import anyio, mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
tool = types.Tool(name="empty", description="Does nothing", input_schema={"type": "object", "properties": {}})
async def listed(ctx, params): return types.ListToolsResult(tools=[tool])
async def called(ctx, params): return types.CallToolResult(content=[types.TextContent(type="text", text="done")])
async def main():
    server = Server("bare", version="1", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
anyio.run(main)
"""
CALLS: dict[str, dict[str, Any]] = {
    "resume": {}, "gate": {"paths": ["src/auth.py"]}, "search": {"query": "decision 25"}, "read": {"first": 9_000},
    "attempt": {"action": "foresee", "command": "make check"}, "record": {"kind": "decision", "text": "measured"},
}  # fmt: skip


class Client:
    """One server process and its pipes."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=env["HOME"]
        )
        self.number = 0
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.ask("initialize", hello)

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def call(self, tool: str, given: dict[str, Any]) -> tuple[float, float]:
        """The time of a tool call on the clock and on the server's processor, in seconds."""
        worked, began = self.worked(), perf_counter()
        told = self.ask("tools/call", {"name": tool, "arguments": given})
        took = perf_counter() - began
        assert not told["result"].get("isError"), told
        return took, self.worked() - worked

    def worked(self) -> float:
        """The processor time of the server so far, in seconds; unlike time on the clock, it ignores other programs."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def close(self) -> None:
        """End the server as a client does."""
        self.process.communicate()


def calls(place: Path, *, quick: bool) -> list[Figure]:
    """Each tool on a session of 10,000 events, also `resume` after new events; the slowest counts. And the start."""
    rounds, starts = (60, 3) if quick else (300, 9)
    store = place / "mcp.db"
    fill(store, EVENTS)
    env = {
        "ONRECORD_STORE": str(store), "ONRECORD_PROJECT": "bench", "ONRECORD_SESSION": "long", "ONRECORD_AGENT": AGENT,
        "PATH": os.environ.get("PATH", os.defpath), "HOME": str(place),
        "PYTHONPATH": ":".join(path for path in sys.path if path.endswith("src")),
    }  # fmt: skip
    bare, ours = [sys.executable, "-c", BARE], [sys.executable, "-m", "onrecord", "mcp"]
    first: dict[str, list[float]] = {"bare": [], "ours": []}
    for _start in range(starts):
        for name, command in (("bare", bare), ("ours", ours)):
            first[name].append(timed(lambda command=command: Client(command, env).close()))  # type: ignore[misc]  # bound now
    clients = {"empty": Client(bare, env), "ours": Client(ours, env)}
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in ("empty", AFTER_NEWS, *CALLS)}
    for number in range(rounds):
        samples["empty"].append(clients["empty"].call("empty", {}))
        samples[AFTER_NEWS].append(clients["ours"].call("resume", {}))
        for tool, given in CALLS.items():
            about = given | ({"text": f"measured {number}"} if tool == "record" else {})
            samples[tool].append(clients["ours"].call(tool, about))
    for client in clients.values():
        client.close()
    return [
        *_over_empty(samples),
        Figure("mcp, start to first answer, against a bare server", ratio(first["ours"], first["bare"]), "x", START,
               detail=f"{statistics.median(first['ours']):.2f} s, bare {statistics.median(first['bare']):.2f} s"),
    ]  # fmt: skip


def _over_empty(samples: dict[str, list[tuple[float, float]]]) -> list[Figure]:
    """What the slowest call adds to an empty one, on the clock and on the processor; every call is in the detail."""
    figures = []
    for place, kind in enumerate(("", ", processor time")):
        middle = {name: statistics.median(one[place] for one in found) * 1e3 for name, found in samples.items()}
        added = {tool: found - middle["empty"] for tool, found in middle.items() if tool != "empty"}
        slowest = max(added, key=lambda tool: added[tool])
        every = ", ".join(f"{tool} +{found:.1f} ms" for tool, found in added.items())
        figures.append(
            Figure(f"mcp, a call over an empty tool, {EVENTS:,} events, the slowest{kind}", added[slowest], "ms",
                   CALL_MS, detail=f"{slowest}; empty {middle['empty']:.1f} ms, {every}")
        )  # fmt: skip
    return figures
