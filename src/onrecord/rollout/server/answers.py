"""Responses: answers as JSON or as a stream of chunks, and problems with their status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from onrecord.errors import OnrecordError
from onrecord.rollout.server.settings import RETRY_AFTER_SECONDS
from onrecord.rollout.streams import rest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onrecord.rollout.server.streaming import Rendering
    from onrecord.rollout.streams import Piece
    from onrecord.rollout.turns import Reply

STATUSES = {
    "session_not_found": 404, "ambiguous_name": 404, "not_found": 404,
    "session_retired": 410, "session_closed": 410, "session_erased": 410, "payload_erased": 410,
    "invalid_input": 400, "invalid_name": 400, "too_large": 413,
    "conflict": 409, "turn_conflict": 409, "trajectory_moved": 409, "lease_held": 409, "lease_lost": 409,
    "log_moved": 409, "session_paused": 409, "illegal_transition": 409, "id_reused": 409, "session_frozen": 409,
    "budget_exhausted": 409, "name_taken": 409,
    "assembly_failed": 422,
    "tokenization_failed": 400, "token_mismatch": 500,
    "bad_reply": 502, "upstream_failed": 502,
    "proxy_busy": 503, "turn_aborted": 503, "store_busy": 503, "store_full": 503, "store_read_only": 503,
    "outcome_unknown": 503,
}  # fmt: skip
"""The status of every error a client can meet, by its code; any other is 500."""
_AGAIN = "send the same request again"
HINTS = {
    "session_not_found": "POST /sessions creates one",
    "session_closed": "POST /sessions creates another one",
    "session_paused": "`onrecord resume` with its name resumes it",
    "session_frozen": "POST .../samples reads and acknowledges them; DELETE gives the session up",
    "lease_held": f"{_AGAIN}; with the header `onrecord-takeover: true` this proxy takes over at once",
    "lease_lost": _AGAIN, "log_moved": _AGAIN, "trajectory_moved": _AGAIN, "outcome_unknown": _AGAIN,
    "too_large": "send fewer or shorter messages",
    "turn_conflict": "wait for the answer of the running turn",
    "budget_exhausted": "ask the person who set its budget to raise it",
    "damaged_log": "`onrecord verify` with its name says where; restore a backup, or start another session",
}  # fmt: skip
"""Hints for clients, where the library's own is for Python or the command line."""
_INSTEAD = {
    "decode bytes with errors='replace' first": "send valid Unicode: no half of a surrogate pair, such as \\ud800",
    "record strings, numbers, lists and dicts": "send standard JSON: no infinite number, and at most 100 levels",
    "freeze them first": "POST .../samples freezes and returns them",
}
"""The same for hints whose errors have no code of their own."""
_COME_BACK = (503,)


def problem(
    status: int, code: str, message: str, *, hint: str = "", headers: Mapping[str, str] | None = None, **details: Any
) -> JSONResponse:
    """A refusal in the form that clients of an OpenAI endpoint expect."""
    error = {"message": message, "type": code, "code": code, "param": None, "hint": hint, **details}
    return JSONResponse({"error": error}, status, headers=dict(headers or {}))


def problem_of(error: OnrecordError) -> JSONResponse:
    """The refusal for an error."""
    status = 500 if error.details.get("unusable_template") else STATUSES.get(error.code, 500)
    headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if status in _COME_BACK or error.retryable else {}
    details = {name: value for name, value in error.details.items() if _is_plain(value)}
    return problem(status, error.code, error.message, hint=hint_of(error), headers=headers, **details)


def hint_of(error: OnrecordError) -> str:
    """The hint of an error, for clients over HTTP."""
    return HINTS.get(error.code) or _INSTEAD.get(error.hint, error.hint)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def answer_text(reply: Reply, request: dict[str, Any], *, id: str, prompt_length: int, created: int) -> str:
    """The body that a client gets for a reply. It is recorded with the reply, so that a retry gets the same bytes."""
    message = {"role": "assistant", "content": None} | dict(reply.message or {})
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
    if request.get("logprobs"):
        choice["logprobs"] = scored(reply.output_ids, reply.logprobs)
    if reply.stop_word:
        choice["stop_reason"] = reply.stop_word  # vLLM's name for it
    sampled = len(reply.output_ids)
    return to_json({
        "id": id, "object": "chat.completion", "created": created, "model": request.get("model"),
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_length, "completion_tokens": sampled, "total_tokens": prompt_length + sampled
        },
    })  # fmt: skip


