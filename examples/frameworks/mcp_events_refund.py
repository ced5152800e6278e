"""An MCP server is killed inside a tool; after its restart, the client gets the events that it missed.

    pip install "onrecord[mcp]"
    python examples/frameworks/mcp_events_refund.py /tmp/refund --kill      # the server dies inside the tool
    python examples/frameworks/mcp_events_refund.py /tmp/refund             # a new server, the same events

Server and client are one process here, and talk HTTP on the loopback interface.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

import onrecord
from onrecord.frameworks.mcp_events import OnrecordEventStore

place = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
place.mkdir(exist_ok=True)
last_seen = place / "last-event.txt"
store = onrecord.connect(str(place / "record.db"), project="refunds")
server = MCPServer("refunds", log_level="ERROR")


@server.tool()
async def pay(order: int, ctx: Context[Any, Any]) -> str:
    """Pay the refund of an order."""
    await ctx.report_progress(1, 2, f"checking order {order}")
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"order {order}\n")
    await ctx.report_progress(2, 2, f"order {order} is paid")
    await asyncio.sleep(0.5)  # waits for the bank's receipt
    if "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


async def events_of(response: httpx.Response) -> None:
    """Print the events of a stream; the id of the first one is all that the client remembers, as if it was cut off."""
    async for line in response.aiter_lines():
        if line.startswith("id:") and not last_seen.exists():
            last_seen.write_text(line.removeprefix("id:").strip())
        if line.startswith("data:") and line.removeprefix("data:").strip():
            said = json.loads(line.removeprefix("data:"))
            print("event:", (said.get("params") or {}).get("message") or said.get("result"))


async def client(url: str) -> None:
    """Call the tool; or, if a call was cut off, ask for what was missed."""
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "shop", "version": "1"}}
    async with httpx.AsyncClient(headers=headers, timeout=10) as http:
        begun = await http.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
        http.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
        await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        if last_seen.exists():
            missed = {"last-event-id": last_seen.read_text()}
            async with asyncio.timeout(2), http.stream("GET", url, headers=missed) as response:
                await events_of(response)
            return
        params = {"name": "pay", "arguments": {"order": 42}, "_meta": {"progressToken": 1}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        async with http.stream("POST", url, json=call) as response:
            await events_of(response)


async def main() -> None:
    """Serve until the client is done."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = server.streamable_http_app(event_store=OnrecordEventStore("refund-server", store))
    http = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    serving = asyncio.create_task(http.serve([listener]))
    while not http.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.02)
    try:
        await client(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp")
    except TimeoutError:
        print("nothing more was missed")
    finally:
        http.should_exit = True
        await serving


asyncio.run(main())
