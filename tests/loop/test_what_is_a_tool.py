"""What can be a tool: a function that runs when it is called, with arguments and a name by which a model calls it."""

import asyncio
from functools import partial
from typing import Any

import pytest

from onrecord import aio
from onrecord.errors import InvalidInput, ToolTimedOut
from onrecord.log.items import text_of
from tests.loop.replies import completion


async def pay_later(invoice: int) -> str:
    return f"paid {invoice}"


@pytest.mark.parametrize(
    ("fn", "options"),
    [
        (17, {}),
        (max, {}),
        (print, {"name": 7}),
        (print, {"name": "a\nb"}),
        (print, {"safe_to_repeat": "no"}),
        *((print, {"timeout": wrong}) for wrong in (0, -1, "a", True, float("nan"), 1e9)),
    ],
)
def test_what_is_no_tool_is_refused(session, fn, options):
    """A tool is a function whose arguments are known, its name is text of one line, and a timeout is a time."""
    with pytest.raises(InvalidInput):
        session.tool(fn, **options)


def test_tools_are_passed_one_by_one_and_have_names_of_their_own(session):
    """A list of tools is refused with the call that takes it, and so are two tools that the model could not tell apart."""
    with session.turn() as turn:
        turn.reply(completion(call="c1", invoice=17))
        with pytest.raises(InvalidInput, match="a tool is a function, not list") as refused:
            turn.run_tools([print])  # what a caller may try
        assert refused.value.hint == "pass them one by one: turn.run_tools(*tools)"
        one, two = session.tool(lambda invoice: invoice, name="pay"), session.tool(lambda invoice: -invoice, name="pay")
        with pytest.raises(InvalidInput, match="two tools have the name 'pay'"):
            turn.run_tools(one, two)
        assert turn.run_tools(one, one) == 1


def hidden(later: Any) -> Any:
    """What a decorator makes of a function that has to be awaited or read."""
    return lambda number: later(number)  # noqa: PLW0108  # it must not be the function itself


def pages(of: int):
    yield of


async def pages_later(of: int):
    yield of


class Pages:
    def __call__(self, of: int):
        yield of


@pytest.mark.parametrize("fn", [pages, pages_later, partial(pages, 1), Pages()])
def test_a_generator_is_no_tool(session, fn):
    """A generator does not run when it is called, so it would be on record as done without having done anything."""
    with session.turn() as turn:
        turn.reply(completion(call="c1", name="pages", of=1))
        for use in (session.tool, aio.AsyncSession(session).tool, turn.run_tools):
            with pytest.raises(InvalidInput, match="is a generator, which does not run when it is called") as refused:
                use(fn)
            assert refused.value.hint
    assert not list(session.events(kinds=["effect.started"]))


@pytest.mark.parametrize("later", [pay_later, pages])
def test_what_did_not_run_is_not_on_record_as_done(session, later):
    """A function that returns a coroutine or a generator has done nothing: the call failed, and may be made again."""
    pay = session.tool(hidden(later), name="pay")
    for _time in range(2):
        with pytest.raises(InvalidInput, match=r"returned a (coroutine|generator), which did not run"):
            pay(17)
    with session.turn() as turn:
        turn.reply(completion(call="c1", number=17))
        turn.run_tools(pay)
        assert "which did not run" in text_of(turn.items[-1])
    assert [event.data["ok"] for event in session.events(kinds=["effect.finished"])] == [False] * 3


@pytest.mark.parametrize("timeout", [None, 90])
def test_a_function_around_a_coroutine_function_is_awaited(store, timeout):
    """A decorator may hide that a tool has to be awaited: `aio` awaits what the tool returns, within its timeout."""

    async def main() -> None:
        session = await aio.over(store).open("awaited", agent="main")
        assert await session.tool(hidden(pay_later), timeout=timeout)(17) == "paid 17"
        with pytest.raises(ToolTimedOut):
            await session.tool(hidden(asyncio.sleep), timeout=0.05)(600)

    asyncio.run(main())


class Payer:
    async def __call__(self, invoice: int) -> str:
        return f"paid {invoice}"


def test_a_session_that_awaits_nothing_takes_no_coroutine_function(store, session):
    """A coroutine function is refused with a hint, as a tool, among the tools of a loop and as a tool of `aio`."""
    awaited = aio.AsyncSession(session).tool(pay_later)
    with session.turn() as turn:
        turn.reply(completion(call="c1", name="pay_later", invoice=17))
        for fn in (pay_later, partial(pay_later), Payer()):
            with pytest.raises(InvalidInput, match="is a coroutine function") as refused:
                session.tool(fn)
            assert "onrecord.aio" in refused.value.hint
        for tool in (pay_later, awaited):
            with pytest.raises(InvalidInput, match="pay_later is a coroutine function"):
                turn.run_tools(tool)
        assert [call["id"] for call in turn.calls] == ["c1"]
    assert not session.views.effects.unfinished


def test_an_object_with_an_awaited_call_is_a_tool_of_aio(store):
    """Where tools are awaited, so is an object that is called like a coroutine function."""

    async def main() -> None:
        session = await aio.over(store).open("awaited", agent="main")
        assert await session.tool(Payer(), name="pay")(17) == "paid 17"

    asyncio.run(main())
