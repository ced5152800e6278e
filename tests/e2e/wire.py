"""The four wire formats of model servers: what a request says, and how an answer is written.

A `Format` reads a request into an `Asked` and writes a `Step` as the vendors' programs expect it. Only what those programs
use is here. Nothing in this module does I/O.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from onrecord.rules import is_own_tool

MODEL = "mock-model"
FENCED = re.compile(r"\[onrecord-data nonce=(\w+)\].*?\[/onrecord-data nonce=\1\]", re.DOTALL)
"""What a hook injects, fenced as data. Gemini and Qwen would write angle brackets as in HTML."""
DIRECTIVE = re.compile(r"\[\[(\w+)(?: (.*?))?\]\]", re.DOTALL)


class Step(NamedTuple):
    """One thing the model does, as a prompt asks for it: `[[shell ls]]`, `[[say hello]]`, `[[write a.txt :: text]]`."""

    verb: str
    """say, drip (say something and never finish), fail, or a tool: shell, write, delegate (to a subagent), mcp (ours)."""
    words: Sequence[str] = ()


class Asked(NamedTuple):
    """What a request means: how to answer the program."""

    prompt: str
    """The last text of a user that has directives in it."""
    results: int
    """How many tool results follow it."""
    tools: frozenset[str]
    """The tools that the program offers; a request without tools is a side request (titles, summaries)."""


Frames = Iterator[tuple[str, Any]]
"""The parts of a streamed answer: name of the event ("" for none) and its data."""


def steps(prompt: str) -> list[Step]:
    """The directives of a prompt. Text that a hook injected, fenced as data, gives no orders."""
    return [
        Step(verb, [word.strip() for word in (rest or "").split(" :: ")])
        for verb, rest in DIRECTIVE.findall(FENCED.sub("", prompt))
    ]


def next_step(asked: Asked) -> Step:
    """Each tool result advances by one directive; after the last one, and without any, the model says that it is done."""
    script = steps(asked.prompt)
    return script[asked.results] if asked.results < len(script) else Step("say", ["done"])


def listen(said: Sequence[tuple[str, str]], tools: Sequence[str]) -> Asked:
    """Join the parts of a conversation, as (kind, text), into what needs an answer; kind is user, result or other."""
    prompt, results = "", 0
    for kind, text in said:
        if kind == "user" and steps(text):
            prompt, results = text, 0
        elif kind == "result":
            results += 1
    return Asked(prompt, results, frozenset(tools))


CALLS: dict[str, tuple[tuple[str, Sequence[str], dict[str, Any]], ...]] = {
    "shell": (
        ("Bash", ["command"], {"description": "as asked"}),
        ("exec_command", ["cmd"], {}),
        ("run_shell_command", ["command"], {"is_background": False, "description": "as asked"}),
        ("bash", ["command"], {"description": "as asked"}),
    ),
    "write": (
        ("Write", ["file_path", "content"], {}),
        ("write_file", ["file_path", "content"], {}),
        ("create", ["path", "file_text"], {}),
        ("write", ["filePath", "content"], {}),
    ),
    "call": (),
    "delegate": (("Agent", ["prompt"], {"description": "as asked", "subagent_type": "general-purpose"}),),
    "mcp": (),
    "wait": (),
}
"""How each vendor calls each tool: its name, the names of its arguments, and other required arguments."""


def own_tool(step: Step, tools: frozenset[str]) -> str:
    """The name under which the program offers a tool of our MCP server: `[[mcp resume :: {}]]`."""
    return next((name for name in sorted(tools) if is_own_tool(name) and name.endswith(step.words[0])), "")


def can_call(step: Step, tools: frozenset[str]) -> bool:
    if step.verb == "call":  # any tool, as `[[call NAME JSON]]`
        return step.words[0].partition(" ")[0] in tools
    if step.verb in ("mcp", "wait"):
        return step.verb == "wait" or "tool_call" in tools or bool(own_tool(step, tools))
    return "apply_patch" in tools or any(name in tools for name, _, _ in CALLS[step.verb])


def tool_call(step: Step, tools: frozenset[str]) -> tuple[str, dict[str, Any]]:
    if step.verb == "call":
        name, _, given = step.words[0].partition(" ")
        return name, json.loads(given)
    if step.verb == "mcp":
        name, given = own_tool(step, tools), json.loads(step.words[1])
        # Qwen defers the tools of servers, and calls them through another tool.
        through = {"name": f"mcp__onrecord__{step.words[0]}", "arguments": given}
        return (name, given) if name else ("tool_call", through)
    if step.verb == "wait":  # Claude starts its first turn while its servers start, and offers to wait if one is late
        if "tool_search" in tools:  # Codex defers the tools of servers until the model searches for them
            return "tool_search", {"query": "onrecord resume record attempt gate", "limit": 8}
        late = "WaitForMcpServers" in tools
        return ("WaitForMcpServers", {}) if late else ("Bash", {"command": "true", "description": "as asked"})
    for name, arguments, more in CALLS[step.verb]:
        if name in tools:
            return name, {**dict(zip(arguments, step.words, strict=True)), **more}
    if step.verb == "write" and "apply_patch" in tools:
        path, text = step.words
        lines = "\n".join(f"+{line}" for line in text.split("\n"))
        return "apply_patch", {"patch": f"*** Begin Patch\n*** Add File: {path}\n{lines}\n*** End Patch\n"}
    raise LookupError(f"no tool for {step.verb!r} among {sorted(tools)}")


def said_by(role: str, content: Any) -> list[tuple[str, str]]:
    """A message's content, which is a string or a list of parts. Two prompts in a row may be two parts of one message."""
    if isinstance(content, str):
        return [(role, content)]
    return [(role, part["text"]) for part in content or () if isinstance(part.get("text"), str)]


