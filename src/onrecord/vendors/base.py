"""What vendors share: id checks before an id becomes part of a path, arguments, JSON-line transcripts.

The hook loads this module, so heavier modules are imported where they are used.
"""

from __future__ import annotations

from onrecord.errors import InvalidInput
from onrecord.vendors.hooks import START

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from onrecord.log.item_values import Item
    from onrecord.vendors.endings import End
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import Chunk, Entry, Hazard, Interruption, LaunchOptions, Location, Mark, Said, Turn

SAFE_CONTEXT = 8_000
"""How many bytes of context to inject if a vendor states no limit."""
HOOK_SECONDS = 10
"""How long a vendor waits for our hook before it continues without it; the hook itself ends much earlier."""
_UUID_GROUPS = [8, 4, 4, 4, 12]
_UUID_DIGITS = frozenset("0123456789abcdefABCDEF-")
ID_LETTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
NAME_LIMIT = 128
"""The longest display name that we pass on, in characters."""


class Base:
    """The methods of the port that most vendors share; each module adds the rest."""

    name = ""
    title = ""
    programs: Sequence[str] = ()
    context_moment = START
    notice_moment = START
    context_lasts = True
    context_bytes = SAFE_CONTEXT
    interrupt_keys: Sequence[str] = ()
    exit_keys: Sequence[str] = ()
    prompt_patterns: Sequence[str] = ()
    ready_patterns: Sequence[str] = ()
    limit_patterns: Sequence[str] = ()
    shows_turns = False
    prints_last = False
    home_variable = ""
    """The variable that overrides its config home; empty: none."""
    home_below = ""
    """The path of the home below the overriding directory."""
    home_name = ""
    """The name of the home below the user's home, if that and the variable are all that `home` depends on."""
    shares_file = False
    own_flags: Sequence[str] = ()
    """Flags that choose the conversation: onrecord sets these, not the user."""
    not_said: Sequence[str] = ("<",)
    """How a user's message begins that the program wrote itself."""

    fork_flags: Sequence[str] = ()
    """Flags that make a resume a fork."""
    resume_flags: Sequence[str] = ()
    """Flags that name the conversation to resume."""

    def keeps_context(self, transcript: str, mark: str) -> bool:
        """Yes: a hook reports each compaction."""
        return True

    def forked_from(self, call: HookCall, pid: int | None) -> str:
        """As the command line of its process says."""
        if pid is None or not self.fork_flags:
            return ""
        from onrecord.machine import words_of

        words = words_of(pid)
        found = valued(words, *self.resume_flags) if has(words, *self.fork_flags) else None
        return found if found and found != call.vendor_id and self.is_id(found) else ""

    def shares_process(self, pid: int) -> bool:
        """Every conversation at one time has a process of its own."""
        return False

    def is_id(self, vendor_id: object) -> bool:
        """Whether this can be an id of the vendor: only such a text ever becomes part of a path or an argument."""
        return isinstance(vendor_id, str) and self.has_id_form(vendor_id)

    def has_id_form(self, text: str) -> bool:
        """Whether a text has the form of the vendor's ids: a UUID. (A hook does not load `re` for this.)"""
        return is_uuid(text)

    def checked_id(self, vendor_id: object) -> str:
        """The id, or a clear error."""
        if not isinstance(vendor_id, str) or not self.is_id(vendor_id):
            raise InvalidInput(
                f"{vendor_id!r:.80} is not an id of a {self.title} conversation", hint="use the vendor's own session id"
            )
        return vendor_id

    def checked_extra(self, options: LaunchOptions) -> list[str]:
        """The user's arguments; an error if they choose a conversation."""
        for word in options.extra:
            flag = word.partition("=")[0]
            if flag in self.own_flags:
                raise InvalidInput(
                    f"{flag} chooses the conversation, but onrecord does that itself",
                    hint=f"leave out {flag}",
                )
        return list(options.extra)

    def program(self, options: LaunchOptions) -> str:
        """The program to run."""
        return options.program or self.programs[0]

    def obtain_id(self, options: LaunchOptions) -> str | None:
        """None: the vendor gives no id before the start, or the start accepts ours."""
        return None

    def locate(self, pid: int, env: Mapping[str, str]) -> str | None:
        """None: no file shows which process uses which conversation; the hook and the stream do."""
        return None

    def setup_warnings(self, path: Path, env: Mapping[str, str]) -> list[str]:
        """Hooks that are set up are called."""
        return []

    def sample_hook(self, vendor_id: str) -> tuple[str, dict[str, Any]]:
        """As Claude Code and those who took its shape over send it."""
        about = {"tool_name": "Write", "tool_input": {"file_path": "a.txt", "content": "a"}, "tool_use_id": "check"}
        return "PreToolUse", {"session_id": vendor_id, "hook_event_name": "PreToolUse", **about}

    def home_path(self, env: Mapping[str, str]) -> str:
        """Without pathlib where the home has a name."""
        return home_path_of(env, self.home_variable, self.home_name) if self.home_name else str(self.home(env))

    def home_env(self, home: str) -> dict[str, str]:
        """The variable that selects this home."""
        whole = home.removesuffix(f"/{self.home_below}") if self.home_below else home
        return {self.home_variable: whole} if self.home_variable else {}

    def location_at(self, path: Path, env: Mapping[str, str]) -> Location | None:
        """By its path, if it is in this home; if not, by its first records."""
        from onrecord.vendors.transcripts import Location

        real = path.resolve()
        for location in self.locations(env):
            if _resolved(location.path) == real:
                return location
        if not path.is_file():
            return None
        from onrecord.vendors.jsonl import first_record

        first = first_record(str(path), lambda record: self.is_whole(record) and self.is_id(_id_in(record)))
        return None if first is None else Location(str(_id_in(first)), str(path), "", _cwd_in(first))

    def locations(self, env: Mapping[str, str]) -> Iterator[Location]:
        """Every conversation in this home."""
        raise NotImplementedError

    # Transcripts of JSON lines

    def entry(self, raw: str, record: dict[str, Any]) -> Entry:
        """Translate one record."""
        raise NotImplementedError

    def is_whole(self, record: dict[str, Any]) -> bool:
        """Whether this is a whole record and not a piece of one."""
        return "type" in record

    def read(self, location: Location, mark: Mark | None = None, *, limit: int = 4 * 1024 * 1024) -> Chunk:
        """The records added to a file of JSON lines."""
        from onrecord.vendors import jsonl

        return jsonl.read(location.path, mark, limit, self._translate, self.is_whole)

    def parse(self, raw: str) -> Entry:
        """Parse a kept line again."""
        from onrecord.vendors.jsonl import Found, records_of

        found, _torn = records_of(raw.encode(), self.is_whole)
        return self._translate(found[0] if len(found) == 1 else Found(raw, None))

    def _translate(self, found: Any) -> Entry:
        from onrecord.log.items import check_item
        from onrecord.vendors.transcripts import Entry

        if found.record is None:
            return Entry(found.raw, "", known=False)
        try:
            entry = self.entry(found.raw, found.record)
            for item in entry.items:
                check_item(item)
        except (TypeError, ValueError, AttributeError, KeyError, LookupError, RecursionError, InvalidInput):
            # A record in an unknown form: it is kept word for word, without items.
            return Entry(found.raw, text(found.record.get("type")), known=False)
        return entry

    def items(self, entries: Iterable[Entry]) -> list[tuple[int, Item]]:
        """A later record with the id of an earlier one is more complete and replaces it."""
        said: dict[str, tuple[int, Sequence[Item]]] = {}
        for number, entry in enumerate(entries):
            said[entry.id or f"#{number}"] = number, entry.items
        return answered_once(said.values())

    def said(self, entry: Entry, record: dict[str, Any]) -> Sequence[Said]:
        """Its items; a prompt is what a user's message says beside the context that the program adds."""
        from onrecord.vendors.saying import said

        return said(entry.items, record, id=entry.id)

    def beside(self, location: Location) -> str | None:
        """None: the conversation is one file."""
        return None

    def hazards(self, location: Location, env: Mapping[str, str]) -> list[Hazard]:
        """Another process that uses the conversation."""
        from onrecord.vendors.port import Hazard

        return [
            Hazard(
                "in_use", f"process {pid} is using {location.vendor_id}; two writers would mix their turns",
                "end that process, or attach to it", (), fatal=True,
            )
            for pid in self.holders(location, env)
        ]  # fmt: skip

    def move_within(self, location: Location, env: Mapping[str, str], cwd: str) -> Location:
        """Only for a vendor whose conversations share a file."""
        raise NotImplementedError

    def start_hazards(self, env: Mapping[str, str]) -> list[Hazard]:
        """A start harms nothing."""
        return []

    def holders(self, location: Location, env: Mapping[str, str]) -> Iterable[int]:
        """The processes that use the conversation, as far as files show."""
        return ()

    def mend(self, hazard: Hazard, location: Location, env: Mapping[str, str]) -> None:
        """Other processes are not ours to end."""
        raise InvalidInput(f"onrecord cannot fix {hazard.code}", hint=hazard.fix)

    def expires_at(self, location: Location, env: Mapping[str, str]) -> float | None:
        """No retention is documented."""
        return None

    # Streams

    def ending(self, record: dict[str, Any]) -> End:
        """What a record of the JSON stream says about the end of a run."""
        raise NotImplementedError

    def classify(self, lines: Sequence[str], status: int | None) -> Interruption:
        """Why a run stopped."""
        from onrecord.vendors.endings import classify

        return classify(lines, status, self.ending)

    def turn(self, record: dict[str, Any]) -> Turn | None:
        """None: its transcript does not show how a turn ends."""
        return None

    def printed(self, record: dict[str, Any]) -> str:
        """The answer in the result record, as Claude Code and those who took its shape over have it."""
        said = text(record.get("result")) if record.get("type") == "result" else ""
        return f"{said}\n" if said else ""

    def stream_id(self, line: str) -> str | None:
        """The id in a line of the JSON stream, under any of the vendors' names for it."""
        from onrecord.vendors.endings import record_in

        record = record_in(line) or {}
        found = next(
            (record[name] for name in ("session_id", "sessionId", "sessionID", "thread_id") if name in record), None
        )
        return found if self.is_id(found) else None

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home."""
        raise NotImplementedError

    def absent(self, location: Location, env: Mapping[str, str]) -> None:
        """Refuse to restore a conversation if one with its id exists."""
        from onrecord.errors import Conflict

        if there := self.find(location.vendor_id, env):
            raise Conflict(f"{self.title} already has the conversation {location.vendor_id}, in {there.path}",
                           hint="nothing was replaced; resume the existing one")  # fmt: skip

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Location | None:
        """The location of a conversation."""
        raise NotImplementedError


def is_uuid(text: str) -> bool:
    """Whether a text has the form of a UUID."""
    return [len(group) for group in text.split("-")] == _UUID_GROUPS and _UUID_DIGITS.issuperset(text)


def home_of(env: Mapping[str, str], override: str, below: str) -> Path:
    """A config home: the override, or a directory below the user's home."""
    from pathlib import Path

    return Path(home_path_of(env, override, below))


