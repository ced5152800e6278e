"""openai-agents on our log: the session is theirs, the record is ours."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import apsw
import pytest
from agents import Agent, Runner, function_tool
from agents.exceptions import AgentsException
from agents.memory import Session, SessionSettings
from agents.memory.openai_responses_compaction_session import OpenAIResponsesCompactionSession
from agents.testing import ScriptedModel, assistant_message, function_call

import onrecord
from onrecord.frameworks.openai_agents import OnrecordSession
from tests.frameworks.disks import full_disk
from tests.frameworks.looping import never_blocked
from tests.frameworks.refusing import check_refused
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "openai_agents_refund.py"


def run(awaitable: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await awaitable

    return asyncio.run(main())


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def said(text: str, role: str = "user") -> Any:
    return {"role": role, "content": text}


def test_a_running_process_forgets_what_was_erased(tmp_path):
    """An item that another process erases is not given to the model again, nor is anything of an erased session."""
    url = str(tmp_path / "x.db")
    with onrecord.connect(url, project="p") as store, onrecord.connect(url, project="p") as other:
        session = OnrecordSession("s", store)
        for text in ("one", "a secret", "three"):
            run(session.add_items([said(text)]))
        erased = other.get("s")
        erased.log.erase("x", positions=[event.position for event in erased.events() if "secret" in str(event.data)])
        run(session.add_items([said("four")]))
        assert run(session.get_items()) == [said("one"), said("three"), said("four")]
        erased.close()
        erased.log.erase("all")
        assert run(session.get_items()) == []


@pytest.mark.parametrize("size", [100, 5_000, 200_000])
def test_a_damaged_payload_is_an_error_and_never_another_text(tmp_path, size):
    """A payload that is kept plain, compressed or out of line: cut or overwritten, it is not read."""
    path = tmp_path / "x.db"
    text = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(size // 3))
    with onrecord.connect(str(path), project="p") as store:
        run(OnrecordSession("s", store).add_items([said(text)]))
    with apsw.Connection(str(path)) as database:
        database.execute(
            "UPDATE events SET payload = substr(payload, 1, 40) WHERE encoding < 2 AND kind = 'payload.kept'"
        )
        database.execute("UPDATE blobs SET body = substr(body, 1, 40)")
    database.close()
    with onrecord.connect(str(path), project="p") as store:
        with pytest.raises(AgentsException, match="is damaged"):
            run(OnrecordSession("s", store).get_items())
        assert not store.get("s").verify().ok


def test_what_is_handed_out_can_be_changed_without_harm(store):
    """A process that resumes gets items of its own, the first time and later: changes of them are its own affair."""
    items = [said("flat"), {"type": "reasoning", "id": "r", "summary": [{"text": "deep"}]}]
    run(OnrecordSession("s", store).add_items(items))
    resumed = OnrecordSession("s", store)
    for _time in range(2):
        found = run(resumed.get_items())
        assert found == items
        found[0]["content"] = found[1]["summary"][0]["text"] = "changed"
        found[1]["summary"].append(1)
    run(resumed.add_items(items[1:]))  # the same again: its reply was lost
    assert run(resumed.get_items()) == run(OnrecordSession("s", store).get_items()) == items
    assert run(resumed.pop_item()) == items[1]
    assert run(resumed.get_items()) == items[:1]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_items_come_back_word_for_word_in_order(kind, request, tmp_path):
    """Items are returned as they were given, key order and odd characters included, also to another process."""
    items: Any = [
        {"role": "user", "content": 'Grüße \u2028 "quotes" \x7f'},
        {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"b": 1, "a": [1.5, null]}', "id": "i"},
        {"type": "function_call_output", "call_id": "c1", "output": "lone \ud800"},
        {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    url = url_of(kind, request, tmp_path)
    with onrecord.connect(url, project="p") as store:
        session = OnrecordSession("talk", store)
        assert isinstance(session, Session)
        assert run(session.get_items()) == []
        run(session.add_items(items[:2]))
        run(session.add_items(items[2:]))
        again = OnrecordSession("talk", store)
        assert run(again.get_items()) == items
        assert [list(item) for item in run(again.get_items())] == [list(item) for item in items]
        assert run(again.get_items(2)) == items[-2:]
        assert run(again.get_items(0)) == []


def test_pop_and_clear_are_tombstones(store):
    """What is popped or cleared leaves the history and the transcript, and stays in the log."""
    session = OnrecordSession("talk", store)
    run(session.add_items([said("one"), said("two", "assistant"), said("three")]))
    assert run(session.pop_item()) == said("three")
    ours = store.get("talk")
    assert [item["content"] for item in ours.transcript().items] == ["one", "two"]
    run(session.clear_session())
    assert run(session.pop_item()) is None
    assert run(session.get_items()) == []
    assert store.get("talk").transcript().items == []
    kinds = [event.kind for event in ours.events()]
    assert kinds == ["session.opened", "payload.kept", "payload.retracted", "payload.retracted"]
    run(session.add_items([said("again")]))
    assert run(OnrecordSession("talk", store).get_items()) == [said("again")]
    assert ours.verify().ok


def test_what_a_fork_inherited_can_be_popped_and_cleared(store):
    """Items from before a fork leave its transcript as its own ones do; the conversation it was made from keeps them."""
    run(OnrecordSession("a", store).add_items([said("one"), said("two", "assistant"), said("three", "assistant")]))
    store.get("a").fork("b")
    fork = OnrecordSession("b", store)
    run(fork.pop_item())
    assert [item["content"] for item in store.get("b").transcript().items] == ["one", "two"]
    run(fork.clear_session())
    assert store.get("b").transcript().items == []
    assert len(store.get("a").transcript().items) == 3


def test_a_save_whose_reply_was_lost_may_be_repeated(store):
    """Items with the ids of the model are kept once, and so is the prompt before them, which the runner saves apart."""
    call: Any = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "pay", "arguments": "{}"}
    result: Any = {"type": "function_call_output", "call_id": "c", "output": "paid"}
    for _time in range(2):
        session = OnrecordSession("talk", store)
        run(session.add_items([said("pay")]))
        run(session.add_items([call, result]))
    run(OnrecordSession("talk", store).add_items([call, result]))
    assert run(session.get_items()) == [said("pay"), call, result]
    assert [item["content"] for item in store.get("talk").transcript().items] == ["pay", "", "paid"]
    later: Any = {**call, "id": "fc_2", "call_id": "d"}
    run(session.add_items([said("pay")]))
    answered: Any = {**result, "call_id": "d"}
    run(session.add_items([later, answered]))
    assert len(run(session.get_items())) == 6
    assert store.get("talk").verify().ok


def test_equal_words_without_the_ids_of_a_model_are_all_kept(store):
    """Without an id nothing says that it is a repetition: what was said twice is kept twice."""
    session = OnrecordSession("talk", store)
    answer: Any = {"id": "__fake_id__", "type": "message", "role": "assistant", "content": []}
    for _time in range(2):
        run(session.add_items([said("again"), answer]))
    assert run(session.get_items()) == [said("again"), answer] * 2


def test_a_session_is_found_and_read_like_any_other(store):
    """A conversation of openai-agents is in search, in the transcript and in contexts, without openai-agents."""
    run(OnrecordSession("talk", store).add_items([said("where is the zebra"), said("in the zoo", "assistant")]))
    assert [found.session.name for found in store.search("zebra")] == ["talk"]
    turns = store.get("talk").transcript().committed
    assert [[item["content"] for item in turn.items] for turn in turns] == [["where is the zebra", "in the zoo"]]


def agent_of(*steps: Any, **more: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(steps)
    return Agent(name="a", model=model, **more), model


def test_the_event_loop_is_never_blocked(store):
    """A run with a tool, a fork, compaction and everything else that is awaited: the loop's thread never waits."""

    @function_tool
    def pay(order: int) -> str:
        """Pay."""
        return "paid"

    async def story() -> None:
        agent, _model = agent_of(
            [function_call("pay", {"order": 1}, call_id="c")], [assistant_message("done")], tools=[pay]
        )
        mine, late = OnrecordSession("talk", store), OnrecordSession("talk", store, on_conflict="fork")
        async with mine:
            await Runner.run(agent, "pay", session=mine, hooks=mine.hooks())
        wrapper: Any = Wrapper()
        await late.get_items(wrapper=wrapper)
        await mine.add_items([said("more")])
        await late.add_items([said("late")], wrapper=wrapper)
        assert late.forks
        snapshot: Any = await mine._get_compaction_snapshot(9)
        assert await snapshot.replace_suffix(0, [said("summary", "assistant")])
        assert await mine.pop_item() == said("summary", "assistant")
        await mine.clear_session()

    with never_blocked(store):
        asyncio.run(story())


