"""The packages for coding agents: built from one source, accepted by the vendors' own programs, installed from a local path."""

import json
import shutil
import sys
import uuid
from pathlib import Path

import pytest

from tests.e2e.lab import Done, Lab
from tests.e2e.suite import Laboratory
from tests.e2e.test_mcp import allow_gemini
from tests.e2e.wire import FENCED

ROOT = Path(__file__).parents[2]


def built(lab: Lab) -> Path:
    folder = lab.root / "packages"
    done = lab.run([sys.executable, str(ROOT / "tools" / "packages.py"), str(folder)])
    assert done.status == 0, done
    return folder


def ran(lab: Lab, *argv: str) -> Done:
    done = lab.run(list(argv))
    assert done.status == 0, done
    return done


class TestClaude(Laboratory):
    programs = ("claude",)

    def installed(self, lab: Lab) -> None:
        folder = built(lab)
        for place in ("claude", "claude/onrecord"):
            assert "Validation passed" in ran(lab, "claude", "plugin", "validate", str(folder / place)).out
        ran(lab, "claude", "plugin", "marketplace", "add", str(folder / "claude"))
        ran(lab, "claude", "plugin", "install", "onrecord@onrecord")
        settings = lab.home / ".claude" / "settings.json"
        data = json.loads(settings.read_text())
        data["permissions"]["allow"] += ["mcp__plugin_onrecord_onrecord", "mcp__onrecord"]
        data["env"] = {"ENABLE_TOOL_SEARCH": "false"}
        settings.write_text(json.dumps(data))

    def used(self, lab: Lab) -> None:
        """The model records a fact and uses a tool of its own: both are on record once."""
        ran(lab, sys.executable, "-m", "onrecord", "open", "paint", "--objective", "Find the colour of the shed")
        fact = '[[mcp record :: {"kind": "decision", "text": "Paint it magenta"}]]'
        prompt = f"Go. [[wait]] {fact} [[shell touch shed.txt]] [[say done]]"
        told = lab.run(
            ["claude", "-p", "--output-format", "stream-json", "--verbose", prompt], env={"ONRECORD_SESSION": "paint"}
        )
        assert told.status == 0, told
        assert "onrecord:continue" in told.out, "the command of the plugin"
        first = lab.server.conversation()[0]
        assert len([one for one in FENCED.finditer(first.text) if "colour of the shed" in one[0]]) == 1, "one brief"
        log = json.loads(lab.onrecord("log", "paint", "--json").out)["data"]["events"]
        assert [event["data"]["text"] for event in log if event["kind"] == "decision.made"] == ["Paint it magenta"]
        ran_here = [event["data"].get("command") for event in log if event["kind"] == "tool.used"]
        assert ran_here.count("touch shed.txt") == 1, log
        assert [event["kind"] for event in log].count("agent.joined") == 1, log

    def test_the_plugin_is_valid_and_works_after_installing(self, lab: Lab):
        """`claude plugin validate` accepts plugin and marketplace; installed from a local path, its tools are offered, its command is
        known, its hooks run, and what the model records with the tools is on record.
        """
        self.installed(lab)
        self.used(lab)

    @pytest.mark.only_full
    def test_setup_and_plugin_together_count_once(self, lab: Lab):
        """Where the plugin was installed after `onrecord setup`, the brief is injected once, and each fact and each use is on record once."""
        assert lab.onrecord("setup", "claude", "--user", "--no-input").status == 0
        self.installed(lab)
        self.used(lab)
        said = lab.onrecord("setup", "claude", "--user", "--check").out
        assert "leaves one of the two" in said, said