def home_path_of(env: Mapping[str, str], override: str, below: str) -> str:
    """The same as text, in the form that pathlib gives it."""
    import os

    path = env.get(override) or f"{env.get('HOME') or os.path.expanduser('~')}/{below}"
    if os.path.normpath(path) == path:
        return path
    from pathlib import Path

    return str(Path(path))


def user_home(env: Mapping[str, str]) -> Path:
    """The user's home directory."""
    from pathlib import Path

    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _resolved(path: str) -> Path:
    from pathlib import Path

    return Path(path).resolve()


def _id_in(record: dict[str, Any]) -> object:
    """The conversation's id, under any of the names that vendors use in their first records."""
    inner = [one for name in ("payload", "data") if isinstance(one := record.get(name), dict)]
    for about in (record, *inner):
        for name in ("sessionId", "session_id", "sessionID"):
            if name in about:
                return about[name]
    return next((one["id"] for one in inner if "id" in one), None)


def _cwd_in(record: dict[str, Any]) -> str:
    inner = [one for name in ("payload", "data", "context") if isinstance(one := record.get(name), dict)]
    return next((found for about in (record, *inner) if (found := text(about.get("cwd")))), "")


def dashed(path: str) -> str:
    """A directory as Claude Code and Qwen Code write it into a name: every other character is a dash."""
    return "".join(one if one in ID_LETTERS else "-" for one in path)


