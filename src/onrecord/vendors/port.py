"""The port: everything onrecord reads from a coding agent's command line and asks of it, method by method.

Each vendor has one module with a class that implements `Vendor`; `onrecord.testing.VendorContract` tests it. Nothing
outside this room knows a vendor's file names, flags or hook names. A vendor module never appends to a log and never
prints: it translates. A *link* is one vendor conversation of an agent: (vendor, vendor id). Vendors change their ids,
so an agent has a chain of links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from onrecord.vendors.known import VENDORS, load, vendor_of
from onrecord.vendors.transcripts import Chunk, Entry, Location, Mark, Said, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from onrecord.log.item_values import Item
    from onrecord.rules import ToolRequest
    from onrecord.vendors.hooks import HookAnswer, HookCall, Reply

__all__ = [
    "ABORTED", "BUDGET", "CAUSES", "CRASH", "ENDS_WITH_TIME", "FAILED", "FINISHED", "IDLE", "KILLED", "OVERLOAD",
    "PROJECT_SCOPE", "RATE_LIMIT", "REFUSED", "TOKENS", "UNKNOWN", "USAGE_WINDOW", "USER", "USER_SCOPE", "VENDORS",
    "WORKING", "Capabilities", "Chunk", "Entry", "Hazard", "HookFile", "Interruption", "Launch", "LaunchOptions",
    "Location", "Mark", "Said", "Turn", "Usage", "Vendor", "vendor", "vendor_of",
]  # fmt: skip

FINISHED, RATE_LIMIT, USAGE_WINDOW, TOKENS, OVERLOAD, CRASH, KILLED, USER, REFUSED, UNKNOWN = (
    "finished", "rate_limit", "usage_window", "tokens", "overload", "crash", "killed", "user", "refused", "unknown",
)  # fmt: skip
BUDGET = "budget"
CAUSES = (FINISHED, RATE_LIMIT, USAGE_WINDOW, TOKENS, OVERLOAD, CRASH, KILLED, USER, REFUSED, UNKNOWN, BUDGET)
"""Why a run stopped. Only `finished` means that it did its task; `budget`: onrecord ended it, no vendor says that."""
ENDS_WITH_TIME = frozenset({RATE_LIMIT, USAGE_WINDOW, OVERLOAD})
"""Causes after which waiting helps."""

USER_SCOPE, PROJECT_SCOPE = "user", "project"


class Capabilities(NamedTuple):
    """What a vendor's program can do; the methods show the rest."""

    chooses_id: bool
    """A start flag accepts our id."""
    obtains_id: bool
    """Without such a flag: the vendor can give an id before the start (app server, create-chat)."""
    names: bool
    """A start flag accepts a display name. onrecord never resumes by name."""
    resumes_elsewhere: bool
    """Resume by id works outside the conversation's directory."""
    refuses_second_writer: bool
    """The vendor itself refuses a second process on a conversation in use; if not, onrecord refuses it."""
    headless: bool
    forks: bool
    context_at_start: str
    """When injected context arrives: "launch", "first_prompt" or "" (never)."""
    context_bytes: int
    """How many bytes of injected context are safe."""
    blocks_tools: bool
    verified: bool
    """Tested with the real program; False: built from its documentation."""


class LaunchOptions(NamedTuple):
    """The parameters of a launch."""

    cwd: str
    vendor_id: str | None = None
    """At a start: chosen by us or obtained; None if the vendor chooses. At a resume: which conversation."""
    name: str = ""
    prompt: str = ""
    headless: bool = False
    extra: Sequence[str] = ()
    """The user's own arguments for the vendor's program, unchanged."""
    env: Mapping[str, str] = {}
    """The complete environment of the run; homes and overrides are looked up here."""
    program: str = ""
    """A program to use instead of the vendor's default, for instance an absolute path."""


class Launch(NamedTuple):
    """How to run it: an argument list, additions to the environment, and a directory."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    stdin: str | None = None
    """What to write to its standard input before closing it; None: the terminal's input, or none when headless."""
    warnings: Sequence[str] = ()
    """What a person should know, for instance about a flag that makes it stop for permission."""
    streams: bool = False
    """We asked it for its JSON stream; without us it would print text (see `Vendor.printed`)."""


class Hazard(NamedTuple):
    """Something that would harm a conversation if we resumed it now, and its fix."""

    code: str
    message: str
    fix: str
    """What `Vendor.mend` does about it, in plain words."""
    touches: Sequence[str]
    """The user's files that the fix changes; these need consent. Empty: only our copies."""
    fatal: bool = False
    """Resume must stop unless this is fixed."""


