"""A resumed thread of LangGraph: what the end of its log says is what all of its log says."""

import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base.id import uuid6

import onrecord
from onrecord.frameworks import langgraph_checkpoints, langgraph_puts
from onrecord.frameworks.langgraph import OnrecordSaver


@pytest.fixture
def store(tmp_path):
    with onrecord.connect(str(tmp_path / "x.db"), project="p") as found:
        yield found


def config(ns: str = "", id_: str | None = None) -> Any:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": ns} | ({"checkpoint_id": id_} if id_ else {})}


class Run:
    """Puts checkpoints as graphs do, and now and then as no graph does."""

    def __init__(self, saver: OnrecordSaver, seed: int) -> None:
        self.saver, self.source = saver, random.Random(seed)
        self.heads: dict[str, str | None] = {"": None}
        self.states: dict[str, list[Any]] = {"": []}
        self.put_so_far: list[tuple[Any, ...]] = []
        self.version = 0

    def step(self, *, odd: bool) -> None:
        """One step of a graph: the writes of a task, and a checkpoint that has them."""
        ns = self.source.choice(["", "", "", "sub"]) if odd else ""
        head, state = self.heads.get(ns), self.states.setdefault(ns, [])
        text = f"{self.source.random()} " * 8
        new = [HumanMessage(text, id=str(uuid6())), AIMessage(text[::-1], id=self.source.choice(["named", None]))]
        if head and self.source.random() < 0.7:
            self.saver.put_writes(config(ns, head), [("messages", new), ("n", 1)], str(uuid6()))
        new[1].id = (new[1].id and f"{new[1].id}-{self.version}") or str(uuid6())
        state.extend(new)
        self.version += 1
        id_ = f"step {self.version}" if odd and self.source.random() < 0.1 else str(uuid6())
        put: tuple[Any, ...] = (
            config(ns, head), {
                "v": 4, "id": id_, "ts": f"2026-01-01T00:00:{self.version % 60:02}.000001+00:00",
                "channel_values": {"messages": list(state), "n": self.version},
                "channel_versions": {"messages": self.version, "n": self.version},
                "versions_seen": {"model": {"n": self.version}},
            },
            {"source": "loop", "step": self.version}, {"messages": self.version, "n": self.version},
        )  # fmt: skip
        self.saver.put(*put)
        self.put_so_far.append(put)
        self.heads[ns] = id_

    def surprise(self) -> None:
        """Something that no run does, but any caller may."""
        match self.source.randrange(4):
            case 0:  # the same checkpoint again, maybe an old one
                self.saver.put(*self.source.choice(self.put_so_far[-20:]))
            case 1:  # an old one under the newest: a circle
                asked = self.source.choice(self.put_so_far[-20:])
                self.saver.put(config("", self.heads[""]), *asked[1:])
            case 2:  # writes before their checkpoint
                id_ = str(uuid6())
                self.saver.put_writes(config("", id_), [("n", 7)], str(uuid6()))
                put = self.put_so_far[-1]
                self.saver.put(config("", self.heads[""]), put[1] | {"id": id_}, *put[2:])
                self.heads[""] = id_
            case 3:
                self.saver.prune(["t"])


def newest(store: Any, *, all_of_it: bool) -> Any:
    """The newest checkpoint, as a process that resumes reads it."""
    saver = OnrecordSaver(store)
    if all_of_it:
        saver.thread("t").catch_up()
        assert saver.thread("t").nodes
    found: Any = saver.get_tuple(config())
    found.config["configurable"].pop("__onrecord_run")
    return found


@pytest.mark.parametrize("seed", range(6))
def test_the_end_of_a_log_says_what_all_of_it_says(store, seed, monkeypatch):
    """The newest checkpoint is the same whether a thread is folded from its last whole state or from its beginning."""
    monkeypatch.setattr(langgraph_puts, "WHOLE_EVERY", 5)
    quick = []

    def noted(*given: Any) -> Any:
        quick.append(real(*given))
        return quick[-1]

    real = langgraph_checkpoints.newest
    monkeypatch.setattr("onrecord.frameworks.langgraph_threads.newest", noted)
    run = Run(OnrecordSaver(store), seed)
    odd = seed > 1
    for number in range(60):
        run.step(odd=odd)
        if odd and run.source.random() < 0.15:
            run.surprise()
        if number % 3 == 0:
            assert newest(store, all_of_it=False) == newest(store, all_of_it=True)
    assert sum(one is not None for one in quick) > (0 if odd else 10)


def test_a_resumed_thread_is_continued_and_read_again(store):
    """A saver that has read the end of a thread writes to it, reads older checkpoints, and reads what others wrote."""
    first = Run(OnrecordSaver(store), 1)
    for _number in range(150):
        first.step(odd=False)
    resumed = OnrecordSaver(store)
    found: Any = resumed.get_tuple(config())
    assert [one.content for one in found.checkpoint["channel_values"]["messages"]] == [
        one.content for one in first.states[""]
    ]
    assert not resumed.thread("t")._is_settled
    first.step(odd=False)
    again: Any = resumed.get_tuple(config())
    assert again.checkpoint["id"] == first.heads[""]
    assert again.parent_config["configurable"]["checkpoint_id"] == found.checkpoint["id"]
    assert len(list(resumed.list(config()))) == 151
    first.saver = resumed
    first.step(odd=False)
    assert newest(store, all_of_it=False) == newest(store, all_of_it=True)
