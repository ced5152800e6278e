"""How each real program runs in the laboratory: without an account, without a dialog, against our model server.

These are the settings that a user makes once, plus the command lines a test needs to run the program without
onrecord. The tests through onrecord use only the settings.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.e2e.install import Installed

KEY = "dummy-key-of-the-laboratory"
MODEL = "mock-model"
NO_MODELS = Path(__file__).with_name("no_models.json")


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


class Cli(Protocol):
    """One program."""

    name: str
    chooses_id: bool
    """Its start accepts our id."""

    def settings(self, home: Path, projects: Sequence[Path], url: str, installed: Installed) -> None:
        """Write the files that it expects in its home."""

    def environment(self, url: str) -> Mapping[str, str]:
        """The variables that it expects in its environment."""

    def start(self, vendor_id: str, prompt: str) -> list[str]:
        """Its command line for a conversation without a terminal."""

    def resume(self, vendor_id: str, prompt: str) -> list[str]:
        """Its command line to resume it."""

    def streamed_id(self, output: str) -> str:
        """The conversation's id, in the output of such a run."""

    def files(self, home: Path, vendor_id: str) -> list[Path]:
        """The path of its conversation."""


def in_stream(output: str, *names: str) -> str:
    """The first value under one of the names in a stream of JSON lines."""
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        record = json.loads(line)
        for name in names:
            if isinstance(record.get(name), str):
                return str(record[name])
    raise AssertionError(f"no {' or '.join(names)} in {output[:2000]!r}")


class Claude:
    name = "claude"
    chooses_id = True

    def settings(self, home: Path, projects: Sequence[Path], url: str, installed: Installed) -> None:
        trusted = {str(project): {"hasTrustDialogAccepted": True} for project in projects}
        write_json(home / ".claude.json", {
            "hasCompletedOnboarding": True, "theme": "dark", "projects": trusted,
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        })  # fmt: skip
        write_json(home / ".claude" / "settings.json", {
            "permissions": {"allow": ["Bash", "Edit", "Write"]},
        })  # fmt: skip

    def environment(self, url: str) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
        }  # fmt: skip

    options = ("--output-format", "stream-json", "--verbose")

    def start(self, vendor_id: str, prompt: str) -> list[str]:
        return ["claude", "-p", "--session-id", vendor_id, *self.options, prompt]

    def resume(self, vendor_id: str, prompt: str) -> list[str]:
        return ["claude", "-p", "--resume", vendor_id, *self.options, prompt]

    def streamed_id(self, output: str) -> str:
        return in_stream(output, "session_id")

    def files(self, home: Path, vendor_id: str) -> list[Path]:
        return list(home.glob(f".claude/projects/*/{vendor_id}.jsonl"))


class Codex:
    name = "codex"
    chooses_id = False

    def settings(self, home: Path, projects: Sequence[Path], url: str, installed: Installed) -> None:
        trusted = "".join(f'[projects."{project}"]\ntrust_level = "trusted"\n' for project in projects)
        path = home / ".codex" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            # A model it knows: for others it does not offer its patch tool.
            'model = "gpt-5.5"\nmodel_provider = "lab"\ncheck_for_update_on_startup = false\n'
            'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
            '[model_providers.lab]\nname = "lab"\n'
            f'base_url = "{url}/v1"\nenv_key = "LAB_KEY"\nwire_api = "responses"\nsupports_websockets = false\n'
            "request_max_retries = 1\nstream_max_retries = 1\n"
            # Both would query servers outside and, without a network, delay every run by five seconds.
            f"[features]\nplugins = false\n[analytics]\nenabled = false\n{trusted}"
            # What it would ask at the first start in a terminal: whether to read aloud, and whether to try a newer model.
            '[tui]\nscreen_reader_detection_done = true\n[notice.model_migrations]\n"gpt-5.5" = "gpt-6-sol"\n',
            encoding="utf-8",
        )

    def environment(self, url: str) -> Mapping[str, str]:
        return {"LAB_KEY": KEY}

    def start(self, vendor_id: str, prompt: str) -> list[str]:
        return ["codex", "exec", "--json", prompt]

    def resume(self, vendor_id: str, prompt: str) -> list[str]:
        return ["codex", "exec", "resume", "--json", vendor_id, prompt]

    def streamed_id(self, output: str) -> str:
        return in_stream(output, "thread_id")

    def files(self, home: Path, vendor_id: str) -> list[Path]:
        return list(home.glob(f".codex/sessions/*/*/*/rollout-*-{vendor_id}.jsonl"))


class Gemini:
    name = "gemini"
    chooses_id = True

    def settings(self, home: Path, projects: Sequence[Path], url: str, installed: Installed) -> None:
        write_json(home / ".gemini" / "settings.json", {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "maxAttempts": 1},
            "model": {"name": "gemini-2.5-pro"},  # the default asks another model first which one to use
        })  # fmt: skip
        policy = home / ".gemini" / "policies" / "lab.toml"
        policy.parent.mkdir()
        policy.write_text(
            '[[rule]]\ntoolName = ["run_shell_command", "write_file"]\ndecision = "allow"\npriority = 100\n'
        )

    def environment(self, url: str) -> Mapping[str, str]:
        return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_NO_RELAUNCH": "true"}

    def start(self, vendor_id: str, prompt: str) -> list[str]:
        return ["gemini", "--session-id", vendor_id, "-o", "stream-json", "-p", prompt]

    def resume(self, vendor_id: str, prompt: str) -> list[str]:
        return ["gemini", "-r", vendor_id, "-o", "stream-json", "-p", prompt]

    def streamed_id(self, output: str) -> str:
        return in_stream(output, "session_id")

    def files(self, home: Path, vendor_id: str) -> list[Path]:
        return list(home.glob(f".gemini/tmp/*/chats/session-*-{vendor_id[:8]}.jsonl"))


