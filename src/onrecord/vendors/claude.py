"""Claude Code: ids of ours at the start, resume by id from anywhere, one JSON-line file per conversation.

It lets two processes write one conversation, so we look for another process first. If a name is unknown, its picker
waits for a person, so we never resume by name.
"""

from __future__ import annotations

from onrecord.vendors.base import HOOK_SECONDS, dashed, has, home_of, named, settings_at, text, user_home, valued
from onrecord.vendors.by_project import ByProject
from onrecord.vendors.claude_shaped import Dialect, hook_entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from onrecord.log.items import Item
    from onrecord.vendors.endings import End
    from onrecord.vendors.port import Capabilities, Entry, HookFile, Launch, LaunchOptions, Location, Vendor

EVENTS = {
    "SessionStart": None, "UserPromptSubmit": None, "PreToolUse": "*", "PostToolUse": "*", "PostToolUseFailure": "*",
    "PreCompact": None, "Stop": None, "SessionEnd": None, "Notification": None,
}  # fmt: skip
CONTEXT_LIMIT = 10_000
"""Claude Code puts longer hook output into a file and shows only a preview."""
CONTROL = frozenset({
    "custom-title", "agent-name", "last-prompt", "mode", "permission-mode", "queue-operation", "api-request",
    "api-request-shape", "api-request-blob", "cost-state", "file-history-snapshot", "atis-latch", "tools-used",
    "ai-title", "summary", "progress", "pr-link", "tag", "content-replacement", "worktree-state",
})  # fmt: skip
CLEANUP_DAYS = 30
"""The default of `cleanupPeriodDays`."""
LONGEST_NAME = 200
"""Claude Code cuts and hashes longer directory names."""


