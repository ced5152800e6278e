"""An agent of agent-framework pays a refund and is killed inside the tool; run it again: nothing is paid twice.

    pip install "onrecord[agent-framework]"
    python examples/frameworks/agent_framework_refund.py /tmp/refund --kill      # dies inside the tool
    python examples/frameworks/agent_framework_refund.py /tmp/refund             # continues

The model is scripted, so no key is needed; everything else is real.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

import onrecord
from onrecord.frameworks.agent_framework import OnrecordHistoryProvider, OnrecordMiddleware

place = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
place.mkdir(exist_ok=True)


@tool(approval_mode="never_require")  # type: ignore[untyped-decorator]  # checked without agent-framework
def pay(order: int) -> str:
    """Pay the refund of an order."""
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"order {order}\n")
    if "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


class Scripted(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]  # as above
    """Calls the tool unless the conversation has a result of it."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_more: Any) -> Any:
        async def answer() -> Any:
            results = [part for one in messages for part in one.contents if part.type == "function_result"]
            if results:
                said = Content.from_text(f"The tool says: {results[-1].result}.")
            else:
                said = Content.from_function_call("call-1", "pay", arguments={"order": 42})
            return ChatResponse(messages=[Message("assistant", [said])])

        return answer()


store = onrecord.connect(str(place / "record.db"), project="refunds")
history = OnrecordHistoryProvider(store)
agent = Agent(Scripted(), tools=[pay], context_providers=[history], middleware=[OnrecordMiddleware(history)])


async def main() -> None:
    """Run the agent in the session, whatever happened before."""
    before = await history.get_messages("refund-42")
    print("on record:", len(before), "messages")
    session = agent.create_session(session_id="refund-42")
    print("the agent says:", await agent.run("What happened?" if before else "Refund order 42.", session=session))


asyncio.run(main())
print("outcome unknown:", list(store.get("refund-42").effects.unknown()))