class Wrapper:
    """What names a run; the session keeps no strong reference to it."""


@pytest.mark.parametrize("policy", ["refuse", "queue", "fork"])
def test_the_second_of_two_runs_is_refused_queued_or_forked(store, policy):
    """A run that was overtaken loses nothing silently: the policy decides, and the record is whole in each case."""
    session = OnrecordSession("talk", store, on_conflict=policy)
    inside, go = asyncio.Event(), asyncio.Event()

    @function_tool
    async def wait() -> str:
        """Wait for the other run."""
        inside.set()
        await go.wait()
        return "waited"

    async def both() -> list[Any]:
        slow, _ = agent_of([function_call("wait", {}, call_id="c")], [assistant_message("slow")], tools=[wait])
        quick, _ = agent_of([assistant_message("quick")])
        first = asyncio.ensure_future(Runner.run(slow, "A", session=session))
        await inside.wait()
        second = await Runner.run(quick, "B", session=session)
        go.set()
        return [second.final_output, *await asyncio.gather(first, return_exceptions=True)]

    quick, slow = run(both())
    assert quick == "quick"
    history = [item.get("content") for item in run(session.get_items()) if item.get("role") == "user"]
    assert history == ["A", "B"]
    if policy == "refuse":
        assert isinstance(slow, AgentsException)
        assert isinstance(slow, onrecord.errors.LogMoved)
        assert "another run added to conversation 'talk'" in str(slow)
        assert "[log_moved]" in str(slow)
        assert 'on_conflict="queue"' in str(slow)
    else:
        assert slow.final_output == "slow"
        assert session.forks == (["talk-fork-1"] if policy == "fork" else [])
    if policy == "fork":
        forked = run(OnrecordSession("talk-fork-1", store).get_items())
        assert [item.get("content") for item in forked if item.get("role") == "user"] == ["A"]
        assert forked[-1]["content"][0]["text"] == "slow"


