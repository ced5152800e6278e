"""A loop that is killed at its n-th call into the database, and the processes that continue it."""

import asyncio
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import onrecord
from onrecord import aio
from onrecord.log.item_values import Item
from onrecord.log.items import text_of
from onrecord.session.handle import Session
from onrecord.testing.torture.children import Death, paid
from tests.loop.replies import completion

ID = "pay-17"
"""The id of the request, which every start of the program has."""


class StreamBroke(Exception):
    """The connection was lost while the answer arrived."""


def model(sent: list[Any]) -> dict[str, Any]:
    """What the model answers: it calls its tool, then it says that it is done."""
    return completion("done") if sent[-1]["role"] == "tool" else completion(call="c1", invoice=17)


def called(session: Session, pay: Callable[[int], str], *, breaks: bool = False) -> list[Item]:
    """The loop of the guide: one tool call, one answer. All items of the turn."""
    with session.turn(id=ID, resume=True) as turn:
        if not turn.items:
            turn.user("pay 17")
        while not turn.done:
            turn.run_tools(session.tool(pay))
            answer = model(turn.messages("openai"))
            if breaks:
                raise StreamBroke
            turn.reply(answer)
    return turn.items


def streamed(session: Session, pay: Callable[[int], str]) -> list[Item]:
    """The same, but the stream of the first answer breaks, and so does the one of the second."""
    for _attempt in range(2):
        try:
            return called(session, pay, breaks=True)
        except StreamBroke:
            continue
    return called(session, pay)


async def awaited(session: aio.AsyncSession, pay: Callable[[int], str]) -> list[Item]:
    """The same, awaited."""

    async def paying(invoice: int) -> str:
        return await asyncio.to_thread(pay, invoice)

    async with session.turn(id=ID, resume=True) as turn:
        if not turn.items:
            await turn.user("pay 17")
        while not turn.done:
            await turn.run_tools(session.tool(paying, name="pay"))
            await turn.reply(model(await turn.messages("openai")))
    return turn.items


def loop(program: str, url: str, ledger: str, kill_at: int) -> str:
    """Run a program; what the model read about the call."""
    death = Death() if kill_at else None
    session = onrecord.connect(url, project="/project").open("work", agent="main")

    def pay(invoice: int) -> str:
        return paid(ledger)

    if death:
        death.arm(kill_at)
    if program == "awaited":
        items = asyncio.run(awaited(aio.AsyncSession(session), pay))
    else:
        items = (streamed if program == "streamed" else called)(session, pay)
    if death:
        death.disarm()
    session.leave()
    return next(text_of(item) for item in items if item["role"] == "tool")


def killed(pipe: Connection, program: str, url: str, ledger: str, kill_at: int) -> None:
    """Run the program until it is killed, or report that it was not."""
    loop(program, url, ledger, kill_at)
    pipe.send("finished")
    os.kill(os.getpid(), signal.SIGKILL)


def continued(pipe: Connection, program: str, url: str, ledger: str) -> None:
    """Start it again, and once more; report what the model read, how many turns count, and whether the log is sound."""
    told = loop(program, url, ledger, 0)
    again = loop(program, url, ledger, 0)
    session = onrecord.connect(url, project="/project").get("work")
    pipe.send((told, again, len(session.transcript()), session.verify().ok))
