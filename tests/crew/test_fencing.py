"""A supervisor that lost its lane starts no agent."""

import pytest

import onrecord
from onrecord.crew.members import Members
from onrecord.crew.supervisor import Supervisor
from onrecord.crew.team_file import CREW, read_team
from onrecord.errors import LeaseLost


def test_who_was_replaced_starts_nobody(tmp_path):
    """Fencing: a start is recorded under the lease before it happens, so the old supervisor's start never happens."""
    file = tmp_path / "team.toml"
    file.write_text('[[agent]]\nid = "a"\ncommand = "sh"\n')
    with onrecord.connect(str(tmp_path / "store.db"), project=str(tmp_path)) as records:
        old = records.create("s", agent=CREW).acquire()
        old.log.record("team.formed", {"team": read_team(file).as_data(), "headless": True})
        members = Members(old, read_team(file), headless=True)
        supervisor = Supervisor(members)
        supervisor.look(old.clock())
        new = records.get("s", agent=CREW).acquire(takeover=True)
        with pytest.raises(LeaseLost):
            supervisor.act()
        assert not members.processes.log("a").exists()
        assert not list(new.events(kinds=("agent.spawned",)))
        new.leave()
