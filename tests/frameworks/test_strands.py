"""Strands on our log. Upstream's 51 repository tests are run by `./dev frameworks strands`."""

import asyncio
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.models import Model
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.snapshot_session_manager import SnapshotSessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import onrecord
from onrecord.frameworks.strands import OnrecordHooks, OnrecordRepository
from onrecord.frameworks.strands_storage import OnrecordStorage
from tests.frameworks.disks import full_disk
from tests.frameworks.refusing import check_refused
from tests.frameworks.sharing import check_shared
from tests.stores import url_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "strands_refund.py"


def said(number: int, text: str, role: str = "user") -> Any:
    return SessionMessage(message={"role": role, "content": [{"text": text}]}, message_id=number)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as found:
        ours = OnrecordRepository(found)
        ours.create_session(Session(session_id="s", session_type=SessionType.AGENT))
        ours.create_agent("s", SessionAgent(agent_id="default", state={"k": 1}, conversation_manager_state={}))
        yield found


def test_two_workers_cannot_overwrite_each_other(store):
    """A number that another worker has used is refused with our code; the same call again changes nothing."""
    one, two = OnrecordRepository(store), OnrecordRepository(store)
    first = said(0, "mine")
    one.create_message("s", "default", first)
    one.create_message("s", "default", first)
    with pytest.raises(SessionException, match=r"another worker wrote it \[conflict\]; load the session again"):
        two.create_message("s", "default", said(0, "yours"))
    two.create_message("s", "default", said(1, "yours", "assistant"))
    assert [one.message["content"][0]["text"] for one in one.list_messages("s", "default")] == ["mine", "yours"]
    assert len(list(store.get("s").events())) == 5
    check_shared(store, "s", ["mine", "yours"])


def test_a_call_or_result_that_is_saved_again_is_kept_once(store):
    """After a lost reply the manager gives the same message another number: its tool id shows that it is the same."""
    ours: Any = OnrecordRepository(store)
    use = {"toolUse": {"toolUseId": "t", "name": "pay", "input": {}}}
    result = {"toolResult": {"toolUseId": "t", "status": "success", "content": [{"text": "paid"}]}}
    parts = [("user", {"text": "pay"}), ("assistant", use), ("assistant", use), ("user", result), ("user", result)]
    for number, (role, part) in enumerate(parts):
        message: Any = {"role": role, "content": [part]}
        ours.create_message("s", "default", SessionMessage(message=message, message_id=number))
    assert [one.message_id for one in OnrecordRepository(store).list_messages("s", "default")] == [0, 1, 3]
    assert ours.read_message("s", "default", 4).message["content"] == [result]
    ours.create_message("s", "default", said(5, "pay"))
    ours.create_message("s", "default", said(6, "pay"))
    assert len(ours.list_messages("s", "default")) == 5


def test_a_turn_that_is_saved_again_after_the_session_was_opened_again_is_kept_once(store):
    """A caller that does not know what was saved opens the session again and saves its turn: known ids are kept once."""

    def save(ours: Any, *ids: str) -> list[str]:
        number = max([one.message_id + 1 for one in ours.list_messages("s", "default")], default=0)
        for at, id_ in enumerate(ids, number):
            message: Any = {"role": "user", "content": [{"text": "continue"}], "tracking_id": id_}
            ours.create_message("s", "default", SessionMessage(message=message, message_id=at))
        return [one.message["tracking_id"] for one in OnrecordRepository(store).list_messages("s", "default")]

    first: Any = OnrecordRepository(store)
    assert save(first, "a", "b") == ["a", "b"]
    assert save(OnrecordRepository(store), "a", "b", "c") == ["a", "b", "c"]
    assert save(first, "b", "c", "d") == ["a", "b", "c", "d"]
    # Saved by this repository a moment ago, and something was said since: the same object is said again.
    message: Any = {"role": "user", "content": [{"text": "continue"}], "tracking_id": "c"}
    first.create_message("s", "default", SessionMessage(message=message, message_id=9))
    assert [one.message["tracking_id"] for one in first.list_messages("s", "default")] == ["a", "b", "c", "d", "c"]


