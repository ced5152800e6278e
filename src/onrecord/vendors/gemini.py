"""Gemini CLI: ids of ours at the start, resume by id in the same directory only, one growing file per conversation.

Three of its habits harm conversations, and this module prevents them:

- A resume leaves a stub file. The next start of another conversation treats the stub as a broken conversation and
  deletes every file with that id. So we disable retention (with consent) and move stubs away before a resume.
- Context from SessionStart goes in front of the prompt, and a resume drops turns that begin with such context from the
  history. So we inject the brief at BeforeAgent, where it follows the prompt as a separate part.
- It restarts itself in a child process that survives a kill of the parent. So we disable that.
"""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.vendors.base import ID_LETTERS, has, prompted, settings_at, text, user_home, valued
from onrecord.vendors.claude_shaped import NO_REASON, Dialect, Shaped, hook_entries
from onrecord.vendors.hooks import AFTER_TOOL, BEFORE_TOOL, END, NOTICE, PROMPT, START, STOP, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from onrecord.log.item_values import Item
    from onrecord.vendors.endings import End
    from onrecord.vendors.hooks import HookAnswer, HookCall
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
        Vendor,
    )  # fmt: skip

MOMENTS_OF = {
    "SessionStart": START, "BeforeAgent": PROMPT, "BeforeTool": BEFORE_TOOL, "AfterTool": AFTER_TOOL,
    "AfterAgent": STOP, "SessionEnd": END, "Notification": NOTICE,
}  # fmt: skip
"""PreCompress is missing on purpose: Gemini calls it before every request, even if it compresses nothing."""
EVENTS = {
    "SessionStart": None, "BeforeAgent": None, "BeforeTool": "*", "AfterTool": "*", "AfterAgent": None,
    "SessionEnd": None, "Notification": None,
}  # fmt: skip
SHOWN_NAME = "onrecord"
HOOK_MILLISECONDS = 10_000
LEFT_OUT = ("<hook_context>", "<session_context>", "/", "?")
"""On resume, Gemini drops user turns that begin with one of these from the history."""
MESSAGES = {"user": "user", "gemini": "assistant"}
NOTES = frozenset({"info", "error", "warning"})
ALL_MESSAGES = b'{"$set":{"messages":['
"""How a line begins that replaces all messages: at a resume, and after a compaction."""
RETENTION_DAYS = 30
UNITS = {"h": 3_600, "d": 86_400, "w": 604_800, "m": 2_592_000}
PROMPT_LIMIT = 100_000
"""A longer prompt goes through standard input: an argument cannot be much longer."""


