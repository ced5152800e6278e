"""`onrecord setup`: install, a real check, again, and remove; nothing of the user's is lost on the way."""

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from onrecord.setup import commands, installing
from onrecord.setup.installing import Target, installed_commands
from onrecord.vendors.port import PROJECT_SCOPE, USER_SCOPE, VENDORS, vendor

SCOPES = (PROJECT_SCOPE, USER_SCOPE)
STARTS = {"codex": "SessionStart", "copilot": "sessionStart", "cursor": "sessionStart", "opencode": "session.start"}
"""What some agents call the start of a conversation."""


def prepared(setup, name, scope):
    """A user's own files where the vendor keeps them: settings with hooks of the user's, and instructions."""
    of = vendor(name)
    for file in of.files(scope, setup.project, setup.environment):
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if file.what == "hooks":
            file.path.write_bytes(b'{\r\n\t"mine": [1,2],\r\n\t"hooks": {"Mine": [{"command": "true"}]}\r\n}')
        elif file.what == "instructions":
            file.path.write_bytes(b"# Mine, without an end")


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("name", VENDORS)
def test_in_checked_again_and_out(setup, name, scope):
    """Next to the user's own hooks and words, the hook really answers, a second setup changes nothing, and removal restores all."""
    prepared(setup, name, scope)
    before = setup.tree()
    where = f"--{scope}"
    states = setup.states(name, where)
    assert set(states.values()) <= {"changed", "added"}
    assert set(setup.states(name, where).values()) == {"unchanged"}
    place = Target(scope, setup.project, setup.environment)
    assert installed_commands(vendor(name), place)
    done = setup.run("setup", name, where, "--check")
    assert "the hook works" in done.out, done
    assert "the MCP server works" in done.out, done
    assert (done.code == 0) is (name not in ("codex", "opencode")), "those have something to do for the user first"
    assert set(setup.states(name, where, "--remove").values()) <= {"changed", "removed"}
    assert setup.tree() == before
    assert set(setup.states(name, where, "--remove").values()) == {"unchanged"}


@pytest.mark.parametrize("name", VENDORS)
def test_files_we_made_go_whole(setup, name):
    """Where the vendor had no files, none remains; files in the user's home are private."""
    before = setup.tree()
    assert set(setup.states(name, "--user").values()) <= {"added", "changed"}, "a file may get two parts"
    for file in vendor(name).files(USER_SCOPE, setup.project, setup.environment):
        if file.path.exists():
            assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    setup.ok("setup", name, "--user", "--remove")
    assert setup.tree() == before


def test_folders_that_setup_made_go_when_they_are_empty(setup):
    """Of the folders above our files, removal takes those that setup made, and only while nothing else is in them."""
    folder, home = setup.project / ".claude", setup.place
    setup.ok("setup", "claude")
    assert folder.is_dir()
    setup.ok("setup", "claude", "--remove")
    assert not folder.exists()
    assert not (home / ".local/share/onrecord/setup-folders.json").exists(), "nothing is remembered for nothing"

    folder.mkdir()
    setup.ok("setup", "claude")
    setup.ok("setup", "claude", "--remove")
    assert folder.is_dir(), "an empty folder of the user's stays"
    folder.rmdir()

    setup.ok("setup", "claude")
    (folder / "mine.txt").write_text("mine")
    setup.ok("setup", "claude", "--remove")
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]

    shutil.rmtree(folder)
    setup.ok("setup", "claude")
    shutil.move(folder, setup.project / "old")
    shutil.copytree(setup.project / "old", folder)
    setup.ok("setup", "claude", "--remove")
    assert folder.is_dir(), "a folder that someone made again is theirs"


def test_without_names_those_that_are_installed(setup):
    """A program on PATH or a home shows that an agent is installed; without either, an error names all agents."""
    hint = setup.error("setup", code=2, kind="usage")["hint"]
    assert "claude, codex, gemini" in hint
    assert "`onrecord setup claude`" in hint
    programs = setup.place / "bin"
    programs.mkdir()
    (programs / "codex").write_text("#!/bin/sh\n")
    (programs / "codex").chmod(0o755)
    (setup.place / ".qwen").mkdir()
    setup.environment["PATH"] += f":{programs}"
    assert {key.split()[0] for key in setup.states()} == {"codex", "qwen"}


