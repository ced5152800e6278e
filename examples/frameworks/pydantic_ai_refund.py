"""An agent of pydantic-ai pays a refund and is killed inside the tool; run it again: nothing is paid twice.

    pip install "onrecord[pydantic-ai]"
    python examples/frameworks/pydantic_ai_refund.py /tmp/refund --kill      # dies inside the tool
    python examples/frameworks/pydantic_ai_refund.py /tmp/refund             # continues

The model is scripted, so no key is needed; everything else is real.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

import onrecord
from onrecord.frameworks.pydantic_ai import OnrecordCapability, OnrecordConversationStore

place = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
place.mkdir(exist_ok=True)
store = onrecord.connect(str(place / "record.db"), project="refunds")
conversations = OnrecordConversationStore(store)


def scripted(messages: list[Any], _info: Any) -> Any:
    """Call the tool unless the conversation has a result of it."""
    results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not results:
        return ModelResponse(parts=[ToolCallPart("pay", {"order": 42}, tool_call_id="call-1")])
    return ModelResponse(parts=[TextPart(f"The tool says: {results[-1].content}.")])


agent = Agent(FunctionModel(scripted), capabilities=[OnrecordCapability(conversations)])


@agent.tool_plain  # type: ignore[untyped-decorator]  # checked without pydantic-ai
def pay(order: int) -> str:
    """Pay the refund of an order."""
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"order {order}\n")
    if "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


async def main() -> None:
    """Load the conversation, run the agent, save."""
    conversation = await conversations.load("refund-42") or Conversation(conversation_id="refund-42")
    print("on record:", len(conversation.messages), "messages")
    prompt = "What happened?" if conversation.messages else "Refund order 42."
    result = await agent.run(prompt, conversation=conversation)
    await conversations.save(result)
    print("the agent says:", result.output)


asyncio.run(main())
print("outcome unknown:", list(store.get("refund-42").effects.unknown()))