class Copilot:
    name = "copilot"
    chooses_id = True

    def settings(self, home: Path, projects: Sequence[Path], url: str, installed: Installed) -> None:
        write_json(home / ".copilot" / "config.json", {"trusted_folders": [str(project) for project in projects]})

    def environment(self, url: str) -> Mapping[str, str]:
        return {
            "COPILOT_OFFLINE": "true", "COPILOT_PROVIDER_BASE_URL": f"{url}/v1", "COPILOT_PROVIDER_API_KEY": KEY,
            "COPILOT_MODEL": MODEL, "COPILOT_AUTO_UPDATE": "false", "COPILOT_ALLOW_ALL": "true",
        }  # fmt: skip

    options = ("--output-format", "json")

    def start(self, vendor_id: str, prompt: str) -> list[str]:
        return ["copilot", f"--session-id={vendor_id}", *self.options, "-p", prompt]

    def resume(self, vendor_id: str, prompt: str) -> list[str]:
        return ["copilot", f"--resume={vendor_id}", *self.options, "-p", prompt]

    def streamed_id(self, output: str) -> str:
        return in_stream(output, "sessionId")

    def files(self, home: Path, vendor_id: str) -> list[Path]:
        return list(home.glob(f".copilot/session-state/{vendor_id}/events.jsonl"))


class Opencode:
    name = "opencode"
    chooses_id = False

    def settings(self, home: Path, projects: Sequence[Path], url: str, installed: Installed) -> None:
        folder = home / ".config" / "opencode"
        provider = {
            "npm": "@ai-sdk/openai-compatible", "name": "lab", "models": {MODEL: {"name": MODEL}},
            "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        }  # fmt: skip
        write_json(folder / "opencode.json", {
            "$schema": "https://opencode.ai/config.json", "provider": {"lab": provider}, "model": f"lab/{MODEL}",
            "autoupdate": False,
        })  # fmt: skip
        # With a plugin it fetches its package of types at start and, offline, waits until npm gives up. It accepts a lock.
        needs = {"dependencies": {"@opencode-ai/plugin": installed.version}}
        locked = {"": needs, "node_modules/@opencode-ai/plugin": {"version": installed.version}}
        write_json(folder / "package.json", needs)
        write_json(folder / "package-lock.json", {"lockfileVersion": 3, "requires": True, "packages": locked})
        (folder / "node_modules").mkdir()

    def environment(self, url: str) -> Mapping[str, str]:
        # Most of its start is its list of all models of all providers, and what finds files and logs in elsewhere.
        return {
            "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_MODELS_PATH": str(NO_MODELS), "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_FFF": "1", "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
        }  # fmt: skip

    def start(self, vendor_id: str, prompt: str) -> list[str]:
        return ["opencode", "run", "--format", "json", prompt]

    def resume(self, vendor_id: str, prompt: str) -> list[str]:
        return ["opencode", "run", "--format", "json", "-s", vendor_id, prompt]

    def streamed_id(self, output: str) -> str:
        return in_stream(output, "sessionID")

    def files(self, home: Path, vendor_id: str) -> list[Path]:
        return list(home.glob(".local/share/opencode/opencode.db"))


class Qwen:
    name = "qwen"
    chooses_id = True

    def settings(self, home: Path, projects: Sequence[Path], url: str, installed: Installed) -> None:
        write_json(home / ".qwen" / "settings.json", {
            "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False}, "general": {"disableAutoUpdate": True},
            "tools": {"approvalMode": "yolo"}, "model": {"generationConfig": {"maxRetries": 0}},
            # A second agent that reads every conversation, with tools, and would follow its orders a second time.
            "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        })  # fmt: skip

    def environment(self, url: str) -> Mapping[str, str]:
        relaunch = {"QWEN_CODE_NO_RELAUNCH": "true"}  # it would start itself a second time, with more memory
        return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL, **relaunch}

    def start(self, vendor_id: str, prompt: str) -> list[str]:
        return ["qwen", "--session-id", vendor_id, "-o", "stream-json", prompt]

    def resume(self, vendor_id: str, prompt: str) -> list[str]:
        return ["qwen", "-r", vendor_id, "-o", "stream-json", prompt]

    def streamed_id(self, output: str) -> str:
        return in_stream(output, "session_id")

    def files(self, home: Path, vendor_id: str) -> list[Path]:
        return list(home.glob(f".qwen/projects/*/chats/{vendor_id}.jsonl"))


CLIS: dict[str, Cli] = {cli.name: cli for cli in (Claude(), Codex(), Gemini(), Copilot(), Opencode(), Qwen())}