def test_dry_run_and_print_touch_nothing(setup):
    """--dry-run shows a diff of what would change, --print the text itself; neither creates a file."""
    prepared(setup, "claude", PROJECT_SCOPE)
    before = setup.tree()
    diff = setup.ok("setup", "claude", "--dry-run")
    assert "+<!-- onrecord:instructions" in diff
    assert not [line for line in diff.splitlines() if line.startswith("-") and '"mine"' in line]
    assert set(setup.states("claude", "--dry-run").values()) == {"would be changed", "would be added"}
    printed = setup.ok("setup", "claude", "opencode", "--print")
    assert "onrecord hook claude PreToolUse" in printed
    assert "export const Onrecord" in printed
    assert setup.tree() == before


def test_a_shared_file_keeps_its_block_while_somebody_reads_it(setup):
    """Codex and opencode both read AGENTS.md: the block is there once, and is removed with the last of them."""
    setup.ok("setup", "codex", "opencode")
    told = setup.project / "AGENTS.md"
    assert told.read_text().count("onrecord:instructions end") == 1
    setup.ok("setup", "codex", "--remove")
    assert told.exists()
    setup.ok("setup", "opencode", "--remove")
    assert not told.exists()


def test_a_block_that_somebody_changed_is_left_alone(setup):
    """A changed block is neither updated nor removed without --force; the rest is done, and the exit code says that not all was."""
    setup.ok("setup", "claude")
    told = setup.project / "CLAUDE.md"
    told.write_text(told.read_text().replace("Run things", "Please run things"))
    changed = told.read_text()
    for words in (["claude"], ["claude", "--remove"]):
        data = setup.data("setup", *words, kind="setup", code=8)
        (problem,) = [one for one in data["changes"] if one["problem"]]
        assert (problem["what"], problem["state"]) == ("instructions", "left alone")
        assert "--force" in problem["hint"]
        assert told.read_text() == changed
    setup.ok("setup", "claude", "--force")
    assert "Please run" not in told.read_text()


def test_a_plugin_that_somebody_changed_is_left_alone(setup):
    """The same holds for a plugin file; a different file under that name is never ours."""
    setup.ok("setup", "opencode")
    plugin = setup.project / ".opencode" / "plugin" / "onrecord.js"
    plugin.write_text(plugin.read_text() + "\n// mine\n")
    assert setup.states("opencode", "--remove", code=8)["opencode plugin"] == "left alone"
    assert plugin.exists()
    setup.ok("setup", "opencode", "--remove", "--force")
    assert not plugin.exists()


