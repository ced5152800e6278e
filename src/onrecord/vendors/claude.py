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

    from onrecord.log.item_values import Item
    from onrecord.vendors.endings import End
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import (
        Capabilities,
        Entry,
        HookFile,
        Launch,
        LaunchOptions,
        Location,
        Said,
        Turn,
        Usage,
        Vendor,
    )

EVENTS = {
    "SessionStart": None, "UserPromptSubmit": None, "PreToolUse": "*", "PostToolUse": "*", "PostToolUseFailure": "*",
    "PreCompact": None, "Stop": None, "StopFailure": None, "SessionEnd": None, "Notification": None,
}  # fmt: skip
CONTEXT_LIMIT = 10_000
"""Claude Code puts longer hook output into a file and shows only a preview."""
CONTROL = frozenset({
    "custom-title", "agent-name", "last-prompt", "mode", "permission-mode", "queue-operation", "api-request",
    "api-request-shape", "api-request-blob", "cost-state", "file-history-snapshot", "atis-latch", "tools-used",
    "ai-title", "summary", "progress", "pr-link", "tag", "content-replacement", "worktree-state",
})  # fmt: skip
INTERRUPTED = "[Request interrupted by user"
"""What it writes in the user's place when the user interrupts a turn."""
SUBAGENT = "subagent"
CLEANUP_DAYS = 30
"""The default of `cleanupPeriodDays`."""
NO_PROMPT = ("<command-", "<local-command-", "<bash-", "Caveat: ")
"""The beginnings of user records that are commands of the program itself, and what they printed."""
LONGEST_NAME = 200
"""Claude Code cuts and hashes longer directory names."""