def test_a_run_that_was_moved_to_a_fork_calls_its_tools_there(store):
    """The fork has the call before the tool runs, and its result after it; the conversation that it left has neither."""
    session = OnrecordSession("talk", store, on_conflict="fork")
    seen: list[dict[str, list[str | None]]] = []

    async def outputs() -> dict[str, list[str | None]]:
        names = ("talk", *session.forks)
        kept: dict[str, list[Any]] = {name: [*await OnrecordSession(name, store).get_items()] for name in names}
        return {name: [item["output"] for item in items if "output" in item] for name, items in kept.items()}

    @function_tool
    async def answer() -> str:
        """Let another run overtake this one."""
        quick, _ = agent_of([assistant_message("quick")])
        await Runner.run(quick, "B", session=session)
        return "answered"

    @function_tool
    async def pay() -> str:
        """Look what is on record meanwhile."""
        seen.append(await outputs())
        return "paid"

    calls = [[function_call("answer", {}, call_id="c")], [function_call("pay", {}, call_id="d")]]
    slow, _ = agent_of(*calls, [assistant_message("slow")], tools=[answer, pay])
    run(Runner.run(slow, "A", session=session, hooks=session.hooks()))
    unknown = "started, outcome unknown: the run ended before pay answered; check before you repeat it"
    assert seen == [{"talk": ["answered"], "talk-fork-1": ["answered", unknown]}]
    assert run(outputs()) == {"talk": ["answered"], "talk-fork-1": ["answered", "paid"]}