class Claude(ByProject):
    """Claude Code."""

    name = "claude"
    title = "Claude Code"
    dialect = Dialect("claude", id_env="CLAUDE_CODE_SESSION_ID", pid_env="CLAUDE_PID")
    programs: Sequence[str] = ("claude",)
    home_variable = "CLAUDE_CONFIG_DIR"
    own_flags: Sequence[str] = ("--session-id", "--resume", "-r", "--continue", "-c", "--fork-session", "--from-pr")
    not_said: Sequence[str] = ("<", "Caveat: ", "[Request interrupted")
    fork_flags: Sequence[str] = ("--fork-session",)
    resume_flags: Sequence[str] = ("--resume", "-r")
    interrupt_keys: Sequence[str] = ("Escape",)
    exit_keys: Sequence[str] = ("C-c", "C-c")
    prompt_patterns: Sequence[str] = (
        r"Do you want to (proceed|make this edit|create|allow)",
        r"\u276f 1\. Yes",
        r"Yes, I trust this folder",
        r"Make auto mode your default",
    )

    @property
    def capabilities(self) -> Capabilities:
        """Everything except a guard against a second writer."""
        from onrecord.vendors.port import Capabilities

        return Capabilities(
            chooses_id=True, obtains_id=False, names=True, resumes_elsewhere=True, refuses_second_writer=False,
            headless=True, forks=True, context_at_start="launch", context_bytes=CONTEXT_LIMIT, blocks_tools=True,
            verified=True,
        )  # fmt: skip

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home."""
        return home_of(env, "CLAUDE_CONFIG_DIR", ".claude")

    def start(self, options: LaunchOptions) -> Launch:
        """Start with our id."""
        chosen = ["--session-id", self.checked_id(options.vendor_id)] if options.vendor_id is not None else []
        if name := named(options.name):
            chosen += ["-n", name]
        return self._launch(options, chosen)

    def resume(self, options: LaunchOptions) -> Launch:
        """Resume by id; a missing id ends with status 1, even on a terminal."""
        return self._launch(options, ["--resume", self.checked_id(options.vendor_id)])

    def _launch(self, options: LaunchOptions, chosen: list[str]) -> Launch:
        from onrecord.vendors.port import Launch

        extra = self.checked_extra(options)
        argv = [self.program(options)]
        if not options.headless:
            # The user's flags may take any number of values; `--` keeps the prompt from becoming one.
            prompt = ["--", options.prompt] if options.prompt else []
            argv += [*chosen, *extra, *prompt]
        else:
            argv += ["-p", *chosen]
            if not has(extra, "--output-format"):
                argv += ["--output-format", "stream-json", "--verbose"]
            argv += extra
        return Launch(
            argv, {}, options.cwd, stdin=options.prompt if options.headless else None,
            warnings=self.warnings(argv, options.env),
        )  # fmt: skip

    def warnings(self, command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """Flags that wait for a person or start another conversation than intended."""
        said = []
        headless = has(command, "-p", "--print")
        resumed = valued(command, "--resume", "-r")
        if resumed is not None and not self.is_id(resumed):
            said.append("claude --resume without an id opens a picker (or picks one by name); resume by id")
        if has(command, "-c", "--continue"):
            said.append("claude --continue starts a new conversation if there is none; resume by id")
        free = has(command, "--dangerously-skip-permissions", "--permission-mode", "--allowedTools", "--allowed-tools")
        if headless and not free:
            said.append("claude -p refuses tools that need a permission: give --allowedTools or --permission-mode")
        if has(command, "--dangerously-skip-permissions") and not headless:
            said.append("claude --dangerously-skip-permissions asks once for consent before it starts")
        return said

    # Transcripts

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """Conversation records have items; control records have none."""
        from onrecord.vendors.port import Entry

        kind = text(record.get("type"))
        items: list[Item] = []
        known = True
        if kind in ("user", "assistant"):
            items = _message(record)
        elif kind == "system":
            items = [{"role": "system", "content": content}] if (content := text(record.get("content"))) else []
        elif kind == "attachment":
            items = _attached(record)
        else:
            known = kind in CONTROL
        return Entry(
            raw, kind, text(record.get("uuid")), text(record.get("parentUuid")), text(record.get("timestamp")), items,
            known,
        )  # fmt: skip

    def put_back(self, location: Location, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Location:
        """Into the project directory of `cwd`; records do not change: the program itself records its directory."""
        import os

        from onrecord.vendors.jsonl import write_new

        self.checked_id(location.vendor_id)
        self.absent(location, env)
        home = self.home(env)
        folder = dashed(os.path.realpath(cwd))[:LONGEST_NAME]
        path = home / "projects" / folder / f"{location.vendor_id}.jsonl"
        write_new(path, entries)
        return self._location(path, home)

    def expires_at(self, location: Location, env: Mapping[str, str]) -> float | None:
        """At the first start of the program some days after the last change."""
        from pathlib import Path

        days: object = CLEANUP_DAYS
        project = [Path(location.cwd) / ".claude" / name for name in ("settings.json", "settings.local.json")]
        for path in [self.home(env) / "settings.json", *(project if location.cwd else ())]:
            days = settings_at(path).get("cleanupPeriodDays", days)
        try:
            return Path(location.path).stat().st_mtime + float(days) * 86_400 if isinstance(days, int | float) else None
        except OSError:
            return None

    def ending(self, record: dict[str, Any]) -> End:
        """The result record, and the records of an interrupted request."""
        from onrecord.vendors.endings import End, text_in

        if record.get("type") == "result":
            failed = bool(record.get("is_error")) or record.get("subtype") != "success"
            why = " ".join(filter(None, (text_in(record.get("result")), text_in(record.get("errors")),
                                         text(record.get("subtype")))))  # fmt: skip
            return End(not failed, why if failed else "")
        if record.get("type") == "rate_limit_event":
            about = record.get("rate_limit_info")
            if isinstance(about, dict) and about.get("status") == "rejected":
                return End(None, f"usage limit reached|{about.get('resetsAt', '')}")
        return End(None, text_in(record.get("error")))

    # Hooks

    def files(self, scope: str, root: Path, env: Mapping[str, str]) -> list[HookFile]:
        """Project hooks name a program of this machine, so they go into the settings file that is not shared."""
        from onrecord.vendors.port import USER_SCOPE, HookFile

        if scope == USER_SCOPE:
            home = self.home(env)
            mcp = home / ".claude.json" if env.get("CLAUDE_CONFIG_DIR") else user_home(env) / ".claude.json"
            return [HookFile(home / "settings.json", "hooks"), HookFile(home / "CLAUDE.md", "instructions"),
                    HookFile(mcp, "mcp")]  # fmt: skip
        return [HookFile(root / ".claude" / "settings.local.json", "hooks"),
                HookFile(root / "CLAUDE.md", "instructions"), HookFile(root / ".mcp.json", "mcp")]  # fmt: skip

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """The hooks to merge into its settings."""
        return {"hooks": hook_entries(command, self.name, EVENTS, HOOK_SECONDS)}


def _message(record: dict[str, Any]) -> list[Item]:
    from onrecord.log.items import to_items

    message = record.get("message")
    if not isinstance(message, dict):
        return []
    made = to_items({"role": message.get("role"), "content": message.get("content")}, "anthropic")
    for item in made:
        item.pop("verbatim", None)  # the raw record is kept already
    return made


def _attached(record: dict[str, Any]) -> list[Item]:
    """Text that the model got beside a prompt."""
    rendered = record.get("rendered")
    shown = (
        [text(one.get("content")) for one in rendered if isinstance(one, dict)] if isinstance(rendered, list) else []
    )
    return [{"role": "system", "content": one} for one in shown if one]


VENDOR: Vendor = Claude()
