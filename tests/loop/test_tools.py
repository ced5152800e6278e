"""Tools are effects: recorded before and after, run once, repeated after a crash only where that is safe."""

import asyncio
import threading
from hashlib import sha256
from typing import Any

import pytest

import onrecord
from onrecord import aio
from onrecord.aio.tools import run_tools
from onrecord.errors import EffectUnknown, LeaseLost, ToolTimedOut
from onrecord.log.codec import NESTING_LIMIT, encode_payload
from onrecord.log.items import text_of
from onrecord.session.tools import said_of
from onrecord.views.values import ToolCall
from tests.loop.replies import completion, generated
from tests.waiting import until


@pytest.fixture
def store():
    with onrecord.connect("memory:", project="/project") as opened:
        yield opened


@pytest.fixture
def session(store):
    return store.open("work", agent="main")


class Died(BaseException):
    """The end of the process: no handler of ours gets to run."""


def test_the_same_call_runs_once(session):
    """Called directly, a tool runs once for the same arguments and gives the recorded result afterwards."""
    ran = []

    @session.tool
    def pay(invoice: int, currency: str = "EUR") -> dict[str, Any]:
        ran.append(invoice)
        return {"paid": invoice, "in": currency}

    assert pay(17) == pay(invoice=17) == {"paid": 17, "in": "EUR"}
    assert pay(17, "CHF")["in"] == "CHF"
    assert ran == [17, 17]
    assert pay.__name__ == "pay"
    assert "pay" in repr(pay)


@pytest.mark.parametrize("awaited", [False, True])
def test_a_tool_of_another_session_runs_for_this_one(store, awaited):
    """A tool that was made with one session may be used in another: each call runs, and is on record where it was made."""
    one, two = store.open("one", agent="main"), store.open("two", agent="main")
    ran = []

    def pay(invoice: int) -> int:
        ran.append(invoice)
        return invoice

    tool = aio.AsyncSession(one).tool(pay) if awaited else one.tool(pay)
    for session, invoice in ((one, 17), (two, 18)):
        with session.turn() as turn:
            turn.reply(completion(call="c1", invoice=invoice))
            if awaited:
                asyncio.run(run_tools(turn, [tool]))
            else:
                turn.run_tools(tool)
            assert text_of(turn.items[-1]) == str(invoice)
        (started,) = session.events(kinds=["effect.started"])
        assert started.data["arguments"] == {"invoice": invoice}
    assert ran == [17, 18]


def test_a_call_is_on_record_before_it_runs(session):
    """The arguments are on record before the function begins, the result after it ended."""

    @session.tool
    def pay(invoice: int) -> int:
        (started,) = session.events(kinds=["effect.started"])
        assert (started.data["name"], started.data["arguments"]) == ("pay", {"invoice": 17})
        return 1

    pay(17)
    (ended,) = session.events(kinds=["effect.finished"])
    assert ended.data["ok"]


def test_the_model_may_call_the_same_thing_twice(session):
    """Two calls of the model are two calls, even with the same id and the same arguments."""
    ran = []

    def pay(invoice: int) -> str:
        ran.append(invoice)
        return "ok"

    with session.turn() as turn:
        turn.user("pay 17 twice")
        for _ in range(2):
            turn.reply(completion(call="call_0", invoice=17))
            assert turn.run_tools(pay) == 1
        assert turn.run_tools(pay) == 0
        turn.reply(generated(call="x", invoice=18))
        turn.run_tools(pay)
    assert ran == [17, 17, 18]


def die_in(session: Any, step: str, ran: list[int], **options: Any) -> None:
    """A loop that dies in the tool, or right after it before its result is in the turn."""

    @session.tool(**options)
    def pay(invoice: int) -> dict[str, int]:
        ran.append(invoice)
        if step == "in the tool":
            raise Died
        return {"paid": invoice}

    turn = session.turn()
    turn.user("pay 17")
    turn.reply(completion(call="c1", invoice=17))
    if step == "before the tool":
        return
    if step == "after the tool":
        turn.tool = lambda *_args, **_named: (_ for _ in ()).throw(Died)
    with pytest.raises(Died):
        turn.run_tools(pay)


