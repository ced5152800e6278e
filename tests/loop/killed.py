"""A loop that is killed at its n-th call into the database, and the process that continues it."""

import os
import signal
from multiprocessing.connection import Connection
from typing import Any

import onrecord
from onrecord.log.items import text_of
from onrecord.testing.torture.children import Death, paid
from tests.loop.replies import completion


def loop(url: str, ledger: str, kill_at: int) -> str:
    """The loop of the guide: one tool call, one answer. What the model reads about the call."""
    death = Death() if kill_at else None
    store = onrecord.connect(url, project="/project")
    session = store.open("work", agent="main")

    @session.tool
    def pay(invoice: int) -> str:
        return paid(ledger)

    if death:
        death.arm(kill_at)
    with session.turn(resume=True) as turn:
        if not turn.items:
            turn.user("pay 17")
        while not turn.done:
            turn.run_tools(pay)
            sent: list[Any] = turn.messages("openai")
            turn.reply(completion("done") if sent[-1]["role"] == "tool" else completion(call="c1", invoice=17))
        told = next(text_of(item) for item in turn.items if item["role"] == "tool")
    if death:
        death.disarm()
    session.leave()
    return told


def killed(pipe: Connection, url: str, ledger: str, kill_at: int) -> None:
    """Run the loop until it is killed, or report that it was not."""
    loop(url, ledger, kill_at)
    pipe.send("finished")
    os.kill(os.getpid(), signal.SIGKILL)


def continued(pipe: Connection, url: str, ledger: str) -> None:
    """Continue it; report what the model read, how many turns are committed, and whether the log is sound."""
    told = loop(url, ledger, 0)
    session = onrecord.connect(url, project="/project").get("work")
    pipe.send((told, len(session.transcript()), session.verify().ok))
