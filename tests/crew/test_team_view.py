"""The fold behind a team: nonsense that was recorded by hand does no harm."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onrecord.crew.team_file import RESTARTS, Team
from onrecord.crew.team_view import TeamView
from onrecord.log.events import Event
from tests.laws.values import json_values


def event(position: int, kind: str, data: Any, by: str = "crew") -> Event:
    return Event("S", position, f"e{position}", kind, 1, position * 1_000_000, by, 1, None, data, b"", b"")


@given(st.lists(st.tuples(st.sampled_from(sorted(TeamView.KINDS)), json_values), max_size=12))
def test_any_payload_can_be_folded(entries):
    """No payload, however wrong, keeps a supervisor from starting."""
    wanted = TeamView()
    for position, (kind, data) in enumerate(entries, 1):
        wanted.apply(event(position, kind, data))
    for name in wanted.agents:
        wanted.observed(name, None, alive=False, gone_at=0.0)
    assert isinstance(wanted.members(), dict)


MEMBER = {
    "id": "a", "command": ["claude"], "prompt": "", "directory": ".", "worktree": False, "environment": {},
    "restart": "never", "headless": True, "group": "",
}  # fmt: skip
TEAM: dict[str, Any] = {"name": "t", "runtime": "r", "root": "/", "agents": [MEMBER], "groups": [], "variables": {}}


@given(st.sampled_from(sorted(MEMBER)), json_values)
def test_a_team_from_elsewhere_is_checked_like_a_file(field, value):
    """A record may come from another machine: no field of it is trusted, and no name leaves its folder."""
    wanted = TeamView()
    wanted.apply(event(1, "team.formed", {"team": TEAM | {"agents": [MEMBER | {field: value}]}}))
    for name, found in wanted.members().items():
        assert "/" not in name
        assert all(isinstance(word, str) for word in [*found.command, found.prompt, found.directory])
        assert all(isinstance(text, str) for text in found.environment.values())
        assert found.restart in RESTARTS


def test_restarts_are_counted_since_a_person_asked():
    """A start that a person asked for is not a restart, and resets the count."""
    wanted = TeamView()
    spawned = {"agent": "a", "mode": "fresh"}
    kinds: list[tuple[str, Any]] = [
        ("team.formed", {"team": TEAM}), ("agent.spawned", spawned), ("agent.spawned", spawned),
        ("agent.spawned", spawned), ("agent.recalled", {"agent": "a"}), ("agent.spawned", spawned),
        ("agent.spawned", spawned),
    ]  # fmt: skip
    for position, (kind, data) in enumerate(kinds, 1):
        wanted.apply(event(position, kind, data))
    assert isinstance(wanted.team, Team)
    assert (wanted.agent("a")["starts"], wanted.agent("a")["restarts"]) == (5, [7.0])


def test_why_a_conversation_was_lost_is_a_field():
    """The reason comes from the run that replaced the conversation, never from text of the worklog."""
    wanted = TeamView()
    wanted.apply(event(1, "agent.joined", {"lost": "its transcript is gone"}, by="a"))
    assert wanted.agent("a")["lost"] == "its transcript is gone"
    wanted.apply(event(2, "agent.joined", {"resumes": "x"}, by="a"))
    assert wanted.agent("a")["lost"] == ""
    assert "worklog.written" not in TeamView.KINDS
