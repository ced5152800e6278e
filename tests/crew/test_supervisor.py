"""What a supervisor concludes from what it observes, at moments that a test with processes meets by chance only."""

import onrecord
from onrecord.crew.hosts import ProcessHost
from onrecord.crew.members import Members
from onrecord.crew.next_step import FINISHED, NOTHING
from onrecord.crew.supervisor import Supervisor
from onrecord.crew.team_file import CREW, read_team


class EndsWhenLookedAt(ProcessHost):
    """The agent's command records its end and is gone, at the moment at which the supervisor asks for its process."""

    def __init__(self, run: onrecord.Session) -> None:
        self.run = run

    def pid(self, agent: str) -> int | None:
        self.run.agents.record_end()
        return None


def test_an_agent_that_ends_while_it_is_looked_at_is_finished(tmp_path):
    """An agent whose end comes between the supervisor's reading of the log and its look at the process is not started again."""
    file = tmp_path / "team.toml"
    file.write_text('[[agent]]\nid = "a"\ncommand = "sh"\n')
    with onrecord.connect(str(tmp_path / "store.db"), project=str(tmp_path)) as records:
        crew = records.create("s", agent=CREW).acquire()
        crew.log.record("team.formed", {"team": read_team(file).as_data(), "headless": True})
        crew.log.record("agent.spawned", {"agent": "a", "mode": "fresh"})
        run = records.get("s", agent="a")
        run.agents.record_start(None)
        members = Members(crew, read_team(file), headless=True)
        members.processes = EndsWhenLookedAt(run)
        step = Supervisor(members).look(crew.clock())["a"]
        assert (step.do, step.state) == (NOTHING, FINISHED)
        crew.leave()