@pytest.mark.only_full
class TestOthers(Laboratory):
    programs = ("codex", "copilot", "gemini", "qwen", "opencode")

    def test_every_package_works_after_installing(self, lab: Lab):
        """Codex, Copilot, Gemini, Qwen and opencode install theirs from a local path (Gemini validates it too); then the model of each
        records a fact with the tool, hooks record the use of another tool where the package has hooks, and the skill is offered.
        """
        folder = built(lab)
        ran(lab, sys.executable, "-m", "onrecord", "open", "paint", "--objective", "Find the colour of the shed")
        config = lab.home / ".codex" / "config.toml"
        config.write_text(config.read_text().replace("plugins = false", "plugins = true"))
        installing = (
            ("codex", "plugin", "marketplace", "add", f"{folder}/codex"),
            ("codex", "plugin", "add", "onrecord@onrecord"),
            ("copilot", "plugin", "marketplace", "add", f"{folder}/copilot"),
            ("copilot", "plugin", "install", "onrecord@onrecord"),
            ("gemini", "extensions", "validate", f"{folder}/gemini/onrecord"),
            ("gemini", "extensions", "install", f"{folder}/gemini/onrecord", "--consent"),
            ("qwen", "extensions", "install", f"{folder}/qwen/onrecord", "--consent"),
        )
        for argv in installing:
            ran(lab, *argv)
        # opencode has no command for it: the plugin and the skill are copied, the server's entry goes into the settings.
        settings = lab.home / ".config" / "opencode"
        (settings / "plugin").mkdir()
        shutil.copy(folder / "opencode" / "onrecord.js", settings / "plugin")
        shutil.copytree(folder / "opencode" / "skills", settings / "skills")
        entry = json.loads((folder / "opencode" / "opencode.json").read_text())
        merged = json.loads((settings / "opencode.json").read_text()) | entry
        (settings / "opencode.json").write_text(json.dumps(merged))
        allow_gemini(lab)
        with config.open("a") as more:
            more.write('[plugins."onrecord@onrecord".mcp_servers.onrecord]\ndefault_tools_approval_mode = "approve"\n')
        for name in self.programs:
            self.uses(lab, name)
        log = json.loads(lab.onrecord("log", "paint", "--json", "--limit", "0").out)["data"]["events"]
        for name in self.programs:
            own = [event for event in log if event["by"] == name]
            made = [event["data"]["text"] for event in own if event["kind"] == "decision.made"]
            assert made == [f"Paint it as {name} says"], (name, log)
            used = [event["data"]["command"] for event in own if event["kind"] == "tool.used"]
            assert used == ([] if name in ("codex", "copilot") else [f"touch {name}.txt"]), (name, used)

    def uses(self, lab: Lab, name: str) -> None:
        fact = json.dumps({"kind": "decision", "text": f"Paint it as {name} says"})
        # Codex does not wait for a server, and its model searches for the tools once there are some.
        wait = "[[shell sleep 10]] [[wait]] " if name == "codex" else ""
        prompt = f"This is for {name}. {wait}[[mcp record :: {fact}]] [[shell touch {name}.txt]] [[say done]]"
        *start, _prompt = lab.cli(name).start(str(uuid.uuid4()), prompt)
        by_input = name == "opencode"  # it escapes the quotes of an argument
        done = lab.run(
            start if by_input else [*start, prompt], stdin=prompt if by_input else None,
            env={"ONRECORD_SESSION": "paint"}, seconds=300,
        )  # fmt: skip
        assert done.status == 0, (name, done)
        asked = [one for one in lab.server.conversation() if f"This is for {name}." in one.said]
        assert "Use when work continues from an earlier session" in asked[0].text, (
            f"{name} offers the skill to its model"
        )


def test_an_existing_folder_is_not_replaced(tmp_path):
    """The tool replaces what it wrote itself, and nothing else."""
    import subprocess

    command = [sys.executable, str(ROOT / "tools" / "packages.py"), str(tmp_path / "out")]
    for _again in range(2):
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.startswith("wrote claude,")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    done = subprocess.run([*command[:2], str(mine)], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "name another directory" in done.stderr
    assert (mine / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize("name", ["claude", "codex", "copilot", "gemini", "qwen", "opencode"])
def test_every_package_has_the_same_skill_and_server(name, tmp_path):
    """One source: the skill is the same file everywhere, and the server is the one that setup registers."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from packages import SKILL, build
    finally:
        sys.path.pop(0)
    from onrecord.setup.commands import SERVER_COMMAND

    build(tmp_path / "out")
    (skill,) = (tmp_path / "out" / name).rglob("SKILL.md")
    assert skill.read_text() == SKILL
    _dashes, about, _text = SKILL.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in about.splitlines())
    assert json.loads(fields["description"]), "quoted: a colon in it would be a mapping for a strict reader of YAML"
    texts = [path.read_text() for path in (tmp_path / "out" / name).rglob("*.json")]
    assert any(json.dumps(SERVER_COMMAND[2]) in text for text in texts)
