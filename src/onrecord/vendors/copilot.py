"""GitHub Copilot CLI: ids of ours at the start, resume by id from anywhere, one folder of events per conversation.

It lets two processes write one conversation, so we check its lock files first. Its hooks answer at the top level.
"""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.vendors.base import HOOK_SECONDS, Base, has, home_of, named, prompted, text, valued
from onrecord.vendors.claude_shaped import (
    NO_REASON,
    OUTPUT_LIMIT,
    about,
    mapping,
    outcome,
    reason_of,
    tool_request,
    word,
)  # fmt: skip
from onrecord.vendors.hooks import (
    AFTER_TOOL,
    BEFORE_TOOL,
    COMPACT,
    END,
    NOTICE,
    OTHER,
    PROMPT,
    START,
    STOP,
    HookCall,
    Reply,
)  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from onrecord.log.item_values import Item, ToolCall
    from onrecord.rules import ToolRequest
    from onrecord.vendors.endings import End
    from onrecord.vendors.hooks import HookAnswer
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

MOMENTS_OF = {
    "sessionStart": START, "userPromptSubmitted": PROMPT, "preToolUse": BEFORE_TOOL, "postToolUse": AFTER_TOOL,
    "agentStop": STOP, "sessionEnd": END, "preCompact": COMPACT, "notification": NOTICE,
    "SessionStart": START, "UserPromptSubmit": PROMPT, "PreToolUse": BEFORE_TOOL, "PostToolUse": AFTER_TOOL,
    "Stop": STOP, "SessionEnd": END, "PreCompact": COMPACT, "Notification": NOTICE,
}  # fmt: skip
"""It calls hooks by its own event names with its own payload, and by Claude's names with Claude's payload."""
EVENTS = ("sessionStart", "userPromptSubmitted", "preToolUse", "postToolUse", "agentStop", "sessionEnd", "preCompact")
SHAPES = (
    ("toolResult", "postToolUse"), ("toolName", "preToolUse"), ("stopReason", "agentStop"), ("source", "sessionStart"),
    ("prompt", "userPromptSubmitted"), ("reason", "sessionEnd"),
)  # fmt: skip
"""Its own payloads do not name their event; these fields identify it."""
SILENT = frozenset({
    "session.start", "session.resume", "session.shutdown", "session.usage_record", "session.idle", "session.error",
    "session.info", "session.warning", "session.model_change", "session.truncation", "session.compaction_start",
    "session.compaction_complete", "session.title_changed", "session.mode_changed", "session.plan_changed",
    "hook.start", "hook.end", "assistant.turn_start", "assistant.turn_end", "assistant.intent", "assistant.reasoning",
    "assistant.usage", "tool.execution_start", "tool.user_requested", "abort", "skill.invoked", "subagent.started",
    "subagent.completed", "subagent.failed", "subagent.selected",
})  # fmt: skip
CLOCK_SLACK = 2.0
"""Seconds by which a lock file may seem older than the process that made it."""


