"""Answers of models, as the vendors' APIs return them: each says something, or calls one tool."""

import json
from typing import Any


def completion(text: str = "", call: str = "", name: str = "pay", **arguments: Any) -> dict[str, Any]:
    """A chat completion of OpenAI's."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
    if call:
        function = {"name": name, "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": call, "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop", "logprobs": None}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
             "prompt_tokens_details": {"cached_tokens": 40}, "completion_tokens_details": {"reasoning_tokens": 5}}  # fmt: skip
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-x", "choices": [choice], "usage": usage}


def response(text: str = "", call: str = "", name: str = "pay", **arguments: Any) -> dict[str, Any]:
    """A response of OpenAI's, with reasoning that only OpenAI can read."""
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0"}
    ]  # fmt: skip
    if text:
        said = {"type": "output_text", "text": text, "annotations": []}
        output.append({"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [said]})
    if call:
        output.append({"type": "function_call", "id": "f1", "call_id": call, "name": name, "status": "completed",
                       "arguments": json.dumps(arguments)})  # fmt: skip
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 20,
             "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 120}  # fmt: skip
    return {"id": "r", "object": "response", "model": "gpt-x", "output": output, "usage": usage}


def message(text: str = "", call: str = "", name: str = "pay", **arguments: Any) -> dict[str, Any]:
    """A message of Anthropic's, with a signed thought."""
    content: list[dict[str, Any]] = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
    if text:
        content.append({"type": "text", "text": text})
    if call:
        content.append({"type": "tool_use", "id": call, "name": name, "input": arguments})
    usage = {"input_tokens": 50, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 10, "output_tokens": 20}
    return {"id": "m", "type": "message", "role": "assistant", "model": "claude-x", "content": content,
            "stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None, "usage": usage}  # fmt: skip


def generated(text: str = "", call: str = "", name: str = "pay", **arguments: Any) -> dict[str, Any]:
    """What Gemini generated; it gives its calls no ids, and signs its thoughts."""
    parts: list[dict[str, Any]] = []
    if text:
        parts.append({"text": text})
    if call:
        parts.append({"function_call": {"name": name, "args": arguments}, "thought_signature": "_-7-"})
    usage = {"prompt_token_count": 100, "cached_content_token_count": 40, "candidates_token_count": 15,
             "thoughts_token_count": 5, "total_token_count": 120}  # fmt: skip
    return {"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finish_reason": "STOP"}],
            "model_version": "gemini-x", "usage_metadata": usage}  # fmt: skip


MAKERS = {"openai": completion, "openai-responses": response, "anthropic": message, "gemini": generated}