def test_a_redacted_message_is_replaced_for_every_reader(store):
    """After redaction, the repository and the transcript show the replacement; bytes in a message survive."""
    ours: Any = OnrecordRepository(store)
    ours.create_message("s", "default", said(0, "my number is 555"))
    image = {"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}
    ours.create_message("s", "default", SessionMessage(message={"role": "user", "content": [image]}, message_id=1))
    changed = ours.read_message("s", "default", 0)
    changed.redact_message = {"role": "user", "content": [{"text": "[redacted]"}]}
    ours.update_message("s", "default", changed)
    again: Any = OnrecordRepository(store)
    assert again.read_message("s", "default", 0).to_message()["content"][0]["text"] == "[redacted]"
    assert again.read_message("s", "default", 1).message["content"] == [image]
    shown = store.get("s").transcript()
    turns = (*shown.committed, *shown.provisional)
    assert [item["content"] for turn in turns for item in turn.items] == ["[redacted]", "[image]"]


def test_what_does_not_exist_is_said(store):
    """Unknown sessions, agents and messages are None for readers and an error of Strands for writers."""
    ours = OnrecordRepository(store)
    assert ours.read_session("nope") is None
    assert ours.read_agent("s", "nope") is None
    assert ours.read_message("s", "default", 7) is None
    assert ours.list_messages("nope", "default") == []
    for call in (
        lambda: ours.create_agent("nope", SessionAgent("a", {}, {})),
        lambda: ours.update_agent("s", SessionAgent("nope", {}, {})),
        lambda: ours.update_message("s", "default", said(7, "x")),
        lambda: ours.create_message("s", "nope", said(0, "x")),
    ):
        with pytest.raises(SessionException, match=r"does not exist.*\[not_found\]; create it first"):
            call()
    assert store.named("nope") is None


@pytest.mark.parametrize("policy", ["refuse", "queue", "fork"])
def test_a_worker_that_was_overtaken_is_refused_queued_or_forked(store, policy):
    """Both workers read the session, the other one writes first: the second message is what was chosen."""
    mine, yours = OnrecordRepository(store, on_conflict=policy), OnrecordRepository(store)
    yours.create_message("s", "default", said(0, "begin"))
    assert len(mine.list_messages("s", "default")) == 1
    yours.create_message("s", "default", said(1, "yours", "assistant"))
    if policy == "refuse":
        with pytest.raises(SessionException, match=r"another worker wrote it \[conflict\]"):
            mine.create_message("s", "default", said(1, "mine", "assistant"))
    else:
        mine.create_message("s", "default", said(1, "mine", "assistant"))
        mine.create_message("s", "default", said(2, "more"))
        again: Any = mine.read_message("s", "default", 1)
        assert again.message["content"][0]["text"] == "mine"
        again.redact_message = {"role": "assistant", "content": [{"text": "[redacted]"}]}
        again.message_id = 1
        mine.update_message("s", "default", again)
    here = [one.to_message()["content"][0]["text"] for one in OnrecordRepository(store).list_messages("s", "default")]
    assert here == ["begin", "yours"] + (["[redacted]", "more"] if policy == "queue" else [])
    if policy == "fork":
        (name,) = mine.forks
        own = [one.to_message()["content"][0]["text"] for one in mine.list_messages("s", "default")]
        assert own == ["begin", "[redacted]", "more"]
        assert store.get(name).verify().ok


def test_a_worker_that_lost_its_lease_is_refused(store):
    """Inside `alone` no other process adds to the session; one that lost the lease meanwhile is refused by the log."""
    mine, yours = OnrecordRepository(store), OnrecordRepository(store)
    with mine.alone("s"):
        mine.create_message("s", "default", said(0, "begin"))
        with pytest.raises(SessionException, match=r"\[lease_held\]"), yours.alone("s"):
            pass
        store.open("s", agent="main", takeover=True)
        with pytest.raises(SessionException, match=r"\[lease_lost\]"):
            mine.create_message("s", "default", said(1, "too late"))
    assert len(yours.list_messages("s", "default")) == 1


def test_bad_input_is_an_error_of_strands_and_writes_nothing(store):
    """Too large, no JSON, a closed session, an empty id: SessionException with our code; the messages are as before."""
    ours = OnrecordRepository(store)
    ours.create_message("s", "default", said(0, "one"))
    wrong: Any = SessionMessage(message={"role": "user", "content": [{"text": object()}]}, message_id=1)
    for message, code in ((said(1, "x" * 70_000_000), "too_large"), (wrong, "invalid_input")):
        with pytest.raises(SessionException, match=rf"\[{code}\]"):
            ours.create_message("s", "default", message)
    with pytest.raises(SessionException, match=r"\[invalid_input\]"):
        ours.read_session("")
    store.get("s").close("done")
    with pytest.raises(SessionException, match=r"\[session_closed\]"):
        ours.create_message("s", "default", said(1, "two"))
    assert len(OnrecordRepository(store).list_messages("s", "default")) == 1
    assert store.get("s").verify().ok


def test_a_killed_tool_is_on_record_as_unknown_and_does_not_run_again(tmp_path):
    """Killed inside the tool: the next run continues, the ledger has the call with an unknown outcome, one payment."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), str(tmp_path)]
    killed = subprocess.run([*command, "--kill"], capture_output=True, text=True, check=False, timeout=100)
    assert killed.returncode == -9, killed.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "on record: 2 messages; outcome unknown: ['strands/call-1']" in done.stdout
    assert "the agent says: I will check with the bank before I pay again." in done.stdout
    assert (tmp_path / "payments.txt").read_text() == "order 42\n"


def test_a_full_disk_is_an_error_of_strands_and_leaves_nothing(tmp_path):
    """A write that finds no room is refused with our code; when there is room again, the same call succeeds."""
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:
        ours = OnrecordRepository(store)
        ours.create_session(Session(session_id="s", session_type=SessionType.AGENT))
        ours.create_agent("s", SessionAgent(agent_id="default", state={}, conversation_manager_state={}))
        with full_disk(), pytest.raises(SessionException, match=r"\[store_error\]"):
            ours.create_message("s", "default", said(0, "x" * 9_000))
        assert OnrecordRepository(store).list_messages("s", "default") == []
        ours.create_message("s", "default", said(0, "again"))
        assert store.get("s").verify().ok


def test_what_strands_would_not_pass_is_refused(store):
    """A store that is none, and records of another class: one sentence each, and nothing is written."""
    wrong: Any = OnrecordRepository
    with pytest.raises(
        SessionException, match=r"an adapter takes a store, not str \[invalid_input\]; pass onrecord.connect"
    ):
        wrong("x.db")
    ours: Any = OnrecordRepository(store)
    before = store.get("s").head.position
    for call in (
        ours.create_session,
        lambda it: ours.create_agent("s", it),
        lambda it: ours.create_message("s", "a", it),
    ):
        with pytest.raises(SessionException, match=r"this takes a Session\w*, not NoneType \[invalid_input\]"):
            call(None)
    calls = [partial(of, "s", None) for of in (ours.update_agent, ours.create_multi_agent, ours.update_multi_agent)]
    calls += [partial(ours.update_message, "s", "default", None), partial(ours.alone, 7)]
    asyncio.run(check_refused(SessionException, "invalid_input", *calls))
    assert store.get("s").head.position == before


class OneId(Model):  # type: ignore[misc]  # checked without Strands
    """Calls the tool with what it is asked, always under the same id; says what the tool answered."""

    def update_config(self, **_config: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_arguments: Any, **_more: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_arguments: Any, **_more: Any) -> Any:
        last = messages[-1]["content"][-1]
        yield {"messageStart": {"role": "assistant"}}
        if "text" in last:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "look", "toolUseId": "call_0"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"n": int(last["text"])})}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": last["toolResult"]["content"][0]["text"]}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if "text" in last else "end_turn"}}


@pytest.mark.parametrize("keeper", ["repository", "snapshots"])
def test_a_server_that_gives_every_call_the_same_id(tmp_path, keeper):
    """Each call runs, once, and the model reads its own result: in one process and in the next."""
    ran: list[int] = []

    @tool
    def look(n: int) -> str:
        """Look."""
        ran.append(n)
        return f"saw {n}, look {len(ran)}"

    with onrecord.connect(str(tmp_path / "x.db"), project="p") as store:

        def ask(*prompts: int) -> list[str]:
            kept: Any = OnrecordRepository(store) if keeper == "repository" else OnrecordStorage(store)
            manager = (
                RepositorySessionManager(session_id="talk", session_repository=kept)
                if keeper == "repository"
                else SnapshotSessionManager("talk", storage=kept, save_latest_on="invocation")
            )
            agent = Agent(
                model=OneId(), tools=[look], session_manager=manager, hooks=[OnrecordHooks(kept, "talk")],
                callback_handler=None,
            )  # fmt: skip
            return [str(agent(str(one))).strip() for one in prompts]

        assert ask(1, 1, 2) == ["saw 1, look 1", "saw 1, look 2", "saw 2, look 3"]
        assert ask(2, 3) == ["saw 2, look 4", "saw 3, look 5"]
        assert list(store.get("talk").effects.unknown()) == []


@pytest.mark.parametrize("policy", ["refuse", "queue", "fork"])
def test_a_message_with_a_secret_that_is_saved_again_is_kept_once(store, policy):
    """Under its own number and, if it has an id, under another one: the recorded text is without the secret."""
    message: Any = {"role": "user", "content": [{"text": "use ghp_" + "a1B2c3" * 6}], "tracking_id": "one"}
    first = SessionMessage(message=message, message_id=0)
    ours = OnrecordRepository(store, on_conflict=policy)
    ours.create_message("s", "default", first)
    for one in (ours, OnrecordRepository(store, on_conflict=policy)):
        one.create_message("s", "default", first)
        one.create_message("s", "default", SessionMessage(message=message, message_id=1))
        assert len(one.list_messages("s", "default")) == 1
        assert one.forks == []


def test_a_fork_that_alone_makes_is_named(store):
    """A repository that finds another one inside continues in a fork, and `forks` has its name."""
    mine, yours = OnrecordRepository(store), OnrecordRepository(store, on_conflict="fork")
    with mine.alone("s"), yours.alone("s"):
        yours.create_message("s", "default", said(0, "yours"))
    (name,) = yours.forks
    assert name == yours.conversation("s").name
    assert [len(one.list_messages("s", "default")) for one in (mine, yours)] == [0, 1]


def test_a_message_without_a_number_is_refused(store):
    """It would be kept under a key that no list can read; the error is Strands' own, for reads as well."""
    ours: Any = OnrecordRepository(store)
    ours.create_message("s", "default", said(0, "hi"))
    wrong: Any = said(0, "x")
    for number in (None, "1", 1.5):
        wrong.message_id = number
        for call in (ours.create_message, ours.update_message):
            with pytest.raises(SessionException, match=r"a message_id that is a number, .*\[invalid_input\]"):
                call("s", "default", wrong)
        with pytest.raises(SessionException, match="a message_id that is a number"):
            ours.read_message("s", "default", number)
    assert len(ours.list_messages("s", "default")) == 1