@pytest.mark.parametrize(
    ("step", "safe", "times", "result"),
    [("before the tool", False, 1, '{"paid": 17}'), ("in the tool", False, 1, "started, outcome unknown"),
     ("in the tool", True, 2, '{"paid": 17}'), ("after the tool", False, 1, '{"paid": 17}')],
)  # fmt: skip
def test_a_tool_that_was_interrupted_is_not_run_twice(store, step, safe, times, result):
    """After a crash the turn continues: a finished call gives its result, an interrupted one says so, unless it is safe."""
    ran: list[int] = []
    die_in(store.open("work", agent="main"), step, ran, safe_to_repeat=safe)
    session = store.open("work", agent="main", takeover=True)

    def pay(invoice: int) -> dict[str, int]:
        ran.append(invoice)
        return {"paid": invoice}

    with session.turn(resume=True) as turn:
        assert [item["role"] for item in turn.items] == ["user", "assistant"]
        assert [call["id"] for call in turn.calls] == ["c1"]
        assert turn.run_tools(session.tool(pay, safe_to_repeat=safe)) == 1
        assert turn.calls == []
        last = turn.messages("openai")[-1]
        turn.reply(completion("done"))
    assert ran == [17] * times
    assert last["role"] == "tool"
    assert result in last["content"]
    assert len(session.transcript()) == 1
    assert bool(session.effects.unknown()) == (result == "started, outcome unknown")


def test_a_turn_can_die_more_than_once(store):
    """A continued turn that dies too is continued with the same keys: its finished calls are still not run again."""
    ran: list[int] = []
    die_in(store.open("work", agent="main"), "after the tool", ran)
    for _ in range(3):
        die_again = store.open("work", agent="main", takeover=True)
        die_again.turn(resume=True)
    session = store.open("work", agent="main", takeover=True)
    with session.turn(resume=True) as turn:
        turn.run_tools(session.tool(lambda invoice: 1 / 0, name="pay"))
        assert turn.items[-1]["content"] == '{"paid": 17}'
    assert ran == [17]


def test_errors_of_a_tool_are_for_the_model_and_ours_are_not(store, session):
    """An exception, wrong arguments and an unknown tool become results; a lost lease is raised."""

    def pay(invoice: int) -> int:
        raise ValueError(f"no invoice {invoice}")

    with session.turn() as turn:
        turn.reply(completion(call="c1", invoice=17))
        turn.reply(completion(call="c2", bill=17))
        turn.reply(completion(call="c3", name="steal"))
        turn.run_tools(pay)
        results = [item for item in turn.items if item["role"] == "tool"]
        assert all(item["error"] for item in results)
        assert [item["content"] for item in results] == [
            "ValueError: no invoice 17",
            "wrong arguments for pay: missing a required argument: 'invoice'",
            "there is no tool named 'steal'; the tools are: pay",
        ]
        turn.reply(completion(call="c4", invoice=18))
        store.open("work", agent="main", takeover=True)
        with pytest.raises(LeaseLost):
            turn.run_tools(pay)
        turn.aborted = turn.committed  # nothing more can be recorded here
        turn.answer = []


def test_what_cannot_be_recorded_is_said(session):
    """A result that is no JSON is no reason to run the tool again, and the model reads what happened and why."""
    with session.turn() as turn:
        turn.reply(completion(call="c1", invoice=17))
        turn.run_tools(session.tool(lambda invoice: {1, 2}, name="pay"))
        assert turn.items[-1]["content"] == "[pay ran; the value cannot be recorded as JSON: set is not JSON]"


def test_a_result_that_just_fits_nowhere_is_on_record_as_done(session):
    """A result that is too deep for its event only with what is around it: the tool ran, and the ledger says so."""
    result: Any = 17
    for _level in range(NESTING_LIMIT):
        result = [result]
    encode_payload(result)
    with session.turn() as turn:
        turn.reply(completion(call="c1", invoice=17))
        turn.run_tools(session.tool(lambda invoice: result, name="pay"))
        assert text_of(turn.items[-1]).startswith(
            "[pay ran; the value cannot be recorded as JSON: it is nested more than"
        )
    assert not session.views.effects.unfinished


