"""A session of any framework is a session: what everybody can do with it."""

from typing import Any


def check_shared(store: Any, name: str, said: list[str]) -> None:
    """It is read as a transcript, found by search, exported for two vendors, continued by a plain loop, and verified."""
    session = store.get(name, agent="main")
    transcript = session.transcript()
    texts = [item["content"] for turn in (*transcript.committed, *transcript.provisional) for item in turn.items]
    assert [text for text in texts if text] == said
    assert name in [found.session.name for found in store.search(said[0])]
    with store.open(name, agent="main") as plain, plain.turn() as turn:
        turn.user("a question of a plain loop")
        for format_ in ("openai", "anthropic"):
            sent: Any = turn.messages(format_)
            assert said[0] in str(getattr(sent, "messages", sent))
        turn.assistant("its answer")
    assert session.verify().ok
