"""Qwen Code: ids of ours at the start, resume by id in the project's directory only, hooks in Claude's shape.

- After a kill in the middle of a line it appends its next record to the half line, and the resume after that silently
  starts with less history. So we repair the tail before a resume.
- Context from SessionStart is ignored by some versions (0.15), and others do not keep it for a resume. So we inject the
  brief with the prompt, where every version keeps it as a separate part.
"""

from __future__ import annotations

from onrecord.vendors.base import dashed, has, home_of, prompted, text
from onrecord.vendors.by_project import ByProject
from onrecord.vendors.claude_shaped import Dialect, hook_entries
from onrecord.vendors.hooks import OTHER, PROMPT, STOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from onrecord.vendors.endings import End
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import (
        Capabilities,
        Entry,
        Hazard,
        HookFile,
        Launch,
        LaunchOptions,
        Location,
        Said,
        Turn,
        Usage,
        Vendor,
    )  # fmt: skip

EVENTS = {
    "SessionStart": None, "UserPromptSubmit": None, "PreToolUse": "*", "PostToolUse": "*", "PostToolUseFailure": "*",
    "PreCompact": None, "Stop": None, "SessionEnd": None,
}  # fmt: skip
SUBTYPES = frozenset({
    "attribution_snapshot", "ui_telemetry", "file_history_snapshot", "slash_command", "chat_compression", "at_command",
})  # fmt: skip
RECORD_START = b'{"uuid":"'
FAILED_REQUEST = "[API Error: "
"""How an answer begins that is an error of the model server."""