class Gemini(Shaped):
    """Gemini CLI."""

    name = "gemini"
    title = "Gemini CLI"
    programs: Sequence[str] = ("gemini",)
    context_moment = PROMPT
    dialect = Dialect(
        "gemini", moments=MOMENTS_OF, id_env="GEMINI_SESSION_ID", asks=False, context_in=(PROMPT, AFTER_TOOL)
    )
    home_variable = "GEMINI_CLI_HOME"
    home_below = ".gemini"
    own_flags: Sequence[str] = (
        "--session-id", "--resume", "-r", "--session-file", "--delete-session", "--list-sessions",
    )  # fmt: skip
    interrupt_keys: Sequence[str] = ("Escape",)
    exit_keys: Sequence[str] = ("C-c", "C-c")
    limit_patterns: Sequence[str] = (r"Usage limit reached for",)
    shows_turns = True
    ready_patterns: Sequence[str] = (r"Type your message",)
    prompt_patterns: Sequence[str] = (
        r"Allow execution", r"Apply this change\?", r"Yes, allow once", r"Action Required", r"Do you trust this folder",
    )  # fmt: skip

    def has_id_form(self, text: str) -> bool:
        """Letters and digits, with dashes and underscores after the first one."""
        return len(text) in range(8, 129) and text[0] in ID_LETTERS and ID_LETTERS.union("_-").issuperset(text)

    def keeps_context(self, transcript: str, mark: str) -> bool:
        """No, if neither the last list of all messages (a compaction writes one) nor anything after it has the mark."""
        from onrecord.vendors.jsonl import has_since

        return has_since(transcript, ALL_MESSAGES, mark.encode())

    @property
    def capabilities(self) -> Capabilities:
        """Our ids; resume in the same directory only."""
        from onrecord.vendors.port import Capabilities

        return Capabilities(
            chooses_id=True, obtains_id=False, names=False, resumes_elsewhere=False, refuses_second_writer=False,
            headless=True, forks=False, context_at_start="first_prompt", context_bytes=self.context_bytes,
            blocks_tools=True, verified=True,
        )  # fmt: skip

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home, below the overriding directory."""
        from pathlib import Path

        return (Path(env["GEMINI_CLI_HOME"]) if env.get("GEMINI_CLI_HOME") else user_home(env)) / ".gemini"

    def start(self, options: LaunchOptions) -> Launch:
        """Start with our id."""
        chosen = ["--session-id", self.checked_id(options.vendor_id)] if options.vendor_id is not None else []
        return self._launch(options, chosen, options.cwd)

    def resume(self, options: LaunchOptions) -> Launch:
        """Resume by id in the directory where it started: Gemini does not find it elsewhere."""
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
        streams = not has(extra, "-o", "--output-format")
        said = self.warnings([*argv, "-p"] if options.headless else argv, options.env, cwd)
        if options.prompt.lstrip().startswith(LEFT_OUT):
            said.append("when gemini resumes, it drops a turn that begins like this prompt from its history")
        stdin = None
        if options.headless and len(options.prompt.encode("utf-8", "surrogatepass")) > PROMPT_LIMIT:
            stdin = options.prompt
        elif options.prompt:
            argv += prompted(
                options.prompt, *(("-p", "--prompt") if options.headless else ("-i", "--prompt-interactive"))
            )
        return Launch(argv, {"GEMINI_CLI_NO_RELAUNCH": "true"}, cwd, stdin=stdin, warnings=said, streams=streams)

    def warnings(self, command: Sequence[str], env: Mapping[str, str], cwd: str = "") -> list[str]:
        """Flags that wait for a person, or start another conversation than intended."""
        said = []
        if not has(command, "-y", "--yolo", "--approval-mode", "--policy") and not self._permits(env, cwd):
            headless = has(command, "-p", "--prompt")
            said.append(
                "gemini -p without --yolo or --approval-mode has no tools that write or run commands"
                if headless else "gemini without --yolo or --approval-mode stops for permissions"
            )  # fmt: skip
        resumed = valued(command, "-r", "--resume")
        if resumed is not None and (not self.is_id(resumed) or resumed.isdigit() or resumed == "latest"):
            said.append("gemini --resume latest (or an index) may resume the wrong conversation or start a new one")
        return said

    def _permits(self, env: Mapping[str, str], cwd: str) -> bool:
        """Whether its settings or policies allow tools without asking."""
        from pathlib import Path

        from onrecord.vendors.base import set_in

        homes = [Path(cwd or ".") / ".gemini", self.home(env)]
        files = [home / "settings.json" for home in homes]
        mode = set_in(files, "general", "defaultApprovalMode") or set_in(files, "tools", "approvalMode")
        rules = set_in(files, "tools", "allowed") or any(list((home / "policies").glob("*.toml")) for home in homes)
        return mode in ("auto_edit", "autoEdit", "yolo") or bool(rules)

    # Conversations

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Location | None:
        """File names have only eight letters of the id, so the head of each file is read; a stub does not count.

        A file without a head is one whose head another start has deleted: then the name is all there is.
        """
        if not self.is_id(vendor_id):
            return None
        home = self.home(env)
        paths = sorted((home / "tmp").glob(f"*/chats/session-*-{vendor_id[:8]}.jsonl"))
        found = [path for path in paths if _id_of(path) == vendor_id]
        real = [path for path in found if not _is_stub(path)]
        real = real or [path for path in paths if not _id_of(path) and not _is_stub(path)] or found
        return self._location(real[0], vendor_id, home) if real else None

    def locations(self, env: Mapping[str, str]) -> Iterator[Location]:
        """Every conversation of every project, once."""
        home = self.home(env)
        seen = set()
        for path in sorted((home / "tmp").glob("*/chats/session-*.jsonl")):
            vendor_id = _id_of(path)
            if self.is_id(vendor_id) and vendor_id not in seen:
                seen.add(vendor_id)
                if location := self.find(vendor_id, env):
                    yield location

    def _location(self, path: Path, vendor_id: str, home: Path) -> Location:
        from onrecord.machine.files import read_regular
        from onrecord.vendors.transcripts import Location

        folder = path.parent.parent
        try:
            cwd = read_regular(folder / ".project_root").decode().strip()
        except (OSError, ValueError):
            projects = settings_at(home / "projects.json").get("projects")
            slugs = projects if isinstance(projects, dict) else {}
            cwd = next((text(root) for root, slug in slugs.items() if slug == folder.name), "")
        return Location(vendor_id, str(path), str(home), cwd)

    def is_whole(self, record: dict[str, Any]) -> bool:
        """A head, a message, or a patch."""
        return _is_whole(record)

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """A message has items; a patch repeats messages, see `items`."""
        from onrecord.vendors.gemini_records import message_items, patched_in, usage_in
        from onrecord.vendors.transcripts import Entry

        if "$set" in record:
            again = [one._replace(again=True) for message in patched_in(record) for one in usage_in(message)]
            return Entry(raw, "$set", usage=again)
        if "projectHash" in record:
            return Entry(raw, "header", at=text(record.get("startTime")))
        kind = text(record.get("type"))
        return Entry(
            raw, kind, text(record.get("id")), "", text(record.get("timestamp")), message_items(record),
            kind in MESSAGES or kind in NOTES, usage_in(record),
        )  # fmt: skip

    def items(self, entries: Iterable[Entry]) -> list[tuple[int, Item]]:
        """Repeated messages count once, in their most complete form; a patch adds new messages and removes nothing.

        A resume patches the history with the remaining turns; the dropped ones stay on record.
        """
        from onrecord.vendors.base import answered_once
        from onrecord.vendors.gemini_records import message_items, patched

        said: dict[str, tuple[int, Sequence[Item]]] = {}
        for number, entry in enumerate(entries):
            if entry.kind == "$set":
                for message in patched(entry.raw):
                    said.setdefault(text(message.get("id")), (number, message_items(message)))
            else:
                said[entry.id or f"#{number}"] = number, entry.items
        return answered_once(said.values())

    def start_hazards(self, env: Mapping[str, str]) -> list[Hazard]:
        """With retention, which is on by default, a start deletes the files of others that have no message yet."""
        message = "every start of gemini may delete a conversation that has just begun in the same directory"
        return self._with_retention(env, message)

    def _with_retention(self, env: Mapping[str, str], message: str) -> list[Hazard]:
        from onrecord.vendors.gemini_projects import retention_in
        from onrecord.vendors.port import Hazard

        settings = self.home(env) / "settings.json"
        fix = f"set general.sessionRetention.enabled to false in {settings}"
        return [] if retention_in(settings).get("enabled") is False else [
            Hazard("retention", message, fix, (str(settings),))
        ]  # fmt: skip

    def said(self, entry: Entry, record: dict[str, Any]) -> Sequence[Said]:
        """A message; or the messages of a patch, which repeat earlier ones and replace none."""
        from onrecord.vendors.gemini_records import message_items, patched_in, thoughts_in
        from onrecord.vendors.saying import said

        if "$set" not in record:
            return said([*thoughts_in(record), *entry.items], record, id=entry.id)
        return [
            one
            for message in patched_in(record)
            for one in said(
                [*thoughts_in(message), *message_items(message)], record, id=text(message.get("id")), weak=True
            )
        ]

    def hazards(self, location: Location, env: Mapping[str, str]) -> list[Hazard]:
        """Retention, stubs, a missing head, an unfinished line, turns that a resume drops."""
        from onrecord.vendors import jsonl
        from onrecord.vendors.port import Hazard

        found = super().hazards(location, env)
        found += self._with_retention(env, "after a resume, the next start of another conversation may delete this one")
        real = self.find(location.vendor_id, env) or location
        found += [
            Hazard("stub", f"{stub} would make gemini delete the conversation", "move the stub away", (stub,))
            for stub in self._stubs(real)
        ]
        if _exists(real.path) and not _id_of(real.path):
            found.append(Hazard(
                "headless", "another start of gemini has deleted the head of its file, so gemini would not find it",
                "write the head again", (real.path,), fatal=True,
            ))  # fmt: skip
        if _exists(real.path) and jsonl.unfinished_tail(real.path):
            found.append(Hazard(
                "torn_tail", "the last line is unfinished; the next record would be appended to it and lost",
                "remove the unfinished line (a copy is kept beside the file)", (real.path,),
            ))  # fmt: skip
        if _exists(real.path) and (dropped := _left_out(real.path)):
            found.append(Hazard(
                "turns_left_out", f"gemini will drop {dropped} turns from the history: they begin with hook context",
                "no file needs a change; repeat what matters in the next prompt", (),
            ))  # fmt: skip
        return found

    def _stubs(self, location: Location) -> list[str]:
        from pathlib import Path

        real = Path(location.path)
        vendor_id = location.vendor_id
        beside = sorted(real.parent.glob(f"session-*-{vendor_id[:8]}.jsonl")) if self.is_id(vendor_id) else []
        return [str(path) for path in beside if path != real and _id_of(path) == vendor_id and _is_stub(path)]

    def mend(self, hazard: Hazard, location: Location, env: Mapping[str, str]) -> None:
        """Fix only what the hazard names."""
        from pathlib import Path

        from onrecord.vendors import jsonl

        if hazard.code == "retention":
            from onrecord.vendors.gemini_projects import switch_retention_off

            switch_retention_off(self.home(env) / "settings.json")
        elif hazard.code == "stub":
            for stub in set(hazard.touches) & set(self._stubs(self.find(location.vendor_id, env) or location)):
                Path(stub).rename(f"{stub}.onrecord-stub")
        elif hazard.code == "headless":
            from onrecord.vendors.gemini_projects import write_head

            write_head(self.find(location.vendor_id, env) or location)
        elif hazard.code == "torn_tail":
            jsonl.cut_tail((self.find(location.vendor_id, env) or location).path)
        elif hazard.code != "turns_left_out":
            super().mend(hazard, location, env)

    def put_back(self, location: Location, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Location:
        """Into the folder of `cwd`, which is added to its list of projects if necessary."""
        import os

        from onrecord.vendors.gemini_projects import folder_for, in_project, name_of, with_head

        vendor_id = self.checked_id(location.vendor_id)
        self.absent(location, env)
        from onrecord.vendors.jsonl import write_new

        home, here = self.home(env), os.path.realpath(cwd)
        entries = with_head(entries, vendor_id, location.cwd or here)
        name, entries = name_of(location.path, vendor_id, entries)
        path = folder_for(here, home) / "chats" / name
        write_new(path, (in_project(raw, here, moved=here != location.cwd) for raw in entries))
        return self._location(path, vendor_id, home)

    def absent(self, location: Location, env: Mapping[str, str]) -> None:
        """A stub is not the conversation."""
        from pathlib import Path

        there = self.find(location.vendor_id, env)
        if there is not None and not _is_stub(Path(there.path)):
            super().absent(location, env)

    def expires_at(self, location: Location, env: Mapping[str, str]) -> float | None:
        """By the retention in its settings, or the documented default."""
        import re
        from pathlib import Path

        from onrecord.vendors.gemini_projects import retention_in

        retention = retention_in(self.home(env) / "settings.json")
        age = re.fullmatch(r"(\d+)([hdwm])", str(retention.get("maxAge", f"{RETENTION_DAYS}d")))
        if retention.get("enabled") is False or age is None or not _exists(location.path):
            return None
        return Path(location.path).stat().st_mtime + int(age[1]) * UNITS[age[2]]

    def ending(self, record: dict[str, Any]) -> End:
        """The result record, or errors on the way."""
        from onrecord.vendors.endings import End, text_in

        if record.get("type") == "result" or "status" in record:
            ok = record.get("status") == "success"
            return End(ok, "" if ok else text_in(record.get("error")) or text_in(record.get("status")))
        if record.get("type") == "error" and record.get("severity") != "warning":
            return End(None, text_in(record.get("message")) or text_in(record.get("error")))
        if "response" in record and "session_id" in record:
            return End(ok=not record.get("error"), error=text_in(record.get("error")))
        return End(None, text_in(record.get("error")))

    def printed(self, record: dict[str, Any]) -> str:
        """The model's words, as they come."""
        by_model = record.get("type") == "message" and record.get("role") == "assistant"
        return text(record.get("content")) if by_model else ""

    def turn(self, record: dict[str, Any]) -> Turn | None:
        """A message of the model with words and no tool calls ends a turn; so does an error or a cancelled request."""
        from onrecord.vendors.port import ABORTED, FAILED, IDLE, WORKING, Turn

        kind = record.get("type")
        if kind == "user":
            return Turn(WORKING, prompt=_first_words(record))
        said = _first_words(record)
        if kind == "gemini":  # without words its tools still run: it is written again with their results
            return Turn(WORKING if record.get("toolCalls") or not said.strip() else IDLE, answered=True)
        if kind == "info" and "cancelled" in said:
            return Turn(ABORTED)
        return Turn(FAILED, said) if kind == "error" else None

    # Hooks

    def files(self, scope: str, root: Path, env: Mapping[str, str]) -> list[HookFile]:
        """One settings file for hooks and servers."""
        from onrecord.vendors.port import USER_SCOPE, HookFile

        home = self.home(env) if scope == USER_SCOPE else root / ".gemini"
        told = home / "GEMINI.md" if scope == USER_SCOPE else root / "GEMINI.md"
        return [HookFile(home / "settings.json", "hooks"), HookFile(told, "instructions"),
                HookFile(home / "settings.json", "mcp")]  # fmt: skip

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """The hooks to merge into its settings; its timeouts are in milliseconds.

        Gemini CLI shows the name of a hook while it runs and beside its lines; without one, the whole command.
        """
        return {"hooks": hook_entries(command, self.name, EVENTS, timeout=HOOK_MILLISECONDS, name=SHOWN_NAME)}

    def sample_hook(self, vendor_id: str) -> tuple[str, dict[str, Any]]:
        """An edit, in its form."""
        about = {"tool_name": "write_file", "tool_input": {"file_path": "a.txt", "content": "a"}}
        return "BeforeTool", {"session_id": vendor_id, "hook_event_name": "BeforeTool", **about}

    def parse_hook(self, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
        """A successful command has no exit code in its response: only a failed one has."""
        call = super().parse_hook(payload, env)
        if call.moment == AFTER_TOOL and call.tool == "run_shell_command" and call.exit_code is None:
            told = "Process Group PGID:" in call.output and "Signal:" not in call.output
            call.exit_code = 0 if told else None
        return call

    def reply(self, call: HookCall, answer: HookAnswer) -> Reply:
        """Refusals are at the top level here; there is no "ask", so a question becomes a refusal with its reason."""
        if answer.decision and call.moment in (BEFORE_TOOL, STOP):
            said = {"decision": "deny", "reason": answer.reason or NO_REASON}
            return Reply(json.dumps(said | ({"systemMessage": answer.notice} if answer.notice else {})))
        told = super().reply(call, answer)  # with `-p`, Gemini prints a notice twice unless silence is asked for
        return Reply(json.dumps(json.loads(told.stdout) | {"suppressOutput": True})) if answer.notice else told


def _exists(path: str) -> bool:
    from pathlib import Path

    return Path(path).is_file()


def _id_of(path: Path | str) -> str:
    from onrecord.vendors.jsonl import first_record

    head = first_record(str(path), lambda record: "projectHash" in record) or {}
    return text(head.get("sessionId"))


def _is_whole(record: dict[str, Any]) -> bool:
    if "$set" in record or {"sessionId", "projectHash"} <= record.keys():
        return True
    return {"id", "timestamp", "type"} <= record.keys()


def _lines(path: str, containing: bytes = b"") -> Iterator[dict[str, Any]]:
    """The records of a file, in order."""
    from onrecord.vendors.jsonl import records_in

    return records_in(path, _is_whole, containing)


def _is_stub(path: Path) -> bool:
    """Whether a file has a head and context, but no message."""
    return not any(record.get("type") in MESSAGES for record in _lines(str(path)))


def _left_out(path: str) -> int:
    turns = {
        text(record.get("id"))
        for record in _lines(path, LEFT_OUT[0].encode())
        if record.get("type") == "user" and _first_words(record).startswith(LEFT_OUT[0])
    }
    return len(turns)


def _first_words(record: dict[str, Any]) -> str:
    content = record.get("content")
    if isinstance(content, list):
        content = next((part.get("text") for part in content if isinstance(part, dict)), "")
    return text(content)


VENDOR: Vendor = Gemini()
