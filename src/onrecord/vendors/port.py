"""The port: what a coding agent's command line can tell and be told, method by method.

One module per vendor, with a class that implements `Vendor`; `onrecord.testing.VendorContract` is the proof. Nothing
outside this room knows a vendor's file names, flags or hook words. A vendor module never appends to a log and never
prints: it translates. A *link* is one vendor conversation of an agent: (vendor, vendor id). Ids rotate, so an agent has
a chain of links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from onrecord.log.items import Item
    from onrecord.rules import ToolRequest
    from onrecord.vendors.hooks import HookAnswer, HookCall, Reply

FINISHED, RATE_LIMIT, USAGE_WINDOW, TOKENS, OVERLOAD, CRASH, KILLED, USER, REFUSED, UNKNOWN = (
    "finished", "rate_limit", "usage_window", "tokens", "overload", "crash", "killed", "user", "refused", "unknown",
)  # fmt: skip
CAUSES = (FINISHED, RATE_LIMIT, USAGE_WINDOW, TOKENS, OVERLOAD, CRASH, KILLED, USER, REFUSED, UNKNOWN)
"""Why a run stopped. Only `finished` means that it did what it was asked."""

USER_SCOPE, PROJECT_SCOPE = "user", "project"


class Capabilities(NamedTuple):
    """What a vendor's program can do; everything else follows from the methods."""

    chooses_id: bool
    """A start flag takes our id."""
    obtains_id: bool
    """Without such a flag: an id can be had before the start (app server, create-chat)."""
    names: bool
    """A start flag takes a display name. Names are never a key to resume by."""
    resumes_elsewhere: bool
    """Resume by id works from another directory than the conversation's."""
    refuses_second_writer: bool
    """The vendor itself keeps a second process off a live conversation; where not, we do."""
    headless: bool
    forks: bool
    context_at_start: str
    """When injected context arrives: "launch", "first_prompt" or "" (never)."""
    context_bytes: int
    """How many bytes of injected context are safe."""
    blocks_tools: bool
    verified: bool
    """Shown against the real program; False: built from documents."""


class Request(NamedTuple):
    """A run that is wanted."""

    cwd: str
    vendor_id: str | None = None
    """At a start: ours to choose, or obtained; None where the vendor chooses. At a resume: which conversation."""
    name: str = ""
    prompt: str = ""
    headless: bool = False
    extra: Sequence[str] = ()
    """The user's own arguments for the vendor's program, as they were given."""
    env: Mapping[str, str] = {}
    """The environment it will run in (a whole one); homes and overrides are looked up here."""
    program: str = ""
    """Another program than the vendor's default, for instance an absolute path."""


class Launch(NamedTuple):
    """How to run it: an argument list, what to add to the environment, where."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    stdin: str | None = None
    """What to write to its standard input (then closed); None: the terminal's, or nothing when headless."""
    warnings: Sequence[str] = ()
    """What a person should know, for instance a flag that makes it stop for permission."""


class Hazard(NamedTuple):
    """Something that would harm a conversation if we resumed it now, and what mends it."""

    code: str
    message: str
    fix: str
    """What `Vendor.mend` does about it, in words."""
    touches: Sequence[str]
    """The user's files the fix changes; consent is asked for these. Empty: only copies of ours."""
    fatal: bool = False
    """Resume must not go on unless it is mended."""


class Place(NamedTuple):
    """Where a conversation is kept."""

    vendor_id: str
    path: str
    """The file (or database) that holds it."""
    home: str
    """The config home it belongs to."""
    cwd: str = ""
    """The directory it was begun in, if its place or head says so."""


class Mark(NamedTuple):
    """How far a transcript was read: opaque to others, JSON values only, made by the vendor module."""

    offset: int = 0
    """Bytes for files, a row key for databases."""
    extra: Any = None
    """Whatever else tells that it is the same file, grown: size and a digest of the first bytes, say."""


class Entry(NamedTuple):
    """One record of a vendor's transcript."""

    raw: str
    """Word for word as it stood there; what restores it."""
    kind: str
    """The vendor's own record type."""
    id: str = ""
    parent: str = ""
    at: str = ""
    items: Sequence[Item] = ()
    """What it says in neutral form (see log/items.py): nothing for control records and unknown ones."""
    known: bool = True


class Chunk(NamedTuple):
    """What was read at once."""

    entries: list[Entry]
    mark: Mark
    torn: int = 0
    """Lines cut off or no JSON: skipped and counted, never rewritten. An unfinished last one is not torn yet."""
    rewritten: bool = False
    """The file is not the one the mark was made on: reading began anew."""


class Interruption(NamedTuple):
    """Why a run stopped, as far as its stream and exit tell."""

    cause: str
    """One of CAUSES."""
    message: str = ""
    resets_at: float | None = None
    """When a limit ends (seconds since 1970), if it was told."""
    retry_after: float | None = None


class HookFile(NamedTuple):
    """One file of the vendor that `onrecord setup` merges something into."""

    path: Path
    what: str
    """ "hooks", "instructions", "mcp" or "plugin"."""


