"""Claude's agent pays a refund and is killed inside the tool; run it again: the session comes back from our store.

    pip install "onrecord[claude-agent-sdk]"
    python examples/frameworks/claude_agent_sdk_refund.py /tmp/refund --kill      # dies inside the tool
    python examples/frameworks/claude_agent_sdk_refund.py /tmp/refund             # continues

It needs a key in ANTHROPIC_API_KEY. Claude's own files are in a new directory each time, as on another machine: what
the second run knows of the first one, it knows from the record.
"""

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    create_sdk_mcp_server,
    project_key_for_directory,
    query,
    tool,
)

import onrecord
from onrecord.frameworks.claude_agent_sdk import OnrecordSessionStore

SESSION = "5a7c492e-0d78-48c2-a966-9e95f0cee71a"
place = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__)).resolve()
place.mkdir(exist_ok=True)
prompt = next((one for one in sys.argv[2:] if not one.startswith("--")), "")
store = onrecord.connect(str(place / "record.db"), project="refunds")
kept = OnrecordSessionStore(store)


@tool("pay", "Pay the refund of an order", {"order": int})  # type: ignore[untyped-decorator]  # checked without the SDK
async def pay(given: dict[str, Any]) -> dict[str, Any]:
    """Pay the refund of an order."""
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"order {given['order']}\n")
    if "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"content": [{"type": "text", "text": "paid"}]}


async def main() -> None:
    """Resume the session if it is on record, else begin it."""
    key = {"project_key": project_key_for_directory(str(place)), "session_id": SESSION}
    before = await kept.load(key)
    print("on record:", len(before or []), "entries")
    options = ClaudeAgentOptions(
        cwd=str(place), session_store=kept, session_store_flush="eager", hooks=kept.hooks(str(place)),
        mcp_servers={"refunds": create_sdk_mcp_server("refunds", tools=[pay])}, allowed_tools=["mcp__refunds__pay"],
        env={"CLAUDE_CONFIG_DIR": tempfile.mkdtemp()}, **({"resume": SESSION} if before else {"session_id": SESSION}),
    )  # fmt: skip
    async for message in query(prompt=prompt or ("What happened?" if before else "Refund order 42."), options=options):
        if isinstance(message, ResultMessage):
            print("the agent says:", message.result)


asyncio.run(main())
(head,) = store.sessions()
print("outcome unknown:", list(store.get(head.session).effects.unknown()))
