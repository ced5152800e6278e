"""What is said in tests of the loop."""

from typing import Any


def say(session: Any, *words: str) -> None:
    """Record a whole turn: a question and its answer."""
    session.record_turn([{"role": "user", "content": words[0]}, {"role": "assistant", "content": words[1]}])


def contents(messages: Any) -> list[Any]:
    """What the messages say."""
    return [one["content"] for one in messages]


def look(where: int) -> str:
    """A tool that finds nothing."""
    return f"nothing at {where}"
