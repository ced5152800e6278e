import json
from functools import partial

import onrecord
from tests.e2e import test_codex as codex
from tests.e2e.lab import Lab, Running
from tests.e2e.modelserver import patiently
from tests.e2e.suite import Laboratory

ID = "77777777-{:04}-4333-8444-555555555555"


class TestFollowing(Laboratory):
    programs = ("claude", "codex", "gemini")

    def test_a_plain_agent_is_on_record_while_it_works_and_when_it_is_killed(self, lab: Lab):
        """Set up and started as usual: while a tool runs no hook is called, and the turn is on record; after a kill, so is that.

        No command of ours runs in between, and nothing of ours is left running. How soon: `./dev bench mirror`.
        """
        assert lab.onrecord("setup", *self.programs, "--user", "--no-tools", "--yes").status == 0
        codex.TestCodex().accept_hooks(lab)
        runs = {name: self.start(lab, name, number) for number, name in enumerate(self.programs)}
        for name in runs:
            lab.appears(f"{name}.txt")
            patiently(partial(is_said, lab, name), f"the prompt of {name} is on record")
        for run in runs.values():
            run.kill()
        for name in runs:
            patiently(partial(is_killed, lab, name), f"the end of {name} is on record")
        patiently(lambda: not followers(lab), "nothing follows them any more")

    def start(self, lab: Lab, name: str, number: int) -> Running:
        prompt = f"ask {name} [[shell touch {name}.txt && sleep 600]]"
        return lab.start(lab.cli(name).start(ID.format(number), prompt))


def sessions(lab: Lab, name: str) -> list[onrecord.Session]:
    records = onrecord.connect(str(lab.home / ".local/share/onrecord/onrecord.db"), project=str(lab.project))
    return [records.get(head.session) for head in records.sessions() if head.name.startswith(f"ask-{name}")]


def said(lab: Lab, name: str) -> str:
    told = [session.transcript() for session in sessions(lab, name)]
    return json.dumps([turn.items for one in told for turn in (*one.committed, *one.provisional)])


def is_said(lab: Lab, name: str) -> bool:
    return f"ask {name}" in said(lab, name)


def is_killed(lab: Lab, name: str) -> bool:
    return stops(lab, name) == ["killed"]


def stops(lab: Lab, name: str) -> list[str]:
    found = (session.events(kinds=("interruption.recorded",)) for session in sessions(lab, name))
    return [event.data["cause"] for events in found for event in events]


def followers(lab: Lab) -> list[str]:
    folder = lab.home / ".local/state/onrecord/following"
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
