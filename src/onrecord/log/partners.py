"""What model APIs return: a whole reply as one message and its usage; the newer message formats as neutral items.

A reply is an object of a vendor's SDK or the same thing as a dict. Nothing here imports an SDK: replies are recognised
by their shape.
"""

from __future__ import annotations

from onrecord import lean_json as json
from onrecord.errors import InvalidInput
from onrecord.lean_typing import Any, NamedTuple
from onrecord.log.codec import encode_payload

Unchecked = dict[str, Any]
"""What becomes an item once `items.check_item` has checked it; and a partner's message."""


_PARSED = ("parsed", "parsed_arguments")
"""Where OpenAI's SDK puts what its stream and parse helpers parsed."""


class Reply(NamedTuple):
    """One answer of a model: what it says, in its vendor's format, and what it used."""

    format: str
    message: dict[str, Any]
    model: str
    usage: dict[str, int] | None
    """Tokens as `record_usage` takes them; None if the reply has no counts."""


def plain_message(message: object) -> object:
    """An SDK's object as a dict that can be recorded; anything else as it is."""
    dump = getattr(message, "model_dump", None)
    if not callable(dump):
        return message
    try:
        whole = dump(mode="json", exclude_none=True, warnings=False)  # Pydantic would warn of what was parsed
    except (TypeError, ValueError):  # with Pydantic 1 an SDK does not know this option
        whole = dump(mode="json", exclude_none=True)
    return _without_parsed(whole)


def read_reply(reply: object) -> Reply:
    """Read a whole reply: a chat completion, a response, a message of Anthropic's, or generated content of Gemini's."""
    whole = plain_message(reply)
    try:
        read = _read(whole) if isinstance(whole, dict) else None
    except (AttributeError, TypeError):  # a part of it has another type than vendors send
        read = None
    if read is None:
        raise InvalidInput(
            f"this is not the reply of a model: {type(reply).__name__}",
            hint="pass what the client of OpenAI, Anthropic or Gemini returned, of a stream its final message; "
            "or use turn.assistant and turn.use",
        )
    return read


def _read(whole: dict[str, Any]) -> Reply | None:
    if isinstance(whole.get("choices"), list):
        return _completion(whole)
    if isinstance(whole.get("output"), list):
        output = _without_parsed(whole["output"])
        return Reply("openai-responses", {"output": output}, _model(whole), _openai_usage(whole))
    if isinstance(whole.get("candidates"), list):
        return _generated(whole)
    if whole.get("role") == "assistant" and isinstance(whole.get("content"), list):
        message = {"role": "assistant", "content": whole["content"]}
        return Reply("anthropic", message, _model(whole), _anthropic_usage(whole))
    return None


def _without_parsed(said: Any) -> Any:
    """A message or its parts without what OpenAI's SDK parsed from their text: its APIs do not take that back."""
    if isinstance(said, list):
        return [_without_parsed(one) for one in said]
    if not isinstance(said, dict):
        return said
    bare = {name: value for name, value in said.items() if name not in _PARSED}
    return bare | {name: _without_parsed(bare[name]) for name in ("content", "tool_calls", "function") if name in bare}


def _completion(whole: dict[str, Any]) -> Reply:
    if not whole["choices"] or not isinstance(whole["choices"][0].get("message"), dict):
        raise InvalidInput("this completion has no message", hint="pass the finished completion, not one of its chunks")
    kept = {name: value for name, value in whole["choices"][0]["message"].items() if value not in (None, [])}
    message = {"role": "assistant", **_without_parsed(kept)}
    return Reply("openai", message, _model(whole), _openai_usage(whole))


def _generated(whole: dict[str, Any]) -> Reply:
    content = whole["candidates"][0].get("content") if whole["candidates"] else None
    parts = (content or {}).get("parts") or []
    return Reply("gemini", {"role": "model", "parts": parts}, _model(whole), _gemini_usage(whole))


def _model(whole: dict[str, Any]) -> str:
    return str(whole.get("model") or whole.get("model_version") or whole.get("modelVersion") or "unknown")


def _openai_usage(whole: dict[str, Any]) -> dict[str, int] | None:
    usage = whole.get("usage")
    if not usage:
        return None
    read, written = (
        usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {},
        usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {},
    )
    return _counts(
        input_tokens=usage.get("prompt_tokens") or usage.get("input_tokens"),
        output_tokens=usage.get("completion_tokens") or usage.get("output_tokens"),
        cache_read_tokens=read.get("cached_tokens"),
        reasoning_tokens=written.get("reasoning_tokens"),
    )


