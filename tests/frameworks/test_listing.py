"""Lists of many conversations: from what the last list kept; only logs that grew since are read."""

from typing import Any

import pytest

import onrecord
from onrecord.frameworks.conversation import Conversation
from onrecord.frameworks.listing import FIRST_PAGE, listed, opened_with, replay
from tests.stores import url_of


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    with onrecord.connect(url_of(request.param, request, tmp_path), project="p") as found:
        yield found


class Listing:
    """Lists the texts of conversations and counts the logs that it reads."""

    def __init__(self, store: Any) -> None:
        self.store, self.read = store, list[str]()

    def one(self, session: Any, head: Any) -> Any:
        self.read.append(head.name)
        kept = Conversation(self.store, "f", "-", name="-")
        about = replay(session, kept)
        return [about["conversation"], [one.line for one in kept.entries.values()]] if kept.entries else None

    def all(self, prefix: str = "") -> dict[str, Any]:
        return {head.name: one for head, one in listed(self.store, "test.1", self.one, prefix)}


def say(store: Any, name: str, text: str) -> None:
    kept = Conversation(store, "f", f"id of {name}", name=name)
    kept.write(lambda: [kept.session.log.draft("payload.kept", kept.kept([text], [text], []))])


def test_a_second_list_reads_only_what_grew(store):
    """Nothing is read twice: the second list comes from what the first one kept, and only a log that grew is read."""
    count = FIRST_PAGE + 3
    for number in range(count):
        say(store, f"a{number}", "one")
    store.create("plain")
    first = Listing(store)
    assert first.all() == {f"a{number}": [f"id of a{number}", ["one"]] for number in range(count)}
    assert len(first.read) == count + 1
    say(store, "a1", "two")
    second = Listing(store)
    assert second.all()["a1"] == ["id of a1", ["one", "two"]]
    assert second.read == ["a1"]


def test_only_names_with_the_prefix_are_read(store):
    """Of many sessions, those of another application are not looked at."""
    for name in ("a1", "a2", "b1"):
        say(store, name, "one")
    some = Listing(store)
    assert list(some.all("a")) == ["a2", "a1"]
    assert sorted(some.read) == ["a1", "a2"]


def test_the_newest_do_not_wait_for_the_rest(store):
    """A caller that wants the newest few reads one page of logs, however many sessions there are."""
    for number in range(FIRST_PAGE + 5):
        say(store, f"a{number}", "one")
    some = Listing(store)
    head, _one = next(listed(store, "test.1", some.one))
    assert head.name == f"a{FIRST_PAGE + 4}"
    assert len(some.read) == FIRST_PAGE


def test_a_log_that_cannot_be_folded_hides_no_other(store):
    """A damaged session is missing in the list; the others are there."""
    say(store, "a", "one")
    say(store, "b", "one")

    def fold(session: Any, head: Any) -> Any:
        if head.name == "a":
            raise onrecord.errors.DamagedLog("damaged")
        return opened_with(session)["conversation"]

    assert [one for _head, one in listed(store, "test.2", fold)] == ["id of b"]