def test_inside_async_with_no_other_process_adds(store):
    """The block has the lease of the lane: a second writer is refused, and may write when the block has ended."""

    async def story() -> None:
        async with OnrecordSession("talk", store) as session:
            await session.add_items([said("mine")])
            other = OnrecordSession("talk", store)
            with pytest.raises(AgentsException, match="lease_held"):
                await other.__aenter__()
        async with other:
            await other.add_items([said("yours")])
        assert await other.get_items() == [said("mine"), said("yours")]

    run(story())


def test_a_killed_run_is_in_the_history_of_the_next_and_pays_once(tmp_path):
    """Killed inside the tool: the call is on record with an unknown outcome, the model reads so, nothing ran twice."""
    command = [sys.executable, str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=60)
    assert killed.returncode == -9, killed.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "the model reads: Refund order 42." in done.stdout
    assert "the model reads: started, outcome unknown: the run ended before pay answered" in done.stdout
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"


def test_a_result_that_was_never_saved_is_read_from_the_ledger(store):
    """If the process ends between the tool and the save, the next run reads the call and its real result."""

    @function_tool
    def pay() -> str:
        """Pay."""
        return "paid 42"

    agent, _ = agent_of([function_call("pay", {}, call_id="c")], [assistant_message("ok")], tools=[pay])
    session = OnrecordSession("talk", store)
    add = session.add_items

    async def ends(items: list[Any], **_: Any) -> None:
        if any(item.get("type") == "function_call" for item in items):
            raise SystemExit(9)
        await add(items)

    session.add_items = ends  # type: ignore[method-assign]  # the process ends here, before it saves
    with pytest.raises(SystemExit):
        run(Runner.run(agent, "pay", session=session, hooks=session.hooks()))
    found = run(OnrecordSession("talk", store).get_items())
    assert [item.get("type") for item in found] == [None, "function_call", "function_call_output"]
    assert found[-1]["output"] == "paid 42"


def test_compaction_retracts_and_adds_in_one_step(store):
    """openai-agents' compaction replaces the latest items atomically, and not if they have changed meanwhile."""
    session = OnrecordSession("talk", store)
    run(session.add_items([said("one"), said("two"), said("three")]))
    snapshot = run(session._get_compaction_snapshot(2))
    assert (snapshot.items, snapshot.complete) == ([said("two"), said("three")], False)
    assert run(snapshot.replace_suffix(0, [said("short", "assistant")])) is True
    assert run(session.get_items()) == [said("one"), said("short", "assistant")]
    assert run(snapshot.replace_suffix(0, [said("late")])) is False
    assert run(session.get_items()) == [said("one"), said("short", "assistant")]
    wrapped = OpenAIResponsesCompactionSession("talk", session)
    assert run(wrapped.get_items()) == run(session.get_items())