class Vendor(Protocol):
    """A coding agent's command line."""

    name: str
    """Our word for it: claude, codex, gemini, copilot, cursor, opencode, qwen."""
    title: str
    """How its makers write it."""
    programs: Sequence[str]
    """What it is called on PATH."""
    context_moment: str
    """At which moment (`hooks.START` or `hooks.PROMPT`) the brief is injected: the first whose answer is kept."""
    context_lasts: bool
    """What was injected is part of the conversation when that is resumed; where not, it is told again."""

    @property
    def capabilities(self) -> Capabilities:
        """What its program can do."""

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home, overrides included."""

    def home_env(self, home: str) -> dict[str, str]:
        """What makes `home` its config home: `self.home(env | self.home_env(home)) == Path(home)`."""

    def start(self, request: Request) -> Launch:
        """How to begin a conversation."""

    def resume(self, request: Request) -> Launch:
        """How to go on with exactly `request.vendor_id`, never a name or "latest"."""

    def warnings(self, command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """What is doubtful about a user's own command line for it."""

    def obtain_id(self, request: Request) -> str | None:
        """An id from the vendor before the start (runs its program); None where `chooses_id` or impossible."""

    def locate(self, pid: int, env: Mapping[str, str]) -> str | None:
        """The id of the conversation a running process (or a descendant of it) holds, by lock and pid files only."""

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Place | None:
        """Where a conversation is kept; by id, never by age."""

    def places(self, env: Mapping[str, str]) -> Iterator[Place]:
        """Every conversation in this home."""

    def read(self, place: Place, mark: Mark | None = None, *, limit: int = 4 * 1024 * 1024) -> Chunk:
        """What was added since the mark, at most about `limit` bytes; whole records only. Nothing: the end."""

    def place_at(self, path: Path, env: Mapping[str, str]) -> Place | None:
        """The conversation that a file holds, wherever the file is; None when it holds none of this vendor."""

    def parse(self, raw: str) -> Entry:
        """A record that was kept word for word, read again; what `read` makes of it."""

    def items(self, entries: Iterable[Entry]) -> list[tuple[int, Item]]:
        """What was said in a conversation, each item with the number of the entry it comes from.

        Repeated and patched records are merged, and every call is answered at most once.
        """

    def hazards(self, place: Place, env: Mapping[str, str]) -> list[Hazard]:
        """What would harm the conversation if it were resumed as it is."""

    def mend(self, hazard: Hazard, place: Place, env: Mapping[str, str]) -> None:
        """Do what `hazard.fix` says."""

    def put_back(self, place: Place, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Place:
        """Write a mirrored transcript where this home's program can resume it from `cwd`; refuses to replace one."""

    def expires_at(self, place: Place, env: Mapping[str, str]) -> float | None:
        """When the vendor's own retention will delete it (seconds since 1970); None: never, or not known."""

    def classify(self, lines: Sequence[str], status: int | None) -> Interruption:
        """Why a run stopped: the tail of its output (JSON stream or text) and its exit status (None: still unknown)."""

    def stream_id(self, line: str) -> str | None:
        """The conversation's id in one line of the JSON stream, if it is there."""

    def files(self, scope: str, root: Path, env: Mapping[str, str]) -> list[HookFile]:
        """The files `setup` merges into, for USER_SCOPE or PROJECT_SCOPE."""

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """Our hooks in the vendor's form: what is merged into its JSON, or the text of a plugin file.

        `command` runs onrecord (an absolute program, perhaps with arguments); `hook VENDOR EVENT` is added to it.
        """

    def setup_warnings(self, path: Path, env: Mapping[str, str]) -> list[str]:
        """What keeps the hooks in this file from being called, for instance that nobody has trusted them yet."""

    def sample_hook(self, vendor_id: str) -> tuple[str, dict[str, Any]]:
        """The event before a tool runs and a payload it comes with: an edit, so that `setup --check` can try it."""

    def parse_hook(self, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
        """A hook's payload in our words.

        Its `hook_event_name` is the vendor's; where the vendor leaves it out, the caller sets it from its arguments.
        """

    def reply(self, call: HookCall, answer: HookAnswer) -> Reply:
        """Our answer in the vendor's words."""

    def tool_request(self, call: HookCall, agent: str) -> ToolRequest | None:
        """What the tool is about to do, for the gate, or did; None where there is nothing to gate.

        Its paths are absolute, or as given where the call names no directory: only the caller knows the project.
        """

    interrupt_keys: Sequence[str]
    """tmux keys that interrupt its present turn."""
    exit_keys: Sequence[str]
    """tmux keys that end it in order."""
    prompt_patterns: Sequence[str]
    """Regular expressions: what its screen shows when it waits for a permission."""


_MODULES = {
    "claude": "onrecord.vendors.claude", "codex": "onrecord.vendors.codex", "gemini": "onrecord.vendors.gemini",
    "copilot": "onrecord.vendors.copilot", "cursor": "onrecord.vendors.cursor",
    "opencode": "onrecord.vendors.opencode", "qwen": "onrecord.vendors.qwen",
}  # fmt: skip
VENDORS = tuple(_MODULES)
"""Known vendors; each is a module of this room with a `VENDOR`."""


def vendor(name: str) -> Vendor:
    """The vendor of this name."""
    from importlib import import_module

    from onrecord.errors import InvalidInput

    if name not in _MODULES:
        raise InvalidInput(f"unknown vendor {name!r}", hint=f"use one of {', '.join(VENDORS)}")
    found: Vendor = import_module(_MODULES[name]).VENDOR
    return found


def vendor_of(command: str) -> str | None:
    """Which vendor's program a command is, by its last part; None for another program."""
    program = command.rpartition("/")[2]
    return {"claude": "claude", "codex": "codex", "gemini": "gemini", "copilot": "copilot", "cursor-agent": "cursor",
            "agent": "cursor", "cursor": "cursor", "opencode": "opencode", "qwen": "qwen"}.get(program)  # fmt: skip
