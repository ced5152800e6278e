"""The hook dialect that Claude Code introduced and others adopted: reading its payloads and writing answers.

A `Dialect` describes how a vendor differs. This module is loaded at every tool call: it imports as little as possible,
and never fails, whatever a payload contains.
"""

from __future__ import annotations

import os.path

from onrecord import lean_json as json
from onrecord.vendors.base import Base
from onrecord.vendors.hooks import (
    AFTER_TOOL,
    BEFORE_TOOL,
    CLEARED,
    COMPACT,
    COMPACTED,
    END,
    FAILED,
    FORKED,
    NOTICE,
    OTHER,
    PROMPT,
    RESUMED,
    START,
    STARTUP,
    STOP,
    HookAnswer,
    HookCall,
    Reply,
    paths_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from onrecord.rules import ToolRequest

MOMENTS_OF = {
    "SessionStart": START, "UserPromptSubmit": PROMPT, "PreToolUse": BEFORE_TOOL, "PostToolUse": AFTER_TOOL,
    "PostToolUseFailure": AFTER_TOOL, "PreCompact": COMPACT, "Stop": STOP, "StopFailure": FAILED,
    "SessionEnd": END, "Notification": NOTICE,
}  # fmt: skip
SOURCES = {
    "startup": STARTUP, "new": STARTUP, "resume": RESUMED, "clear": CLEARED, "compact": COMPACTED, "fork": FORKED,
}  # fmt: skip
NO_REASON = "refused by onrecord"
"""Some vendors treat a refusal without a reason as an error and continue."""
GOES_ON = frozenset({"clear", "resume"})
"""The reasons for which a conversation ends while its process stays."""
NO_ATTENTION = frozenset(
    {"auth_success", "idle_prompt", "agent_completed", "elicitation_complete", "elicitation_response",
     "computer_use_exit", "push_notification", "plugin_notification"}
)  # fmt: skip
"""Notices that need no answer from a person. An idle agent has finished its turn, which its stop has said."""
OUTPUT_LIMIT = 64 * 1024
"""How many characters of a tool's output a hook call keeps: the end, which shows the result."""
EXIT_CODE = r"(?i)(?:exit(?:ed)?(?: with)?(?: exit)?[ _-]?(?:code|status)|status code)\D{0,3}?(-?\d{1,9})\b"
PATCHED = r"(?m)^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*$"
SHELLS = frozenset({"sh", "bash", "zsh", "dash"})
SHELL_TOOLS = frozenset({"bash", "shell", "run_shell_command", "exec_command", "local_shell", "terminal"})


class Dialect:
    """How a vendor differs from the common dialect."""

    __slots__ = ("asks", "context_in", "id_env", "moments", "pid_env", "vendor")

    def __init__(
        self, vendor: str, *, moments: Mapping[str, str] = MOMENTS_OF, id_env: str = "", pid_env: str = "",
        asks: bool = True, context_in: Sequence[str] = (START, PROMPT, BEFORE_TOOL, AFTER_TOOL),
    ) -> None:  # fmt: skip
        self.vendor = vendor
        self.moments = moments
        """The vendor's names for the moments."""
        self.id_env = id_env
        """The variable with the conversation's id, for payloads without one."""
        self.pid_env = pid_env
        self.asks = asks
        """Whether a hook may ask a person; if not, "ask" becomes "deny", never "allow"."""
        self.context_in = context_in
        """The moments at which the vendor accepts text for the model."""


def parse(dialect: Dialect, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
    """A payload as a `HookCall`; missing fields and fields of another type are empty."""
    event = word(payload, "hook_event_name")
    moment = dialect.moments.get(event, OTHER)
    if moment == NOTICE and word(payload, "notification_type") in NO_ATTENTION:
        moment = OTHER
    tool = word(payload, "tool_name")
    code, output = outcome(tool, payload, failed=event.endswith("Failure")) if moment == AFTER_TOOL else (None, "")
    return HookCall(
        dialect.vendor,
        moment,
        word(payload, "session_id") or env.get(dialect.id_env, ""),
        event=event,
        cwd=word(payload, "cwd"),
        transcript=word(payload, "transcript_path"),
        reason=reason_of(moment, payload),
        prompt=word(payload, "prompt"),
        tool=tool,
        tool_input=mapping(payload.get("tool_input")),
        call=word(payload, "tool_call_id", "tool_use_id"),
        exit_code=code,
        output=output,
        pid=number(env.get(dialect.pid_env, "")),
        payload=payload,
        **about(moment, payload),
    )


def about(moment: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Further fields at a stop, an end or a notice."""
    if moment == STOP:
        return {"nudged": payload.get("stop_hook_active") is True}
    if moment == FAILED:
        return {"message": word(payload, "last_assistant_message", "error")}
    if moment == END:
        return {"stays": word(payload, "reason") in GOES_ON}
    return {"message": word(payload, "message", "title", "notification_type")} if moment == NOTICE else {}


def reply(dialect: Dialect, call: HookCall, answer: HookAnswer) -> Reply:
    """An answer in this dialect; an empty one prints nothing."""
    said: dict[str, Any] = {}
    own: dict[str, Any] = {}
    if answer.context and call.moment in dialect.context_in:
        own["additionalContext"] = answer.context
    if answer.decision and call.moment == BEFORE_TOOL:
        own["permissionDecision"] = decision_of(dialect, answer)
        own["permissionDecisionReason"] = answer.reason or NO_REASON
    elif answer.decision and call.moment == STOP:
        said = {"decision": "block", "reason": answer.reason or NO_REASON}
    if own:
        said["hookSpecificOutput"] = {"hookEventName": call.event, **own}
    if answer.notice:
        said["systemMessage"] = answer.notice
    return Reply(json.dumps(said) if said else "")


def decision_of(dialect: Dialect, answer: HookAnswer) -> str:
    """The decision, in a word that this vendor knows."""
    return "ask" if answer.decision == "ask" and dialect.asks else "deny"


def tool_request(call: HookCall, agent: str) -> ToolRequest | None:
    """What the tool is about to do, or did. Paths are absolute (relative ones start at the call's directory)."""
    if call.moment not in (BEFORE_TOOL, AFTER_TOOL) or not call.tool:
        return None
    from onrecord.rules import EDIT, ToolRequest, act_of

    paths = paths_of(call.tool_input)
    commands = commands_in(call)
    if call.tool.casefold() in ("apply_patch", "patch", "applypatch"):
        paths = paths + patched_paths(call.tool_input)
        commands = []
    act = act_of(call.tool, has_path=bool(paths), has_command=bool(commands))
    if act == EDIT:
        commands = []
    return ToolRequest(
        agent, act, paths=[absolute(path, call.cwd) for path in paths], commands=commands, tool=call.tool,
        call=call.call, line=line_in(call) if commands else "",
    )  # fmt: skip


def commands_in(call: HookCall) -> list[tuple[str, ...]]:
    """The simple commands of a shell tool, from text or an argument list."""
    from onrecord.rules import commands_of

    given = given_to_shell(call)
    if isinstance(given, list):
        return [tuple(given)] if given else []
    return commands_of(given) if given.strip() else []


def line_in(call: HookCall) -> str:
    """The command line of a shell tool, with its quotes."""
    given = given_to_shell(call)
    if isinstance(given, str):
        return given
    import shlex

    return shlex.join(given)


def given_to_shell(call: HookCall) -> str | list[str]:
    """What a shell tool is given: a command line, or the arguments of one command."""
    given = next((call.tool_input[name] for name in ("command", "cmd", "script") if name in call.tool_input), None)
    if isinstance(given, list):
        words = [one for one in given if isinstance(one, str)]
        if len(words) > 2 and os.path.basename(words[0]) in SHELLS and words[1].startswith("-"):  # noqa: PLR2004 - shell, flag, text
            return words[-1]
        return words
    return given if isinstance(given, str) else ""


def patched_paths(tool_input: dict[str, Any]) -> list[str]:
    """The files that a patch in Codex's form changes."""
    texts = [one for one in tool_input.values() if isinstance(one, str) and "*** " in one]
    if not texts:
        return []
    import re

    return [path for text in texts for path in re.findall(PATCHED, text)]


def absolute(path: str, cwd: str) -> str:
    """A path as an absolute one, without `.` and `..`."""
    return os.path.normpath(os.path.join(cwd, path)) if cwd else path


def outcome(tool: str, payload: dict[str, Any], *, failed: bool = False) -> tuple[int | None, str]:
    """The exit code and the output of a command, as far as the payload has them."""
    response = next((payload[name] for name in ("tool_response", "tool_result", "error") if name in payload), None)
    text = said_by(response)
    if tool.casefold() not in SHELL_TOOLS:
        return None, text
    code = stated_code(response)
    if code is None:
        code = _code_in(text)
    if code is None and not failed and isinstance(response, dict) and "stdout" in response:
        # Claude Code calls this hook only for commands that succeeded, by its own reading of the status.
        code = None if response.get("interrupted") or response.get("returnCodeInterpretation") else 0
    return code, text


def _code_in(text: str) -> int | None:
    """An exit code in the words of an output."""
    lowered = text.lower()
    if "exit" not in lowered and "status code" not in lowered:
        return None
    import re

    found = re.search(EXIT_CODE, text)
    return int(found[1]) if found else None


def stated_code(response: object) -> int | None:
    """An exit code in a separate field."""
    if not isinstance(response, dict):
        return None
    for name in ("exit_code", "exitCode"):
        if isinstance(value := response.get(name), int) and not isinstance(value, bool):
            return value
    return stated_code(response.get("metadata"))


def said_by(response: object) -> str:
    """The text of a tool's response, whatever its form."""
    if isinstance(response, str):
        return response[-OUTPUT_LIMIT:]
    if isinstance(response, list):
        return "\n".join(filter(None, map(said_by, response)))[-OUTPUT_LIMIT:]
    if isinstance(response, dict):
        names = ("stdout", "stderr", "output", "llmContent", "text", "textResultForLlm", "content", "error", "message")
        return "\n".join(filter(None, (said_by(response[name]) for name in names if name in response)))[-OUTPUT_LIMIT:]
    return ""


def reason_of(moment: str, payload: dict[str, Any]) -> str:
    """Why a conversation started or ended."""
    if moment == START:
        return SOURCES.get(word(payload, "source"), STARTUP)
    return word(payload, "reason") if moment == END else ""


def word(payload: dict[str, Any], *names: str) -> str:
    """The first of these fields that is a text."""
    return next((value for name in names if isinstance(value := payload.get(name), str) and value), "")


def mapping(value: object) -> dict[str, Any]:
    """A tool's input as a dict; some vendors send it as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {"input": value}
    return value if isinstance(value, dict) else {}


def number(text: str) -> int | None:
    """A process id."""
    return int(text) if text.isascii() and text.isdigit() else None


def hook_entries(
    command: Sequence[str], vendor: str, events: Mapping[str, str | None], **about: str | int
) -> dict[str, list[dict[str, Any]]]:
    """Our entry under each event: matcher groups with one command, and what else is said about it."""
    import shlex

    entries = {}
    for event, matcher in events.items():
        hook = {"type": "command", "command": shlex.join([*command, "hook", vendor, event]), **about}
        entries[event] = [({"matcher": matcher} if matcher is not None else {}) | {"hooks": [hook]}]
    return entries


class Shaped(Base):
    """A vendor with hooks in this dialect."""

    dialect: Dialect

    def parse_hook(self, payload: dict[str, Any], env: Mapping[str, str]) -> HookCall:
        """A payload as a `HookCall`."""
        return parse(self.dialect, payload, env)

    def reply(self, call: HookCall, answer: HookAnswer) -> Reply:
        """Our answer in this dialect."""
        return reply(self.dialect, call, answer)

    def tool_request(self, call: HookCall, agent: str) -> ToolRequest | None:
        """What the tool is about to do."""
        return tool_request(call, agent)
