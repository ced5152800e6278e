"""A person is notified of what the real program needs them for: a question, a permission, a limit."""

import json
import sys
import time
from typing import Any

from tests.e2e.lab import Lab
from tests.e2e.modelserver import Fault, patiently
from tests.e2e.suite import SESSION, Agent, Laboratory
from tests.e2e.terminal import Terminal

WINDOW_SECONDS = 3_600
TRIES = 2
"""How often the program tries before it gives up, in the laboratory's settings."""
TELLER = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"


class TestWhatNeedsAPerson(Laboratory):
    programs = ("claude",)

    def test_a_question_a_permission_and_a_limit_are_noticed_and_listed(self, lab: Lab):
        """Each notice has the words, the overview lists the need, and after the answer it does not."""
        assert lab.onrecord("setup", "claude", "--user", "--no-tools", "--no-input").status == 0
        told = lab.scratch / "told.jsonl"
        settings = lab.home / ".config" / "onrecord" / "config.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        command = json.dumps([sys.executable, "-c", TELLER, str(told)])
        settings.write_text(f"[notify]\ncommand = {command}\nevents = ['waits', 'limits']\n")
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

        opens = int(time.time()) + WINDOW_SECONDS
        lab.server.fail(Fault(429, "rate_limit_error", f"Claude AI usage limit reached|{opens}"), TRIES, "is amber")
        terminal.say("The other word is amber. [[say amber]]", "usage limit reached")
        patiently(lambda: len(notices(told)) > 2, "a notice of the limit")
        last = notices(told)[-1]
        assert (last["event"], last["command"]) == ("limits", f"onrecord resume {SESSION} --wait")
        assert last["text"].startswith("claude was stopped by its usage limit, until ")
        assert [kind for kind, _why in needs_of(lab)] == ["limit"]


def notices(file: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def needs_of(lab: Lab) -> list[tuple[str, str]]:
    done = lab.onrecord("--json")
    assert done.status == 0, done
    (session,) = [one for one in json.loads(done.out)["data"]["sessions"] if one["name"] == SESSION]
    return [(need["kind"], need["why"]) for need in session["needs_you"]]
