"""Agents and their vendor conversations: ids rotate, the chain remains."""

import pytest

import onrecord
from onrecord.errors import InvalidInput
from onrecord.session.agents import link_id


@pytest.fixture
def session():
    with onrecord.connect("memory:", project="p") as records:
        yield records.open("work", agent="coder")


def test_a_conversation_is_on_record_and_found_without_its_session(session):
    """The first event of a conversation has an id that every store can look up."""
    session.agents.locate("claude", "c-1", reason="startup", cwd="/a")
    assert session.store.linked(link_id("claude", "c-1")) == [session.id]
    assert session.store.linked(link_id("codex", "c-1")) == []


def test_what_is_said_twice_is_recorded_once(session):
    """A repeated hook changes nothing; a new detail of the same conversation is another event."""
    session.agents.locate("claude", "c-1", reason="startup", cwd="/a", revision="r1")
    position = session.head.position
    assert session.agents.locate("claude", "c-1", cwd="/a", branch=None) is None
    assert session.head.position == position
    assert session.agents.locate("claude", "c-1", cwd="/b", revision="r2") is not None
    (link,) = session.views.roster.agents["coder"]["links"]
    assert (link["first"]["cwd"], link["last"]["cwd"]) == ("/a", "/b")
    assert (link["first"]["revision"], link["last"]["revision"]) == ("r1", "r2")


def test_a_rotated_id_makes_a_chain(session):
    """The newest conversation is the current one, and returning to an older one makes it current again."""
    session.agents.locate("claude", "c-1", reason="startup")
    session.agents.locate("claude", "c-2", reason="cleared")
    links = session.views.roster.agents["coder"]["links"]
    assert [(link["id"], link["first"]["reason"]) for link in links] == [("c-1", "startup"), ("c-2", "cleared")]
    session.agents.locate("claude", "c-1", reason="resumed")
    assert [link["id"] for link in session.views.roster.agents["coder"]["links"]] == ["c-2", "c-1"]


def test_the_vendor_of_an_agent_is_kept(session):
    """A run that names its vendor sets it; a later run without one keeps it; a link updates it."""
    session.agents.record_start({"pid": 1}, vendor="claude")
    assert session.views.roster.agents["coder"]["vendor"] == "claude"
    session.agents.record_end()
    session.agents.record_start({"pid": 2})
    roster = session.views.roster.agents["coder"]
    assert (roster["vendor"], roster["process"]) == ("claude", {"pid": 2})
    session.agents.locate("codex", "c-9")
    assert session.views.roster.agents["coder"]["vendor"] == "codex"


def test_a_conversation_has_one_agent(session):
    """Two agents of a session cannot claim the same conversation."""
    session.agents.locate("claude", "c-1")
    session.agent = "reviewer"
    with pytest.raises(InvalidInput, match="belongs to the agent 'coder'"):
        session.agents.locate("claude", "c-1")


@pytest.mark.parametrize(
    ("vendor", "id_"), [("", "a"), ("a/b", "a"), ("claude", ""), ("claude", "x" * 300), ("claude", "a\nb")]
)
def test_a_hostile_id_is_refused(session, vendor, id_):
    """A malformed conversation id changes nothing."""
    before = session.head
    with pytest.raises(InvalidInput):
        session.agents.locate(vendor, id_)
    with pytest.raises(InvalidInput):
        session.agents.locate("claude", "c-1", colour="red")
    assert session.refresh().head == before


def test_an_interruption_is_kept_with_its_reset(session):
    """The reason of a stop and the end of the limit can be read back."""
    session.agents.record_interruption("usage_window", "limit reached", resets_at=1_800_000_000.0)
    found = session.views.lifecycle.interruption
    assert (found["cause"], found["resets_at"], found["agent"]) == ("usage_window", 1_800_000_000.0, "coder")
