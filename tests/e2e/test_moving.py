"""The vendors' translators with the real programs: an id up front, a conversation moved to a new machine."""

import sys
import uuid
from functools import partial
from pathlib import Path
from typing import ClassVar

from onrecord.vendors.port import FINISHED, REFUSED, Launch, LaunchOptions, Location, Vendor, vendor
from tests.e2e.lab import Done, Lab
from tests.e2e.modelserver import patiently
from tests.e2e.suite import Laboratory

OBTAIN = """
import os, sys
from onrecord.vendors.port import LaunchOptions, vendor
print(vendor(sys.argv[1]).obtain_id(LaunchOptions(os.getcwd(), name="a name", env=os.environ)))
"""


class MovingSuite(Laboratory):
    extra: ClassVar[tuple[str, ...]] = ()
    missing = "00000000-0000-4000-8000-000000000000"

    @property
    def of(self) -> Vendor:
        return vendor(self.programs[0])

    def wanted(self, lab: Lab, vendor_id: str | None, prompt: str, cwd: Path) -> LaunchOptions:
        env = {**lab.environment, "IS_SANDBOX": "1"}
        return LaunchOptions(str(cwd), vendor_id, "a name", prompt, headless=True, extra=self.extra, env=env)

    def run(self, lab: Lab, launch: Launch) -> Done:
        env = {**launch.env, "IS_SANDBOX": "1"}
        return lab.run(launch.argv, cwd=Path(launch.cwd), stdin=launch.stdin, env=env)

    def new_id(self, lab: Lab) -> str:
        """Our id, where the program accepts it; else one it creates beforehand."""
        if self.of.capabilities.chooses_id:
            return str(uuid.uuid4())
        done = lab.run([sys.executable, "-c", OBTAIN, self.of.name])
        assert done.status == 0, done
        return done.out.strip()

    def goes_on(self, lab: Lab, vendor_id: str, word: str, here: Path) -> None:
        """A resumed conversation is the same one, and the model gets the earlier messages."""
        done = self.run(lab, self.of.resume(self.wanted(lab, vendor_id, f"And now? [[say {word}]]", here)))
        lines = done.out.splitlines() + done.err.splitlines()
        assert self.of.classify(lines, done.status).cause == FINISHED, done
        assert {one for line in lines if (one := self.of.stream_id(line))} == {vendor_id}
        assert "The word is magenta." in lab.server.conversation()[-1].text

    def test_a_conversation_is_carried_to_a_new_machine(self, lab: Lab):
        """The model answers under the id we chose, where that is possible, and the file is where we expect it.

        Read there and restored into another home for another directory, the conversation continues there, twice (A19, T06).
        """
        vendor_id = self.new_id(lab)
        done = self.run(
            lab, self.of.start(self.wanted(lab, vendor_id, "The word is magenta. [[say ochre]]", lab.project))
        )
        assert self.of.classify(done.out.splitlines(), done.status).cause == FINISHED, done
        place = self.of.find(vendor_id, lab.environment)
        assert place is not None, done
        entries = self.of.read(place).entries
        assert all(entry.known for entry in entries), [entry.kind for entry in entries if not entry.known]
        here = lab.root / "new place"
        lab.add_project(here)
        lab.home = lab.root / "new home"
        lab.home.mkdir()
        lab.cli(self.of.name).settings(lab.home, [here], lab.server.url, lab.installed[self.of.name])
        self.used_before(lab, here)
        self.of.put_back(place, iter([entry.raw for entry in entries]), lab.environment, str(here))
        self.goes_on(lab, vendor_id, "indigo", here)
        self.goes_on(lab, vendor_id, "teal", here)
        there = self.of.find(vendor_id, lab.environment)
        assert there is not None
        chunk = self.of.read(there)
        said = [item["content"] for _, item in self.of.items(chunk.entries) if item["role"] == "assistant"]
        assert (said, chunk.torn) == (["ochre", "indigo", "teal"], 0)

    def used_before(self, lab: Lab, here: Path) -> None:
        """Most programs need not have run on the new machine before."""

    def test_what_is_not_there_is_refused(self, lab: Lab):
        """A missing conversation is not silently replaced by a new one: the run fails, and is not an end (T07)."""
        done = self.run(lab, self.of.resume(self.wanted(lab, self.missing, "hello", lab.project)))
        found = self.of.classify(done.out.splitlines() + done.err.splitlines(), done.status)
        assert (done.status != 0, found.cause) == (True, REFUSED), done
        assert lab.server.conversation() == []


class LocatingSuite(MovingSuite):
    """Programs that write to disk which of their processes has which conversation."""

    def is_free(self, lab: Lab, place: Location) -> bool:
        return self.of.hazards(place, lab.environment) == []

    def is_kept(self, lab: Lab, vendor_id: str) -> bool:
        return self.of.find(vendor_id, lab.environment) is not None

    def test_a_process_tells_its_conversation(self, lab: Lab):
        """Two of them in one directory are distinguished, and each blocks a second writer (T02)."""
        begun = []
        for name in ("one", "two"):
            vendor_id = self.new_id(lab)
            prompt = f"Begin. [[shell echo $$ > under-way-{name}; exec sleep 600]]"
            launch = self.of.start(self.wanted(lab, vendor_id, prompt, lab.project))
            env = {**launch.env, "IS_SANDBOX": "1"}
            begun.append((vendor_id, lab.start(launch.argv, stdin=launch.stdin, env=env)))
            lab.appears(f"under-way-{name}")
        for vendor_id, run in begun:
            assert self.of.locate(run.process.pid, lab.environment) == vendor_id
            # A program may run its tool a moment before it writes the prompt.
            patiently(partial(self.is_kept, lab, vendor_id), "the conversation is kept")
            place = self.of.find(vendor_id, lab.environment)
            assert place is not None
            assert [hazard.code for hazard in self.of.hazards(place, lab.environment)] == ["in_use"]
        for vendor_id, run in begun:
            place = self.of.find(vendor_id, lab.environment)
            assert place is not None
            run.kill()
            # Its other processes are killed with it, and die a moment after it.
            patiently(partial(self.is_free, lab, place), "what it left is in nobody's way")
            assert self.of.locate(run.process.pid, lab.environment) is None


class TestClaude(LocatingSuite):
    programs = ("claude",)
    extra = ("--allowedTools", "Bash")


class TestCodex(LocatingSuite):
    programs = ("codex",)


class TestCopilot(LocatingSuite):
    programs = ("copilot",)
    extra = ("--allow-all-tools",)


class TestGemini(MovingSuite):
    programs = ("gemini",)
    extra = ("--yolo",)


class TestOpencode(MovingSuite):
    programs = ("opencode",)
    missing = "ses_0000000000000000000000"

    def used_before(self, lab: Lab, here: Path) -> None:
        """Its database must exist; the program creates it."""
        done = self.run(lab, self.of.start(self.wanted(lab, None, "hello [[say hello]]", here)))
        assert done.status == 0, done


class TestQwen(MovingSuite):
    programs = ("qwen",)
    extra = ("--yolo",)
