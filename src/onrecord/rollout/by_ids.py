"""Requests to endpoints that know neither messages nor OpenAI's names: ids and sampling parameters in, ids out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.errors import BadReply

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "bad_words", "ignore_eos", "max_tokens",
    "min_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "allowed_token_ids",
    "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "structured_outputs",
    "extra_args",
)  # fmt: skip
"""Fields of a client's request that are sampling parameters of vLLM."""
LLAMA_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "stop", "ignore_eos", "presence_penalty",
    "frequency_penalty", "repeat_penalty", "logit_bias", "grammar", "json_schema",
)  # fmt: skip
"""Fields of a client's request that are sampling parameters of llama.cpp."""
LLAMA_DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""What a request means that does not say it. llama.cpp's own defaults cut off what is unlikely, and its logprobs are
those of the whole distribution: tokens would have been sampled from another one."""
_LLAMA_ENDS = {"eos": "stop", "word": "stop", "limit": "length"}
_BESIDE = ("model", "priority", "cache_salt", "kv_transfer_params")
"""Fields that both kinds of request have."""


def vllm_generate(request: dict[str, Any], prompt_ids: Sequence[int]) -> dict[str, Any]:
    """The request to `/inference/v1/generate`, which vLLM has with `--enable-scale-out`: text and read ids, too."""
    sampling = {name: request[name] for name in SAMPLING if request.get(name) is not None}
    if request.get("max_completion_tokens") is not None:
        sampling["max_tokens"] = request["max_completion_tokens"]
    return {name: request[name] for name in _BESIDE if request.get(name) is not None} | {
        "token_ids": list(prompt_ids), "sampling_params": sampling | {"logprobs": 0}, "stream": False,
        "output_mode": "text", "return_token_ids": True,
    }  # fmt: skip


def llama_completion(request: dict[str, Any], prompt_ids: Sequence[int]) -> dict[str, Any]:
    """The request to `/completion` of llama.cpp's server."""
    sampling = {name: request[name] for name in LLAMA_SAMPLING if request.get(name) is not None}
    limit = request.get("max_completion_tokens", request.get("max_tokens"))
    body = {**LLAMA_DEFAULTS, **sampling, "prompt": list(prompt_ids), "stream": False}
    body |= {"return_tokens": True, "n_probs": 1, "post_sampling_probs": False, "cache_prompt": True}
    return body if limit is None else body | {"n_predict": limit}


def llama_reply(body: Any) -> dict[str, Any]:
    """A reply of llama.cpp in the form of a text completion.

    Each token has its id twice: in the list of tokens, and with its logprob.
    """
    if not isinstance(body, dict) or not isinstance(body.get("tokens"), list):
        raise BadReply("the reply has no tokens", hint="the server of llama.cpp must support return_tokens")
    if body.get("truncated"):
        raise BadReply("the engine has cut off the prompt", hint="start it with a larger context")
    rows = body.get("completion_probabilities")
    rows = [row if isinstance(row, dict) else {} for row in rows] if isinstance(rows, list) else []
    if [row.get("id") for row in rows] != body["tokens"]:
        raise BadReply(
            f"the {len(body['tokens'])} tokens of the reply and its {len(rows)} logprobs do not belong together",
            hint="llama.cpp has no logprobs for the tokens of a stop word: leave out `stop`",
        )
    ended = body.get("stop_type")
    choice = {
        "text": body.get("content"), "token_ids": body["tokens"],
        "logprobs": {"token_logprobs": [row.get("logprob") for row in rows]},
        "finish_reason": _LLAMA_ENDS.get(ended, ended) if isinstance(ended, str) else ended,
        "stop_reason": body.get("stopping_word") or None,
    }  # fmt: skip
    usage = {"prompt_tokens": body.get("tokens_evaluated"), "completion_tokens": body.get("tokens_predicted")}
    return {"choices": [choice], "usage": usage}