def merged(texts: Sequence[str]) -> str:
    """Several answers to one request as one, with a choice for each."""
    said = [json.loads(text) for text in texts]
    choices = [one["choices"][0] | {"index": index} for index, one in enumerate(said)]
    sampled, prompt = sum(one["usage"]["completion_tokens"] for one in said), said[0]["usage"]["prompt_tokens"]
    usage = {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}
    return to_json(said[0] | {"choices": choices, "usage": usage})


def respond(answer: str, request: dict[str, Any]) -> Response:
    """The answer as one body, or as a stream if the client asked for one."""
    if not request.get("stream"):
        return Response(answer.encode(), media_type="application/json")
    return whole_stream(answer, lambda said: ChatChunks(request, said["id"], said["created"]))


def whole_stream(answer: str, rendering: Callable[[dict[str, Any]], Rendering]) -> Response:
    """A recorded answer as a stream: there is nothing to wait for between its chunks."""
    said = json.loads(answer)
    chunks = rendering(said)
    body = chunks.begin() + chunks.end(answer, rest(said["choices"][0]["message"], {}))
    return Response(body, media_type="text/event-stream", headers={"cache-control": "no-cache"})


class ChatChunks:
    """A turn as the chunks of OpenAI's chat completions."""

    def __init__(self, request: dict[str, Any], id: str, created: int) -> None:
        options = request.get("stream_options")
        self._usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self._logprobs = bool(request.get("logprobs"))
        self._head = {"id": id, "created": created, "model": request.get("model"), "object": "chat.completion.chunk"}
        self._scored = 0

    def begin(self) -> bytes:
        """The role."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> bytes:
        """A delta; with the logprobs of its tokens if the client wants them."""
        if not piece.delta and not (self._logprobs and piece.ids):
            return b""
        self._scored += len(piece.ids)
        return self._chunk(piece.delta, scored(piece.ids, piece.logprobs) if self._logprobs else None)

    def end(self, answer: str, left: list[dict[str, Any]]) -> bytes:
        """The rest, how it ended, and what it used."""
        said = json.loads(answer)
        choice = said["choices"][0]
        rows = choice.get("logprobs")
        rows = {"content": rows["content"][self._scored :]} if rows else None
        chunks = [*map(self._chunk, left), self._chunk({}, rows, choice["finish_reason"])]
        if self._usage:
            chunks.append(event({**self._head, "choices": [], "usage": said["usage"]}))
        return b"".join([*chunks, b"data: [DONE]\n\n"])

    def error(self, error: OnrecordError) -> bytes:
        """What clients of this protocol raise."""
        return event(json.loads(bytes(problem_of(error).body)))

    def _chunk(self, delta: dict[str, Any], rows: Any = None, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": rows, "finish_reason": finish}
        return event({**self._head, "choices": [choice], **({"usage": None} if self._usage else {})})


def scored(ids: Sequence[int], logprobs: Sequence[float]) -> dict[str, Any]:
    """Sampled tokens as a client that asks for logprobs gets them."""
    return {
        "content": [
            {"token": f"token_id:{id}", "logprob": logprob, "bytes": None, "top_logprobs": []}
            for id, logprob in zip(ids, logprobs, strict=True)
        ]
    }


def event(data: dict[str, Any], name: str = "") -> bytes:
    """A server-sent event. Half a letter is shown as a question mark: a reply that has one is refused at its end."""
    return f"{f'event: {name}{chr(10)}' if name else ''}data: {to_json(data)}\n\n".encode(errors="replace")


def to_json(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