@pytest.mark.parametrize("awaited", [False, True])
def test_a_result_that_is_too_large_does_not_stop_the_loop(session, monkeypatch, awaited):
    """Too large to be recorded, or only as the text of a message: the model reads that, and the turn continues."""
    monkeypatch.setattr("onrecord.log.codec.PAYLOAD_LIMIT", 20_000)
    results = ["x" * 30_000, {"quotes": '"' * 8_000}]
    with session.turn() as turn:
        for call, result in zip(("c1", "c2"), results, strict=True):
            turn.reply(completion(call=call, invoice=17))
            if awaited:
                pay = aio.AsyncSession(session).tool(lambda invoice, result=result: result, name="pay")
                asyncio.run(run_tools(turn, [pay]))
            else:
                turn.run_tools(session.tool(lambda invoice, result=result: result, name="pay"))
        said = [text_of(item) for item in turn.items if item["role"] == "tool"]
    assert said[0] == "[pay ran; what it returned is too large to be recorded]"
    assert said[1].startswith("[it ran; what it returned is too large for a message: 16,")
    assert not session.views.effects.unfinished


def test_a_tool_that_takes_too_long_is_unknown_until_it_returns(session):
    """The loop continues at the timeout with an honest result; when the tool returns later, its outcome is recorded."""
    go_on = threading.Event()

    @session.tool(timeout=0.05)
    def pay(invoice: int) -> int:
        go_on.wait(90)
        return invoice

    with session.turn() as turn:
        turn.reply(completion(call="c1", invoice=17))
        turn.run_tools(pay)
        assert "started, outcome unknown: pay did not return within 0.05 s" in turn.items[-1]["content"]
        assert len(session.views.effects.unfinished) == 1
        go_on.set()
        until(lambda: not session.views.effects.unfinished)
    go_on.clear()
    with pytest.raises(ToolTimedOut):
        pay(18)
    go_on.set()


def test_an_interrupted_call_of_ones_own_is_unknown(session):
    """Outside of the loop, an interrupted call raises `EffectUnknown` the next time; its hint settles it when typed."""

    @session.tool
    def pay(invoice: int) -> int:
        raise Died

    with pytest.raises(Died):
        pay(17)
    with pytest.raises(EffectUnknown) as refused:
        pay(17)
    settle = refused.value.hint.partition(": ")[2].partition(" records")[0]
    eval(settle.replace("...", "1"), {"session": session})  # typed as the hint says
    assert pay(17) == 1


def test_a_call_that_runs_is_not_called_interrupted(session):
    """While a call runs, the same call again says that it runs; a model reads that too, not that a process ended."""
    said: list[str] = []

    @session.tool
    def pay(invoice: int) -> int:
        with pytest.raises(EffectUnknown, match="is running in this process") as refused:
            pay.run("my-key", {"invoice": invoice})
        said.append(said_of(refused.value, "pay", []).content)
        return 1

    assert pay.run("my-key", {"invoice": 17}) == 1
    assert said == ["[started, outcome unknown: pay may still be running. Check before you call it again]"]


