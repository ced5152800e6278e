"""A supervisor that lost its lane starts nobody."""

import pytest

import onrecord
from onrecord.crew.places import Processes, Spawn
from onrecord.crew.supervisor import Supervisor, Ways
from onrecord.crew.team_file import CREW, read_team
from onrecord.errors import LeaseLost


def test_who_was_replaced_starts_nobody(tmp_path):
    """Fencing: the start is put on record under the lease before it happens, so the old supervisor's never happens."""
    file = tmp_path / "team.toml"
    file.write_text('[[agent]]\nid = "a"\ncommand = "sh"\n')
    with onrecord.connect(str(tmp_path / "store.db"), project=str(tmp_path)) as records:
        old = records.create("s", agent=CREW).acquire()
        old.record("team.formed", {"team": read_team(file).as_data(), "headless": True})
        processes = Processes(tmp_path / "logs")
        ways = Ways(
            spawn=lambda member, _mode, _wanted: Spawn(member.id, ["sh", "-c", "echo ran"], {}, str(tmp_path)),
            place=lambda _member: processes, wrappers=lambda _agent: [], belonging=lambda _agents, _heads: [],
            asks=lambda _member: "", tell=lambda _line: None,
        )  # fmt: skip
        supervisor = Supervisor(old, ways)
        supervisor.look(old.clock())
        new = records.get("s", agent=CREW).acquire(takeover=True)
        with pytest.raises(LeaseLost):
            supervisor.act()
        assert not processes.log("a").exists()
        assert not list(new.events(kinds=("agent.spawned",)))
        new.leave()
