"""Cursor's command line: built from its documents and from what others report; it cannot be run here.

A chat's id is had from `create-chat`; what resumes a chat is a database of Cursor's own form, so a mirrored transcript
can be read but not put back.
"""

from __future__ import annotations

import json

from onrecord.vendors.base import SAFE_CONTEXT, has, text, user_home, valued
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

    from onrecord.log.items import Item
    from onrecord.vendors.endings import End
    from onrecord.vendors.hooks import HookAnswer, HookCall
    from onrecord.vendors.port import Capabilities, Entry, HookFile, Launch, Place, Request, Vendor

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
"""How long `create-chat` may take."""


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
            headless=True, forks=False, context_at_start="launch", context_bytes=SAFE_CONTEXT, blocks_tools=True,
            verified=False,
        )  # fmt: skip

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home."""
        return user_home(env) / ".cursor"

    def start(self, request: Request) -> Launch:
        """Begin, in a chat that was obtained if there is one."""
        chosen = ["--resume", self.checked_id(request.vendor_id)] if request.vendor_id is not None else []
        return self._launch(request, chosen)

    def resume(self, request: Request) -> Launch:
        """Go on by id."""
        return self._launch(request, ["--resume", self.checked_id(request.vendor_id)])

    def _launch(self, request: Request, chosen: list[str]) -> Launch:
        from onrecord.vendors.port import Launch

        extra = self.checked_extra(request)
        argv = [self.program(request), *chosen]
        if request.headless:
            argv.append("-p")
            if not has(extra, "--output-format"):
                argv += ["--output-format", "stream-json"]
        argv += extra
        if request.prompt:
            argv += ["--", request.prompt] if request.prompt.startswith("-") else [request.prompt]
        return Launch(argv, {}, request.cwd, warnings=self.warnings(argv, request.env))

    def warnings(self, command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """What opens the editor, stops, or takes another chat."""
        said = []
        if command and command[0].rpartition("/")[2] == "cursor" and "agent" not in command[1:2]:
            said.append("cursor without `agent` opens the editor; use cursor-agent (or cursor agent)")
        if has(command, "-p", "--print") and not has(command, "--trust", "-f", "--force"):
            said.append("cursor-agent -p without --trust ends with status 1 in a directory it does not know")
        resumed = valued(command, "--resume")
        if has(command, "--continue") or (resumed is not None and not self.is_id(resumed)):
            said.append("cursor-agent resumes another chat than meant without an id; resume by id")
        return said

    def obtain_id(self, request: Request) -> str | None:
        """What `create-chat` prints; None if that cannot be done in time."""
        import time

        from onrecord.vendors.processes import helper, read_line

        deadline = time.monotonic() + ID_SECONDS
        try:
            with helper([self.program(request), "create-chat"], request.env, request.cwd) as process:
                while line := read_line(process, deadline):
                    if self.is_id(found := line.decode(errors="replace").strip()):
                        return found
        except OSError:  # also TimeoutError
            return None
        return None

    # Where conversations are

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Place | None:
        """The transcript in whichever project it is."""
        if not self.is_id(vendor_id):
            return None
        home = self.home(env)
        found = sorted(home.glob(f"projects/*/agent-transcripts/{vendor_id}/{vendor_id}.jsonl"))
        return self._place(found[0], home) if found else None

    def places(self, env: Mapping[str, str]) -> Iterator[Place]:
        """Every transcript of every project."""
        home = self.home(env)
        for path in sorted(home.glob("projects/*/agent-transcripts/*/*.jsonl")):
            if self.is_id(path.stem):
                yield self._place(path, home)

    def _place(self, path: Path, home: Path) -> Place:
        from onrecord.vendors.port import Place

        return Place(path.stem, str(path), str(home))

    def is_whole(self, record: dict[str, Any]) -> bool:
        """A line has a role and a message."""
        return {"role", "message"} <= record.keys()

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """Messages in Anthropic's form, without ids or times."""
        from onrecord.log.items import to_items
        from onrecord.vendors.port import Entry

        role, message = text(record.get("role")), record.get("message")
        items: list[Item] = []
        if role in ("user", "assistant") and isinstance(message, dict):
            items = to_items({"role": role, "content": message.get("content")}, "anthropic")
            for item in items:
                item.pop("verbatim", None)
        return Entry(raw, role, items=items, known=bool(items))

    def put_back(self, place: Place, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Place:
        """Not possible: its chats are kept in a form that only it writes."""
        from onrecord.errors import InvalidInput

        self.checked_id(place.vendor_id)
        raise InvalidInput(
            "a Cursor chat cannot be restored: Cursor resumes it from a database of its own",
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
        """Hooks and servers have a file each; rules of the user are kept by Cursor itself."""
        from onrecord.vendors.port import USER_SCOPE, HookFile

        home = self.home(env) if scope == USER_SCOPE else root / ".cursor"
        told = [] if scope == USER_SCOPE else [HookFile(root / "AGENTS.md", "instructions")]
        return [HookFile(home / "hooks.json", "hooks"), *told, HookFile(home / "mcp.json", "mcp")]

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """What is merged into hooks.json."""
        import shlex

        return {
            "version": 1,
            "hooks": {event: [{"command": shlex.join([*command, "hook", self.name, event])}] for event in EVENTS},
        }

    def sample_hook(self, vendor_id: str) -> tuple[str, dict[str, Any]]:
        """An edit, in its words."""
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
        """Permissions by that name, context at the start, one more message at the stop."""
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
