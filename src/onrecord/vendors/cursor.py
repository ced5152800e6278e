"""Cursor's command line: built from its documentation and from reports of others; not tested with the real program.

`create-chat` gives a chat's id. Cursor resumes a chat from a database in its own format, so a mirrored transcript can
be read but not restored.
"""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.vendors.base import has, text, user_home, valued
from onrecord.vendors.claude_shaped import NO_REASON, Dialect, Shaped, mapping, word
from onrecord.vendors.hooks import (
    AFTER_TOOL,
    BEFORE_TOOL,
    COMPACT,
    END,
    PROMPT,
    START,
    STOP,
    Reply,
)  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from onrecord.log.item_values import Item
    from onrecord.vendors.endings import End
    from onrecord.vendors.hooks import HookAnswer, HookCall
    from onrecord.vendors.port import Capabilities, Entry, HookFile, Launch, LaunchOptions, Location, Vendor

MOMENTS_OF = {
    "sessionStart": START, "beforeSubmitPrompt": PROMPT, "preToolUse": BEFORE_TOOL, "postToolUse": AFTER_TOOL,
    "postToolUseFailure": AFTER_TOOL, "beforeShellExecution": BEFORE_TOOL, "afterShellExecution": AFTER_TOOL,
    "afterFileEdit": AFTER_TOOL, "preCompact": COMPACT, "stop": STOP, "sessionEnd": END,
}  # fmt: skip
EVENTS = (
    "sessionStart", "beforeSubmitPrompt", "preToolUse", "postToolUse", "beforeShellExecution", "afterShellExecution",
    "afterFileEdit", "preCompact", "stop", "sessionEnd",
)  # fmt: skip
ID_SECONDS = 60.0
"""The timeout of `create-chat`."""


