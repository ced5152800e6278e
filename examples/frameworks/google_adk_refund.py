"""An agent of Google ADK pays a refund and is killed inside the tool; run it again: nothing is paid twice.

    pip install "onrecord[google-adk]"
    python examples/frameworks/google_adk_refund.py /tmp/refund --kill      # dies inside the tool
    python examples/frameworks/google_adk_refund.py /tmp/refund             # resumes the invocation

The model is scripted, so no key is needed; everything else is real.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.genai import types

import onrecord
from onrecord.frameworks.google_adk import OnrecordPlugin, OnrecordSessionService

place = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
place.mkdir(exist_ok=True)


def pay(order: int) -> str:
    """Pay the refund of an order."""
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"order {order}\n")
    if "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


class Scripted(BaseLlm):  # type: ignore[misc]  # checked without ADK
    """Calls the tool once, then reports what it answered: a model that always does the same."""

    async def generate_content_async(self, request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:  # noqa: FBT001, FBT002  # the signature of ADK
        """Answer from what the conversation says."""
        parts = request.contents[-1].parts
        if parts[-1].function_response:
            said = f"The bank said: {parts[-1].function_response.response['result']}"
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]))
        else:
            call = types.Part(function_call=types.FunctionCall(name="pay", args={"order": 42}))
            yield LlmResponse(content=types.Content(role="model", parts=[call]))


async def main() -> None:
    """Ask for the refund; after a crash, resume the invocation that was interrupted."""
    service = OnrecordSessionService(onrecord.connect(str(place / "record.db"), project="refunds"))
    agent = LlmAgent(name="refunds", model=Scripted(model="scripted"), tools=[pay])
    app = App(
        name="shop", root_agent=agent, plugins=[OnrecordPlugin(service)],
        resumability_config=ResumabilityConfig(is_resumable=True),
    )  # fmt: skip
    runner = Runner(app=app, session_service=service)
    who: Any = {"app_name": "shop", "user_id": "ada", "session_id": "refund-42"}
    session = await service.get_session(**who)
    asked: dict[str, Any]
    if session is None:
        await service.create_session(**who)
        asked = {"new_message": types.Content(role="user", parts=[types.Part(text="Refund order 42.")])}
    else:
        asked = {"invocation_id": session.events[-1].invocation_id}
    async for event in runner.run_async(user_id="ada", session_id="refund-42", **asked):
        for part in (event.content.parts if event.content else None) or ():
            if part.text:
                print(part.text)


asyncio.run(main())
