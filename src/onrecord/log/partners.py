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
PAUSED = "pause_turn"
"""Anthropic's reason to stop in the middle of a step: the answer is sent back as it is, and the model continues."""
IMAGE = "[image]"
"""An image that a model made, as text: no vendor takes images from another one's model."""
ID_LIMIT = 40
"""The longest id of a call that every vendor accepts; OpenAI's chat completions accept the shortest ones."""
_COUNT_LIMIT = 10**14
"""No count of tokens is as large; sums of smaller ones stay exact."""
OWN_CALLS = ("shell_call", "local_shell_call", "apply_patch_call", "computer_call")
"""Calls of OpenAI's own tools that the client runs; the type of their results ends in `_output`."""
OWN_RESULTS = tuple(f"{kind}_output" for kind in OWN_CALLS)
_MEDIA = ("input_image", "input_file", "input_audio")
_NOT_FINISHED = ("queued", "in_progress", "failed", "cancelled")


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
    try:
        return read._replace(message=_whole_text(read.message), model=_whole_text(read.model))
    except RecursionError:  # what is nested so deeply is refused when it is recorded
        return read


def _whole_text(said: Any) -> Any:
    """The same without halves of characters, which models write at times and which cannot be recorded."""
    if isinstance(said, str):
        try:
            said.encode()
        except UnicodeEncodeError:
            return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two halves become one
        return said
    if isinstance(said, list):
        return [_whole_text(one) for one in said]
    if isinstance(said, dict):
        return {_whole_text(name): _whole_text(value) for name, value in said.items()}
    return said


def _read(whole: dict[str, Any]) -> Reply | None:
    if isinstance(whole.get("choices"), list):
        return _completion(whole)
    if isinstance(whole.get("output"), list):
        if whole.get("status") in _NOT_FINISHED:
            raise _no_answer(whole)
        output = _with_own_ids(_without_parsed(whole["output"]), "call_id", ("function_call", "custom_tool_call"))
        return Reply("openai-responses", {"output": output}, _model(whole), _openai_usage(whole))
    feedback = whole.get("prompt_feedback") or whole.get("promptFeedback")
    if isinstance(feedback, dict) and not whole.get("candidates"):
        raise _blocked(feedback)
    if isinstance(whole.get("candidates"), list):
        if not whole["candidates"]:
            raise InvalidInput(
                "Gemini returned no candidate: there is no answer to record",
                hint="call the model again; turn.use(model, input_tokens=...) records its tokens",
            )
        return _generated(whole)
    if whole.get("role") == "assistant" and isinstance(whole.get("content"), list):
        message = {"role": "assistant", "content": whole["content"]}
        if whole.get("stop_reason") == PAUSED:
            message["stop_reason"] = PAUSED  # on record only: it is not sent back
        return Reply("anthropic", message, _model(whole), _anthropic_usage(whole))
    return None


def _no_answer(whole: dict[str, Any]) -> InvalidInput:
    """What to say of a response that is no answer yet, or never becomes one."""
    status, error = whole["status"], whole.get("error")
    told = error.values() if isinstance(error, dict) else [error]
    why = ": ".join(str(one) for one in told if one)
    hint = "poll client.responses.retrieve(...) until it is completed"
    if status in ("failed", "cancelled"):
        hint = "nothing was recorded of it: call the model again"
    return InvalidInput(f"this response has no answer: it is {status}{f' ({why})' if why else ''}", hint=hint)


def _blocked(feedback: dict[str, Any]) -> InvalidInput:
    reason = feedback.get("block_reason") or feedback.get("blockReason") or "no reason was given"
    told = feedback.get("block_reason_message") or feedback.get("blockReasonMessage")
    return InvalidInput(
        f"Gemini blocked the prompt: {reason}{f' ({told})' if told else ''}",
        hint="there is no answer to record: change what is sent; turn.use(model, input_tokens=...) records its tokens",
    )


def _with_own_ids(calls: list[Any], field: str, kinds: tuple[str, ...] = ()) -> list[Any]:
    """The same calls, each with an id of its own: some engines repeat ids within one answer, or leave them out."""
    given = {call.get(field) for call in calls if isinstance(call, dict) and isinstance(call.get(field), str)}
    taken: set[str] = set()
    made = []
    for call in calls:
        if not isinstance(call, dict) or (kinds and call.get("type") not in kinds):
            made.append(call)
            continue
        id_ = call.get(field)
        if isinstance(id_, str) and id_ and id_ not in taken:
            made.append(call)
        else:
            number = 1
            while (id_ := f"call_{number}") in taken or id_ in given:
                number += 1
            made.append({**call, field: id_})
        taken.add(str(id_))
    return made


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
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = _with_own_ids(message["tool_calls"], "id")
    return Reply("openai", message, _model(whole), _openai_usage(whole))


def _generated(whole: dict[str, Any]) -> Reply:
    content = whole["candidates"][0].get("content")
    parts = (content or {}).get("parts") or []
    return Reply("gemini", {"role": "model", "parts": parts}, _model(whole), _gemini_usage(whole))