class Interruption(NamedTuple):
    """Why a run stopped, as far as its stream and exit status show."""

    cause: str
    """One of CAUSES."""
    message: str = ""
    resets_at: float | None = None
    """When a limit ends (seconds since 1970), if the vendor said so."""
    retry_after: float | None = None
    detail: str = ""
    """Everything it printed about it, if that is more than the message."""


WORKING, IDLE, FAILED, ABORTED = "working", "idle", "failed", "aborted"
"""A turn is in progress; it ended as it should; an error ended it; a person interrupted it."""


class Turn(NamedTuple):
    """What a record says about the present turn."""

    state: str
    error: str = ""
    """What ended the turn; while it works: the error after which the program tries again."""
    prompt: str = ""
    """What was asked, if this record is a prompt."""
    answered: bool = False
    """The model answered something since the prompt: text or a tool call."""
    at: str = ""
    """When, as the vendor wrote it."""


class HookFile(NamedTuple):
    """One of the vendor's files that `onrecord setup` merges something into."""

    path: Path
    what: str
    """ "hooks", "instructions", "mcp" or "plugin"."""


class Vendor(Protocol):
    """A coding agent's command line."""

    name: str
    """Our name for it: claude, codex, gemini, copilot, cursor, opencode, qwen."""
    title: str
    """Its official name."""
    programs: Sequence[str]
    """The names of its program on PATH."""
    context_moment: str
    """When the brief is injected (`hooks.START` or `hooks.PROMPT`): the first moment at which the vendor keeps it."""
    notice_moment: str
    """When it shows a person the line that says that a conversation is recorded (`hooks.START` or `hooks.STOP`)."""
    shares_file: bool
    """Its conversations share one file, which is never moved or replaced."""
    context_lasts: bool
    """Injected text is still there when the conversation is resumed; if not, it is injected again."""
    context_bytes: int
    """The same as in `capabilities`: a hook needs it, and not the rest."""

    @property
    def capabilities(self) -> Capabilities:
        """What its program can do."""

    def keeps_context(self, transcript: str, mark: str) -> bool:
        """Whether the model still sees injected text with this mark; True if hooks report each compaction."""

    def home(self, env: Mapping[str, str]) -> Path:
        """Its config home, overrides included."""

    def home_path(self, env: Mapping[str, str]) -> str:
        """The same as text: a hook names it, and loads no pathlib for that."""

    def home_env(self, home: str) -> dict[str, str]:
        """The variables that make `home` its config home: `self.home(env | self.home_env(home)) == Path(home)`."""

    def start(self, options: LaunchOptions) -> Launch:
        """How to start a conversation."""

    def resume(self, options: LaunchOptions) -> Launch:
        """How to resume exactly `options.vendor_id`, never a name or "latest"."""

    def warnings(self, command: Sequence[str], env: Mapping[str, str], cwd: str = "") -> list[str]:
        """Warnings about a user's own command line for it, run in `cwd`; what its settings allow needs none."""

    def is_id(self, vendor_id: object) -> bool:
        """Whether this can be an id of the vendor: only such a text ever becomes part of a path or an argument."""

    def obtain_id(self, options: LaunchOptions) -> str | None:
        """An id from the vendor before the start (runs its program); None with `chooses_id`, or if it is impossible."""

    def locate(self, pid: int, env: Mapping[str, str]) -> str | None:
        """The id of the conversation that a running process (or a descendant) uses, by lock and pid files only."""

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Location | None:
        """The location of a conversation, found by its id and never by age."""

    def locations(self, env: Mapping[str, str]) -> Iterator[Location]:
        """Every conversation in this home."""

    def read(self, location: Location, mark: Mark | None = None, *, limit: int = 4 * 1024 * 1024) -> Chunk:
        """The whole records added since the mark, at most about `limit` bytes; an empty chunk means the end."""

    def location_at(self, path: Path, env: Mapping[str, str]) -> Location | None:
        """The conversation in a file, wherever the file is; None if it is not one of this vendor."""

    def parse(self, raw: str) -> Entry:
        """Parse a record that was kept word for word, exactly as `read` does."""

    def items(self, entries: Iterable[Entry]) -> list[tuple[int, Item]]:
        """The items of a conversation, each with the number of its entry.

        Repeated and patched records are merged, and every call has at most one answer.
        """

    def said(self, entry: Entry, record: dict[str, Any]) -> Sequence[Said]:
        """What a record (`entry`, and as JSON) says in the conversation; nothing for what the program itself adds."""

    def beside(self, location: Location) -> str | None:
        """The folder with further files of the conversation: subagents' transcripts, tools' results; None: none."""

    def hazards(self, location: Location, env: Mapping[str, str]) -> list[Hazard]:
        """What would harm the conversation if it were resumed now."""

    def start_hazards(self, env: Mapping[str, str]) -> list[Hazard]:
        """What would harm this conversation or another one if a new one were started now; `mend` needs no location."""

    def mend(self, hazard: Hazard, location: Location, env: Mapping[str, str]) -> None:
        """Apply `hazard.fix`."""

    def put_back(self, location: Location, entries: Iterator[str], env: Mapping[str, str], cwd: str) -> Location:
        """Write a mirrored transcript so that the program of this home can resume it from `cwd`; never replaces one."""

    def move_within(self, location: Location, env: Mapping[str, str], cwd: str) -> Location:
        """With `shares_file`: let the program resume it from `cwd`, and change nothing else in the file."""

    def expires_at(self, location: Location, env: Mapping[str, str]) -> float | None:
        """When the vendor's own retention will delete it (seconds since 1970); None: never, or unknown."""

    def classify(self, lines: Sequence[str], status: int | None) -> Interruption:
        """Why a run stopped, from the tail of its output (JSON stream or text) and its exit status (None: unknown)."""

    def turn(self, record: dict[str, Any]) -> Turn | None:
        """What a record of the transcript says about the present turn (see `vendors/progress.py`); None: nothing."""

    def printed(self, record: dict[str, Any]) -> str:
        """What the program prints for a record of its JSON stream when it prints text; empty: nothing."""

    def stream_id(self, line: str) -> str | None:
        """The conversation's id in a line of the JSON stream, if any."""

    def files(self, scope: str, root: Path, env: Mapping[str, str]) -> list[HookFile]:
        """The files that `setup` merges into, for USER_SCOPE or PROJECT_SCOPE."""

    def hook_settings(self, command: Sequence[str]) -> dict[str, Any] | str:
        """Our hooks in the vendor's form: JSON to merge into its file, or the text of a plugin file.

        `command` runs onrecord (an absolute program, perhaps with arguments); `hook VENDOR EVENT` is appended to it.
        """

    def setup_warnings(self, path: Path, env: Mapping[str, str]) -> list[str]:
        """Why the hooks in this file would not run, for instance because the user has not trusted them yet."""

    def sample_hook(self, vendor_id: str) -> tuple[str, dict[str, Any]]:
        """The name of the event before a tool, and a payload of an edit, for `setup --check`."""

    def parse_hook(self, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
        """A hook's payload as a `HookCall`.

        `hook_event_name` is the vendor's; if the vendor omits it, the caller sets it from the command line.
        """

    def forked_from(self, call: HookCall, pid: int | None) -> str:
        """The id of the conversation that this one was forked from, as far as its process or its file shows; or ""."""

    def shares_process(self, pid: int) -> bool:
        """Whether this process serves conversations of several terminals, so that it identifies none of them."""

    def reply(self, call: HookCall, answer: HookAnswer) -> Reply:
        """Our answer in the vendor's form."""

    def tool_request(self, call: HookCall, agent: str) -> ToolRequest | None:
        """What the tool is about to do (or did), for the gate; None if there is nothing to judge.

        Its paths are absolute, or unchanged if the call names no directory: only the caller knows the project.
        """

    not_said: Sequence[str]
    """How a user's message begins that the program wrote itself, and no person."""
    interrupt_keys: Sequence[str]
    """tmux keys that interrupt its present turn."""
    exit_keys: Sequence[str]
    """tmux keys that end it cleanly."""
    prompt_patterns: Sequence[str]
    """Regular expressions for its screen when it waits for a permission."""
    ready_patterns: Sequence[str]
    """What its screen shows below everything else while it accepts a prompt: a question above that was answered."""
    limit_patterns: Sequence[str]
    """Regular expressions for its screen when a limit stops it and its transcript does not say so."""
    prints_last: bool
    """Whether it prints only the last text of a run."""
    shows_turns: bool
    """Whether its transcript shows how a turn ends; if not, `turn` knows nothing."""


def vendor(name: str) -> Vendor:
    """The vendor of this name."""
    found: Vendor = load(name)
    return found
