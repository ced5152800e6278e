"""What an agent's hook says and what it is answered, in no vendor's words.

A vendor module has two functions for its own dialect: `parse_hook(payload, env)` makes a `HookCall`, and
`reply(call, answer)` makes a `Reply`. This is on the path of every tool call of every agent: it imports nothing it can
do without.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

DEADLINE_SECONDS = 5.0
"""After so many seconds a hook answers with what it has."""
START, PROMPT, BEFORE_TOOL, AFTER_TOOL, COMPACT, STOP, END, NOTICE, OTHER = (
    "start", "prompt", "before_tool", "after_tool", "compact", "stop", "end", "notice", "other",
)  # fmt: skip
MOMENTS = (START, PROMPT, BEFORE_TOOL, AFTER_TOOL, COMPACT, STOP, END, NOTICE, OTHER)
"""The moments of an agent's life at which it calls us."""

STARTUP, RESUMED, CLEARED, COMPACTED, FORKED, ADOPTED, IMPORTED = (
    "startup", "resumed", "cleared", "compacted", "forked", "adopted", "imported",
)  # fmt: skip
REASONS = (STARTUP, RESUMED, CLEARED, COMPACTED, FORKED, ADOPTED, IMPORTED)
"""Why a conversation is there under its id."""


class HookCall:
    """One call of a hook."""

    __slots__ = (
        "call", "cwd", "event", "exit_code", "message", "moment", "nudged", "output", "payload", "pid", "prompt",
        "reason", "stays", "tool", "tool_input", "transcript", "vendor", "vendor_id",
    )  # fmt: skip

    def __init__(
        self, vendor: str, moment: str, vendor_id: str, *, event: str = "", cwd: str = "", transcript: str = "",
        reason: str = "", prompt: str = "", tool: str = "", tool_input: dict[str, Any] | None = None, call: str = "",
        exit_code: int | None = None, output: str = "", pid: int | None = None, message: str = "",
        nudged: bool = False, stays: bool = False, payload: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.vendor = vendor
        self.moment = moment
        self.vendor_id = vendor_id
        """The vendor's id of the conversation."""
        self.event = event
        """The moment in the vendor's own word; the reply may have to repeat it."""
        self.cwd = cwd
        self.transcript = transcript
        """Where the vendor keeps the conversation, if the payload says so."""
        self.reason = reason
        """At a start: one of REASONS. At an end: the vendor's word."""
        self.prompt = prompt
        self.tool = tool
        self.tool_input = tool_input or {}
        self.call = call
        """The vendor's id of the tool call."""
        self.exit_code = exit_code
        """After a command ran, if the payload tells."""
        self.output = output
        self.pid = pid
        """The agent's process, if payload or environment tell."""
        self.message = message
        """At a notice: what the agent wants of a person."""
        self.nudged = nudged
        """At a stop: it went on only because a hook asked for it."""
        self.stays = stays
        """At an end: the agent's process goes on, with another conversation."""
        self.payload = payload or {}
        """What the vendor sent, as it came."""


class HookAnswer:
    """What we have to say. An empty one lets the agent go on unchanged."""

    __slots__ = ("context", "decision", "notice", "reason")

    def __init__(self, *, context: str = "", decision: str = "", reason: str = "", notice: str = "") -> None:
        self.context = context
        """Text for the model, fenced as data by the caller and within `CONTEXT_LIMIT` of the vendor."""
        self.decision = decision
        """At BEFORE_TOOL "", "ask" or "deny"; at STOP "" or "deny": go on, do not stop yet."""
        self.reason = reason
        """Why, and the one command that clears it."""
        self.notice = notice
        """A line for the person at the terminal, where the vendor can show one."""


class Reply:
    """What the hook process does: write, and exit with a status."""

    __slots__ = ("status", "stderr", "stdout")

    def __init__(self, stdout: str = "", stderr: str = "", status: int = 0) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.status = status


def paths_of(
    tool_input: dict[str, Any], names: Sequence[str] = ("file_path", "path", "filePath", "notebook_path")
) -> list[str]:
    """The files a tool is given, by the names vendors use."""
    return [value for name in names if isinstance(value := tool_input.get(name), str) and value]
