"""The packages for coding agents: built from one source, accepted by the vendors' own programs, installed from a local path."""

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.lab import Done, Lab
from tests.e2e.suite import Laboratory

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

    def test_the_plugin_is_valid_and_works_after_installing(self, lab: Lab):
        """`claude plugin validate` accepts plugin and marketplace; installed from a local path, its tools are offered, its command is
        known, and what the model records with them is on record.
        """
        folder = built(lab)
        for place in ("claude", "claude/onrecord"):
            assert "Validation passed" in ran(lab, "claude", "plugin", "validate", str(folder / place)).out
        ran(lab, "claude", "plugin", "marketplace", "add", str(folder / "claude"))
        ran(lab, "claude", "plugin", "install", "onrecord@onrecord")
        settings = lab.home / ".claude" / "settings.json"
        data = json.loads(settings.read_text())
        data["permissions"]["allow"].append("mcp__plugin_onrecord_onrecord")
        data["env"] = {"ENABLE_TOOL_SEARCH": "false"}
        settings.write_text(json.dumps(data))
        ran(lab, sys.executable, "-m", "onrecord", "open", "paint", "--objective", "Find the colour of the shed")
        fact = '[[mcp record :: {"kind": "decision", "text": "Paint it magenta"}]]'
        done = ran(
            lab, "claude", "-p", "--output-format", "stream-json", "--verbose", f"Go. [[wait]] {fact} [[say done]]"
        )
        assert "onrecord:continue" in done.out, "the command of the plugin"
        log = json.loads(lab.onrecord("log", "paint", "--json").out)["data"]["events"]
        assert [event["data"]["text"] for event in log if event["kind"] == "decision.made"] == ["Paint it magenta"]


@pytest.mark.only_full
class TestOthers(Laboratory):
    programs = ("codex", "copilot", "gemini", "qwen")

    def test_every_package_is_accepted(self, lab: Lab):
        """Codex, Copilot, Gemini and Qwen install theirs from a local path; Gemini validates it too."""
        folder = built(lab)
        config = lab.home / ".codex" / "config.toml"
        config.write_text(config.read_text().replace("plugins = false", "plugins = true"))
        ran(lab, "codex", "plugin", "marketplace", "add", str(folder / "codex"))
        ran(lab, "codex", "plugin", "add", "onrecord@onrecord")
        assert list(lab.home.glob(".codex/plugins/**/skills/onrecord/SKILL.md"))
        ran(lab, "copilot", "plugin", "marketplace", "add", str(folder / "copilot"))
        assert "Installed 1 skill" in ran(lab, "copilot", "plugin", "install", "onrecord@onrecord").out
        ran(lab, "gemini", "extensions", "validate", str(folder / "gemini" / "onrecord"))
        ran(lab, "gemini", "extensions", "install", str(folder / "gemini" / "onrecord"), "--consent")
        assert (lab.home / ".gemini" / "extensions" / "onrecord" / "commands" / "onrecord" / "continue.toml").is_file()
        ran(lab, "qwen", "extensions", "install", str(folder / "qwen" / "onrecord"), "--consent")
        assert (lab.home / ".qwen" / "extensions" / "onrecord" / "hooks" / "hooks.json").is_file()


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
    texts = [path.read_text() for path in (tmp_path / "out" / name).rglob("*.json")]
    assert any(json.dumps(SERVER_COMMAND[2]) in text for text in texts)
