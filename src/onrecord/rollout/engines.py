"""Engines: how to ask SGLang, vLLM and llama.cpp for a turn by token ids, and how to read their replies in one form.

    client's request ──> `upstream_request` ──> engine ──> `read_reply` ──> Reply ──> the trajectory

A reply counts only if every sampled token has its id and its logprob. One that lacks them is refused as a whole
(`BadReply`): a guessed token poisons training. An abort is not a bad reply: it is an answer with finish `abort`, even
if it contains a parsed call or nothing at all.
"""

from __future__ import annotations

import json
import re
from array import array
from functools import partial
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any

from onrecord.errors import BadReply, InvalidInput, TooLarge
from onrecord.log.codec import encode_payload
from onrecord.rollout.by_ids import llama_completion, llama_reply, vllm_generate
from onrecord.rollout.hooks import hook
from onrecord.rollout.requests import RESPONSE_FORMAT, TOOL_CHOICE
from onrecord.rollout.turns import ABORT, ERROR, LENGTH, STOP, TOOL_CALLS, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onrecord.rollout.turns import Span

    Parse = Callable[[dict[str, Any]], dict[str, Any]]

SGLANG, VLLM, VLLM_COMPLETIONS, VLLM_GENERATE = "sglang", "vllm", "vllm-completions", "vllm-generate"
SGLANG_COMPLETIONS, LLAMA = "sglang-completions", "llama"
DIALECTS = (SGLANG, SGLANG_COMPLETIONS, VLLM, VLLM_COMPLETIONS, VLLM_GENERATE, LLAMA)
"""`vllm` uses the chat endpoint: the engine parses tool calls and must accept `prompt_token_ids`, and its reply is
checked. `vllm-completions` uses the completions endpoint, which accepts ids in every version; calls are parsed here.
`sglang-completions` does the same with SGLang, whose chat endpoint does not stream ids.
`vllm-generate` uses the endpoint for ids, which also says which weights sampled each token; calls are parsed here.
`llama` uses the completion endpoint of llama.cpp's own server; calls are parsed here."""
COMPLETIONS = (VLLM_COMPLETIONS, SGLANG_COMPLETIONS)
"""Dialects of text completions: both engines take and return the same."""
_PLAIN = (*COMPLETIONS, VLLM_GENERATE, LLAMA)
"""Dialects whose replies have text in place of a message."""
_PATHS = {
    **dict.fromkeys(COMPLETIONS, "/v1/completions"), VLLM_GENERATE: "/inference/v1/generate", LLAMA: "/completion",
}  # fmt: skip
_COUNTED = (SGLANG, LLAMA)
"""Dialects whose replies say how many ids the engine read, and not which."""
_UNNAMED = "default"
"""What SGLang and vLLM call weights without a name. It is not a version: later weights may have no name either."""

FINISHES = {
    "stop": STOP, "tool_calls": TOOL_CALLS, "function_call": TOOL_CALLS, "length": LENGTH, "abort": ABORT,
    "error": ERROR, "content_filter": ERROR,
}  # fmt: skip
TOKEN_ID_LIMIT = 2**31 - 1
"""The largest token id: samples have int32 arrays."""
CAUSE_LIMIT = 500
"""The longest recorded cause of an abort, in characters."""
NAME_LENGTH = 20
"""How many hexadecimal digits name a reply; some engines refuse ids of calls that have more than 40 characters."""
SIDE_PAYLOADS = ("routed_experts",)
"""Other data about a turn that an engine may return and a trainer needs with the tokens."""
_PROXY_ONLY = ("stream", "stream_options", "input_ids", "prompt_token_ids", "n")
_ONLY_CHAT = (
    "messages", "tools", "tool_choice", "top_logprobs", "parallel_tool_calls", "reasoning_effort", "documents",
    "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "chat_template",
)  # fmt: skip
"""Fields that mean nothing to an endpoint of completions."""
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_LARGEST = 3.4028234663852886e38
"""The largest number of float32."""
_TOKEN_ID = re.compile(r"token_id:(\d{1,10})\Z")