def test_bad_input_is_refused_in_one_sentence(store):
    """A wrong item, a closed session and a wrong policy are errors of openai-agents with our code; nothing is kept."""
    session = OnrecordSession("talk", store, session_settings=SessionSettings(limit=1))
    run(session.add_items([said("one"), said("two")]))
    assert run(session.get_items()) == [said("two")]
    wrong: Any
    for wrong in ({1, 2}, {"role": "user", "content": object()}):
        with pytest.raises(AgentsException, match="invalid_input"):
            run(session.add_items([said("kept?"), wrong]))
    assert len(run(session.get_items(9))) == 2
    store.get("talk").close()
    ours: Any = OnrecordSession("s", store)
    calls = (lambda: ours.get_items("x"), lambda: ours.add_items(7), lambda: ours.add_items("text"))
    run(check_refused(AgentsException, "invalid_input", *calls))
    with pytest.raises(
        AgentsException, match=r"session_closed.*; store.get\(\"talk\"\).resume\(reopen=True\) reopens it"
    ):
        run(session.add_items([said("late")]))
    with pytest.raises(AgentsException, match=r"refuse, queue, fork, not 'overwrite' \[invalid_input\]"):
        OnrecordSession("talk", store, on_conflict="overwrite")
    odd = OnrecordSession("user 7/ünï", store)
    run(odd.add_items([said("odd name")]))
    assert run(OnrecordSession("user 7/ünï", store).get_items()) == [said("odd name")]


def test_no_room_a_lost_lease_and_too_much_leave_the_history_as_it_was(tmp_path):
    """A full disk, a lease that another process took and an item too large: errors of openai-agents, nothing half-kept."""

    async def story(store: Any) -> None:
        session = OnrecordSession("talk", store)
        async with session:
            await session.add_items([said("one")])
            with full_disk(), pytest.raises(AgentsException, match=r"\[store_error\]"):
                await session.add_items([said("x" * 9_000), said("two")])
            with pytest.raises(AgentsException, match=r"\[too_large\]"):
                await session.add_items([said("x" * 70_000_000)])
            store.open("talk", agent="main", takeover=True)
            with pytest.raises(AgentsException, match=r"\[lease_lost\]"):
                await session.add_items([said("too late")])
        assert await OnrecordSession("talk", store).get_items() == [said("one")]

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        run(story(found))
        assert found.get("talk").verify().ok


def test_a_prompt_that_was_saved_again_before_its_answer_is_kept_once(store):
    """A run that was cancelled after its prompt, and is run again: one prompt. What was answered, or said twice, stays."""

    async def story() -> list[Any]:
        session = OnrecordSession("s", store)
        hi: Any = {"role": "user", "content": "hi"}
        for number, prompts in enumerate(([hi], [hi], [hi, hi])):
            await session.add_items(prompts)
            if number:
                answer: Any = {"id": f"m{number}", "type": "message", "role": "assistant", "content": "yes"}
                await session.add_items([answer])
        return await session.get_items()

    assert [item["role"] for item in asyncio.run(story())] == ["user", "assistant", "user", "user", "assistant"]


def test_items_with_a_secret_that_are_saved_again_are_kept_once(store):
    """The caller's text is compared in the form in which it is recorded; another secret is another text."""
    token = "ghp_" + "a1B2c3" * 6
    prompt = said(f"use {token}")

    def answer(secret: str) -> Any:
        return {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": secret}]}

    async def story() -> None:
        await OnrecordSession("s", store).add_items([prompt, answer(token)])
        for _time in range(2):
            await OnrecordSession("s", store).add_items([prompt, answer(token)])
        assert len(await OnrecordSession("s", store).get_items()) == 2
        await OnrecordSession("s", store).add_items([prompt, answer("ghp_" + "d4E5f6" * 6)])
        items: Any = await OnrecordSession("s", store).get_items()
        assert len(items) == 4
        assert token not in str(items)

    run(story())


def test_a_fork_that_async_with_makes_is_named(store):
    """A session that finds another one inside continues in a fork, and `forks` has its name."""

    async def story() -> None:
        mine, yours = OnrecordSession("s", store), OnrecordSession("s", store, on_conflict="fork")
        async with mine:
            await mine.add_items([said("one")])
            async with yours:
                await yours.add_items([said("two")])
        (name,) = yours.forks
        forked: Any = await OnrecordSession(name, store).get_items()
        assert [item["content"] for item in forked] == ["one", "two"]
        assert len(await mine.get_items()) == 1

    run(story())
