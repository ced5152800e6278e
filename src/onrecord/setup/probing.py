"""Tool calls by hand: start an MCP server as a client does, call some tools, and end it. It needs no library."""

from __future__ import annotations

import json
import subprocess
from threading import Timer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ANSWER_SECONDS = 30.0
"""How long a server may take to start and to answer one call."""
_REVISION = "2025-06-18"
"""A revision that every server of this protocol understands."""


class Told(NamedTuple):
    """What the tools answered; or the problem."""

    text: str
    problem: str = ""


def call_tools(
    command: Sequence[str], calls: Sequence[tuple[str, Mapping[str, Any]]], env: Mapping[str, str], folder: str
) -> Told:
    """The answers of some tools, called one after the other."""
    try:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(env), cwd=folder
        )
    except OSError as problem:
        return Told("", f"{command[0]} cannot be run: {problem.strerror}")
    limit = Timer(ANSWER_SECONDS, server.kill)
    limit.start()
    try:
        told = _talk(server, calls)
    except OSError:
        told = Told("", "it closed the connection")
    finally:
        limit.cancel()
    _out, err = server.communicate()
    said = err.decode(errors="replace").strip().splitlines()
    return told._replace(problem=f"{told.problem} ({said[-1]})") if told.problem and said else told


def _talk(server: subprocess.Popen[bytes], calls: Sequence[tuple[str, Mapping[str, Any]]]) -> Told:
    """Say hello, then call the tools; each call waits for its answer."""
    hello = {"protocolVersion": _REVISION, "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}}
    if _asked(server, 0, "initialize", hello) is None:
        return Told("", f"no answer within {ANSWER_SECONDS:g} seconds, or it ended")
    _send(server, {"method": "notifications/initialized"})
    texts = []
    for number, (tool, arguments) in enumerate(calls, start=1):
        found = _asked(server, number, "tools/call", {"name": tool, "arguments": dict(arguments)})
        result = (found or {}).get("result") or {}
        text = "".join(str(part.get("text", "")) for part in result.get("content", ()))
        if not result or result.get("isError"):
            return Told("", f"`{tool}` failed: {text or found}")
        texts.append(text)
    return Told("\n".join(texts))


def _send(server: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
    if server.stdin is not None:
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        server.stdin.flush()


def _asked(
    server: subprocess.Popen[bytes], number: int, method: str, params: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The answer to one request; None if the server ended first."""
    _send(server, {"id": number, "method": method, "params": params})
    for line in server.stdout or ():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and told.get("id") == number:
            return told
    return None
