"""Responses: answers as JSON or as a stream of chunks, and problems with their status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from onrecord.errors import OnrecordError
from onrecord.rollout.server.settings import RETRY_AFTER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onrecord.rollout.turns import Reply

STATUSES = {
    "session_not_found": 404, "ambiguous_name": 404, "not_found": 404,
    "session_retired": 410, "session_closed": 410, "session_erased": 410, "payload_erased": 410,
    "invalid_input": 400, "invalid_name": 400, "too_large": 413,
    "conflict": 409, "turn_conflict": 409, "trajectory_moved": 409, "lease_held": 409, "lease_lost": 409,
    "log_moved": 409, "session_paused": 409, "illegal_transition": 409, "id_reused": 409, "session_frozen": 409,
    "budget_exhausted": 409, "name_taken": 409,
    "assembly_failed": 422,
    "tokenization_failed": 500, "token_mismatch": 500,
    "bad_reply": 502, "upstream_failed": 502,
    "proxy_busy": 503, "turn_aborted": 503, "store_busy": 503, "store_full": 503, "store_read_only": 503,
    "outcome_unknown": 503,
}  # fmt: skip
"""The status of every error a client can meet, by its code; any other is 500."""
_COME_BACK = (503,)


def problem(
    status: int, code: str, message: str, *, hint: str = "", headers: Mapping[str, str] | None = None, **details: Any
) -> JSONResponse:
    """A refusal in the form that clients of an OpenAI endpoint expect."""
    error = {"message": message, "type": code, "code": code, "param": None, "hint": hint, **details}
    return JSONResponse({"error": error}, status, headers=dict(headers or {}))


def problem_of(error: OnrecordError) -> JSONResponse:
    """The refusal for an error."""
    status = STATUSES.get(error.code, 500)
    headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if status in _COME_BACK or error.retryable else {}
    details = {name: value for name, value in error.details.items() if _is_plain(value)}
    return problem(status, error.code, error.message, hint=error.hint, headers=headers, **details)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def answer_text(reply: Reply, request: dict[str, Any], *, id: str, prompt_length: int, created: int) -> str:
    """The body that a client gets for a reply. It is recorded with the reply, so that a retry gets the same bytes."""
    message = {"role": "assistant", "content": None} | dict(reply.message or {})
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
    if request.get("logprobs"):
        choice["logprobs"] = {
            "content": [
                {"token": f"token_id:{id_}", "logprob": logprob, "bytes": None, "top_logprobs": []}
                for id_, logprob in zip(reply.output_ids, reply.logprobs, strict=True)
            ]
        }
    sampled = len(reply.output_ids)
    return _json({
        "id": id, "object": "chat.completion", "created": created, "model": request.get("model"),
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_length, "completion_tokens": sampled, "total_tokens": prompt_length + sampled
        },
    })  # fmt: skip


def respond(answer: str, request: dict[str, Any]) -> Response:
    """The answer as one body, or as a stream if the client asked for one."""
    if not request.get("stream"):
        return Response(answer.encode(), media_type="application/json")
    options = request.get("stream_options")
    with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    # The whole answer is on record before the first chunk is sent, so there is nothing to wait for between chunks.
    body = "".join(_chunks(json.loads(answer), with_usage=with_usage))
    return Response(body.encode(), media_type="text/event-stream", headers={"cache-control": "no-cache"})


def _chunks(answer: dict[str, Any], *, with_usage: bool) -> Iterator[str]:
    choice = answer["choices"][0]
    message, finish = choice["message"], choice["finish_reason"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for name, value in message.items():
        if name == "tool_calls":
            deltas += [{"tool_calls": [{**call, "index": index}]} for index, call in enumerate(value or [])]
        elif name != "role" and value:
            deltas.append({name: value})
    scored = choice.get("logprobs")
    chunks = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "logprobs": scored, "finish_reason": finish})
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    extra = {"usage": None} if with_usage else {}
    for chunk in chunks:
        yield _event({**head, "choices": [chunk], **extra})
    if with_usage:
        yield _event({**head, "choices": [], "usage": answer["usage"]})
    yield "data: [DONE]\n\n"


def _event(chunk: dict[str, Any]) -> str:
    return f"data: {_json(chunk)}\n\n"


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