def _anthropic_usage(whole: dict[str, Any]) -> dict[str, int] | None:
    usage = whole.get("usage")
    if not usage:
        return None
    read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    return _counts(
        input_tokens=(usage.get("input_tokens") or 0) + read + written,
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _gemini_usage(whole: dict[str, Any]) -> dict[str, int] | None:
    usage = whole.get("usage_metadata") or whole.get("usageMetadata")
    if not usage:
        return None

    def of(name: str, other: str) -> int:
        return usage.get(name) or usage.get(other) or 0

    thought = of("thoughts_token_count", "thoughtsTokenCount")
    return _counts(
        input_tokens=of("prompt_token_count", "promptTokenCount")
        + of("tool_use_prompt_token_count", "toolUsePromptTokenCount"),
        output_tokens=of("candidates_token_count", "candidatesTokenCount") + thought,
        cache_read_tokens=of("cached_content_token_count", "cachedContentTokenCount"),
        reasoning_tokens=thought,
    )


def _counts(**counts: int | None) -> dict[str, int]:
    return {name: amount for name, amount in counts.items() if amount}


def from_responses(message: Unchecked) -> list[Unchecked]:
    """The items of a response: its text and calls are one assistant's item; a result is a tool's."""
    output = message["output"] if isinstance(message.get("output"), list) and "type" not in message else [message]
    if not all(isinstance(part, dict) and ("type" in part or "role" in part) for part in output):
        raise InvalidInput("every part of a response has a type", hint="pass response.output, or the whole response")
    texts: list[str] = []
    calls: list[Unchecked] = []
    items: list[Unchecked] = []
    role = "assistant"
    for part in output:
        kind = part.get("type", "message")
        if kind == "message":
            role = "system" if part.get("role") == "developer" else part.get("role") or "assistant"
            texts.append(_text_of(part.get("content")))
        elif kind == "function_call":
            arguments = arguments_of(part.get("arguments"))
            calls.append({"id": part.get("call_id"), "name": part.get("name"), "arguments": arguments})
        elif kind == "custom_tool_call":
            calls.append({"id": part.get("call_id"), "name": part.get("name"), "arguments": part.get("input")})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            items.append({"role": "tool", "call": part.get("call_id"), "content": _text_of(part.get("output"))})
    if texts or calls or not items:
        items.append({"role": role, "content": "\n".join(texts)} | ({"tool_calls": calls} if calls else {}))
    return items


def from_gemini(message: Unchecked) -> list[Unchecked]:
    """The items of a content of Gemini's. Its calls may have no id: then they get one from their order."""
    if not isinstance(message.get("parts"), list):
        raise InvalidInput("a content of Gemini's needs a list of parts", hint='like {"role": "user", "parts": [...]}')
    role = "assistant" if message.get("role") == "model" else "user"
    texts: list[str] = []
    calls: list[Unchecked] = []
    items: list[Unchecked] = []
    for part in (part for part in message["parts"] if isinstance(part, dict)):
        call = part.get("function_call") or part.get("functionCall")
        result = part.get("function_response") or part.get("functionResponse")
        if call:
            id_ = call.get("id") or f"{call.get('name')}-{len(calls) + 1}"
            calls.append({"id": id_, "name": call.get("name"), "arguments": call.get("args") or {}})
        elif result:
            id_ = result.get("id") or f"{result.get('name')}-{len(items) + 1}"
            items.append({"role": "tool", "call": id_, "content": _text_of(result.get("response"))})
        elif isinstance(part.get("text"), str) and not part.get("thought"):
            texts.append(part["text"])
    if texts or calls or not items:
        items.append({"role": role, "content": "".join(texts)} | ({"tool_calls": calls} if calls else {}))
    return items


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") or part.get("refusal") or "" for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if part)
    return "" if content is None else json.dumps(content, ensure_ascii=False)


def arguments_of(text: object) -> object:
    """In OpenAI's forms, arguments travel as JSON text; text that is not JSON is kept as it is."""
    if not isinstance(text, str):
        return text
    try:
        arguments = json.loads(text)
        encode_payload(arguments)
    except (ValueError, RecursionError, InvalidInput):
        return text  # a model may write NaN, half a character or a thousand brackets: its text is kept in any case
    return arguments
