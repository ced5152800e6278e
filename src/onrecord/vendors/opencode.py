"""opencode: an id from its server before the start, resume by id in its own directory, conversations in SQLite.

A resume from another directory runs the turn and never returns, so we always pass the conversation's own directory. Its
hooks are a plugin; ours sends every event to our hook and acts on the answer.
"""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.vendors.base import ID_LETTERS, has, named, prompted, text, user_home
from onrecord.vendors.claude_shaped import NO_REASON, Dialect, Shaped
from onrecord.vendors.hooks import AFTER_TOOL, BEFORE_TOOL, COMPACT, FAILED, PROMPT, RETRIES, START, STOP, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from onrecord.log.item_values import Item, ToolCall
    from onrecord.vendors.endings import End
    from onrecord.vendors.hooks import HookAnswer, HookCall
    from onrecord.vendors.port import (
        Capabilities,
        Chunk,
        Entry,
        HookFile,
        Launch,
        LaunchOptions,
        Location,
        Mark,
        Said,
        Turn,
        Usage,
        Vendor,
    )

MOMENTS_OF = {
    "session.start": START, "chat.message": PROMPT, "tool.execute.before": BEFORE_TOOL,
    "tool.execute.after": AFTER_TOOL, "session.idle": STOP, "session.compacted": COMPACT,
    "session.retry": FAILED,
}  # fmt: skip
"""The event names of our plugin, modelled on opencode's."""
ID_LIMIT = 64
"""How many characters may follow `ses_` in an id."""
ID_SECONDS = 90.0
"""The timeout of its server for an id."""
SILENT_PARTS = frozenset({
    "step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction", "subtask", "reasoning", "file",
})  # fmt: skip

_SPOKEN = ("message", "part")
INTERRUPTED = "MessageAbortedError"
"""The error of a message that its user interrupted."""
PACKAGE = "@opencode-ai/plugin"