def endpoint(dialect: str) -> str:
    """The engine's path for requests of this dialect."""
    return _PATHS.get(dialect, "/v1/chat/completions")


def upstream_request(dialect: str, request: dict[str, Any], prompt_ids: Sequence[int], done: int = 0) -> dict[str, Any]:
    """The request to the engine for a client's request: not streamed, one choice, ids in, ids and logprobs out.

    `done` is how many tokens of the answer are already at the end of the prompt; the token limits count them.
    """
    body = {name: value for name, value in request.items() if name not in _PROXY_ONLY}
    body["stream"] = False
    for limit in ("max_tokens", "max_completion_tokens", "min_tokens"):
        if done and isinstance(body.get(limit), int):
            body[limit] = max(0, body[limit] - done)
    if dialect == VLLM_GENERATE:
        return vllm_generate(body, prompt_ids)
    if dialect == LLAMA:
        return llama_completion(body, prompt_ids)
    if dialect in COMPLETIONS:
        for name in _ONLY_CHAT:
            body.pop(name, None)
        if "max_completion_tokens" in body:
            body["max_tokens"] = body.pop("max_completion_tokens")
        return body | {"prompt": list(prompt_ids), "logprobs": 0, "return_token_ids": True, "add_special_tokens": False}
    body["logprobs"] = True
    if dialect == SGLANG:
        return body | {"input_ids": list(prompt_ids), "return_meta_info": True, "return_prompt_token_ids": True}
    # Versions of vLLM differ in where they read the ids; the reply of a version that ignores both is refused.
    given = body.get("kv_transfer_params")
    ids = {"prompt_token_ids": list(prompt_ids)}
    body |= {"kv_transfer_params": {**(given if isinstance(given, dict) else {}), **ids}, **ids}
    return body | {"return_token_ids": True, "return_tokens_as_token_ids": True}


def lacking(dialect: str) -> tuple[str, ...]:
    """The fields of a chat request that the endpoint of this dialect does not take; the proxy refuses them."""
    if dialect in COMPLETIONS:
        return (TOOL_CHOICE,)
    return (TOOL_CHOICE, RESPONSE_FORMAT) if dialect in _PLAIN else ()


