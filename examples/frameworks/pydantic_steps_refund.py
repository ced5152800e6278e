"""An agent with step persistence pays a refund and is killed inside the tool; run it again: nothing is paid twice.

    pip install "onrecord[pydantic-ai-harness]"
    python examples/frameworks/pydantic_steps_refund.py /tmp/refund --kill      # dies inside the tool
    python examples/frameworks/pydantic_steps_refund.py /tmp/refund             # continues

The model is scripted, so no key is needed; everything else is real.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness.step_persistence import StepPersistence

import onrecord
from onrecord.frameworks.pydantic_steps import OnrecordStepStore

place = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
place.mkdir(exist_ok=True)
store = onrecord.connect(str(place / "record.db"), project="refunds")
steps = OnrecordStepStore(store)


def scripted(messages: list[Any], _info: Any) -> Any:
    """Call the tool when a refund is asked for; to anything else, say that it will be checked."""
    asked = [part.content for message in messages for part in message.parts if part.part_kind == "user-prompt"]
    if asked[-1].startswith("Refund"):
        return ModelResponse(parts=[ToolCallPart("pay", {"order": 42}, tool_call_id="call-1")])
    return ModelResponse(parts=[TextPart("I will check with the bank before I pay again.")])


agent = Agent(FunctionModel(scripted), capabilities=[StepPersistence(store=steps)])


@agent.tool_plain  # type: ignore[untyped-decorator]  # checked without pydantic-ai
def pay(order: int) -> str:
    """Pay the refund of an order."""
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"order {order}\n")
    if "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


async def main() -> None:
    """Ask the ledger first: what is unknown is not paid again."""
    runs = await steps.list_runs(conversation_id="refund-42")
    unknown = [one.tool_name for run in runs for one in await steps.list_unresolved_tool_effects(run_id=run.run_id)]
    print("runs on record:", len(runs), "outcome unknown:", unknown)
    prompt = f"The outcome of {unknown[0]} is unknown." if unknown else "Refund order 42."
    print("the agent says:", (await agent.run(prompt, conversation_id="refund-42")).output)


asyncio.run(main())
