"""MCP servers as the vendors see them: how each registers one, and what it says about its conversation to one.

Pure data and text: where the files are is each vendor's own `files`.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from onrecord.environment import (
    AGENT_VARIABLE,
    CONFIG_VARIABLE,
    PROJECT_VARIABLE,
    SESSION_VARIABLE,
    SPAWN_VARIABLE,
    STORE_VARIABLE,
    TENANT_VARIABLE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHARED_FILE = ".mcp.json"
"""A project's servers, for Claude and Copilot."""
PASSED_ON = (
    SESSION_VARIABLE, AGENT_VARIABLE, STORE_VARIABLE, PROJECT_VARIABLE, CONFIG_VARIABLE, TENANT_VARIABLE,
    SPAWN_VARIABLE, "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME",
)  # fmt: skip
"""Variables that Codex passes to a server only if they are named."""
SERVER = "onrecord"
"""Our name among a user's MCP servers."""
CONVERSATIONS = {
    "CLAUDE_CODE_SESSION_ID": "claude", "COPILOT_AGENT_SESSION_ID": "copilot", "QWEN_CODE_SESSION_ID": "qwen",
}  # fmt: skip
"""Variables in which vendors name the conversation for their MCP servers."""
META_CONVERSATIONS = {"threadId": "codex", "sessionId": "codex"}
"""Where a call itself names it."""
CLIENTS = {
    "claude-code": "claude", "codex": "codex", "gemini": "gemini", "copilot": "copilot", "cursor": "cursor",
    "opencode": "opencode", "qwen": "qwen",
}  # fmt: skip
"""How vendors call themselves: the beginning of the client's name."""
CALL_IDS = ("claudecode/toolUseId",)
"""Where a call names the model's own id of it; the id is the same when the client repeats the call."""
JSON_KEYS = {"opencode": "mcp"}
"""The member of a JSON file that holds the servers, where it is not `mcpServers`."""


def conversation_in(meta: Mapping[str, Any], env: Mapping[str, str]) -> tuple[str, str]:
    """The vendor and id of the conversation that a call comes from; empty if nothing names it."""
    for name, vendor in META_CONVERSATIONS.items():
        if isinstance(meta.get(name), str) and meta[name]:
            return vendor, str(meta[name])
    return next(((vendor, env[name]) for name, vendor in CONVERSATIONS.items() if env.get(name)), ("", ""))


def vendor_of_client(client: str) -> str:
    """The vendor of a client, by the name it gives itself; empty for others."""
    name = client.casefold()
    return next((vendor for known, vendor in CLIENTS.items() if name.startswith(known)), "")


def call_id_in(meta: Mapping[str, Any]) -> str:
    """The model's id of a call, if the client sends it."""
    return next((str(meta[name]) for name in CALL_IDS if isinstance(meta.get(name), str)), "")


def keys_of(vendor: str) -> tuple[str, str]:
    """Where our server is in the vendor's JSON file."""
    return JSON_KEYS.get(vendor, "mcpServers"), SERVER


def entry(vendor: str, file: str, command: Sequence[str]) -> dict[str, Any]:
    """Our server as the vendor writes it in this file."""
    program, *arguments = command
    if vendor == "opencode":
        return {"type": "local", "command": list(command), "enabled": True}
    if vendor == "copilot" and file != SHARED_FILE:
        return {"type": "local", "command": program, "args": arguments, "tools": ["*"]}
    if vendor in ("claude", "copilot"):
        return {"type": "stdio", "command": program, "args": arguments}
    return {"command": program, "args": arguments}


def toml_entry(command: Sequence[str]) -> str:
    """Our server as Codex writes it. JSON strings are TOML strings."""
    program, *arguments = command
    return (
        f"[mcp_servers.{SERVER}]\ncommand = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n"
        f"env_vars = {json.dumps(PASSED_ON)}\n"
    )


def runs_us(entry: Any) -> bool:
    """Whether a registered server is ours, whatever else is set with it."""
    if not isinstance(entry, dict):
        return False
    command, more = entry.get("command"), entry.get("args")
    words = [*(command if isinstance(command, list) else [command]), *(more if isinstance(more, list) else [])]
    said = [str(word).rpartition("/")[2] for word in words]
    return any(pair == (SERVER, "mcp") for pair in pairwise(said))


def server_words(entry: Any) -> list[str]:
    """The command that starts our server, from its entry; empty if it is not ours."""
    if not runs_us(entry):
        return []
    command = entry["command"]
    return list(command) if isinstance(command, list) else [str(command), *map(str, entry.get("args") or ())]
