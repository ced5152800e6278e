"""Requests of clients: which of them can be a turn, and what they give to the chat template.

A field that changes the prompt or the sampling is honoured, passed on or refused: if it were left out in silence, the
samples would show an answer to another question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.rollout.matching import tools_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOOL_CHOICE, RESPONSE_FORMAT = "tool_choice", "response_format"
"""Fields that not all endpoints of engines take."""
RESERVED = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template")
"""Names of a template that `chat_template_kwargs` may not set."""
DOCUMENTS = "documents"
_USUAL: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (None, True), "continue_final_message": (None, False), "chat_template": (None,),
}  # fmt: skip
"""Fields for which there is one way here, and the values that mean it."""
_FOR_TEMPLATE = ("reasoning_effort", DOCUMENTS)
"""Fields of a request that a chat template gets under the same name."""


def check_request(request: Any, lacking: Sequence[str] = ()) -> dict[str, Any]:
    """A client's request if it is a valid turn: an object with messages, for one answer.

    `lacking` are the fields that the engine's endpoint does not take.
    """
    if not isinstance(request, dict):
        raise InvalidInput("a chat request must be a JSON object")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidInput("a chat request needs a list of at least one message")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidInput(f"message {index} is not an object with a role")
        if message.get("tool_calls"):
            _check_calls(message["tool_calls"], index)
    if request.get("n", 1) not in (1, None) or isinstance(request.get("n"), bool):
        raise InvalidInput("n must be 1: a turn has one answer", hint="open a session for each sample")
    list_of_objects(request.get("tools"), "tools")
    list_of_objects(request.get(DOCUMENTS), DOCUMENTS)
    _refuse_lacking(request, lacking)
    limit = token_limit(request)
    if limit is not None and limit < 1:
        raise InvalidInput("max_tokens must be at least 1")
    return request


def token_limit(request: Mapping[str, Any]) -> int | None:
    """The client's limit of tokens for one answer."""
    limits = [request.get(name) for name in ("max_completion_tokens", "max_tokens")]
    return next((limit for limit in limits if isinstance(limit, int) and not isinstance(limit, bool)), None)


def list_of_objects(value: Any, name: str) -> list[dict[str, Any]]:
    """A field that must be a list of objects, if there is one."""
    if value is not None and not (isinstance(value, list) and all(isinstance(part, dict) for part in value)):
        raise InvalidInput(f"{name} must be a list of objects", hint=f'like "{name}": [{{...}}]; or leave it out')
    return value or []


def _check_calls(calls: Any, index: int) -> None:
    for call in calls if isinstance(calls, list) else [None]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidInput(
                f"the tool_calls of message {index} must be a list of objects that have a function with a name",
                hint="send the assistant's message as it was answered",
            )
        if not isinstance(function.get("arguments"), str | dict | None):
            raise InvalidInput(
                f"the arguments of a tool call in message {index} are neither text nor an object",
                hint="send the assistant's message as it was answered",
            )


def _refuse_lacking(request: Mapping[str, Any], lacking: Sequence[str]) -> None:
    for name, usual in _USUAL.items():
        if not any(request.get(name) is value for value in usual):
            raise InvalidInput(
                f"{name} cannot be {request[name]!r:.80}: the proxy renders each message once, with the template of "
                "its tokenizer, and an answer is a message of its own",
                hint=f"leave {name} out",
            )
    if TOOL_CHOICE in lacking and request.get(TOOL_CHOICE) not in (None, "auto", "none"):
        raise InvalidInput(
            "the engine's endpoint cannot enforce this tool_choice, and the model would not know of it",
            hint='send "auto" or "none", or serve with a dialect of a chat endpoint: sglang or vllm',
        )
    form = request.get(RESPONSE_FORMAT)
    if RESPONSE_FORMAT in lacking and form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise InvalidInput(
            "the engine's endpoint takes no response_format, and the answer could have any form",
            hint="leave it out, or serve with a dialect that has it (sglang, vllm, or their completions)",
        )


def check_arguments(arguments: Any) -> dict[str, Any]:
    """The `chat_template_kwargs` of a request, if they are valid."""
    if not isinstance(arguments, dict) or not all(isinstance(name, str) and name.isidentifier() for name in arguments):
        raise InvalidInput("chat_template_kwargs must be an object whose names are identifiers")
    taken = sorted(set(arguments) & set(RESERVED))
    if taken:
        hint = "leave it out" if taken[0] in _USUAL else "send it as a field of the request"
        raise InvalidInput(f"chat_template_kwargs may not set {taken[0]}", hint=hint)
    list_of_objects(arguments.get(DOCUMENTS), DOCUMENTS)
    return arguments


def template_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """What a request gives to the template: its `chat_template_kwargs`, and the fields that templates know by name."""
    named = {name: options[name] for name in _FOR_TEMPLATE if options.get(name) is not None}
    given = options.get("chat_template_kwargs")
    return named | check_arguments(given) if given else named


def without_documents(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the template as they are recorded with each turn: documents are in the first prompt already."""
    found = dict(arguments)
    return found | {DOCUMENTS: tools_digest(found[DOCUMENTS])} if found.get(DOCUMENTS) else found
