import json
import shutil
import sys
from functools import partial
from typing import Any

import pytest

from tests.e2e.lab import Lab
from tests.e2e.modelserver import patiently
from tests.e2e.suite import Laboratory

SESSION = "paint"
PATIENCE = 120.0
"""Five programs start at once."""
TEAM = [sys.executable, "-m", "onrecord", "team"]


def rows_of(lab: Lab) -> dict[str, dict[str, Any]]:
    done = lab.onrecord("team", "status", SESSION, "--json")
    assert done.status == 0, done
    found: dict[str, dict[str, Any]] = json.loads(done.out)["data"]["agents"]
    return found


class TestTeam(Laboratory):
    programs = ("claude", "codex", "gemini", "copilot", "opencode")

    def test_five_agents_of_five_vendors_are_killed_and_resumed_under_one_name(self, lab: Lab):
        """A team is up, everything is killed, and one command brings every conversation back: verified (I20, I21, G05)."""
        team = lab.project / "team.toml"
        team.write_text(f'[team]\nname = "{SESSION}"\n' + "".join(self.agent(name) for name in self.programs))
        run = lab.start([*TEAM, "up", str(team), "--headless"])
        for name in self.programs:
            lab.appears(f"{name}.here", PATIENCE)
        patiently(lambda: all(row["session_id"] for row in rows_of(lab).values()), "every id is known", PATIENCE)
        before = {name: row["session_id"] for name, row in rows_of(lab).items()}
        for name in self.programs:
            lab.keeps(lab.cli(name), before[name], f"The word of {name} is magenta.")
        lab.room.clear()
        run.process.wait()
        team.unlink()
        asked = len(lab.server.conversation())

        done = lab.run([*TEAM, "resume", SESSION, "--yes", "--json"], seconds=PATIENCE)
        assert done.status == 0, (done, self.logs(lab))
        rows = json.loads(done.out)["data"]["agents"]
        assert {name: row["how"] for name, row in rows.items()} == dict.fromkeys(self.programs, "resumed (verified)")
        assert {name: row["session_id"] for name, row in rows.items()} == before
        since = [request.text for request in lab.server.conversation()[asked:]]
        for name in self.programs:
            own = [text for text in since if f"The word of {name} is magenta." in text]
            assert any("Continue where you were interrupted." in text for text in own), name
        assert lab.room.inhabitants() == []

    def agent(self, name: str) -> str:
        """An agent that is busy until it is killed, and has nothing to wait for the second time."""
        busy = f"test -e {name}.here || (touch {name}.here && sleep 600)"
        prompt = f"The word of {name} is magenta. [[shell {busy}]] [[say {name} is back]]"
        return f'[[agent]]\nid = "{name}"\ncommand = "{name}"\nprompt = \'{prompt}\'\n'

    def logs(self, lab: Lab) -> dict[str, str]:
        return {path.name: path.read_text()[-3000:] for path in (lab.project / "runtime").rglob("*.log")}


@pytest.mark.skipif(shutil.which("tmux") is None, reason="cannot run here: tmux is not installed")
class TestTeamInTmux(Laboratory):
    """Without Codex, which advertises a model at its first start on a terminal, and opencode, which omits the prompt."""

    programs = ("claude", "gemini", "copilot", "qwen")

    def test_agents_in_terminals_are_asked_first_and_go_on_after_a_kill(self, lab: Lab):
        """Each program in a pane gets its first prompt, and comes back with its conversation, without that prompt again (T23)."""
        team = lab.project / "team.toml"
        prompts = {name: f"The word of {name} is magenta. [[say {name} heard]]" for name in self.programs}
        agents = [
            f"[[agent]]\nid = '{name}'\ncommand = '{name}'\nprompt = '{text}'\n" for name, text in prompts.items()
        ]
        team.write_text("".join([f"[team]\nname = '{SESSION}'\n", *agents]))
        run = lab.start([*TEAM, "up", str(team)])
        for name in self.programs:
            patiently(partial(self.was_asked, lab, prompts[name]), f"{name} is asked", PATIENCE)
        before = {name: row["session_id"] for name, row in rows_of(lab).items()}
        for name in self.programs:
            # Killed before it has answered, it would get the order to continue. The prompt has these words, too, but no quote before them.
            lab.keeps(lab.cli(name), before[name], f'"{name} heard')
        lab.room.clear()
        run.process.wait()
        asked = {name: self.asked(lab, text) for name, text in prompts.items()}

        done = lab.run([*TEAM, "resume", SESSION, "--yes", "--json", "--detach"], seconds=PATIENCE)
        assert done.status == 0, done
        for name in self.programs:
            patiently(partial(self.shows, lab, name, f"The word of {name}"), f"{name} shows it", PATIENCE)
        rows = rows_of(lab)
        assert {name: row["session_id"] for name, row in rows.items()} == before
        assert all(row["how"].startswith("resumed") for row in rows.values()), rows
        assert {name: self.asked(lab, text) for name, text in prompts.items()} == asked, "nobody was asked again"
        assert lab.onrecord("team", "stop", SESSION).status == 0
        assert lab.room.inhabitants() == []

    def asked(self, lab: Lab, text: str) -> int:
        return sum(text in request.text for request in lab.server.conversation())

    def was_asked(self, lab: Lab, text: str) -> bool:
        return self.asked(lab, text) > 0

    def shows(self, lab: Lab, name: str, text: str) -> bool:
        return text in lab.onrecord("team", "logs", name, "--session", SESSION).out
