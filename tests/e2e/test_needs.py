"""A person is notified by the real program's hooks: it asks a question, and it asks for a permission."""

import json
import sys
from typing import Any

from tests.e2e.lab import Lab
from tests.e2e.modelserver import patiently
from tests.e2e.suite import SESSION, Agent, Laboratory
from tests.e2e.terminal import Terminal

TELLER = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"


class TestWhatNeedsAPerson(Laboratory):
    programs = ("claude",)

    def test_a_question_and_a_permission_are_noticed_and_listed_until_answered(self, lab: Lab):
        """The notice has the words, the overview shows who waits, and after the answer neither does."""
        assert lab.onrecord("setup", "claude", "--user", "--no-input").status == 0
        told = lab.scratch / "told.jsonl"
        settings = lab.home / ".config" / "onrecord" / "config.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        command = json.dumps([sys.executable, "-c", TELLER, str(told)])
        settings.write_text(f"[notify]\ncommand = {command}\nevents = ['waits']\n")
        allowed = lab.home / ".claude" / "settings.json"
        allowed.write_text(json.dumps(json.loads(allowed.read_text()) | {"permissions": {"ask": ["Bash"]}}))
        terminal = Terminal(lab, Agent(lab, "claude").command())
        terminal.shows("auto mode on")
        terminal.say("The word is magenta. [[say Shall I paint it ochre?]]", "Shall I paint it ochre")
        patiently(lambda: bool(notices(told)), "a notice of the question")
        assert needs_of(lab) == [("question", "claude asks: Shall I paint it ochre?")]
        terminal.say("Yes. [[shell touch painted.txt]] [[say done]]", "Do you want to proceed")
        patiently(lambda: len(notices(told)) > 1, "a notice of the permission")
        (waits,) = needs_of(lab)
        assert waits[0] == "waits"
        assert [one["text"] for one in notices(told)] == ["claude asks: Shall I paint it ochre?", waits[1]]
        assert "permission" in waits[1]
        terminal.press("Enter")
        lab.appears("painted.txt")
        patiently(lambda: needs_of(lab) == [], "it no longer waits")


def notices(file: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def needs_of(lab: Lab) -> list[tuple[str, str]]:
    done = lab.onrecord("--json")
    assert done.status == 0, done
    (session,) = [one for one in json.loads(done.out)["data"]["sessions"] if one["name"] == SESSION]
    return [(need["kind"], need["why"]) for need in session["needs_you"]]
