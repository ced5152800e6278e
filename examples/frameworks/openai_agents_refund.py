"""An agent of openai-agents pays a refund and is killed inside the tool; run it again: nothing is paid twice.

    pip install "onrecord[openai-agents]"
    python examples/frameworks/openai_agents_refund.py /tmp/refund --kill      # dies inside the tool
    python examples/frameworks/openai_agents_refund.py /tmp/refund             # continues

The model is scripted, so no key is needed; everything else is real.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import onrecord
from onrecord.frameworks.openai_agents import OnrecordSession

place = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
place.mkdir(exist_ok=True)


@function_tool
def pay(order: int) -> str:
    """Pay the refund of an order."""
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"order {order}\n")
    if "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


async def main() -> None:
    """Ask for the refund; after a crash, ask what became of it."""
    session = OnrecordSession("refund-42", onrecord.connect(str(place / "record.db"), project="refunds"))
    if not await session.get_items():
        steps = [[function_call("pay", {"order": 42}, call_id="call-1")], [assistant_message("Order 42 is refunded.")]]
        prompt = "Refund order 42."
    else:
        steps, prompt = [[assistant_message("I will check with the bank before I pay again.")]], "What happened?"
    model = ScriptedModel(steps)
    agent = Agent(name="refunds", model=model, tools=[pay])
    result = await Runner.run(agent, prompt, session=session, hooks=session.hooks())
    first = model.first_call
    for item in first.input if first and isinstance(first.input, list) else []:
        print("the model reads:", item.get("output") or item.get("content") or item.get("name"))
    print("the agent says:", result.final_output)


asyncio.run(main())
