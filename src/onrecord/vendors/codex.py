"""OpenAI Codex: an id from its app server before the start, resume by id from anywhere, one rollout file per thread.

Without `--no-daemon` the terminal program delegates its work to a shared server that survives a kill; we always pass
the flag. `exec` silently skips hooks that are not trusted, and silently starts a new thread if a *name* is unknown.
"""

from __future__ import annotations

from onrecord.vendors.base import has, home_of, named, text
from onrecord.vendors.claude_shaped import Dialect, Shaped, hook_entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from onrecord.log.item_values import Item, ToolCall
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
    "SessionStart": None, "UserPromptSubmit": None, "PreToolUse": None, "PostToolUse": None, "PreCompact": None,
    "Stop": None, "SessionEnd": None,
}  # fmt: skip
ID_SECONDS = 60.0
"""The timeout of the app server for an id."""
LINES_KNOWN = frozenset({
    "session_meta", "event_msg", "turn_context", "world_state", "token_usage_record", "compacted", "ghost_snapshot",
})  # fmt: skip
EXEC_ONLY = frozenset({
    "-s", "--sandbox", "-p", "--profile", "-C", "--cd", "--add-dir", "--oss", "--local-provider", "--approve-for-me",
    "--color",
})  # fmt: skip
"""Flags of `codex exec` that `codex exec resume` does not know: they go before the word `resume`."""
INSTRUCTIONS = "# AGENTS.md instructions"
"""How a user's message begins that carries the instructions of the project."""
ROLLOUT = r"rollout-(\d{4})-(\d{2})-(\d{2})T\d{2}-\d{2}-\d{2}-"