class Opencode(Shaped):
    """opencode."""

    name = "opencode"
    title = "opencode"
    programs: Sequence[str] = ("opencode",)
    context_lasts = False
    dialect = Dialect("opencode", moments=MOMENTS_OF)
    shares_file = True
    shows_turns = True
    own_flags: Sequence[str] = ("-s", "--session", "-c", "--continue", "--fork", "--dir")
    fork_flags: Sequence[str] = ("--fork",)
    resume_flags: Sequence[str] = ("--session", "-s")
    interrupt_keys: Sequence[str] = ("Escape", "Escape")
    exit_keys: Sequence[str] = ("C-c",)
    prompt_patterns: Sequence[str] = (r"Permission required", r"Allow once")

    def has_id_form(self, text: str) -> bool:
        """`ses_`, then letters and digits."""
        start, _found, rest = text.partition("_")
        return start == "ses" and 0 < len(rest) <= ID_LIMIT and ID_LETTERS.issuperset(rest)

    @property
    def capabilities(self) -> Capabilities:
        """Ids from its server; resume in the same directory only."""
        from onrecord.vendors.port import Capabilities

        return Capabilities(
            chooses_id=False, obtains_id=True, names=True, resumes_elsewhere=False, refuses_second_writer=False,
            headless=True, forks=True, context_at_start="first_prompt", context_bytes=self.context_bytes,
            blocks_tools=True, verified=True,
        )  # fmt: skip

    def home(self, env: Mapping[str, str]) -> Path:
        """Where its settings and plugins are."""
        return _base(env, "XDG_CONFIG_HOME", ".config") / "opencode"

    def database(self, env: Mapping[str, str]) -> Path:
        """Where its conversations are."""
        from pathlib import Path

        folder = _base(env, "XDG_DATA_HOME", ".local/share") / "opencode"
        return folder / Path(env["OPENCODE_DB"]) if env.get("OPENCODE_DB") else folder / "opencode.db"

    def start(self, options: LaunchOptions) -> Launch:
        """Start, in an obtained conversation if there is one."""
        return self._launch(options, options.vendor_id, options.cwd)

    def resume(self, options: LaunchOptions) -> Launch:
        """Resume by id, in its own directory."""
        vendor_id = self.checked_id(options.vendor_id)
        location = self.find(vendor_id, options.env)
        return self._launch(options, vendor_id, (location and location.cwd) or options.cwd)

    def _launch(self, options: LaunchOptions, vendor_id: str | None, cwd: str) -> Launch:
        from onrecord.vendors.port import Launch

        extra = self.checked_extra(options)
        chosen = ["-s", self.checked_id(vendor_id)] if vendor_id is not None else []
        argv, waits = [self.program(options)], self._waits_for_npm(cwd, options.env)
        if not options.headless:
            argv += [*chosen, *extra, *(prompted(options.prompt, "--prompt", "--prompt") if options.prompt else ())]
            return Launch(argv, {}, cwd, warnings=[*self.warnings(argv, options.env), *waits])
        argv += ["run", *chosen, "--dir", cwd]
        if not has(extra, "--format"):
            argv += ["--format", "json"]
        if vendor_id is None and (name := named(options.name)):
            argv += ["--title", name]
        # opencode would put quotes around a prompt in the arguments.
        said = [*self.warnings(argv, options.env), *waits]
        streams = not has(extra, "--format")
        return Launch([*argv, *extra], {}, cwd, stdin=options.prompt, warnings=said, streams=streams)

    def warnings(self, command: Sequence[str], env: Mapping[str, str], cwd: str = "") -> list[str]:
        """Flags that start another conversation, or change the prompt."""
        said = []
        if has(command, "-c", "--continue"):
            said.append("opencode --continue starts a new conversation if there is none; resume by id")
        if "run" in command[1:2] and " " in command[-1] and not command[-2].startswith("-"):
            said.append("opencode run puts quotes around a prompt with spaces; pass it on standard input")
        if has(command, "-s", "--session") and "run" in command[1:2] and not has(command, "--dir"):
            said.append("opencode run -s from another directory never returns; pass --dir with the conversation's own")
        return said

    def setup_warnings(self, path: Path, env: Mapping[str, str]) -> list[str]:
        """With a plugin, opencode installs its package of types beside it, and offline waits until npm gives up."""
        folder = path.parent.parent
        told = f"opencode installs {PACKAGE} in {folder} when it starts, and waits over a minute if npm is out of reach"
        return [] if _has_package(folder) else [f"{told}: start it once with a network"]

    def _waits_for_npm(self, cwd: str, env: Mapping[str, str]) -> list[str]:
        from pathlib import Path

        plugins = [folder / "plugin" / "onrecord.js" for folder in (self.home(env), Path(cwd) / ".opencode")]
        return [line for path in plugins if path.exists() for line in self.setup_warnings(path, env)]

    def obtain_id(self, options: LaunchOptions) -> str | None:
        """Ask its server for a conversation; None if that does not succeed in time. The server is ended afterwards."""
        import time

        from onrecord.machine import entropy
        from onrecord.vendors.processes import helper, read_line

        deadline = time.monotonic() + ID_SECONDS
        secret = entropy(16).hex()
        env = {**options.env, "OPENCODE_SERVER_PASSWORD": secret, "OPENCODE_SERVER_USERNAME": "onrecord"}
        argv = [self.program(options), "serve", "--hostname", "127.0.0.1", "--port", "0"]
        try:
            with helper(argv, env, options.cwd) as server:
                url = ""
                while not url and (line := read_line(server, deadline)):
                    found = line.decode(errors="replace").partition("http://127.0.0.1:")[2].split()
                    url = f"http://127.0.0.1:{int(found[0].rstrip('/'))}/session" if found else ""
                made = _post(url, {"title": named(options.name)} if options.name else {}, secret, deadline)
        except (OSError, ValueError):  # also TimeoutError
            return None
        return made if isinstance(made, str) and self.is_id(made) else None

    # Conversations

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Location | None:
        """Among the rows of its database."""
        from onrecord.vendors.opencode_rows import directory_of
        from onrecord.vendors.transcripts import Location

        if not self.is_id(vendor_id):
            return None
        path = self.database(env)
        cwd = directory_of(str(path), vendor_id)
        return None if cwd is None else Location(vendor_id, str(path), str(self.home(env)), cwd)

    def locations(self, env: Mapping[str, str]) -> Iterator[Location]:
        """Every conversation of its database."""
        from onrecord.vendors.opencode_rows import directories
        from onrecord.vendors.transcripts import Location

        path, home = str(self.database(env)), str(self.home(env))
        for vendor_id, cwd in directories(path):
            if self.is_id(vendor_id):
                yield Location(vendor_id, path, home, cwd)

    def read(self, location: Location, mark: Mark | None = None, *, limit: int = 4 * 1024 * 1024) -> Chunk:
        """Rows that are new or changed."""
        from onrecord.vendors.opencode_rows import read

        return read(location.path, self.checked_id(location.vendor_id), mark, limit, self.parse)

    def is_whole(self, record: dict[str, Any]) -> bool:
        """A row of ours."""
        return {"table", "row"} <= record.keys()

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """Parts have items; messages and conversations have none."""
        from onrecord.vendors.transcripts import Entry

        table, row = text(record.get("table")), record["row"]
        at = _time(row.get("time_created"))
        if table != "part":
            spent = _used(row) if table == "message" else ()
            return Entry(raw, table, text(row.get("id")), text(row.get("session_id")), at, (), table in _FRAMES, spent)
        data = json.loads(row["data"])
        kind = text(data.get("type"))
        items = _items(text(row.get("role")), data)
        known = kind in SILENT_PARTS or kind in ("text", "tool")
        return Entry(raw, f"part/{kind}", text(row.get("id")), text(row.get("message_id")), at, items, known)

    def items(self, entries: Iterable[Entry]) -> list[tuple[int, Item]]:
        """Parts in the order of their ids, which grow with time; each in its last form."""
        from onrecord.vendors.base import answered_once

        latest = {
            (entry.parent, entry.id): (number, entry.items)
            for number, entry in enumerate(entries)
            if entry.kind.startswith("part/")
        }
        return answered_once(latest[key] for key in sorted(latest))

    def move_within(self, location: Location, env: Mapping[str, str], cwd: str) -> Location:
        """Set the directory in the conversation's own row; all others stay as they are."""
        import os

        from onrecord.vendors.opencode_rows import move_to

        here = os.path.realpath(cwd)
        move_to(location.path, self.checked_id(location.vendor_id), here)
        return location._replace(cwd=here)

    def said(self, entry: Entry, record: dict[str, Any]) -> Sequence[Said]:
        """Parts: texts, tools, thinking, files; not what it adds to a prompt itself."""
        from onrecord.vendors.saying import said, thought

        if not entry.kind.startswith("part/"):
            return ()
        data = json.loads(record["row"]["data"])
        if data.get("synthetic") or data.get("ignored"):
            return ()
        items = list(entry.items)
        if entry.kind == "part/reasoning":
            items = thought(data.get("text"))
        elif entry.kind == "part/file":
            role = "assistant" if record["row"].get("role") == "assistant" else "user"
            items = [{"role": role, "content": [data]}]
        return said(items, record, id=entry.id)

    def put_back(self, location: Location, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Location:
        """Insert its rows, if the database here has exactly the same columns."""
        import os

        from onrecord.vendors.opencode_rows import put_back
        from onrecord.vendors.transcripts import Location

        vendor_id = self.checked_id(location.vendor_id)
        path, here = self.database(env), os.path.realpath(cwd)
        self.absent(location, env)
        put_back(str(path), vendor_id, entries, here)
        return Location(vendor_id, str(path), str(self.home(env)), here)

    def ending(self, record: dict[str, Any]) -> End:
        """The last step, or an error."""
        from onrecord.vendors.endings import End, text_in

        part = record.get("part")
        if record.get("type") == "error":
            return End(ok=False, error=text_in(record.get("error")))
        if record.get("type") == "step_finish" and isinstance(part, dict):
            reason = part.get("reason")
            return End(ok=True if reason == "stop" else None, error="token limit" if reason == "length" else "")
        return End()

    def turn(self, record: dict[str, Any]) -> Turn | None:
        """A prompt begins a turn, and the row of the model's message says how it ended.

        The row of a prompt is written again later, so only its text counts.
        """
        from onrecord.vendors.endings import text_in
        from onrecord.vendors.port import ABORTED, IDLE, WORKING, Turn
        from onrecord.vendors.port import FAILED as STOPPED

        row = record.get("row")
        try:
            data = json.loads(row["data"]) if isinstance(row, dict) and record.get("table") in _SPOKEN else None
        except (KeyError, TypeError, ValueError):
            return None
        if not isinstance(row, dict) or not isinstance(data, dict):
            return None
        if record["table"] == "part":
            asked = row.get("role") == "user" and data.get("type") == "text" and not data.get("synthetic")
            return Turn(WORKING, prompt=text(data.get("text"))) if asked else None
        if data.get("role") != "assistant":
            return None
        error = data.get("error")
        if isinstance(error, dict):
            return Turn(ABORTED) if error.get("name") == INTERRUPTED else Turn(STOPPED, text_in(error))
        ended = data.get("finish") not in (None, "tool-calls")
        return Turn(IDLE if ended else WORKING, answered=bool(data.get("finish")))

    def printed(self, record: dict[str, Any]) -> str:
        """The model's words."""
        part = record.get("part") if record.get("type") == "text" else None
        said = text(part.get("text")) if isinstance(part, dict) else ""
        return f"{said}\n" if said else ""

    # Hooks

    def files(self, scope: str, root: Path, env: Mapping[str, str]) -> list[HookFile]:
        """A plugin of our own."""
        from onrecord.vendors.port import USER_SCOPE, HookFile

        home = self.home(env) if scope == USER_SCOPE else root / ".opencode"
        beside = home if scope == USER_SCOPE else root
        return [HookFile(home / "plugin" / "onrecord.js", "plugin"), HookFile(beside / "AGENTS.md", "instructions"),
                HookFile(beside / "opencode.json", "mcp")]  # fmt: skip

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """The text of the plugin."""
        from pathlib import Path

        plugin = Path(__file__).with_name("opencode_plugin.js").read_text(encoding="utf-8")
        ours = json.dumps([*command, "hook", self.name])
        return plugin.replace('["onrecord", "hook", "opencode"]', ours, 1)

    def sample_hook(self, vendor_id: str) -> tuple[str, dict[str, Any]]:
        """An edit, as our plugin sends it."""
        about = {"tool_name": "write", "tool_input": {"filePath": "a.txt", "content": "a"}, "tool_use_id": "check"}
        return "tool.execute.before", {"session_id": "ses_" + vendor_id.replace("-", "")[:26], **about}

    def parse_hook(self, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
        """What our plugin sends."""
        call = super().parse_hook(payload, env)
        pid = payload.get("pid")
        call.pid = pid if isinstance(pid, int) else None
        if call.moment == FAILED:
            call.message, call.reason = text(payload.get("message")), RETRIES
        return call

    def reply(self, call: HookCall, answer: HookAnswer) -> Reply:
        """The answer for our plugin: there is no "ask", so a question becomes a refusal with its reason."""
        said = {}
        if answer.context and call.moment in (START, PROMPT, BEFORE_TOOL, AFTER_TOOL):
            said["context"] = answer.context
        if answer.decision and call.moment == BEFORE_TOOL:
            said |= {"decision": "deny", "reason": answer.reason or NO_REASON}
        if answer.notice:
            said["systemMessage"] = answer.notice
        return Reply(json.dumps(said) if said else "")


def _has_package(folder: Path) -> bool:
    """Whether the package is there, or a lock that says so."""
    from onrecord.machine.files import read_regular

    try:
        locked = read_regular(folder / "package-lock.json").decode()
    except (OSError, ValueError):
        locked = ""
    return (folder / "node_modules" / PACKAGE).is_dir() or f"node_modules/{PACKAGE}" in locked


_FRAMES = ("project", "session", "message")


def _base(env: Mapping[str, str], override: str, below: str) -> Path:
    from pathlib import Path

    return Path(env[override]) if env.get(override) else user_home(env) / below


def _post(url: str, body: dict[str, Any], secret: str, deadline: float) -> object:
    import base64
    import time
    from urllib.request import ProxyHandler, Request, build_opener

    token = base64.b64encode(f"onrecord:{secret}".encode()).decode()
    headers = {"Content-Type": "application/json", "Authorization": f"Basic {token}"}
    asked = Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - always loopback, see the caller
    with build_opener(ProxyHandler({})).open(asked, timeout=max(0.1, deadline - time.monotonic())) as answer:
        made = json.loads(answer.read())
    return made.get("id") if isinstance(made, dict) else None


def _time(milliseconds: object) -> str:
    from datetime import UTC, datetime

    if not isinstance(milliseconds, int):
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _used(row: dict[str, Any]) -> list[Usage]:
    """What a message used. A fork copies messages under new ids, so the time it began identifies the call."""
    from onrecord.vendors.counts import count, dollars, used, whole_output
    from onrecord.vendors.transcripts import Usage

    data = json.loads(row["data"])
    about, time = data.get("tokens"), data.get("time")
    if not isinstance(about, dict) or not isinstance(time, dict):
        return []
    model = text(data.get("modelID"))
    read, written = count(about.get("cache"), "read"), count(about.get("cache"), "write")
    given, reasoning = count(about, "input") + read + written, count(about, "reasoning")
    output = whole_output(about, count(about, "output"), reasoning, given, "total")
    return used(
        Usage(
            f"{time.get('created')}/{model}", model, given, read, written, output, reasoning, dollars(data.get("cost"))
        )
    )


def _items(role: str, data: dict[str, Any]) -> list[Item]:
    if data.get("type") == "text":
        return [{"role": "assistant" if role == "assistant" else "user", "content": text(data.get("text"))}]
    state = data.get("state")
    if data.get("type") != "tool" or not isinstance(state, dict):
        return []
    call = text(data.get("callID"))
    asked: ToolCall = {"id": call, "name": text(data.get("tool")), "arguments": state.get("input")}
    items: list[Item] = [{"role": "assistant", "content": "", "tool_calls": [asked]}]
    if state.get("status") == "completed":
        items.append({"role": "tool", "call": call, "content": text(state.get("output"))})
    elif state.get("status") == "error":
        items.append({"role": "tool", "call": call, "content": text(state.get("error")), "error": True})
    return items


VENDOR: Vendor = Opencode()