def load_json(text: bytes) -> Any:
    """Standard JSON, or `ValueError`: no NaN, no Infinity, no excessive nesting."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_reply(dialect: str, body: Any, sent: Sequence[int] | None = None, parse: Parse | None = None) -> Reply:
    """The reply in one form, or `BadReply` with the reason. `sent` are the ids that the engine got.

    `parse` finds the tool calls in the text of a reply, for an engine that does not.
    """
    body = llama_reply(body) if dialect == LLAMA else body
    choice = _only_choice(body)
    meta = choice.get("meta_info")
    meta = meta if isinstance(meta, dict) else {}
    finish, cause = _finish(choice, meta)
    if dialect == SGLANG:
        output_ids, logprobs = _sglang_output(meta, finish)
    else:
        output_ids, logprobs = _vllm_output(choice, finish)
    plain = dialect in _PLAIN
    usage = body.get("usage") if isinstance(body.get("usage"), dict) else {}
    _check_length("completion_tokens", output_ids, meta, usage)
    prompt_ids = _prompt_ids(body, choice, sent)
    if prompt_ids is None and finish != ABORT and dialect not in _COUNTED:
        raise BadReply("the engine did not return the ids it read", hint="the engine must support return_token_ids")
    if finish != ABORT or "prompt_tokens" in meta or prompt_ids is not None:
        # An abort in the waiting queue has read nothing yet, and omits the count.
        read = prompt_ids if prompt_ids is not None else sent
        if read is not None:
            _check_length("prompt_tokens", read, meta, {} if finish == ABORT else usage)
    message: dict[str, Any] | None
    if plain:
        seen = prompt_ids if prompt_ids is not None else sent
        message = _completion_message(choice, parse or with_calls, partial(name_of, seen or (), output_ids))
    else:
        message = _message(choice, finish)
    if plain and message and message.get("tool_calls") and finish == STOP:
        finish = TOOL_CALLS
    found = {name: at[name] for name in SIDE_PAYLOADS for at in (choice, meta) if at.get(name) is not None}
    response_id = body.get("id") or body.get("request_id")
    return Reply(
        message, output_ids, logprobs, finish, prompt_ids,
        _weights(len(output_ids), meta, choice, body, body.get("metadata")),
        cause, response_id if isinstance(response_id, str) else "", side_payloads=found,
        stop_word=_stop_word(choice, meta),
    )  # fmt: skip


def _stop_word(choice: dict[str, Any], meta: dict[str, Any]) -> str:
    """The word that ended a generation; an engine that ended with an id names that, or nothing."""
    told = meta.get("finish_reason")
    named = [
        choice.get("stop_reason"),
        choice.get("matched_stop"),
        told.get("matched") if isinstance(told, dict) else 0,
    ]
    return next((word for word in named if isinstance(word, str)), "")


def _weights(count: int, *named: Any) -> tuple[Span, ...]:
    """Which weights sampled the ids: spans if the engine reports them, else one version for all.

    Ids that no span covers get an empty version: it is unknown, and a guess would be wrong.
    """
    places = [at for at in named if isinstance(at, dict)]
    listed = next((at["weight_versions"] for at in places if isinstance(at.get("weight_versions"), list)), None)
    version = next((at["weight_version"] for at in places if at.get("weight_version") is not None), None)
    version = None if version == _UNNAMED else version
    if listed is not None and all(_version(span) == "" for span in listed):
        listed = None
    if not count or (listed is None and version is None):
        return ()
    spans: list[Span] = []
    at = 0
    for span in listed if listed is not None else [{"version": version, "start": 0, "end": count}]:
        start, end = (span.get(name) for name in ("start", "end")) if isinstance(span, dict) else (None, None)
        if type(start) is int and type(end) is int and at <= start < end <= count:
            spans += [("", start - at), (_version(span), end - start)]
            at = end
    return tuple(span for span in (*spans, ("", count - at)) if span[1])


def _version(span: Any) -> str:
    version = span.get("version") if isinstance(span, dict) else None
    return "" if version in (None, _UNNAMED) else str(version)


def with_calls(message: dict[str, Any]) -> dict[str, Any]:
    """The message with the calls between `<tool_call>` marks in its text, if all of them are well formed."""
    text = message["content"]
    calls = []
    for found in _CALL.findall(text):
        try:
            call = load_json(found.encode())
        except ValueError:
            return message
        if not isinstance(call.get("name"), str) or not isinstance(call.get("arguments", {}), dict):
            return message
        function = {"name": call["name"], "arguments": _arguments(call, found)}
        calls.append({"type": "function", "function": function})
    if not calls:
        return message
    return message | {"content": _CALL.sub("", text).strip() or None, "tool_calls": calls}


def _arguments(call: dict[str, Any], text: str) -> str:
    """The arguments of a call as JSON; as the model wrote them if JSON could not be written again (1e999)."""
    if is_standard(arguments := call.get("arguments", {})):
        return json.dumps(arguments, ensure_ascii=False)
    decoder, at, found = json.JSONDecoder(), 1, text
    while text[at:].strip() != "}":
        name, colon = decoder.raw_decode(text, _next(text, at, ","))
        begin = _next(text, colon, ":")
        _value, at = decoder.raw_decode(text, begin)
        found = text[begin:at] if name == "arguments" else found
    return found


def _next(text: str, at: int, mark: str) -> int:
    """Where the next value begins, after white space and a mark."""
    return len(text) - len(text[at:].lstrip().removeprefix(mark).lstrip())


def is_standard(value: Any) -> bool:
    """Whether standard JSON can carry a parsed value: no infinity, no half letters, no excessive nesting."""
    try:
        encode_payload(value)
    except (InvalidInput, TooLarge):
        return False
    return True


def name_of(prompt_ids: Sequence[int], output_ids: Sequence[int]) -> str:
    """A name for a reply that no other one of its conversation has: later prompts are longer."""
    ids = array("i", [*prompt_ids, *output_ids])
    return sha256(ids.tobytes()).hexdigest()[:NAME_LENGTH]


def _only_choice(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise BadReply("the engine's reply is not a JSON object")
    choices = body.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BadReply("the engine's reply must have exactly one choice")
    choice: dict[str, Any] = choices[0]
    return choice


def _finish(choice: dict[str, Any], meta: dict[str, Any]) -> tuple[str, str]:
    """How the generation ended. An abort remains an abort even if a parsed call made the choice say `tool_calls`."""
    told = meta.get("finish_reason")
    said = [choice.get("finish_reason"), told.get("type") if isinstance(told, dict) else told]
    if ABORT in said:
        words = told.get("message") if isinstance(told, dict) else None
        return ABORT, str(words)[:CAUSE_LIMIT] if words else "abort"
    finish = FINISHES.get(said[0]) if isinstance(said[0], str) else None
    if finish is None:
        raise BadReply(f"the engine ended with the unknown reason {said[0]!r:.80}")
    return finish, ""


def _sglang_output(meta: dict[str, Any], finish: str) -> tuple[list[int], list[float]]:
    rows = meta.get("output_token_logprobs")
    if rows is None and finish == ABORT and not meta.get("completion_tokens"):
        return [], []
    if not isinstance(rows, list):
        raise BadReply(
            "the reply has no meta_info.output_token_logprobs", hint="the engine must support return_meta_info"
        )
    for index, row in enumerate(rows):
        if not isinstance(row, list) or not row[1:]:
            raise BadReply(f"output_token_logprobs[{index}] is not [logprob, id, text]")
    return _ids([row[1] for row in rows], "output"), _logprobs([row[0] for row in rows])


def _vllm_output(choice: dict[str, Any], finish: str) -> tuple[list[int], list[float]]:
    listed = choice.get("logprobs")
    listed = listed if isinstance(listed, dict) else {}
    content = listed.get("content")
    tokens: Any
    scores: Any
    if isinstance(content, list):
        rows = [row if isinstance(row, dict) else {} for row in content]
        tokens, scores = [row.get("token") for row in rows], [row.get("logprob") for row in rows]
    else:
        tokens, scores = listed.get("tokens"), listed.get("token_logprobs")
    ids = choice.get("token_ids")
    if ids is None and isinstance(tokens, list):
        named = [_TOKEN_ID.match(token) if isinstance(token, str) else None for token in tokens]
        ids = [int(found[1]) for found in named if found] if all(named) else None
    if not ids and not scores and finish == ABORT:
        return [], []
    if not isinstance(ids, list):
        raise BadReply("the choice has no token_ids", hint="the engine must support return_token_ids")
    if not isinstance(scores, list):
        raise BadReply("the choice has no logprobs")
    if len(ids) != len(scores):
        raise BadReply(f"the choice has {len(ids)} ids and {len(scores)} logprobs")
    return _ids(ids, "output"), _logprobs(scores)


def _message(choice: dict[str, Any], finish: str) -> dict[str, Any] | None:
    message = choice.get("message")
    if message is None and finish == ABORT:
        return None  # aborted before the first token
    if not isinstance(message, dict):
        raise BadReply("the choice has no message")
    kept = {name: value for name, value in message.items() if value is not None or name == "content"}
    odd = _oddity(kept)
    if odd:
        raise BadReply(f"the engine's message cannot become history: {odd}")
    return {"role": "assistant", **kept}


def _oddity(message: dict[str, Any]) -> str:
    """What in an engine's message no template could render: once committed, it would block the session for good."""
    content, calls = message.get("content"), message.get("tool_calls")
    if message.get("role", "assistant") != "assistant":
        return f"its role is {message['role']!r:.40}"
    if isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            return "its content has parts that are not text"
    elif content is not None and not isinstance(content, str):
        return f"its content is {type(content).__name__}, not text"
    for name in ("reasoning_content", "reasoning"):
        if message.get(name) is not None and not isinstance(message[name], str):
            return f"its {name} is not text"
    if calls is not None and not isinstance(calls, list):
        return "its tool_calls are not a list"
    for call in calls or []:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return "a tool call has no function with a name"
        if not isinstance(function.get("arguments"), str | dict | None):
            return "the arguments of a tool call are neither text nor an object"
    return ""