class Qwen(ByProject):
    """Qwen Code."""

    folders = "projects/*/chats"
    name = "qwen"
    title = "Qwen Code"
    dialect = Dialect("qwen", id_env="QWEN_CODE_SESSION_ID")
    programs: Sequence[str] = ("qwen",)
    context_moment = PROMPT
    notice_moment = STOP
    home_variable = "QWEN_HOME"
    home_name = ".qwen"
    own_flags: Sequence[str] = ("--session-id", "--resume", "-r", "--continue", "-c", "--fork-session")
    fork_flags: Sequence[str] = ("--fork-session",)
    resume_flags: Sequence[str] = ("--resume", "-r")
    interrupt_keys: Sequence[str] = ("Escape",)
    exit_keys: Sequence[str] = ("C-c", "C-c")
    shows_turns = True
    ready_patterns: Sequence[str] = (r"Type your message",)
    prompt_patterns: Sequence[str] = (
        r"Allow execution",
        r"Apply this change\?",
        r"Yes, allow once",
        r"Do you trust this",
    )

    @property
    def capabilities(self) -> Capabilities:
        """Our ids; resume in the same directory only."""
        from onrecord.vendors.port import Capabilities

        return Capabilities(
            chooses_id=True, obtains_id=False, names=False, resumes_elsewhere=False, refuses_second_writer=False,
            headless=True, forks=True, context_at_start="first_prompt", context_bytes=self.context_bytes,
            blocks_tools=True, verified=True,
        )  # fmt: skip

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home."""
        return home_of(env, self.home_variable, self.home_name)

    def start(self, options: LaunchOptions) -> Launch:
        """Start with our id."""
        chosen = ["--session-id", self.checked_id(options.vendor_id)] if options.vendor_id is not None else []
        return self._launch(options, chosen, options.cwd)

    def resume(self, options: LaunchOptions) -> Launch:
        """Resume by id in the directory where it started: Qwen Code does not find it elsewhere."""
        vendor_id = self.checked_id(options.vendor_id)
        location = self.find(vendor_id, options.env)
        return self._launch(options, ["-r", vendor_id], (location and location.cwd) or options.cwd)

    def _launch(self, options: LaunchOptions, chosen: list[str], cwd: str) -> Launch:
        from onrecord.vendors.port import Launch

        extra = self.checked_extra(options)
        argv = [self.program(options), *chosen]
        if options.headless and not has(extra, "-o", "--output-format"):
            argv += ["-o", "stream-json"]
        argv += extra
        if options.prompt:
            argv += prompted(
                options.prompt, *(("-p", "--prompt") if options.headless else ("-i", "--prompt-interactive"))
            )
        said, streams = self.warnings(argv, options.env, cwd), not has(extra, "-o", "--output-format")
        return Launch(argv, {"QWEN_CODE_NO_RELAUNCH": "true"}, cwd, warnings=said, streams=streams)

    def warnings(self, command: Sequence[str], env: Mapping[str, str], cwd: str = "") -> list[str]:
        """Flags that wait for a person or start another conversation than intended."""
        said = []
        if not has(command, "-y", "--yolo", "--approval-mode", "--allowed-tools") and not self._permits(env, cwd):
            said.append("qwen without --yolo or --approval-mode stops for permissions")
        if has(command, "-c", "--continue"):
            said.append("qwen --continue starts a new conversation if there is none; resume by id")
        return said

    def _permits(self, env: Mapping[str, str], cwd: str) -> bool:
        """Whether its settings allow tools without asking."""
        from pathlib import Path

        from onrecord.vendors.base import set_in

        files = [folder / "settings.json" for folder in (Path(cwd or ".") / ".qwen", self.home(env))]
        mode = set_in(files, "tools", "approvalMode")
        return mode not in (None, "default", "plan") or bool(set_in(files, "permissions", "allow"))

    # Transcripts

    def is_whole(self, record: dict[str, Any]) -> bool:
        """A record names itself and its conversation."""
        return all(isinstance(record.get(name), str) for name in ("uuid", "sessionId", "type"))

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """Messages have items; snapshots and telemetry have none."""
        from onrecord.vendors.parts import items_of
        from onrecord.vendors.transcripts import Entry

        kind = text(record.get("type"))
        message = record.get("message")
        parts = message.get("parts") if isinstance(message, dict) else None
        role = {"user": "user", "assistant": "assistant", "tool_result": "user"}.get(kind)
        known = (role is not None and isinstance(parts, list)) or (
            kind == "system" and record.get("subtype") in SUBTYPES
        )
        return Entry(
            raw, kind, text(record.get("uuid")), text(record.get("parentUuid")), text(record.get("timestamp")),
            items_of(role, parts) if role else (), known, _used(record),
        )  # fmt: skip

    def said(self, entry: Entry, record: dict[str, Any]) -> Sequence[Said]:
        """Messages, and the summary of a compaction."""
        from onrecord.vendors.saying import said, summary

        about: dict[str, Any] = {"id": entry.id, "parent": entry.parent}
        if record.get("subtype") == "chat_compression":
            return summary(_compressed(record.get("systemPayload")), **about)
        return said(entry.items, record, **about)

    def hazards(self, location: Location, env: Mapping[str, str]) -> list[Hazard]:
        """A second writer, an unfinished line, a record that follows an unfinished one on its line."""
        from pathlib import Path

        from onrecord.vendors import jsonl
        from onrecord.vendors.port import Hazard

        found = super().hazards(location, env)
        if not Path(location.path).is_file():
            return found
        if jsonl.unfinished_tail(location.path):
            found.append(Hazard(
                "torn_tail", "the last line is unfinished; the next record would be appended to it and lose history",
                "remove the unfinished line (a copy is kept beside the file)", (location.path,), fatal=True,
            ))  # fmt: skip
        if jsonl.glued_lines(location.path, self.is_whole, RECORD_START):
            found.append(Hazard(
                "glued", "a record follows an unfinished one on its line; a resume would lose everything before it",
                "write every whole record on its own line (the old file is kept beside it)", (location.path,),
                fatal=True,
            ))  # fmt: skip
        return found

    def mend(self, hazard: Hazard, location: Location, env: Mapping[str, str]) -> None:
        """Repair lines; never end another process."""
        from onrecord.vendors import jsonl

        if hazard.code == "torn_tail":
            jsonl.cut_tail(location.path)
        elif hazard.code == "glued":
            jsonl.repair(location.path, self.is_whole)
        else:
            super().mend(hazard, location, env)

    def put_back(self, location: Location, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Location:
        """Into the project of `cwd`. Qwen Code refuses records of another directory, so they get the new one."""
        import os

        from onrecord.vendors.jsonl import write_new

        self.checked_id(location.vendor_id)
        self.absent(location, env)
        home = self.home(env)
        here = os.path.realpath(cwd)
        path = home / "projects" / dashed(here) / "chats" / f"{location.vendor_id}.jsonl"
        write_new(path, (_moved(raw, location.cwd, here) for raw in entries))
        return self._location(path, home)

    def ending(self, record: dict[str, Any]) -> End:
        """The result record. Some versions (0.15) call a failed request a success, and give the error as the answer."""
        from onrecord.vendors.endings import End, text_in

        if record.get("type") == "result":
            said = text_in(record.get("result"))
            failed = bool(record.get("is_error")) or record.get("subtype", "success") != "success"
            failed = failed or said.startswith(FAILED_REQUEST)
            return End(not failed, text_in(record.get("error")) or said if failed else "")
        return End(None, text_in(record.get("error")))

    def turn(self, record: dict[str, Any]) -> Turn | None:
        """A message without a tool call ends a turn. A failed request is noted each time, and tried again."""
        from onrecord.vendors.port import IDLE, WORKING, Turn

        kind, message = record.get("type"), record.get("message")
        given = message.get("parts") if isinstance(message, dict) else None
        parts = [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []
        if kind == "assistant":
            calls = any("functionCall" in part for part in parts)
            return Turn(WORKING if calls else IDLE, answered=True)
        if kind == "user":
            return Turn(WORKING, prompt="\n".join(text(part.get("text")) for part in parts))
        if kind == "tool_result":
            return Turn(WORKING)
        about = record.get("systemPayload")
        event = about.get("uiEvent") if isinstance(about, dict) else None
        if isinstance(event, dict) and event.get("event.name") == "qwen-code.api_error":
            return Turn(WORKING, text(event.get("error_message")))
        return None

    # Hooks

    def files(self, scope: str, root: Path, env: Mapping[str, str]) -> list[HookFile]:
        """One settings file for hooks and servers."""
        from onrecord.vendors.port import USER_SCOPE, HookFile

        home = self.home(env) if scope == USER_SCOPE else root / ".qwen"
        told = home / "QWEN.md" if scope == USER_SCOPE else root / "QWEN.md"
        return [HookFile(home / "settings.json", "hooks"), HookFile(told, "instructions"),
                HookFile(home / "settings.json", "mcp")]  # fmt: skip

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """The hooks to merge into its settings. No timeout: its unit is not documented, and our hook has its own."""
        return {"hooks": hook_entries(command, self.name, EVENTS)}

    def parse_hook(self, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
        """Qwen Code also calls the prompt hook after tools, without a prompt; that is not a prompt."""
        call = super().parse_hook(payload, env)
        call.prompt = text(payload.get("submitted_prompt")) or call.prompt
        if call.moment == PROMPT and not call.prompt:
            call.moment = OTHER
        return call


def _used(record: dict[str, Any]) -> list[Usage]:
    """What a response used: its telemetry has every call, also those without a message; messages only repeat it."""
    from onrecord.vendors.counts import count, used, whole_output
    from onrecord.vendors.transcripts import Usage

    payload = record.get("systemPayload")
    about = payload.get("uiEvent") if isinstance(payload, dict) else None
    if not isinstance(about, dict) or about.get("event.name") != "qwen-code.api_response":
        return []
    given, reasoning = count(about, "input_token_count"), count(about, "thoughts_token_count")
    output = whole_output(about, count(about, "output_token_count"), reasoning, given, "total_token_count")
    return used(
        Usage(
            text(about.get("response_id")), text(about.get("model")), given,
            count(about, "cached_content_token_count"), 0, output, reasoning,
        )
    )  # fmt: skip


def _compressed(payload: object) -> str:
    """The summary: the first text of the history that a compaction left."""
    history = payload.get("compressedHistory") if isinstance(payload, dict) else None
    for message in history if isinstance(history, list) else ():
        parts = message.get("parts") if isinstance(message, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and text(part.get("text")):
                return text(part["text"])
    return ""


def _moved(raw: str, before: str, now: str) -> str:
    import json

    if not before or before == now:
        return raw
    record = json.loads(raw)
    if isinstance(record, dict) and record.get("cwd") == before:
        record["cwd"] = now
        return json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return raw


VENDOR: Vendor = Qwen()