class Claude(ByProject):
    """Claude Code."""

    name = "claude"
    title = "Claude Code"
    dialect = Dialect("claude", id_env="CLAUDE_CODE_SESSION_ID", pid_env="CLAUDE_PID")
    programs: Sequence[str] = ("claude",)
    home_variable = "CLAUDE_CONFIG_DIR"
    home_name = ".claude"
    context_bytes = CONTEXT_LIMIT
    own_flags: Sequence[str] = ("--session-id", "--resume", "-r", "--continue", "-c", "--fork-session", "--from-pr")
    not_said: Sequence[str] = ("<", "Caveat: ", "[Request interrupted")
    fork_flags: Sequence[str] = ("--fork-session",)
    resume_flags: Sequence[str] = ("--resume", "-r")
    interrupt_keys: Sequence[str] = ("Escape",)
    exit_keys: Sequence[str] = ("C-c", "C-c")
    shows_turns = True
    prompt_patterns: Sequence[str] = (
        r"Do you want to (proceed|make this edit|create|allow|use this API key)",
        r"\u276f 1\. Yes",
        r"WARNING: Claude Code running in Bypass Permissions mode",
        r"Quick safety check: Is this a project you",
        r"Yes, I trust this folder",
        r"Yes, I accept$",
        r"Make auto mode your default",
    )

    @property
    def capabilities(self) -> Capabilities:
        """Everything except a guard against a second writer."""
        from onrecord.vendors.port import Capabilities

        return Capabilities(
            chooses_id=True, obtains_id=False, names=True, resumes_elsewhere=True, refuses_second_writer=False,
            headless=True, forks=True, context_at_start="launch", context_bytes=self.context_bytes, blocks_tools=True,
            verified=True,
        )  # fmt: skip

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home."""
        return home_of(env, self.home_variable, self.home_name)

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
            streams=not has(extra, "--output-format"),
            warnings=self.warnings(argv, options.env, options.cwd),
        )  # fmt: skip

    def warnings(self, command: Sequence[str], env: Mapping[str, str], cwd: str = "") -> list[str]:
        """Flags that wait for a person or start another conversation than intended."""
        said = []
        headless = has(command, "-p", "--print")
        resumed = valued(command, "--resume", "-r")
        if resumed is not None and not self.is_id(resumed):
            said.append("claude --resume without an id opens a picker (or picks one by name); resume by id")
        if has(command, "-c", "--continue"):
            said.append("claude --continue starts a new conversation if there is none; resume by id")
        free = has(
            command, "--dangerously-skip-permissions", "--permission-mode", "--allowedTools", "--allowed-tools",
            "--settings", "--permission-prompt-tool",
        )  # fmt: skip
        if headless and not free and not self._permits(env, cwd):
            said.append("claude -p refuses tools that need a permission: give --allowedTools or --permission-mode")
        if has(command, "--dangerously-skip-permissions") and not headless:
            said.append("claude --dangerously-skip-permissions asks once for consent before it starts")
        return said

    def _permits(self, env: Mapping[str, str], cwd: str) -> bool:
        """Whether its settings allow tools without asking: rules of any kind, or another mode than the default."""
        from pathlib import Path

        from onrecord.vendors.base import set_in

        own = Path(cwd or ".") / ".claude"
        files = [own / "settings.local.json", own / "settings.json", self.home(env) / "settings.json"]
        mode = set_in(files, "permissions", "defaultMode")
        return any(set_in([path], "permissions", "allow") for path in files) or mode not in (None, "default", "plan")

    # Transcripts

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """Conversation records have items; control records have none."""
        from onrecord.vendors.transcripts import Entry

        kind = text(record.get("type"))
        items: list[Item] = []
        known = True
        if kind in ("user", "assistant"):
            items = _message(record)
            known = bool(record.get("sessionId")) and isinstance(record.get("message"), dict)
            known = known and "content" in record["message"]
        elif kind == "system":
            items = [{"role": "system", "content": content}] if (content := text(record.get("content"))) else []
            known = bool(record.get("sessionId")) and "systemPayload" not in record
        elif kind == "attachment":
            items = _attached(record)
        else:
            known = kind in CONTROL
        return Entry(
            raw, kind, text(record.get("uuid")), text(record.get("parentUuid")), text(record.get("timestamp")), items,
            known, _used(record) if kind == "assistant" else _summed(record) if kind == "cost-state" else (),
        )  # fmt: skip

    def said(self, entry: Entry, record: dict[str, Any]) -> Sequence[Said]:
        """Messages, and prompts that waited in its queue; a subagent in the same file has a lane of its own."""
        from onrecord.log.items import text_of
        from onrecord.log.readings import ABORTS, MAY_BEGIN
        from onrecord.vendors.saying import said, summary
        from onrecord.vendors.transcripts import Said

        items = list(entry.items)
        about: dict[str, Any] = {"id": entry.id, "parent": entry.parent}
        if entry.kind == "attachment":
            waiting = record.get("attachment")
            told = text(waiting.get("prompt")) if isinstance(waiting, dict) else ""
            return [Said([{"role": "user", "content": told}], **about)] if told else ()
        if entry.kind not in ("user", "assistant"):
            return ()
        if record.get("isSidechain"):
            about["lane"] = text(record.get("agentId")) or SUBAGENT
        if record.get("isCompactSummary"):
            return summary(text_of(items[0]) if items else "", **about)
        words = text_of(items[-1]) if items and entry.kind == "user" else ""
        if words.startswith(INTERRUPTED):
            return [Said(items, turn=ABORTS, **about)]
        if words.startswith("<local-command-"):
            return ()  # what the program said about a command that it ran itself
        if words.startswith("<command-"):
            return [Said([{"role": "user", "content": _command(words)}], turn=MAY_BEGIN, **about)]
        return said(items, record, begins=not record.get("isMeta"), **about)

    def beside(self, location: Location) -> str | None:
        """A folder named after the conversation, next to its file."""
        folder = location.path.rpartition(".")[0]
        return folder if folder.rpartition("/")[2] == location.vendor_id else None

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
            how = text(record.get("subtype"))
            failed = bool(record.get("is_error")) or how != "success"
            # A failed request ends as a success too: then only the text says why.
            said = (text_in(record.get("result")), text_in(record.get("errors")), how if how != "success" else "")
            why = " ".join(filter(None, said))
            return End(not failed, why if failed else "")
        if record.get("type") == "rate_limit_event":
            about = record.get("rate_limit_info")
            if isinstance(about, dict) and about.get("status") == "rejected":
                return End(None, f"usage limit reached|{about.get('resetsAt', '')}")
        return End(None, text_in(record.get("error")))

    def turn(self, record: dict[str, Any]) -> Turn | None:
        """An error ends a turn with an assistant record of the program itself, and the terminal stays open."""
        from onrecord.vendors.port import ABORTED, FAILED, IDLE, WORKING, Turn

        message = record.get("message")
        kind = record.get("type")
        if kind not in ("user", "assistant") or record.get("isSidechain") or not isinstance(message, dict):
            return None
        said = _said(message)
        if kind == "user":
            if said.startswith(INTERRUPTED):
                return Turn(ABORTED)
            if record.get("isCompactSummary") or said.startswith(NO_PROMPT):
                return None
            return Turn(WORKING, prompt="" if record.get("isMeta") else said)
        if record.get("isApiErrorMessage"):
            return Turn(FAILED, _failure(said, text(record.get("error"))))
        if message.get("model") == "<synthetic>":
            return None  # its own words, for instance after a tool that a crash interrupted
        goes_on = message.get("stop_reason") in ("tool_use", "pause_turn") or not said or _calls(message)
        return Turn(WORKING if goes_on else IDLE, answered=True)

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

    def parse_hook(self, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
        """Its environment says whether a person attends the session."""
        call = super().parse_hook(payload, env)
        call.headless = env.get("CLAUDE_CODE_SESSION_ATTENDED") == "0"
        return call

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """The hooks to merge into its settings."""
        return {"hooks": hook_entries(command, self.name, EVENTS, timeout=HOOK_SECONDS)}


def _said(message: dict[str, Any]) -> str:
    """The text of a message, without tool calls and results."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(text(part.get("text")) for part in content if isinstance(part, dict) and part.get("text"))
    return text(content)


