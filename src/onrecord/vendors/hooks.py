"""Calls and answers of an agent's hook, in a form that is the same for all vendors.

A vendor module translates its own dialect with two functions: `parse_hook(payload, env)` makes a `HookCall`, and
`reply(call, answer)` makes a `Reply`. This module is loaded at every tool call of every agent: it imports as little as
possible.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

DEADLINE_SECONDS = 5.0
"""After so many seconds a hook answers with what it has."""
START, PROMPT, BEFORE_TOOL, AFTER_TOOL, COMPACT, STOP, FAILED, END, NOTICE, OTHER = (
    "start", "prompt", "before_tool", "after_tool", "compact", "stop", "failed", "end", "notice", "other",
)  # fmt: skip
MOMENTS = (START, PROMPT, BEFORE_TOOL, AFTER_TOOL, COMPACT, STOP, FAILED, END, NOTICE, OTHER)
"""The moments at which an agent calls its hook."""

STARTUP, RESUMED, CLEARED, COMPACTED, FORKED, ADOPTED, IMPORTED = (
    "startup", "resumed", "cleared", "compacted", "forked", "adopted", "imported",
)  # fmt: skip
REASONS = (STARTUP, RESUMED, CLEARED, COMPACTED, FORKED, ADOPTED, IMPORTED)
"""How a conversation came to have its id."""
RETRIES = "retries"
"""The reason of a failure that its program retries by itself: it writes that nowhere, so only its hook says it."""


REFUSED = "deny"
"""The decision that refuses a tool or a stop; `rules.DENY` is the same word."""


class HookCall:
    """One call of a hook."""

    __slots__ = (
        "call", "cwd", "event", "exit_code", "headless", "message", "moment", "nudged", "output", "payload", "pid",
        "prompt", "reason", "stays", "tool", "tool_input", "transcript", "vendor", "vendor_id",
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
        """The vendor's name for the moment; the reply may have to repeat it."""
        self.cwd = cwd
        self.transcript = transcript
        """The path of the vendor's transcript, if the payload has it."""
        self.reason = reason
        """At a start: one of REASONS. At an end: the vendor's own word."""
        self.prompt = prompt
        self.tool = tool
        self.tool_input = tool_input or {}
        self.call = call
        """The vendor's id of the tool call."""
        self.exit_code = exit_code
        """After a command, if the payload has it."""
        self.output = output
        self.pid = pid
        """The agent's process, if the payload or the environment has it."""
        self.message = message
        """At a notice: what the agent needs from a person. At a failure: the error that ended its turn."""
        self.headless = False
        """The agent runs without a person, as far as its environment says."""
        self.nudged = nudged
        """At a stop: the agent continued only because a hook asked it to."""
        self.stays = stays
        """At an end: the agent's process continues with another conversation."""
        self.payload = payload or {}
        """The vendor's payload, unchanged."""


class HookAnswer:
    """Our answer. An empty one changes nothing for the agent."""

    __slots__ = ("context", "decision", "notice", "reason")

    def __init__(self, *, context: str = "", decision: str = "", reason: str = "", notice: str = "") -> None:
        self.context = context
        """Text for the model, fenced as data by the caller and within the vendor's limit."""
        self.decision = decision
        """At BEFORE_TOOL "", "ask" or "deny"; at STOP "" or "deny" (do not stop yet)."""
        self.reason = reason
        """The reason, and the one command that clears it."""
        self.notice = notice
        """A line for the person at the terminal, if the vendor can show one."""


class Reply:
    """What the hook process writes, and its exit status."""

    __slots__ = ("status", "stderr", "stdout")

    def __init__(self, stdout: str = "", stderr: str = "", status: int = 0) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.status = status


def paths_of(
    tool_input: dict[str, Any], names: Sequence[str] = ("file_path", "path", "filePath", "notebook_path")
) -> list[str]:
    """The file arguments of a tool, under the names that vendors use."""
    return [value for name in names if isinstance(value := tool_input.get(name), str) and value]
