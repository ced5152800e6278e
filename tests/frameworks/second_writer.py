"""A second process of `test_langgraph.py`: it writes to the thread that the test has the lease of, by each policy."""

import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, MessagesState, StateGraph

import onrecord
from onrecord.frameworks.langgraph import OnrecordSaver


def say(*words: object) -> None:
    """One line for the test."""
    print(*words, flush=True)


def main(path: str) -> None:
    """Refused by the lease, in a fork, behind the test, and overtaken by it."""
    with onrecord.connect(path, project="p") as store:

        def graph(saver: OnrecordSaver, *, waits: bool = False) -> Any:
            def model(state: MessagesState) -> Any:
                if waits:
                    say("inside")
                    sys.stdin.readline()
                return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

            builder = StateGraph(MessagesState)
            builder.add_node("model", model)
            builder.add_edge(START, "model")
            return builder.compile(checkpointer=saver)

        def turn(saver: OnrecordSaver, thread: str, text: str, **options: Any) -> list[str]:
            config: Any = {"configurable": {"thread_id": thread}}
            made = graph(saver, **options).invoke({"messages": [HumanMessage(text)]}, config, durability="sync")
            return [one.content for one in made["messages"]]

        try:
            with OnrecordSaver(store).alone("t"):
                say("nobody refused it")
        except InvalidUpdateError as problem:
            say("refused", getattr(problem, "code", "without a code"))
        forking = OnrecordSaver(store, on_conflict="fork")
        with forking.alone("t") as thread:
            say("fork", thread, *turn(forking, thread, "forked"))
        queued = OnrecordSaver(store, on_conflict="queue")
        say("waiting")
        with queued.alone("t") as thread:
            say("queued", thread, *turn(queued, thread, "second"))
        sys.stdin.readline()
        try:
            say("nobody refused", *turn(queued, "t", "third", waits=True))
        except InvalidUpdateError as problem:
            say("overtaken", getattr(problem, "code", "without a code"), "alone" in str(problem))


if __name__ == "__main__":
    main(sys.argv[1])