def _completion_message(choice: dict[str, Any], parse: Parse, name: Callable[[], str]) -> dict[str, Any]:
    if not isinstance(choice.get("text"), str):
        raise BadReply("the choice has no text")
    return parsed({"role": "assistant", "content": choice["text"]}, parse, name)


def parsed(message: dict[str, Any], parse: Parse, name: Callable[[], str]) -> dict[str, Any]:
    """A message with the calls that a parser finds in its text; one that no template could render is refused.

    Calls without an id get one from the `name` of the reply: clients refuse an id that comes again in a conversation.
    """
    with hook("parser", BadReply):
        found = parse(dict(message))
    odd = _oddity(found) if isinstance(found, dict) else "the parser returned no message"
    if odd:
        raise BadReply(f"the parsed message cannot become history: {odd}")
    if found.get("tool_calls"):
        beginning = f"call_{name()}"
        named = [{"id": f"{beginning}_{number}", **call} for number, call in enumerate(found["tool_calls"])]
        found = {**found, "tool_calls": named}
    return {"role": "assistant", **found}


def _prompt_ids(body: dict[str, Any], choice: dict[str, Any], sent: Sequence[int] | None) -> Sequence[int] | None:
    """The ids that the engine read, as it reports them; `sent` itself if they are those."""
    for at in (choice, body):
        listed = at.get("prompt_token_ids")
        if listed is not None:
            return sent if sent is not None and _are_same(listed, sent) else _ids(listed, "prompt")
    return None