def test_an_error_that_cannot_say_what_it_is_is_told(session):
    """An exception whose text fails is an error like any other: the model reads its name, and the loop continues."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def pay(invoice: int) -> None:
        raise Mute

    with session.turn() as turn:
        turn.reply(completion(call="c1", invoice=17))
        turn.run_tools(pay)
        assert turn.items[-1]["content"] == "Mute"


def test_a_cancelled_turn_says_so(store):
    """A turn whose task is cancelled is aborted as cancelled; what the call in progress returned is no part of that."""

    async def main() -> None:
        session = await aio.over(store).open("awaited", agent="main")
        begun = asyncio.Event()

        async def pay(invoice: int) -> str:
            begun.set()
            await asyncio.sleep(0.05)
            return "paid"

        async def loop() -> None:
            async with session.turn() as turn:
                await turn.reply(completion(call="c1", invoice=17))
                await turn.run_tools(pay)

        task = asyncio.ensure_future(loop())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    (aborted,) = store.get("awaited").transcript("main").provisional
    assert aborted.reason == "cancelled"


def test_a_default_value_is_an_argument(session):
    """A call with a default value and one that spells it out are the same call; another value is another call."""
    ran = []
    clock = object()

    @session.tool
    def pay(invoice: int, currency: str = "EUR", *, urgent: bool = False, clock: object = clock) -> int:
        ran.append((invoice, currency))
        return len(ran)

    assert pay(17) == pay(17, "EUR") == pay(17, urgent=False) == pay(17, "EUR", urgent=False) == 1
    assert pay(17, "CHF") == pay(17, "CHF", urgent=False) == 2
    assert pay(17, urgent=True) == 3


@pytest.mark.parametrize("recorded", [{"invoice": 17}, {"invoice": 17, "currency": "EUR"}])
def test_a_call_on_an_older_record_is_not_run_again(store, session, recorded):
    """Older records have keys without default values, or with those that were spelled out: both are found."""
    key = f"tool/pay/{sha256(encode_payload(recorded)).hexdigest()[:32]}"
    session.once(key, lambda: "paid")

    def pay(invoice: int, currency: str = "EUR", *, urgent: bool = False) -> str:
        raise AssertionError

    async def main() -> None:
        awaited = aio.over(store)
        assert await (await awaited.open("work", agent="main", takeover=True)).tool(pay)(**recorded) == "paid"

    tool = session.tool(pay)
    assert tool(**recorded) == "paid"
    if "currency" not in recorded:
        assert tool(17, "EUR") == tool(17, "EUR", urgent=False) == "paid"
    asyncio.run(main())


def test_awaited_tools_keep_to_their_timeout(store):
    """A slow plain function is unknown at its timeout and recorded when it returns; a tool's TimeoutError is its own."""
    go_on = threading.Event()

    def slow(number: int) -> int:
        go_on.wait(90)
        return number

    async def refused(number: int) -> int:
        raise TimeoutError("the bank did not answer")

    def refused_too(number: int) -> int:
        raise TimeoutError("the bank did not answer")

    async def main() -> None:
        session = await aio.over(store).open("awaited", agent="main")
        tools: list[Any] = [
            session.tool(slow, timeout=0.05),
            *(session.tool(fn, timeout=90) for fn in (refused, refused_too)),
        ]
        async with session.turn() as turn:
            calls: list[ToolCall] = [{"id": tool.name, "name": tool.name, "arguments": {"number": 1}} for tool in tools]
            await turn.assistant("", tool_calls=calls)
            await turn.run_tools(*tools)
            said = [text_of(item) for item in turn.items[1:]]
        assert "started, outcome unknown: slow did not return within 0.05 s; it may still finish" in said[0]
        assert said[1:] == ["TimeoutError: the bank did not answer"] * 2
        with pytest.raises(ToolTimedOut):
            await tools[0](number=2)
        assert len((await session.views()).effects.unfinished) == 2
        go_on.set()

    asyncio.run(main())
    session = store.get("awaited")
    until(lambda: not session.views.effects.unfinished)


def test_awaited_tools_run_at_the_same_time(store):
    """Calls of one answer run side by side; a slow one times out and stays unknown; plain functions work too."""

    async def main() -> None:
        session = await aio.over(store).open("awaited", agent="main")
        met = asyncio.Barrier(2)

        @session.tool(timeout=90)
        async def meet(number: int) -> int:
            await met.wait()
            return number

        @session.tool(timeout=0.05)
        async def sleep(number: int) -> None:
            await asyncio.sleep(600)

        def add(number: int) -> int:
            return number + 1

        async with session.turn() as turn:
            calls: list[ToolCall] = [
                {"id": f"c{number}", "name": name, "arguments": {"number": number}}
                for number, name in enumerate(["meet", "meet", "sleep", "add"])
            ]
            await turn.assistant("", tool_calls=calls)
            assert await turn.run_tools(meet, sleep, add) == 4
            said = [text_of(item) for item in turn.items[1:]]
        assert said[:2] == ["0", "1"]
        assert "started, outcome unknown: sleep did not return within 0.05 s" in said[2]
        assert said[3] == "4"
        assert len((await session.views()).effects.unfinished) == 1

    asyncio.run(main())