def _flags(words: Sequence[str]) -> Sequence[str]:
    """The words that may be flags: those before `--`."""
    return words[: list(words).index("--")] if "--" in words else words


def has(words: Sequence[str], *flags: str) -> bool:
    """Whether a command line has one of these flags, with or without `=value`."""
    return any(word.partition("=")[0] in flags for word in _flags(words))


def valued(words: Sequence[str], *flags: str) -> str | None:
    """The value of a flag; an empty text if it has no value, None if the flag is missing."""
    words = _flags(words)
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in flags:
            if equals:
                return value
            following = words[index + 1] if index + 1 < len(words) else ""
            return "" if following.startswith("-") else following
    return None


def named(name: str) -> str:
    """A display name as one printable line."""
    return "".join(letter if letter.isprintable() else " " for letter in name).strip()[:NAME_LIMIT]


def text(value: object) -> str:
    """The value if it is a text, or an empty text."""
    return value if isinstance(value, str) else ""


def settings_at(path: Path) -> dict[str, Any]:
    """A vendor's settings; empty if they are missing or not JSON (some vendors allow comments)."""
    import json

    from onrecord.machine.files import read_regular

    try:
        found = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def set_in(files: Iterable[Path], *names: str) -> Any:
    """The value of a nested setting in the first file that has it; None if none has."""
    for path in files:
        found: Any = settings_at(path)
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def answered_once(said: Iterable[tuple[int, Sequence[Item]]]) -> list[tuple[int, Item]]:
    """Items without second answers to a call: some vendors write a result twice."""
    answered: set[object] = set()
    kept = []
    for number, items in said:
        for item in items:
            if item.get("role") == "tool":
                if item.get("call") in answered:
                    continue
                answered.add(item.get("call"))
            kept.append((number, item))
    return kept


def prompted(prompt: str, flag: str, long: str) -> list[str]:
    """A prompt as the value of a flag; one that looks like a flag is attached with `=`."""
    return [f"{long}={prompt}"] if prompt.startswith("-") else [flag, prompt]