def _are_same(listed: Any, sent: Sequence[int]) -> bool:
    """Whether an engine read exactly what it got, as almost every one does: whole arrays are compared, not each id."""
    if not isinstance(listed, list) or not isinstance(sent, array) or len(listed) != len(sent):
        return False
    try:
        return array("i", listed) == sent
    except (TypeError, OverflowError):
        return False


def _check_length(name: str, ids: Sequence[int], *counts: dict[str, Any]) -> None:
    for counted in counts:
        count = counted.get(name)
        if count is not None and (isinstance(count, bool) or count != len(ids)):
            raise BadReply(f"the engine counted {count!r:.40} {name}, but the reply has {len(ids)}")


def _ids(values: Any, what: str) -> list[int]:
    if not isinstance(values, list):
        raise BadReply(f"the {what} ids are not a list")
    if set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= TOKEN_ID_LIMIT:
        return values
    for index, value in enumerate(values):
        if type(value) is not int or not 0 <= value <= TOKEN_ID_LIMIT:
            raise BadReply(f"{what} id {index} is {value!r:.40}, which is not a token id")
    return values


def _logprobs(values: list[Any]) -> list[float]:
    if set(map(type, values)) == {float} and isfinite(sum(values)) and max(map(abs, values)) <= _LARGEST:
        return values
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
            raise BadReply(f"logprob {index} is {value!r:.40}, which is not a finite number of float32")
    return [float(value) for value in values]