class Anthropic:
    """`/v1/messages` (Claude Code)."""

    @staticmethod
    def read(body: dict[str, Any]) -> Asked:
        said = []
        for message in body.get("messages", ()):
            parts = message["content"] if isinstance(message["content"], list) else ()
            said += [("result", "") for part in parts if part["type"] == "tool_result"]
            said += said_by(message["role"], message["content"])
        return listen(said, [tool["name"] for tool in body.get("tools", ()) if "name" in tool])

    @staticmethod
    def write(step: Step, asked: Asked, number: int) -> Frames:
        usage = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100,
                 "output_tokens": 50, "output_tokens_details": {"thinking_tokens": 30}}  # fmt: skip
        message: dict[str, Any] = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": MODEL, "content": [],
                   "stop_reason": None, "stop_sequence": None, "usage": usage | {"output_tokens": 1}}  # fmt: skip
        block: dict[str, Any]
        delta: dict[str, Any]
        if step.verb in CALLS:
            name, arguments = tool_call(step, asked.tools)
            block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
            delta, reason = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}, "tool_use"
        else:
            block = {"type": "text", "text": ""}
            delta, reason = {"type": "text_delta", "text": step.words[0]}, "end_turn"
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        for data in events:
            yield data["type"], data

    @staticmethod
    def error(status: int, kind: str, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": kind, "message": message}}


class Responses:
    """`/v1/responses` (Codex)."""

    @staticmethod
    def read(body: dict[str, Any]) -> Asked:
        said = []
        for item in body.get("input", ()):
            if item.get("type", "message") == "message":
                said += said_by(item["role"], item["content"])
            elif item["type"].endswith("_output"):
                said.append(("result", ""))
        offered = [*body.get("tools", ()), *(one for item in body.get("input", ()) for one in item.get("tools", ()))]
        names = [tool.get("name") or tool.get("type", "") for tool in offered]
        nested = [
            f"{tool['name']}__{inner['name']}" if tool.get("type") == "namespace" else inner.get("name", "")
            for tool in offered
            for inner in tool.get("tools", ())
        ]
        return listen(said, [*names, *nested])

    @staticmethod
    def write(step: Step, asked: Asked, number: int) -> Frames:
        item: dict[str, Any]
        if step.verb in CALLS:
            name, arguments = tool_call(step, asked.tools)
            item = {"id": f"item_{number}", "call_id": f"call_{number}", "name": name}
            if step.verb == "mcp":
                namespace, _dashes, inner = name.rpartition("__")
                item |= {"type": "function_call", "name": inner, "namespace": namespace}
                item |= {"arguments": json.dumps(arguments)}
            elif name == "tool_search":
                item = {"id": f"item_{number}", "type": "tool_search_call", "call_id": f"call_{number}",
                        "status": "completed", "execution": "client", "arguments": arguments}  # fmt: skip
            elif name == "apply_patch":
                item |= {"type": "custom_tool_call", "input": arguments["patch"]}
            else:
                item |= {"type": "function_call", "arguments": json.dumps(arguments)}
        else:
            text = {"type": "output_text", "text": step.words[0], "annotations": []}
            item = {"id": f"item_{number}", "type": "message", "role": "assistant", "content": [text]}
        usage = {"input_tokens": 123, "input_tokens_details": {"cached_tokens": 100}, "output_tokens": 50,
                 "output_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 173}  # fmt: skip
        answer = {"id": f"resp_{number}", "object": "response"}
        yield "response.created", {"type": "response.created", "response": answer}
        if item["type"] == "message":
            added = {**item, "content": []}
            yield "response.output_item.added", {"type": "response.output_item.added", "output_index": 0, "item": added}
            yield "response.output_text.delta", {
                "type": "response.output_text.delta", "item_id": item["id"], "output_index": 0, "content_index": 0,
                "delta": step.words[0],
            }  # fmt: skip
        yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield "response.completed", {"type": "response.completed", "response": {**answer, "usage": usage}}

    @staticmethod
    def error(status: int, kind: str, message: str) -> dict[str, Any]:
        return {"error": {"type": kind, "code": kind, "message": message}}


COMPLETION_USAGE = {
    "prompt_tokens": 123, "prompt_tokens_details": {"cached_tokens": 100}, "completion_tokens": 50,
    "completion_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 173,
}  # fmt: skip


class Completions:
    """`/v1/chat/completions` (Copilot, opencode, Qwen Code)."""

    @staticmethod
    def read(body: dict[str, Any]) -> Asked:
        said = []
        for message in body.get("messages", ()):
            tool = message["role"] == "tool"
            said += [("result", "")] if tool else said_by(message["role"], message.get("content"))
        return listen(said, [tool["function"]["name"] for tool in body.get("tools", ()) if "function" in tool])

    @staticmethod
    def message(step: Step, asked: Asked, number: int) -> tuple[dict[str, Any], str]:
        if step.verb not in CALLS:
            return {"role": "assistant", "content": step.words[0]}, "stop"
        name, arguments = tool_call(step, asked.tools)
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"

    @staticmethod
    def write(step: Step, asked: Asked, number: int) -> Frames:
        message, reason = Completions.message(step, asked, number)
        base = {"id": f"chatcmpl_{number}", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
        yield "", {**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
        yield "", {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": COMPLETION_USAGE}
        yield "", "[DONE]"

    @staticmethod
    def whole(step: Step, asked: Asked, number: int) -> dict[str, Any]:
        message, reason = Completions.message(step, asked, number)
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {"id": f"chatcmpl_{number}", "object": "chat.completion", "created": 0, "model": MODEL,
                "choices": [choice], "usage": COMPLETION_USAGE}  # fmt: skip

    @staticmethod
    def error(status: int, kind: str, message: str) -> dict[str, Any]:
        return {"error": {"type": kind, "code": kind, "message": message, "param": None}}


class Gemini:
    """`:streamGenerateContent` and `:generateContent` (Gemini CLI)."""

    @staticmethod
    def read(body: dict[str, Any]) -> Asked:
        said = []
        for content in body.get("contents", ()):
            said += [("result", "") for part in content["parts"] if "functionResponse" in part]
            said += said_by(content.get("role", "user"), content["parts"])
        declared = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
        return listen(said, [one["name"] for one in declared])

    @staticmethod
    def whole(step: Step, asked: Asked, number: int) -> dict[str, Any]:
        part: dict[str, Any]
        if step.verb in CALLS:
            name, arguments = tool_call(step, asked.tools)
            part = {"functionCall": {"name": name, "args": arguments}}
        else:
            part = {"text": step.words[0]}
        usage = {"promptTokenCount": 123, "cachedContentTokenCount": 100, "candidatesTokenCount": 20,
                 "thoughtsTokenCount": 30, "totalTokenCount": 173}  # fmt: skip
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL, "responseId": f"r{number}"}

    @staticmethod
    def write(step: Step, asked: Asked, number: int) -> Frames:
        yield "", Gemini.whole(step, asked, number)

    @staticmethod
    def error(status: int, kind: str, message: str) -> dict[str, Any]:
        words = {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 400: "INVALID_ARGUMENT"}
        return {"error": {"code": status, "status": words.get(status, kind), "message": message}}


Format = type[Anthropic] | type[Responses] | type[Completions] | type[Gemini]