def _calls(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(isinstance(one, dict) and one.get("type") == "tool_use" for one in content)


def _failure(said: str, kind: str) -> str:
    """The error's text; its kind too, if the text alone does not say what it is."""
    from onrecord.vendors.endings import cause_of

    return said if cause_of(said) or not kind else f"{said} ({kind.replace('_', ' ')})"


def _message(record: dict[str, Any]) -> list[Item]:
    from onrecord.log.items import to_items

    message = record.get("message")
    if not isinstance(message, dict):
        return []
    made = to_items({"role": message.get("role"), "content": message.get("content")}, "anthropic")
    for item in made:
        item.pop("verbatim", None)  # the raw record is kept already
    return made


def _used(record: dict[str, Any]) -> list[Usage]:
    """What a message used. Each block of a message is a record with the same id, and the last one has all the output.

    Its input is counted apart from what a cache was read or written for.
    """
    from onrecord.vendors.counts import count, used
    from onrecord.vendors.transcripts import Usage

    message = record.get("message")
    if not isinstance(message, dict) or not isinstance(about := message.get("usage"), dict):
        return []
    read, written = count(about, "cache_read_input_tokens"), count(about, "cache_creation_input_tokens")
    return used(
        Usage(
            text(message.get("id")), text(message.get("model")), count(about, "input_tokens") + read + written, read,
            written, count(about, "output_tokens"), count(about.get("output_tokens_details"), "thinking_tokens"),
        )
    )  # fmt: skip


def _summed(record: dict[str, Any]) -> list[Usage]:
    """What the calls so far cost. A process that was killed did not write it, so its calls are missing."""
    from onrecord.vendors.counts import count, dollars
    from onrecord.vendors.transcripts import Usage

    models = record.get("modelUsage")
    found = []
    for model, about in models.items() if isinstance(models, dict) else ():
        names = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        given, read, written = (count(about, name) for name in names)
        cost = dollars(about.get("costUSD")) if isinstance(about, dict) else None
        used = Usage("", model, given + read + written, read, written, count(about, "outputTokens"), cost=cost)
        found.append(used._replace(total=True))
    return found


def _command(words: str) -> str:
    """A command as its user typed it."""
    import re

    told = dict(re.findall(r"(?s)<command-(name|args)>(.*?)</command-\1>", words))
    return f"{told.get('name', '').strip()} {told.get('args', '').strip()}".strip() or words


def _attached(record: dict[str, Any]) -> list[Item]:
    """Text that the model got beside a prompt."""
    rendered = record.get("rendered")
    shown = (
        [text(one.get("content")) for one in rendered if isinstance(one, dict)] if isinstance(rendered, list) else []
    )
    return [{"role": "system", "content": one} for one in shown if one]


VENDOR: Vendor = Claude()