def _model(whole: dict[str, Any]) -> str:
    return str(whole.get("model") or whole.get("model_version") or whole.get("modelVersion") or "unknown")


def _openai_usage(whole: dict[str, Any]) -> dict[str, int] | None:
    usage = _dict(whole.get("usage"))
    read = _dict(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    written = _dict(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
    return _counts(
        usage,
        input_tokens=_count(usage, "prompt_tokens", "input_tokens"),
        output_tokens=_count(usage, "completion_tokens", "output_tokens"),
        cache_read_tokens=_count(read, "cached_tokens"),
        reasoning_tokens=_count(written, "reasoning_tokens"),
    )


def _anthropic_usage(whole: dict[str, Any]) -> dict[str, int] | None:
    usage = _dict(whole.get("usage"))
    read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    return _counts(
        usage,
        input_tokens=_count(usage, "input_tokens") + read + written,
        output_tokens=_count(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _gemini_usage(whole: dict[str, Any]) -> dict[str, int] | None:
    usage = _dict(whole.get("usage_metadata") or whole.get("usageMetadata"))
    thought = _count(usage, "thoughts_token_count", "thoughtsTokenCount")
    return _counts(
        usage,
        input_tokens=_count(usage, "prompt_token_count", "promptTokenCount")
        + _count(usage, "tool_use_prompt_token_count", "toolUsePromptTokenCount"),
        output_tokens=_count(usage, "candidates_token_count", "candidatesTokenCount") + thought,
        cache_read_tokens=_count(usage, "cached_content_token_count", "cachedContentTokenCount"),
        reasoning_tokens=thought,
    )


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(usage: dict[str, Any], *names: str) -> int:
    """The first count that is there under one of these names, perhaps as text; what is no count does not count."""
    for name in names:
        value = usage.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            amount = int(float(value))
        except (ValueError, OverflowError):  # other text, or an infinity
            continue
        if 0 < amount < _COUNT_LIMIT:
            return amount
    return 0


def _counts(usage: dict[str, Any], **counts: int) -> dict[str, int] | None:
    """Counts that are not 0, as `record_usage` takes them: a part is never more than the whole.

    Vendors differ in what a whole includes. If a part is larger, it was counted beside the whole (xAI's reasoning).
    """
    if not usage:
        return None
    cached = counts["cache_read_tokens"] + counts.get("cache_write_tokens", 0)
    if cached > counts["input_tokens"]:
        counts["input_tokens"] += cached
    reasoning = counts.get("reasoning_tokens", 0)
    if reasoning > counts["output_tokens"]:
        counts["output_tokens"] += reasoning
    return {name: amount for name, amount in counts.items() if amount}


def from_responses(message: Unchecked, *, former: bool = False) -> list[Unchecked]:
    """The items of a response: its text and calls are one assistant's item; a result is a tool's.

    `former` reads it as older versions did, which saw texts and calls of functions only.
    """
    output = message["output"] if isinstance(message.get("output"), list) and "type" not in message else [message]
    if not all(isinstance(part, dict) and ("type" in part or "role" in part) for part in output):
        raise InvalidInput("every part of a response has a type", hint="pass response.output, or the whole response")
    texts: list[Any] = []
    calls: list[Unchecked] = []
    items: list[Unchecked] = []
    role = "assistant"
    ran = {part.get("call_id") for part in output if part.get("type") in OWN_RESULTS} if len(output) > 1 else ()
    for part in output:
        kind = part.get("type", "message")
        if kind == "message":
            role = "system" if part.get("role") == "developer" else part.get("role") or "assistant"
            texts.append(_text_of(part.get("content")) if former else _said_of(part.get("content")))
        elif kind == "function_call":
            arguments = arguments_of(part.get("arguments"))
            calls.append({"id": part.get("call_id"), "name": part.get("name"), "arguments": arguments})
        elif kind == "custom_tool_call":
            calls.append({"id": part.get("call_id"), "name": part.get("name"), "arguments": part.get("input")})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            result = _text_of(part.get("output")) if former else _said_of(part.get("output"))
            items.append({"role": "tool", "call": part.get("call_id"), "content": result})
        elif former or part.get("call_id", "") in ran:
            continue  # a call that the vendor ran: its result is here, too
        elif kind in OWN_CALLS:
            calls.append(_own_call(part))
        elif kind in OWN_RESULTS:
            items.append(_own_result(part))
        elif told := told_of(part):
            role = "user" if kind == "mcp_approval_response" else role
            texts.append(told)
    if texts or calls or not items:
        items.append({"role": role, "content": _joined(texts, "\n")} | ({"tool_calls": calls} if calls else {}))
    return items


def _own_call(part: Unchecked) -> Unchecked:
    """A call of one of OpenAI's own tools, as that of any tool."""
    arguments = part.get("action") or part.get("operation") or {}
    if not arguments and part.get("actions"):
        arguments = {"actions": part["actions"]}
    return {"id": part.get("call_id"), "name": part["type"].removesuffix("_call"), "arguments": arguments}


def _own_result(part: Unchecked) -> Unchecked:
    """What one of OpenAI's own tools returned: texts of a shell, what became of a patch, or a screenshot."""
    output = part.get("output")
    content: str | list[Unchecked] = ""
    if part["type"] == "shell_call_output":
        said = [one.get(name) for one in output or () for name in ("stdout", "stderr")]
        content = "\n".join(text for text in said if text)
    elif isinstance(output, dict):
        content = [{**output, "type": "input_image"}]
    call = part.get("call_id") or part.get("id")  # of a local shell's result
    item = {"role": "tool", "call": call, "content": content or _text_of(output) or part.get("status") or ""}
    return item | ({"error": True} if part.get("status") == "failed" else {})


def told_of(part: Unchecked) -> str:
    """What other parts of a response say to a reader who does not know them."""
    kind = part.get("type")
    if kind == "image_generation_call":
        return IMAGE if part.get("result") else ""
    if kind == "code_interpreter_call":
        outputs = [one.get("logs") for one in part.get("outputs") or () if isinstance(one, dict)]
        return "\n".join(str(one) for one in (part.get("code"), *outputs) if one)
    if kind == "mcp_approval_request":
        what = f"{part.get('name')} of {part.get('server_label')}"
        return f"[asks for approval to call {what} with {part.get('arguments')}]"
    if kind == "mcp_approval_response":
        reason = f": {part['reason']}" if part.get("reason") else ""
        return f"[{'approved' if part.get('approve') else 'not approved'}{reason}]"
    return ""


def from_gemini(message: Unchecked, *, former: bool = False) -> list[Unchecked]:
    """The items of a content of Gemini's. Its calls may have no id: then they get one from their order.

    `former` reads it as older versions did, which saw texts and calls only.
    """
    if not isinstance(message.get("parts"), list):
        raise InvalidInput("a content of Gemini's needs a list of parts", hint='like {"role": "user", "parts": [...]}')
    role = "assistant" if message.get("role") == "model" else "user"
    texts: list[Any] = []
    calls: list[Unchecked] = []
    items: list[Unchecked] = []
    shown = False
    for part in (part for part in message["parts"] if isinstance(part, dict)):
        call = part.get("function_call") or part.get("functionCall")
        result = part.get("function_response") or part.get("functionResponse")
        if call:
            id_ = call.get("id") or _id_in_order(call.get("name"), len(calls) + 1, former=former)
            calls.append({"id": id_, "name": call.get("name"), "arguments": call.get("args") or {}})
        elif result:
            id_ = result.get("id") or _id_in_order(result.get("name"), len(items) + 1, former=former)
            items.append({"role": "tool", "call": id_, "content": _text_of(result.get("response"))})
        elif part.get("thought"):
            continue
        elif isinstance(part.get("text"), str) and (part["text"] or len(part) == 1):
            texts.append(part["text"])
        elif not former and (said := _shown_in(part, role)):
            texts.append(said)
            shown = True
    if texts or calls or not items:
        content = _joined(texts, "")
        content = content.strip("\n") if shown and isinstance(content, str) else content
        items.append({"role": role, "content": content} | ({"tool_calls": calls} if calls else {}))
    return items


def _id_in_order(name: object, number: int, *, former: bool) -> str:
    tail = f"-{number}"
    return f"{name}{tail}" if former else f"{str(name)[: ID_LIMIT - len(tail)]}{tail}"


def _shown_in(part: Unchecked, role: str) -> str | Unchecked:
    """A part of Gemini's that is no text: an image or a file of the user's; what a model made, as text."""
    inline = part.get("inline_data") or part.get("inlineData")
    if isinstance(inline, dict):
        media_type = str(inline.get("mime_type") or inline.get("mimeType"))
        is_image = media_type.startswith("image/")
        if role == "assistant":
            return _line(IMAGE if is_image else f"[{media_type}]")
        data = str(inline.get("data")).translate({ord("-"): "+", ord("_"): "/"})  # Gemini's SDK writes it for URLs
        return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}} if is_image else part
    if "file_data" in part or "fileData" in part:
        return part if role == "user" else _line("[file]")
    code = part.get("executable_code") or part.get("executableCode")
    ran = part.get("code_execution_result") or part.get("codeExecutionResult")
    return _line((code or {}).get("code") or (ran or {}).get("output") or "")


def _line(text: str) -> str:
    return "\n" + text.strip("\n") + "\n" if text else ""


def _joined(said: list[Any], between: str) -> Any:
    """One text; or a list of parts, if there is more than text."""
    if all(isinstance(one, str) for one in said):
        return between.join(said)
    parts: list[Unchecked] = []
    for one in said:
        parts += one if isinstance(one, list) else [one if isinstance(one, dict) else {"type": "text", "text": one}]
    return parts


def _said_of(content: object) -> str | list[Unchecked]:
    """The text of a content of OpenAI's; its parts, if there are images or files among them."""
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return parts if any(part.get("type") in _MEDIA for part in parts) else _text_of(content)


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
