"""An agent that pays an invoice: the loop of docs/guide/loop.md in one file, with a scripted model.

    python examples/loop/pay.py DIRECTORY [before | in | after]

With a word, the process kills itself before the tool, in it or after it. Run it again to continue.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import onrecord

place = Path(sys.argv[1])
dies = sys.argv[2] if len(sys.argv) > 2 else ""


def die(moment: str) -> None:
    if dies == moment:
        print(f"    killed {moment} the tool", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def model(messages: list[Any]) -> dict[str, Any]:
    """What a model would answer: it calls its tool once, and reads the result."""
    last = messages[-1]
    print(f"    the model reads: {last['content']}", flush=True)
    if last["role"] == "tool":
        said = "I will check with the bank first." if "unknown" in last["content"] else "Invoice 17 is paid."
        message: dict[str, Any] = {"role": "assistant", "content": said}
    else:
        function = {"name": "pay", "arguments": json.dumps({"invoice": 17})}
        message = {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    return {
        "model": "scripted",
        "choices": [{"message": message}],
        "usage": {"prompt_tokens": 90, "completion_tokens": 9},
    }


session = onrecord.connect(str(place / "record.db"), project="invoices").open(
    "pay-17", agent="main", budget={"steps": 9}
)


@session.tool
def pay(invoice: int) -> str:
    """Pay an invoice: the side effect is a line in a file."""
    with (place / "payments.txt").open("a") as payments:
        payments.write(f"invoice {invoice}\n")
    die("in")
    return f"invoice {invoice} paid"


with session.turn(id="invoice-17", resume=True) as turn:
    if not turn.items:
        turn.user("Pay invoice 17.")
    while not turn.done:
        if turn.calls:
            die("before")
        turn.run_tools(pay)
        if turn.items[-1]["role"] == "tool":
            die("after")
        turn.reply(model(turn.messages("openai")))

print(f"    the agent says: {turn.items[-1]['content']}")