class Cursor(Shaped):
    """Cursor CLI."""

    name = "cursor"
    title = "Cursor CLI"
    programs: Sequence[str] = ("cursor-agent", "agent")
    dialect = Dialect("cursor", moments=MOMENTS_OF)
    own_flags: Sequence[str] = ("--resume", "--continue", "resume", "create-chat")
    interrupt_keys: Sequence[str] = ("C-c",)
    exit_keys: Sequence[str] = ("C-c", "C-c", "C-d")
    prompt_patterns: Sequence[str] = (r"Run this command\?", r"Not in allowlist", r"Do you trust", r"Allow this")

    @property
    def capabilities(self) -> Capabilities:
        """As documented."""
        from onrecord.vendors.port import Capabilities

        return Capabilities(
            chooses_id=False, obtains_id=True, names=False, resumes_elsewhere=False, refuses_second_writer=False,
            headless=True, forks=False, context_at_start="launch", context_bytes=self.context_bytes, blocks_tools=True,
            verified=False,
        )  # fmt: skip

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home."""
        return user_home(env) / ".cursor"

    def start(self, options: LaunchOptions) -> Launch:
        """Start, in an obtained chat if there is one."""
        chosen = ["--resume", self.checked_id(options.vendor_id)] if options.vendor_id is not None else []
        return self._launch(options, chosen)

    def resume(self, options: LaunchOptions) -> Launch:
        """Resume by id."""
        return self._launch(options, ["--resume", self.checked_id(options.vendor_id)])

    def _launch(self, options: LaunchOptions, chosen: list[str]) -> Launch:
        from onrecord.vendors.port import Launch

        extra = self.checked_extra(options)
        argv = [self.program(options), *chosen]
        if options.headless:
            argv.append("-p")
            if not has(extra, "--output-format"):
                argv += ["--output-format", "stream-json"]
        argv += extra
        if options.prompt:
            argv += ["--", options.prompt] if options.prompt.startswith("-") else [options.prompt]
        streams = not has(extra, "--output-format")
        return Launch(argv, {}, options.cwd, warnings=self.warnings(argv, options.env), streams=streams)

    def warnings(self, command: Sequence[str], env: Mapping[str, str], cwd: str = "") -> list[str]:
        """Flags that open the editor, stop, or use another chat."""
        said = []
        if command and command[0].rpartition("/")[2] == "cursor" and "agent" not in command[1:2]:
            said.append("cursor without `agent` opens the editor; use cursor-agent (or cursor agent)")
        if has(command, "-p", "--print") and not has(command, "--trust", "-f", "--force"):
            said.append("cursor-agent -p without --trust ends with status 1 in a directory it does not know")
        resumed = valued(command, "--resume")
        if has(command, "--continue") or (resumed is not None and not self.is_id(resumed)):
            said.append("cursor-agent without an id may resume the wrong chat; resume by id")
        return said

    def obtain_id(self, options: LaunchOptions) -> str | None:
        """The id that `create-chat` prints; None if that does not succeed in time."""
        import time

        from onrecord.vendors.processes import helper, read_line

        deadline = time.monotonic() + ID_SECONDS
        try:
            with helper([self.program(options), "create-chat"], options.env, options.cwd) as process:
                while line := read_line(process, deadline):
                    if self.is_id(found := line.decode(errors="replace").strip()):
                        return found
        except OSError:  # also TimeoutError
            return None
        return None

    # Conversations

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Location | None:
        """The transcript, in any project."""
        if not self.is_id(vendor_id):
            return None
        home = self.home(env)
        found = sorted(home.glob(f"projects/*/agent-transcripts/{vendor_id}/{vendor_id}.jsonl"))
        return self._location(found[0], home) if found else None

    def locations(self, env: Mapping[str, str]) -> Iterator[Location]:
        """Every transcript of every project."""
        home = self.home(env)
        for path in sorted(home.glob("projects/*/agent-transcripts/*/*.jsonl")):
            if self.is_id(path.stem):
                yield self._location(path, home)

    def _location(self, path: Path, home: Path) -> Location:
        from onrecord.vendors.transcripts import Location

        return Location(path.stem, str(path), str(home))

    def is_whole(self, record: dict[str, Any]) -> bool:
        """A line has a role and a message."""
        return {"role", "message"} <= record.keys()

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """Messages in Anthropic's form, without ids or times."""
        from onrecord.log.items import to_items
        from onrecord.vendors.transcripts import Entry

        role, message = text(record.get("role")), record.get("message")
        items: list[Item] = []
        if role in ("user", "assistant") and isinstance(message, dict):
            items = to_items({"role": role, "content": message.get("content")}, "anthropic")
            for item in items:
                item.pop("verbatim", None)
        return Entry(raw, role, items=items, known=bool(items))

    def put_back(self, location: Location, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Location:
        """Not possible: Cursor keeps chats in a format that only it writes."""
        from onrecord.errors import InvalidInput

        self.checked_id(location.vendor_id)
        raise InvalidInput(
            "a Cursor chat cannot be restored: Cursor resumes from a database in its own format",
            hint="start a new agent from the note instead",
            step="hand_off",
        )

    def ending(self, record: dict[str, Any]) -> End:
        """The result record."""
        from onrecord.vendors.endings import End, text_in

        if record.get("type") == "result":
            failed = bool(record.get("is_error")) or record.get("subtype", "success") != "success"
            return End(not failed, text_in(record.get("result")) if failed else "")
        return End(None, text_in(record.get("error")))

    # Hooks

    def files(self, scope: str, root: Path, env: Mapping[str, str]) -> list[HookFile]:
        """Hooks and servers have a file each; Cursor itself keeps the user's rules."""
        from onrecord.vendors.port import USER_SCOPE, HookFile

        home = self.home(env) if scope == USER_SCOPE else root / ".cursor"
        told = [] if scope == USER_SCOPE else [HookFile(root / "AGENTS.md", "instructions")]
        return [HookFile(home / "hooks.json", "hooks"), *told, HookFile(home / "mcp.json", "mcp")]

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """The hooks to merge into hooks.json."""
        import shlex

        return {
            "version": 1,
            "hooks": {event: [{"command": shlex.join([*command, "hook", self.name, event])}] for event in EVENTS},
        }

    def sample_hook(self, vendor_id: str) -> tuple[str, dict[str, Any]]:
        """An edit, in its form."""
        about = {"tool_name": "Write", "tool_input": {"file_path": "a.txt"}, "tool_use_id": "check"}
        return "preToolUse", {"conversation_id": vendor_id, "hook_event_name": "preToolUse", **about}

    def parse_hook(self, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
        """Its payloads name the conversation and the workspaces."""
        event = word(payload, "hook_event_name")
        shell, edited = event.endswith("ShellExecution"), event == "afterFileEdit"
        given = (
            {"command": payload.get("command", "")}
            if shell
            else {"file_path": payload.get("file_path", "")}
            if edited
            else None
        )
        roots = payload.get("workspace_roots")
        root = next((one for one in roots if isinstance(one, str)), "") if isinstance(roots, list) else ""
        shaped = {
            **payload,
            "session_id": word(payload, "conversation_id", "session_id"),
            "cwd": word(payload, "cwd") or root,
            "tool_name": "Shell" if shell else "Write" if edited else word(payload, "tool_name"),
            "tool_input": given or mapping(payload.get("tool_input")),
            "tool_use_id": word(payload, "tool_use_id", "generation_id"),
        }
        if "tool_output" in payload or "output" in payload:
            shaped["tool_response"] = payload.get("tool_output", payload.get("output"))
        call = super().parse_hook(shaped, env)
        call.payload = payload
        return call

    def reply(self, call: HookCall, answer: HookAnswer) -> Reply:
        """A permission for tools, context at the start, a further message at the stop."""
        said: dict[str, Any] = {}
        if answer.decision and call.moment == BEFORE_TOOL:
            reason = answer.reason or NO_REASON
            said = {
                "permission": "ask" if answer.decision == "ask" else "deny",
                "user_message": reason,
                "agent_message": reason,
            }
        elif answer.decision and call.moment == STOP:
            said = {"followup_message": answer.reason or NO_REASON}
        elif answer.context and call.moment in (START, AFTER_TOOL):
            said = {"additional_context": answer.context}
        return Reply(json.dumps(said) if said else "")


VENDOR: Vendor = Cursor()