class Copilot(Base):
    """GitHub Copilot CLI."""

    name = "copilot"
    title = "GitHub Copilot CLI"
    programs: Sequence[str] = ("copilot",)
    context_moment = PROMPT
    home_variable = "COPILOT_HOME"
    home_name = ".copilot"
    own_flags: Sequence[str] = ("--session-id", "--resume", "--continue", "--name", "--connect")
    interrupt_keys: Sequence[str] = ("Escape", "Escape")
    exit_keys: Sequence[str] = ("C-c", "C-c")
    shows_turns = True
    prompt_patterns: Sequence[str] = (
        r"Do you want to (run this command|edit|create|allow|use)", r"Confirm folder trust", r"Do you trust the files",
    )  # fmt: skip

    @property
    def capabilities(self) -> Capabilities:
        """Our ids, from any directory; no guard against a second writer."""
        from onrecord.vendors.port import Capabilities

        return Capabilities(
            chooses_id=True, obtains_id=False, names=True, resumes_elsewhere=True, refuses_second_writer=False,
            headless=True, forks=False, context_at_start="first_prompt", context_bytes=self.context_bytes,
            blocks_tools=True, verified=True,
        )  # fmt: skip

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home."""
        return home_of(env, self.home_variable, self.home_name)

    def start(self, options: LaunchOptions) -> Launch:
        """Start with our id."""
        chosen = [f"--session-id={self.checked_id(options.vendor_id)}"] if options.vendor_id is not None else []
        if name := named(options.name):
            chosen.append(f"--name={name}")
        return self._launch(options, chosen)

    def resume(self, options: LaunchOptions) -> Launch:
        """Resume by id; unlike --session-id, a missing one ends with status 1."""
        return self._launch(options, [f"--resume={self.checked_id(options.vendor_id)}"])

    def _launch(self, options: LaunchOptions, chosen: list[str]) -> Launch:
        from onrecord.vendors.port import Launch

        extra = self.checked_extra(options)
        argv = [self.program(options), *chosen]
        if options.headless and not has(extra, "--output-format"):
            argv += ["--output-format", "json"]
        argv += extra
        if options.headless or options.prompt:
            argv += prompted(options.prompt, *(("-p", "--prompt") if options.headless else ("-i", "--interactive")))
        streams = not has(extra, "--output-format")
        return Launch(argv, {}, options.cwd, warnings=self.warnings(argv, options.env), streams=streams)

    def warnings(self, command: Sequence[str], env: Mapping[str, str], cwd: str = "") -> list[str]:
        """Flags that wait for a person or use another conversation than intended."""
        said = []
        free = has(command, "--allow-all-tools", "--allow-all", "--yolo", "--allow-tool") or env.get(
            "COPILOT_ALLOW_ALL"
        )
        if not free:
            said.append("copilot without --allow-all-tools stops for permissions (or refuses tools, with -p)")
        if has(command, "--continue"):
            said.append("copilot --continue resumes the most recent conversation of any directory; resume by id")
        resumed = valued(command, "--resume")
        if resumed is not None and not self.is_id(resumed):
            said.append("copilot --resume without a whole id opens a picker or picks one by name; resume by id")
        return said

    # Conversations

    def locate(self, pid: int, env: Mapping[str, str]) -> str | None:
        """By the lock file that a process keeps in its conversation's folder."""
        from onrecord.vendors.processes import family

        folder = self.home(env) / "session-state"
        held = {
            path.parent.name
            for one in family(pid)
            for path in folder.glob(f"*/inuse.{one}.lock")
            if self.is_id(path.parent.name) and _is_held(path, one)
        }
        return held.pop() if len(held) == 1 else None

    def holders(self, location: Location, env: Mapping[str, str]) -> Iterator[int]:
        """The running processes with a lock file in its folder."""
        if not self.is_id(location.vendor_id):
            return
        for path in sorted((self.home(env) / "session-state" / location.vendor_id).glob("inuse.*.lock")):
            pid = path.name.split(".")[1]
            if pid.isdigit() and _is_held(path, int(pid)):
                yield int(pid)

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Location | None:
        """In the folder named after its id."""
        if not self.is_id(vendor_id):
            return None
        home = self.home(env)
        path = home / "session-state" / vendor_id / "events.jsonl"
        return self._location(path, home) if path.is_file() else None

    def locations(self, env: Mapping[str, str]) -> Iterator[Location]:
        """Every conversation with events."""
        home = self.home(env)
        for path in sorted((home / "session-state").glob("*/events.jsonl")):
            if self.is_id(path.parent.name):
                yield self._location(path, home)

    def _location(self, path: Path, home: Path) -> Location:
        from onrecord.vendors.transcripts import Location

        return Location(
            path.parent.name, str(path), str(home), _workspace(path.parent / "workspace.yaml").get("cwd", "")
        )

    def is_whole(self, record: dict[str, Any]) -> bool:
        """An event has a type, data and an id."""
        return {"type", "data", "id"} <= record.keys()

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """Messages and results have items; other events have none."""
        from onrecord.vendors.transcripts import Entry

        kind = text(record.get("type"))
        given = record.get("data")
        data: dict[str, Any] = given if isinstance(given, dict) else {}
        items = _items(kind, data)
        return Entry(
            raw, kind, text(record.get("id")), text(record.get("parentId")), text(record.get("timestamp")), items,
            bool(items) or kind in SILENT or kind in SPOKEN, _used(kind, data),
        )  # fmt: skip

    def said(self, entry: Entry, record: dict[str, Any]) -> Sequence[Said]:
        """Messages and results; a subagent's events name the agent or the call that started it."""
        from onrecord.log.readings import ABORTS
        from onrecord.vendors.saying import said, summary, thought
        from onrecord.vendors.transcripts import Said

        given = record.get("data")
        data: dict[str, Any] = given if isinstance(given, dict) else {}
        lane = text(record.get("agentId")) or text(data.get("parentToolCallId"))
        about: dict[str, Any] = {"id": entry.id, "parent": "" if lane else entry.parent, "lane": lane}
        if entry.kind == "abort":
            return [Said((), turn=ABORTS, **about)]
        if entry.kind == "session.compaction_complete":
            return summary(data.get("summaryContent") or data.get("summary"), **about)
        thoughts = thought(data.get("reasoningText")) if entry.kind == "assistant.message" else []
        return said([*thoughts, *entry.items], record, **about)

    def put_back(self, location: Location, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Location:
        """A folder named after its id, with the events and the small file that names its directory."""
        import os
        from itertools import chain

        from onrecord.vendors.jsonl import write_new

        vendor_id = self.checked_id(location.vendor_id)
        self.absent(location, env)
        first = next(entries, "{}")
        begun = self.parse(first).at
        path = self.home(env) / "session-state" / vendor_id / "events.jsonl"
        workspace = path.with_name("workspace.yaml")
        if not workspace.exists():
            about = {
                "id": vendor_id, "cwd": os.path.realpath(cwd), "client_name": "github/cli", "user_named": False,
                "summary_count": 0, "fork_count": 0, "created_at": begun, "updated_at": begun,
            }  # fmt: skip
            # JSON is valid YAML.
            write_new(workspace, [f"{name}: {json.dumps(value)}" for name, value in about.items()])
        write_new(path, chain([first], entries))  # last: a conversation without its events is none
        return self._location(path, self.home(env))

    def ending(self, record: dict[str, Any]) -> End:
        """The result record, and errors on the way."""
        from onrecord.vendors.endings import End, text_in

        if record.get("type") == "result":
            ok = record.get("exitCode") == 0
            return End(ok, "" if ok else text_in(record.get("error")))
        if record.get("type") in ("session.error", "model.call_failure", "error"):
            return End(
                None, text_in(record.get("data")) or text_in(record.get("error")) or text_in(record.get("message"))
            )
        return End()

    def turn(self, record: dict[str, Any]) -> Turn | None:
        """A message of the model without a tool request ends a turn, and so does an error or an abort."""
        from onrecord.vendors.port import ABORTED, FAILED, IDLE, WORKING, Turn

        kind, data = record.get("type"), mapping(record.get("data"))
        if kind == "user.message":
            return Turn(WORKING, prompt=text(data.get("content")))
        if kind == "assistant.message":
            return Turn(WORKING if data.get("toolRequests") else IDLE, answered=True)
        if kind == "session.error":
            return Turn(FAILED, text(data.get("message")))
        return {"assistant.turn_start": Turn(WORKING), "abort": Turn(ABORTED)}.get(text(kind))

    def printed(self, record: dict[str, Any]) -> str:
        """The model's messages."""
        data = record.get("data") if record.get("type") == "assistant.message" else None
        said = text(data.get("content")) if isinstance(data, dict) else ""
        return f"{said}\n" if said else ""

    # Hooks

    def files(self, scope: str, root: Path, env: Mapping[str, str]) -> list[HookFile]:
        """A hook file of our own."""
        from onrecord.vendors.port import USER_SCOPE, HookFile

        if scope == USER_SCOPE:
            home = self.home(env)
            return [HookFile(home / "hooks" / "onrecord.json", "hooks"),
                    HookFile(home / "copilot-instructions.md", "instructions"),
                    HookFile(home / "mcp-config.json", "mcp")]  # fmt: skip
        return [HookFile(root / ".github" / "hooks" / "onrecord.json", "hooks"),
                HookFile(root / "AGENTS.md", "instructions"), HookFile(root / ".mcp.json", "mcp")]  # fmt: skip

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """Our whole hook file."""
        import shlex

        return {
            "version": 1,
            "hooks": {
                event: [{"type": "command", "bash": shlex.join([*command, "hook", self.name, event]),
                         "timeoutSec": HOOK_SECONDS}]
                for event in EVENTS
            },
        }  # fmt: skip

    def sample_hook(self, vendor_id: str) -> tuple[str, dict[str, Any]]:
        """An edit, in its form: only the command names the event."""
        return "preToolUse", {"sessionId": vendor_id, "toolName": "create", "toolArgs": {"path": "a.txt"}}

    def parse_hook(self, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
        """A payload of either form as a `HookCall`."""
        event = word(payload, "hook_event_name") or next((event for name, event in SHAPES if name in payload), "")
        moment = MOMENTS_OF.get(event, OTHER)
        tool = word(payload, "toolName", "tool_name")
        result = payload.get("toolResult", payload.get("tool_result", payload.get("tool_response")))
        code, output = outcome(tool, {"tool_response": result}) if moment == AFTER_TOOL else (None, "")
        return HookCall(
            self.name,
            moment,
            word(payload, "sessionId", "session_id"),
            event=event,
            cwd=word(payload, "cwd"),
            transcript=word(payload, "transcriptPath", "transcript_path"),
            reason=reason_of(moment, payload),
            prompt=word(payload, "prompt", "initialPrompt", "initial_prompt"),
            tool=tool,
            tool_input=mapping(payload.get("toolArgs", payload.get("tool_input"))),
            call=word(payload, "toolCallId", "tool_use_id"),
            exit_code=code,
            output=output[-OUTPUT_LIMIT:],
            payload=payload,
            **about(moment, payload),
        )

    def reply(self, call: HookCall, answer: HookAnswer) -> Reply:
        """All fields are at the top level: Copilot does not inject nested context.

        A line for the person comes before the answer: Copilot shows it in its timeline as the progress of the hook.
        """
        said: dict[str, Any] = {}
        if answer.context and call.moment in (START, PROMPT, BEFORE_TOOL, AFTER_TOOL):
            said["additionalContext"] = answer.context
        if answer.decision and call.moment == BEFORE_TOOL:
            said["permissionDecision"] = "ask" if answer.decision == "ask" else "deny"
            said["permissionDecisionReason"] = answer.reason or NO_REASON
        elif answer.decision and call.moment == STOP:
            said |= {"decision": "block", "reason": answer.reason or NO_REASON}
        shown = json.dumps({"type": "progress", "message": answer.notice}) + "\n" if answer.notice else ""
        return Reply(shown + (json.dumps(said) if said else ""))

    def tool_request(self, call: HookCall, agent: str) -> ToolRequest | None:
        """What the tool is about to do."""
        return tool_request(call, agent)


SPOKEN = frozenset({"user.message", "system.message", "assistant.message", "tool.execution_complete"})


def _items(kind: str, data: dict[str, Any]) -> list[Item]:
    from onrecord.log.items import make_item, make_result

    if kind in ("user.message", "system.message"):
        return [{"role": kind.partition(".")[0], "content": text(data.get("content"))}]
    if kind == "assistant.message":
        asked = [one for one in data.get("toolRequests") or () if isinstance(one, dict)]
        calls: list[ToolCall] = [
            {"id": one["toolCallId"], "name": one["name"], "arguments": one.get("arguments")} for one in asked
        ]
        return [make_item("assistant", text(data.get("content")), calls)]
    if kind == "tool.execution_complete":
        given = data.get("result") if data.get("success") else data.get("error")
        about: dict[str, Any] = given if isinstance(given, dict) else {}
        words = (
            text(given)
            or text(about.get("content"))
            or text(about.get("message"))
            or text(about.get("textResultForLlm"))
        )
        return [make_result(data["toolCallId"], words, failed=not data.get("success"))]
    return []


def _used(kind: str, data: dict[str, Any]) -> list[Usage]:
    """What a response used. Its cost is counted in requests, not in money."""
    from onrecord.vendors.counts import count, used
    from onrecord.vendors.transcripts import Usage

    about = data.get("usage")
    if kind != "session.usage_record" or not isinstance(about, dict):
        return []
    accounting = about.get("accounting")
    call = text(accounting.get("usageId")) if isinstance(accounting, dict) else ""
    return used(
        Usage(
            call or text(about.get("apiCallId")), text(about.get("model")), count(about, "inputTokens"),
            count(about, "cacheReadTokens"), count(about, "cacheWriteTokens"), count(about, "outputTokens"),
            count(about, "reasoningTokens"),
        )
    )  # fmt: skip


def _is_held(lock: Path, pid: int) -> bool:
    """Whether the process that made a lock file is still alive: one that started later only has the same pid."""
    from onrecord.vendors.processes import began_at, is_alive

    began = began_at(pid) if is_alive(pid) else None
    try:
        return began is not None and began <= lock.stat().st_mtime + CLOCK_SLACK
    except OSError:
        return False


def _workspace(path: Path) -> dict[str, str]:
    """The plain lines of its YAML file: one name and one value each."""
    from onrecord.machine.files import read_regular

    about = {}
    try:
        for line in read_regular(path).decode().splitlines():
            name, colon, value = line.partition(": ")
            if colon and name.isidentifier():
                about[name] = _scalar(value.strip())
    except (OSError, ValueError):
        return {}
    return about


def _scalar(value: str) -> str:
    if value.startswith('"'):
        try:
            return str(json.loads(value))
        except ValueError:
            return value
    quoted = len(value) > 1 and value[0] == value[-1] == "'"
    return value[1:-1].replace("''", "'") if quoted else value


VENDOR: Vendor = Copilot()