class Codex(Shaped):
    """OpenAI Codex."""

    name = "codex"
    title = "OpenAI Codex"
    dialect = Dialect("codex", asks=False)
    programs: Sequence[str] = ("codex",)
    home_variable = "CODEX_HOME"
    home_name = ".codex"
    own_flags: Sequence[str] = ("--last", "resume", "fork", "exec")
    not_said: Sequence[str] = ("<", "# AGENTS.md instructions")
    interrupt_keys: Sequence[str] = ("Escape",)
    exit_keys: Sequence[str] = ("C-c", "C-c")
    shows_turns = True
    prints_last = True
    prompt_patterns: Sequence[str] = (
        r"Would you like to (run the following command|make the following edits)", r"Allow command\?",
        r"Yes, (proceed|just this once)", r"Press enter to confirm", r"Hooks need review",
        r"enter/esc confirm",
    )  # fmt: skip

    @property
    def capabilities(self) -> Capabilities:
        """Ids from its app server; it refuses a second writer itself."""
        from onrecord.vendors.port import Capabilities

        return Capabilities(
            chooses_id=False, obtains_id=True, names=False, resumes_elsewhere=True, refuses_second_writer=True,
            headless=True, forks=True, context_at_start="first_prompt", context_bytes=self.context_bytes,
            blocks_tools=True, verified=True,
        )  # fmt: skip

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home."""
        return home_of(env, self.home_variable, self.home_name)

    def start(self, options: LaunchOptions) -> Launch:
        """Start; an obtained thread starts by resuming it."""
        return self._launch(options, options.vendor_id)

    def resume(self, options: LaunchOptions) -> Launch:
        """Resume by id; a missing id ends with status 1."""
        return self._launch(options, self.checked_id(options.vendor_id))

    def _launch(self, options: LaunchOptions, vendor_id: str | None) -> Launch:
        from onrecord.vendors.port import Launch

        extra = self.checked_extra(options)
        chosen = ["resume"] if vendor_id is not None else []
        thread = [self.checked_id(vendor_id)] if vendor_id is not None else []
        program = self.program(options)
        if not options.headless:
            prompt = [options.prompt] if options.prompt else []
            dashes = ["--"] if options.prompt.startswith("-") else []
            argv = [
                program,
                *([] if has(extra, "--no-daemon") else ["--no-daemon"]),
                *chosen,
                *extra,
                *dashes,
                *thread,
                *prompt,
            ]
            return Launch(argv, {}, options.cwd, warnings=self.warnings(argv, options.env))
        from onrecord.vendors.arguments import taken_out

        before, extra = taken_out(self.name, extra, EXEC_ONLY if chosen else ())
        argv = [program, "exec", *before, *chosen]
        if not has(extra, "--json"):
            argv.append("--json")
        if not has(extra, "--skip-git-repo-check") and not _in_repository(options.cwd):
            argv.append("--skip-git-repo-check")
        argv += [*extra, *thread, "-"]  # the dash: the prompt comes on standard input, whatever it begins with
        said = self.warnings(argv, options.env)
        if not has(argv, "--dangerously-bypass-hook-trust") and not self.trusts_hooks(options.env):
            said.append(
                "codex exec silently skips hooks that are not trusted: start codex once and accept them, "
                "or pass --dangerously-bypass-hook-trust"
            )
        return Launch(argv, {}, options.cwd, stdin=options.prompt, warnings=said, streams=not has(extra, "--json"))

    def setup_warnings(self, path: Path, env: Mapping[str, str]) -> list[str]:
        """Codex silently skips hooks that the user has not accepted."""
        if self.trusts_hooks(env, path):
            return []
        return [f"codex does not trust the hooks in {path} yet and skips them: start codex once and accept them"]

    def trusts_hooks(self, env: Mapping[str, str], path: Path | None = None) -> bool:
        """Whether its settings trust any hook, or one of this file."""
        import tomllib

        from onrecord.machine.files import read_regular

        try:
            settings = tomllib.loads(read_regular(self.home(env) / "config.toml").decode())
            states = settings["hooks"]["state"].items()
            return any("trusted_hash" in state and key.startswith(f"{path}:" if path else "") for key, state in states)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def warnings(self, command: Sequence[str], env: Mapping[str, str], cwd: str = "") -> list[str]:
        """Resumes that start a new thread."""
        said = []
        if has(command, "--last"):
            said.append("codex resume --last starts a new conversation if there is none; resume by id")
        if "resume" in command:
            behind = [word for word in command[list(command).index("resume") + 1 :] if not word.startswith("-")]
            if not any(map(self.is_id, behind)):
                said.append("codex resume by name picks the newest with that name, or starts a new one; resume by id")
        return said

    def obtain_id(self, options: LaunchOptions) -> str | None:
        """Ask its app server for a thread and name it, which saves it; None if that does not succeed in time."""
        import json
        import time

        from onrecord.vendors.processes import helper, read_line

        name = named(options.name) or "onrecord"
        deadline = time.monotonic() + ID_SECONDS
        try:
            with helper([self.program(options), "app-server"], options.env, options.cwd) as server:

                def ask(number: int, method: str, **params: Any) -> dict[str, Any]:
                    tell({"id": number, "method": method, "params": params})
                    while line := read_line(server, deadline):
                        answer = json.loads(line)
                        if isinstance(answer, dict) and answer.get("id") == number and "method" not in answer:
                            result: dict[str, Any] = answer["result"]
                            return result
                    raise EOFError

                def tell(message: dict[str, Any]) -> None:
                    if server.stdin is not None:
                        server.stdin.write(json.dumps(message).encode() + b"\n")
                        server.stdin.flush()

                ask(1, "initialize", clientInfo={"name": "onrecord", "title": "onrecord", "version": "1"})
                tell({"method": "initialized"})
                thread = ask(2, "thread/start", cwd=options.cwd)["thread"]["id"]
                ask(3, "thread/name/set", threadId=thread, name=name)
        except (OSError, ValueError, KeyError, TypeError, EOFError):  # also TimeoutError, and an error for an answer
            return None
        return thread if self.is_id(thread) else None

    # Conversations

    def shares_process(self, pid: int) -> bool:
        """Without `--no-daemon`, one server runs the threads of all terminals."""
        from onrecord.machine import words_of

        return "app-server" in words_of(pid)

    def forked_from(self, call: HookCall, pid: int | None) -> str:
        """The head of its rollout names the thread it was forked from."""
        from onrecord.vendors.jsonl import first_record

        head = (first_record(call.transcript, lambda record: record.get("type") == "session_meta") or {}).get("payload")
        found = head.get("forked_from_id") if isinstance(head, dict) else None
        return found if isinstance(found, str) and self.is_id(found) and found != call.vendor_id else ""

    def locate(self, pid: int, env: Mapping[str, str]) -> str | None:
        """By the lock that a process holds on its thread; several locks (after /new) are ambiguous."""
        from onrecord.vendors.processes import family, lock_holders

        pids = set(family(pid))
        held = [
            path.stem
            for path in (self.home(env) / "thread-writer-locks").glob("*.lock")
            if self.is_id(path.stem) and pids.intersection(lock_holders(path))
        ]
        return held[0] if len(held) == 1 else None

    def holders(self, location: Location, env: Mapping[str, str]) -> Sequence[int]:
        """The processes that hold the thread's lock."""
        from onrecord.vendors.processes import lock_holders

        if not self.is_id(location.vendor_id):
            return ()
        return lock_holders(self.home(env) / "thread-writer-locks" / f"{location.vendor_id}.lock")

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Location | None:
        """Under the day it started, or among the archived ones."""
        if not self.is_id(vendor_id):
            return None
        home = self.home(env)
        for pattern in (
            f"sessions/*/*/*/rollout-*-{vendor_id}.jsonl",
            f"archived_sessions/rollout-*-{vendor_id}.jsonl",
        ):
            if found := sorted(home.glob(pattern)):
                return self._location(found[0], vendor_id, home)
        return None

    def locations(self, env: Mapping[str, str]) -> Iterator[Location]:
        """Every thread of every day."""
        home = self.home(env)
        for path in sorted(home.glob("sessions/*/*/*/rollout-*.jsonl")):
            if self.is_id(vendor_id := path.stem[-36:]):
                yield self._location(path, vendor_id, home)

    def _location(self, path: Path, vendor_id: str, home: Path) -> Location:
        from onrecord.vendors.jsonl import first_record
        from onrecord.vendors.transcripts import Location

        first = first_record(str(path), lambda record: record.get("type") == "session_meta") or {}
        about = first.get("payload")
        return Location(vendor_id, str(path), str(home), text(about.get("cwd")) if isinstance(about, dict) else "")

    def is_whole(self, record: dict[str, Any]) -> bool:
        """A line has a type and a payload."""
        return isinstance(record.get("type"), str) and "payload" in record

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """Response items have the model's input and output; events repeat them for the screen."""
        from onrecord.vendors.transcripts import Entry

        kind = text(record.get("type"))
        given = record.get("payload")
        payload: dict[str, Any] = given if isinstance(given, dict) else {}
        items: list[Item] = []
        known = kind in LINES_KNOWN
        if kind == "response_item":
            items, known = _response(payload)
            kind = f"{kind}/{text(payload.get('type'))}"
        elif kind == "event_msg":
            kind = f"{kind}/{text(payload.get('type'))}"
        elif kind == "compacted" and text(payload.get("message")):
            items = [{"role": "system", "content": payload["message"]}]
        return Entry(
            raw, kind, text(payload.get("id")) if items else "", "", text(record.get("timestamp")), items, known,
            _used(kind, record, payload),
        )  # fmt: skip

    def said(self, entry: Entry, record: dict[str, Any]) -> Sequence[Said]:
        """Response items; events tell of aborted turns only, since they repeat the rest."""
        from onrecord.log.items import text_of
        from onrecord.log.readings import ABORTS
        from onrecord.vendors.saying import said, summary, thought
        from onrecord.vendors.transcripts import Said

        given = record.get("payload")
        payload: dict[str, Any] = given if isinstance(given, dict) else {}
        if entry.kind == "event_msg/turn_aborted":
            return [Said((), turn=ABORTS)]
        if entry.kind == "compacted":
            return summary(payload.get("message"))
        if entry.kind == "response_item/reasoning":
            parts = payload.get("summary")
            told = (
                [text(part.get("text")) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
            )
            items = thought("\n".join(told))
            return [Said(items, text(payload.get("id")))] if items else ()
        items = [item for item in entry.items if not text_of(item).startswith(INSTRUCTIONS)]
        return said(items, record, id=entry.id)

    def put_back(self, location: Location, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Location:
        """Under the day it started, word for word: it resumes from any directory."""
        import json
        import re
        from itertools import chain
        from pathlib import Path

        from onrecord.errors import InvalidInput
        from onrecord.vendors.jsonl import write_new

        vendor_id = self.checked_id(location.vendor_id)
        self.absent(location, env)
        name = Path(location.path).name
        day = re.fullmatch(f"{ROLLOUT}{vendor_id}\\.jsonl", name)
        if day is None:
            first = next(entries, "{}")
            entries = chain([first], entries)
            at = text(json.loads(first).get("timestamp"))[:19].replace(":", "-")
            name = f"rollout-{at}-{vendor_id}.jsonl"
            day = re.fullmatch(f"{ROLLOUT}{vendor_id}\\.jsonl", name)
        if day is None:
            raise InvalidInput("the mirrored thread has no start time in its first record", hint="import it again")
        path = self.home(env) / "sessions" / day[1] / day[2] / day[3] / name
        write_new(path, entries)
        return self._location(path, vendor_id, self.home(env))

    def ending(self, record: dict[str, Any]) -> End:
        """The end of a turn, or its failure."""
        from onrecord.vendors.endings import End, text_in

        kind = record.get("type")
        if kind == "turn.completed":
            return End(ok=True)
        if kind in ("turn.failed", "error"):
            return End(False, text_in(record.get("error")) or text_in(record.get("message")))  # noqa: FBT003 - the field is named ok
        return End()

    def printed(self, record: dict[str, Any]) -> str:
        """The model's last message; the earlier ones go to standard error."""
        item = record.get("item") if record.get("type") == "item.completed" else None
        said = text(item.get("text")) if isinstance(item, dict) and item.get("type") == "agent_message" else ""
        return f"{said}\n" if said else ""

    def turn(self, record: dict[str, Any]) -> Turn | None:
        """The events around a turn; the one that completes it has the error, if one ended it."""
        from onrecord.vendors.endings import text_in
        from onrecord.vendors.port import ABORTED, FAILED, IDLE, WORKING, Turn

        given = record.get("payload")
        payload: dict[str, Any] = given if isinstance(given, dict) else {}
        kind = payload.get("type")
        if record.get("type") == "response_item":
            by_model = kind == "function_call" or (kind == "message" and payload.get("role") == "assistant")
            return Turn(WORKING, answered=True) if by_model else None
        if record.get("type") != "event_msg":
            return None
        if kind == "task_complete":
            error = payload.get("error")
            return Turn(FAILED, text_in(error)) if error else Turn(IDLE)
        if kind == "item_completed":
            item = payload.get("item")
            asked = isinstance(item, dict) and item.get("type") == "UserMessage"
            return Turn(WORKING, prompt=text(_words(item.get("content")))) if asked and isinstance(item, dict) else None
        return {"task_started": Turn(WORKING), "turn_aborted": Turn(ABORTED)}.get(text(kind))

    # Hooks

    def files(self, scope: str, root: Path, env: Mapping[str, str]) -> list[HookFile]:
        """Hooks are in a JSON file; servers are in its TOML file."""
        from onrecord.vendors.port import USER_SCOPE, HookFile

        home = self.home(env) if scope == USER_SCOPE else root / ".codex"
        told = home / "AGENTS.md" if scope == USER_SCOPE else root / "AGENTS.md"
        return [HookFile(home / "hooks.json", "hooks"), HookFile(told, "instructions"),
                HookFile(home / "config.toml", "mcp")]  # fmt: skip

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """The hooks to merge into hooks.json."""
        return {"hooks": hook_entries(command, self.name, EVENTS)}


def _in_repository(cwd: str) -> bool:
    from pathlib import Path

    here = Path(cwd)
    return any((folder / ".git").exists() for folder in (here, *here.parents))


def _response(payload: dict[str, Any]) -> tuple[list[Item], bool]:
    """The items of one response item, and whether its type is known."""
    kind = payload.get("type")
    call = text(payload.get("call_id")) or text(payload.get("id"))
    if kind == "message":
        role = {"developer": "system"}.get(text(payload.get("role")), text(payload.get("role")))
        return [{"role": role, "content": _words(payload.get("content"))}], True
    if kind in ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call"):
        given = payload.get("arguments", payload.get("input", payload.get("action")))
        name = text(payload.get("name")) or str(kind)
        calls: list[ToolCall] = [{"id": call, "name": name, "arguments": _arguments(given)}]
        return [{"role": "assistant", "content": "", "tool_calls": calls}], True
    if kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output"):
        output = payload.get("output")
        return [{"role": "tool", "call": call, "content": _words(output)}], True
    return [], kind in ("reasoning", "web_search_call", "compaction", "ghost_snapshot", "other")


def _used(kind: str, record: dict[str, Any], payload: dict[str, Any]) -> list[Usage]:
    """What a response used; the context of a turn names its model. What a cache was used for is part of the input.

    Versions that number their records write one for each response; older ones only say how the totals have grown.
    """
    from onrecord.vendors.counts import count, used
    from onrecord.vendors.transcripts import Usage

    if kind == "turn_context":
        return [Usage("", model)] if (model := text(payload.get("model"))) else []
    info = payload.get("info")
    if kind == "token_usage_record":
        call, about = text(payload.get("response_id")), payload.get("usage")
    elif kind == "event_msg/token_count" and "ordinal" not in record and isinstance(info, dict):
        total = info.get("total_token_usage")
        call, about = (
            f"total/{count(total, 'input_tokens')}/{count(total, 'output_tokens')}",
            info.get("last_token_usage"),
        )
    else:
        return []
    return used(
        Usage(
            call, "", count(about, "input_tokens"), count(about, "cached_input_tokens"),
            count(about, "cache_write_input_tokens"), count(about, "output_tokens"),
            count(about, "reasoning_output_tokens"), local=kind != "token_usage_record",
        )
    )  # fmt: skip


def _words(content: Any) -> Any:
    if isinstance(content, dict):
        content = content.get("content", "")
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "\n".join(part["text"] for part in content)
    return content if isinstance(content, str | list) else str(content or "")


def _arguments(given: object) -> object:
    import json

    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return given


VENDOR: Vendor = Codex()