def test_a_file_with_comments_is_not_rewritten(setup):
    """For a settings file with comments setup says what to add by hand; the file is unchanged, and the others are set up."""
    settings = setup.project / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{\n  // mine\n  "ui": {}\n}\n')
    data = setup.data("setup", "gemini", kind="setup", code=8)
    assert {one["what"]: one["state"] for one in data["changes"]} == {
        "hooks": "left alone", "instructions": "added", "mcp": "left alone",
    }  # fmt: skip
    assert "comments" in data["changes"][0]["problem"]
    assert settings.read_text() == '{\n  // mine\n  "ui": {}\n}\n'


def test_a_retention_that_deletes_conversations_is_named(setup):
    """Setup says which setting makes a plain start of Gemini delete others, leaves it alone, and is silent once it is off."""
    (warning,) = setup.data("setup", "gemini", kind="setup")["warnings"]
    settings = setup.place / ".gemini" / "settings.json"
    assert "delete a conversation that has just begun" in warning
    assert warning.endswith(f"set general.sessionRetention.enabled to false in {settings}")
    assert "sessionRetention" in setup.run("setup", "gemini").err
    assert not settings.exists()
    assert setup.data("setup", "gemini", "--remove", kind="setup")["warnings"] == []
    settings.parent.mkdir()
    settings.write_text('{"general": {"sessionRetention": {"enabled": false}}}')
    assert setup.data("setup", "gemini", kind="setup")["warnings"] == []
    assert setup.data("setup", "claude", kind="setup")["warnings"] == []


def test_links_are_followed_and_modes_kept(setup):
    """A settings file that is a link stays one, and its target keeps its mode."""
    real = setup.place / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    link = setup.project / ".claude" / "settings.local.json"
    link.parent.mkdir()
    link.symlink_to(real)
    setup.ok("setup", "claude")
    assert link.is_symlink()
    assert "onrecord hook claude" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    setup.ok("setup", "claude", "--remove")
    assert (link.is_symlink(), real.read_text()) == (True, "{}")
    assert sorted(path.name for path in link.parent.iterdir()) == ["settings.local.json"]


def test_hooks_that_nobody_trusts_yet_are_said(setup):
    """Codex silently skips hooks until the user accepted them: setup, its check and the doctor say so."""
    (setup.place / ".codex").mkdir()
    done = setup.run("setup", "codex", "--user")
    assert "does not trust the hooks" in done.err
    assert "does not trust the hooks" in setup.run("setup", "codex", "--user", "--check").out
    hooks = setup.place / ".codex" / "hooks.json"
    state = f'[hooks.state."{hooks}:PreToolUse:0:0"]\ntrusted_hash = "sha256:00"\n'
    with (setup.place / ".codex" / "config.toml").open("a") as config:
        config.write(state)
    assert setup.run("setup", "codex", "--user", "--check").code == 0


def test_a_check_that_fails_says_so(setup):
    """Missing hooks, and a command that does not run, are reported, with exit code 1."""
    assert setup.run("setup", "claude", "--check").code == 1
    setup.ok("setup", "claude")
    settings = setup.project / ".claude" / "settings.local.json"
    found = json.loads(settings.read_text())
    entry = found["hooks"]["PreToolUse"][0]["hooks"][0]
    entry["command"] = "/nowhere/onrecord hook claude PreToolUse"
    settings.write_text(json.dumps(found))
    data = setup.data("setup", "claude", "--check", kind="setup_check", code=1)
    assert any("cannot be run" in line for line in data["agents"][0]["lines"])
    entry["command"] = "/bin/true onrecord hook claude PreToolUse"
    settings.write_text(json.dumps(found))
    assert "does not refuse" in setup.run("setup", "claude", "--check").out


@pytest.mark.parametrize(
    "words", [["--user", "--project"], ["--check", "--remove"], ["--check", "--dry-run"], ["nobody"]]
)
def test_what_makes_no_sense_is_refused(setup, words):
    """Options that exclude one another, and unknown agents, are refused."""
    before = setup.tree()
    setup.error("setup", "claude", *words, code=2, kind="usage")
    assert setup.tree() == before


def test_installed_files_name_no_directory(setup):
    """What setup writes is the same on every machine: no path of this one, and no environment of Python."""
    setup.ok("setup", *VENDORS)
    for name in VENDORS:
        for file in vendor(name).files(PROJECT_SCOPE, setup.project, setup.environment):
            if file.path.exists():
                text = file.path.read_text()
                assert not [one for one in (sys.prefix, sys.executable, str(setup.place)) if one in text], file.path


def test_a_hook_finds_onrecord_like_a_person(setup):
    """First on the PATH, then by the launcher; if that cannot run it, the start of a conversation says so, and nothing fails."""
    setup.ok("setup", "claude")
    place = Target(PROJECT_SCOPE, setup.project, setup.environment)
    command = next(one for one in installed_commands(vendor("claude"), place) if one.endswith(" SessionStart"))
    launcher = setup.place / ".local" / "share" / "onrecord" / "bin" / "onrecord"
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o700
    programs = setup.place / "bin"
    programs.mkdir()
    (programs / "onrecord").write_text('#!/bin/sh\necho "$@"\n')
    (programs / "onrecord").chmod(0o755)

    def run(word: str, **env: str) -> str:
        words = ["sh", "-c", command.removesuffix("SessionStart") + word]
        done = subprocess.run(words, input="{}", env=setup.environment | env, cwd=setup.project, text=True,
                              capture_output=True, check=False)  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout

    assert run("PreToolUse", PATH=f"{programs}:{setup.environment['PATH']}") == "hook claude PreToolUse\n"
    assert run("PreToolUse") == ""
    assert (setup.data("setup", "claude", "--check", kind="setup_check")["runs"]["program"]) == str(launcher)
    launcher.write_text(launcher.read_text().replace(sys.executable, "/nowhere/python"))
    assert "no longer installed" in json.loads(run("SessionStart"))["systemMessage"]
    assert run("PreToolUse") == ""
    shown = {name: _launched(launcher, "hook", name, event) for name, event in STARTS.items()}
    assert "no longer installed" in json.loads(shown.pop("copilot"))["message"]
    assert all("no longer installed" in json.loads(line)["systemMessage"] for line in shown.values())
    launcher.unlink()
    assert (run("SessionStart"), run("PreToolUse")) == ("", "")


def _launched(launcher: Path, *words: str) -> str:
    return subprocess.run([launcher, *words], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("marker", "run", "install"),
    [
        ("venv/pyvenv.cfg", "", 'pip install "onrecord[mcp]"'),
        ("share/uv/tools/onrecord/uv-receipt.toml", "", 'uv tool install "onrecord[mcp]"'),
        (".cache/uv/archive-v0/abc/pyvenv.cfg", "uvx onrecord", 'uv tool install "onrecord[mcp]"'),
        ("share/pipx/venvs/onrecord/pipx_metadata.json", "", 'pipx install --force "onrecord[mcp]"'),
        (".cache/pipx/abc/pyvenv.cfg", "pipx run onrecord", 'pipx install --force "onrecord[mcp]"'),
    ],
)
def test_hints_install_onrecord_as_it_was_installed(tmp_path, monkeypatch, marker, run, install):
    """With pip, uv or pipx; and a hook runs it again as `uvx` or `pipx run` did."""
    file = tmp_path / marker
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.setattr(sys, "prefix", str(file.parent))
    assert (commands.for_one_run(), commands.installing_with("mcp")) == (run, install)
    assert not run or commands.launch() == run


def test_it_is_switched_on_and_off(setup):
    """--yes records every conversation here from now on, --no-auto only what `onrecord start` starts; neither asks."""
    config = setup.place / ".config" / "onrecord" / "config.toml"
    done = setup.run("setup", "claude", "--no-input")
    assert "--yes" in done.err
    assert not config.exists()
    assert setup.data("setup", "claude", "--yes", kind="setup")["automatic"] is True
    assert f'auto_register_in = ["{setup.project}"]' in config.read_text()
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    before = setup.tree()
    assert setup.data("setup", "claude", kind="setup")["automatic"] is True
    assert setup.tree() == before
    assert "is off in this project" in setup.ok("setup", "claude", "--no-auto")
    assert f'auto_register_not_in = ["{setup.project}"]' in config.read_text()
    setup.ok("setup", "claude", "--user", "--yes")
    assert "auto_register = true" in config.read_text()
    setup.ok("setup", "claude", "--user", "--remove")
    setup.ok("setup", "claude", "--remove")
    assert not config.exists()


def test_a_directory_without_a_repository_keeps_its_choice_when_it_is_moved(setup):
    """Setup gives it a name of its own, so that conversations are recorded, and found, wherever it is."""
    (setup.project / ".git").rmdir()
    assert setup.data("setup", "claude", "--dry-run", "--yes", kind="setup")["automatic"] is True
    assert not (setup.project / ".onrecord").exists()
    assert setup.data("setup", "claude", "--yes", kind="setup")["automatic"] is True
    name = (setup.project / ".onrecord" / "project").read_text().strip()
    setup.project = setup.project.rename(setup.place / "moved and renamed")
    assert setup.data("setup", "--check", "claude", kind="setup_check")["automatic"] is True
    assert setup.data("project", "show", kind="project")["project"] == name


def test_it_asks_once(setup):
    """On a terminal, setup asks; Enter means yes, and the second setup does not ask again."""
    shown = setup.on_terminal("setup", "claude", keys="\r").out
    assert "record every conversation of Claude Code in this project?" in shown
    assert "auto_register_in" in (setup.place / ".config" / "onrecord" / "config.toml").read_text()
    assert "[Y/n]" not in setup.on_terminal("setup", "claude").out
    shutil.rmtree(setup.place / ".config")
    setup.on_terminal("setup", "claude", keys="n\r")
    assert "auto_register_not_in" in (setup.place / ".config" / "onrecord" / "config.toml").read_text()


def packaged(setup, name):
    """The vendor's home as its own command leaves it after it installed our package from a folder."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
    try:
        from packages import build
    finally:
        sys.path.pop(0)
    source, home = setup.place / "packages", vendor(name).home(setup.environment)
    build(source)
    on = {"enabledPlugins": {"onrecord@onrecord": True}}
    copied = {
        "claude": "plugins/cache/onrecord/onrecord/0.1.0", "codex": "plugins/cache/onrecord/onrecord/0.1.0",
        "gemini": "extensions/onrecord", "qwen": "extensions/onrecord",
    }  # fmt: skip
    home.mkdir(exist_ok=True)
    if name in copied:
        shutil.copytree(source / name / "onrecord", home / copied[name])
    if name == "claude":
        kept = {"version": 2, "plugins": {"onrecord@onrecord": [{"installPath": str(home / copied[name])}]}}
        (home / "plugins" / "installed_plugins.json").write_text(json.dumps(kept))
        settings = home / "settings.json"
        settings.write_text(json.dumps((json.loads(settings.read_text()) if settings.exists() else {}) | on))
    if name == "copilot":
        market = {"source": {"source": "directory", "path": str(source / "copilot")}}
        (home / "settings.json").write_text(json.dumps({**on, "extraKnownMarketplaces": {"onrecord": market}}))
    if name == "codex":
        (home / "config.toml").write_text('[plugins."onrecord@onrecord"]\nenabled = true\n')


@pytest.mark.parametrize("name", ["claude", "codex", "copilot", "gemini", "qwen"])
def test_a_package_is_found(setup, name):
    """Where the vendor's own command installed our package, setup finds it, and what it brings."""
    place = Target(USER_SCOPE, setup.project, setup.environment)
    assert installing.brought(vendor(name), place) == ()
    packaged(setup, name)
    hooks = () if name in ("codex", "copilot") else ("hooks", "plugin")
    assert installing.brought(vendor(name), place) == (*hooks, "mcp")


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_package_is_not_doubled(setup, name):
    """With our package installed, setup adds only what it does not bring, and says so; its check runs the package's hooks and server."""
    packaged(setup, name)
    done = setup.run("setup", name, "--user")
    assert f"{name}: the onrecord package in" in done.err
    assert " mcp " not in done.out.replace("\t", " ")
    assert (" hooks " in done.out.replace("\t", " ")) is (name == "codex"), "its package has none"
    said = setup.run("setup", name, "--user", "--check").out
    assert "the MCP server works" in said
    assert "the hook works" in said
    assert "the onrecord package in" in said
    assert "leaves one of the two" not in said


def test_hooks_in_both_scopes_are_said(setup):
    """Where the project's files and the user's have our hooks, setup says so, with the command that leaves one of the two."""
    said = "claude: its hooks are installed for every project and for this one"
    assert said not in setup.run("setup", "claude", "--user").err
    done = setup.run("setup", "claude", "--project")
    assert said in done.err
    assert "`onrecord setup claude --project --remove` leaves one of the two" in done.err
    setup.ok("setup", "claude", "--project", "--remove")
    assert said not in setup.run("setup", "claude", "--user").err


def test_a_package_beside_setup_is_said(setup):
    """Installed after setup, a package runs every hook twice: the check and the doctor say so, with the command that ends it."""
    setup.ok("setup", "claude", "--user")
    packaged(setup, "claude")
    said = setup.run("setup", "claude", "--user", "--check").out
    assert "`claude plugin uninstall onrecord` or `onrecord setup claude --user --remove` leaves one of the two" in said
    assert "it is set up twice; `claude plugin uninstall onrecord`" in setup.run("doctor").out
