"""What clients get: answers as JSON or as a stream of chunks, and problems with their status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from onrecord.errors import OnrecordError
from onrecord.rollout.server.settings import RETRY_AFTER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STATUSES = {
    "session_not_found": 404, "ambiguous_name": 404, "not_found": 404,
    "session_retired": 410, "session_closed": 410, "session_erased": 410, "payload_erased": 410,
    "invalid_input": 400, "invalid_name": 400, "too_large": 413,
    "conflict": 409, "turn_conflict": 409, "trajectory_moved": 409, "lease_held": 409, "lease_lost": 409,
    "log_moved": 409, "session_paused": 409, "illegal_transition": 409, "id_reused": 409, "session_busy": 409,
    "budget_exhausted": 409,
    "assembly_failed": 422,
    "tokenization_failed": 500,
    "bad_reply": 502, "upstream_failed": 502,
    "proxy_full": 503, "turn_aborted": 503, "store_busy": 503, "store_full": 503, "store_read_only": 503,
    "outcome_unknown": 503,
}  # fmt: skip
"""The status of every error a client can meet, by its code; any other is 500."""
_COME_BACK = (503,)
JSON_TYPE = "application/json"


def problem(
    status: int, code: str, message: str, *, hint: str = "", headers: Mapping[str, str] | None = None, **details: Any
) -> JSONResponse:
    """A refusal in the form clients of this kind of endpoint know."""
    error = {"message": message, "type": code, "code": code, "param": None, "hint": hint, **details}
    return JSONResponse({"error": error}, status, headers=dict(headers or {}))


def problem_of(error: OnrecordError) -> JSONResponse:
    """The refusal that tells of an error."""
    status = STATUSES.get(error.code, 500)
    headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if status in _COME_BACK or error.retryable else {}
    details = {name: value for name, value in error.details.items() if _is_plain(value)}
    return problem(status, error.code, error.message, hint=error.hint, headers=headers, **details)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def encode(answer: dict[str, Any]) -> bytes:
    """An answer as bytes: the same answer is the same bytes, however often it is asked for."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


def as_json(answer: dict[str, Any]) -> Response:
    """The answer as one body."""
    return Response(encode(answer), media_type=JSON_TYPE)


def as_stream(answer: dict[str, Any], *, with_usage: bool) -> Response:
    """The answer as server-sent events. It is on record as a whole before the first chunk leaves."""
    body = b"".join(_chunks(answer, with_usage=with_usage))
    return Response(body, media_type="text/event-stream", headers={"cache-control": "no-cache"})


def _chunks(answer: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    choice = answer["choices"][0]
    message, finish = choice["message"], choice["finish_reason"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for name, value in message.items():
        if name == "tool_calls":
            deltas += [{"tool_calls": [{**call, "index": place}]} for place, call in enumerate(value or [])]
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
    yield b"data: [DONE]\n\n"


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + encode(chunk) + b"\n\n"
