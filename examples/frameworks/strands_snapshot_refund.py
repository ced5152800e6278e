"""An agent of Strands with snapshots is killed inside its tool; run it again: nothing is paid twice.

    pip install "onrecord[strands]"
    python examples/frameworks/strands_snapshot_refund.py /tmp/refund --kill      # dies inside the tool
    python examples/frameworks/strands_snapshot_refund.py /tmp/refund             # continues

The model is scripted, so no key is needed; everything else is real.
"""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session.snapshot_session_manager import SnapshotSessionManager

import onrecord
from onrecord.frameworks.strands import OnrecordHooks
from onrecord.frameworks.strands_storage import OnrecordStorage

place = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
place.mkdir(exist_ok=True)


@tool  # type: ignore[untyped-decorator]  # checked without Strands
def pay(order: int) -> str:
    """Pay the refund of an order."""
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"order {order}\n")
    if "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


class Scripted(Model):  # type: ignore[misc]  # checked without Strands
    """Calls the tool when it is asked for a refund; to anything else it says that it will check."""

    def update_config(self, **_config: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        """There is nothing configured."""
        return {}

    def structured_output(self, *_arguments: Any, **_more: Any) -> Any:
        """Not used here."""
        raise NotImplementedError

    async def stream(self, messages: Any, *_arguments: Any, **_more: Any) -> AsyncIterator[Any]:
        """Answer from what the conversation says."""
        text = messages[-1]["content"][-1].get("text", "")
        yield {"messageStart": {"role": "assistant"}}
        if text.startswith("Refund"):
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "pay", "toolUseId": "call-1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"order": 42})}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "I will check with the bank before I pay again."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if text.startswith("Refund") else "end_turn"}}


store = onrecord.connect(str(place / "record.db"), project="refunds")
storage = OnrecordStorage(store)
manager = SnapshotSessionManager("refund-42", storage=storage, save_latest_on="message")
agent = Agent(
    model=Scripted(), tools=[pay], session_manager=manager, hooks=[OnrecordHooks(storage, "refund-42")],
    callback_handler=None,
)  # fmt: skip
print("on record:", len(agent.messages), "messages")
print("the agent says:", agent("What happened?" if agent.messages else "Refund order 42."))
print("outcome unknown:", list(store.get("refund-42").effects.unknown()))
