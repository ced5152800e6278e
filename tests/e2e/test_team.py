import json
import sys
from typing import Any

from tests.e2e.lab import Lab
from tests.e2e.modelserver import patiently
from tests.e2e.suite import Laboratory

SESSION = "paint"
PATIENCE = 240.0
"""Five programs begin at once."""


class TestTeam(Laboratory):
    programs = ("claude", "codex", "gemini", "copilot", "opencode")

    def test_five_agents_of_five_vendors_are_killed_and_resumed_under_one_name(self, lab: Lab):
        """I20, I21, G05: a team is up, everything is killed, and one command brings every conversation back: verified."""
        team = lab.project / "team.toml"
        team.write_text(f'[team]\nname = "{SESSION}"\n' + "".join(self.agent(name) for name in self.programs))
        command = [sys.executable, "-m", "onrecord", "team"]
        run = lab.start([*command, "up", str(team), "--headless"])
        for name in self.programs:
            lab.appears(f"{name}.here", PATIENCE)
        patiently(lambda: all(row["session_id"] for row in self.rows(lab).values()), "every id is known", PATIENCE)
        before = {name: row["session_id"] for name, row in self.rows(lab).items()}
        for name in self.programs:
            lab.keeps(lab.cli(name), before[name], f"The word of {name} is magenta.")
        lab.room.clear()
        run.process.wait()
        team.unlink()
        asked = len(lab.server.conversation())

        done = lab.run([*command, "resume", SESSION, "--yes", "--json"], seconds=PATIENCE)
        assert done.status == 0, (done, self.logs(lab))
        rows = json.loads(done.out)["data"]["agents"]
        assert {name: row["how"] for name, row in rows.items()} == dict.fromkeys(self.programs, "resumed (verified)")
        assert {name: row["session_id"] for name, row in rows.items()} == before
        since = [request.text for request in lab.server.conversation()[asked:]]
        for name in self.programs:
            own = [text for text in since if f"The word of {name} is magenta." in text]
            assert any("Go on where you were interrupted." in text for text in own), name
        assert lab.room.inhabitants() == []

    def agent(self, name: str) -> str:
        """One that is busy until it is killed, and has nothing to wait for the second time."""
        busy = f"test -e {name}.here || (touch {name}.here && sleep 600)"
        prompt = f"The word of {name} is magenta. [[shell {busy}]] [[say {name} is back]]"
        return f'[[agent]]\nid = "{name}"\ncommand = "{name}"\nprompt = \'{prompt}\'\n'

    def rows(self, lab: Lab) -> dict[str, dict[str, Any]]:
        done = lab.onrecord("team", "status", SESSION, "--json")
        assert done.status == 0, done
        found: dict[str, dict[str, Any]] = json.loads(done.out)["data"]["agents"]
        return found

    def logs(self, lab: Lab) -> dict[str, str]:
        return {path.name: path.read_text()[-3000:] for path in (lab.project / "runtime").rglob("*.log")}
