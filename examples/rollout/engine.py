"""A mock inference engine: a real HTTP server that speaks SGLang and vLLM, aborts replies and updates its weights.

It has no model. Its answer depends only on the prompt ids: asked for a sum it calls `add`, after a result it states the
result, and to any other prompt it answers a few words. So a prompt that differs in one id gets another answer, and the
same prompt always gets the same one. One reply in `--abort-every` is cut short as by a weight update, and every
`--update-every` seconds all generation stops for a moment and the weight version increases. `POST /update_weights` with
`{"hits": 2}` makes updates hit the next two generations.

    python examples/rollout/engine.py --tokenizer DIR [--port 0] [--abort-every 10] [--update-every 2] [--log FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tokenizers import Tokenizer

from onrecord.machine.http_server import listen

WORDS = ("the", "result", "is", "sum", "of", "these", "two", "numbers", "and", "next", "one", "please", "careful")
CALL = re.compile(r"<tool_call>(\{.*?\})</tool_call>", re.DOTALL)


class Engine:
    """The state of the engine: its tokenizer, its weight version, and the number of requests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.tokenizer = Tokenizer.from_file(str(Path(options.tokenizer) / "tokenizer.json"))
        self.end = self.tokenizer.encode("<|im_end|>", add_special_tokens=False).ids[0]
        self.options = options
        self.asked = 0
        self.aborted = 0
        self.weight_version = 1
        self.hits = 0
        """How many of the next generations an update of the weights will hit."""
        self.running = asyncio.Event()
        self.running.set()
        self.log: IO[str] | None = open(options.log, "a", encoding="utf-8") if options.log else None  # noqa: PTH123, SIM115  # it stays open as long as the engine runs

    def says(self, prompt: list[int]) -> str:
        """The answer to a prompt: a call, the result of one, or some words."""
        text = self.tokenizer.decode(prompt, skip_special_tokens=False)
        turns = text.split("<|im_start|>")
        last = next((turn for turn in reversed(turns) if turn.startswith(("user\n", "tool\n"))), "")
        if last.startswith("tool\n"):
            result = last.removeprefix("tool\n").partition("<|im_end|>")[0]
            return f"The result is {result.strip()}."
        numbers = re.search(r"What is (\d+) plus (\d+)", last)
        if numbers:
            call = {"name": "add", "arguments": {"a": int(numbers[1]), "b": int(numbers[2])}}
            return f"Let me add these. <tool_call>{json.dumps(call)}</tool_call>"
        seed = zlib.crc32(json.dumps(prompt).encode())
        return " ".join(WORDS[(seed >> shift) % len(WORDS)] for shift in range(4 + seed % 12))

    async def answer(self, prompt: list[int], limit: int | None) -> dict[str, Any]:
        """Generate: the ids, how it ended, under which weights."""
        self.asked += 1
        unlucky = self.options.abort_every and self.asked % self.options.abort_every == 0
        version = self.weight_version
        if not self.running.is_set():
            await self.running.wait()
            if unlucky:  # it was still in the waiting queue when the weights changed
                return self.ended(prompt, [], "abort", None, self.weight_version)
            version = self.weight_version
        if self.hits:
            unlucky, self.hits = True, self.hits - 1
            self.weight_version += 1
        begun, so_far = self._begun(prompt)
        ids: list[int] = [*self.tokenizer.encode(begun, add_special_tokens=False).ids, self.end][so_far:]
        await asyncio.sleep(self.options.latency)
        cut = unlucky or version != self.weight_version or not self.running.is_set()  # the weights changed under it
        if cut:
            ids = ids[: zlib.crc32(bytes(id % 256 for id in prompt[-1:])) % max(1, len(ids))]
        if limit is not None and len(ids) > limit:
            return self.ended(prompt, ids[:limit], "length", len(prompt), version)
        return self.ended(prompt, ids, "abort" if cut else "stop", len(prompt), version)

    def _begun(self, prompt: list[int]) -> tuple[str, int]:
        """The answer to this prompt, and how many of its tokens already end the prompt (a continued turn)."""
        start = self.tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False).ids
        for at in range(len(prompt), len(start) - 1, -1):
            if prompt[at - len(start) : at] == start:
                return self.says(prompt[:at]), len(prompt) - at
        return self.says(prompt), 0

    def ended(self, prompt: list[int], ids: list[int], finish: str, read: int | None, version: int) -> dict[str, Any]:
        """Count a generation, and write it to the log file."""
        self.aborted += finish == "abort"
        if self.log:
            self.log.write(json.dumps({"prompt": prompt, "output": ids, "finish": finish, "version": version}) + "\n")
            self.log.flush()
        return {"prompt": prompt, "ids": ids, "finish": finish, "read": read, "version": str(version)}

    async def update_weights(self) -> None:
        """Stop everything, change the weights and continue, again and again."""
        while self.options.update_every:
            await asyncio.sleep(self.options.update_every)
            self.running.clear()
            await asyncio.sleep(self.options.pause)
            self.weight_version += 1
            self.running.set()


def logprob(token: int, place: int) -> float:
    """A negative number for this token at this index."""
    return -((token * 31 + place * 7) % 997 + 1) / 1024


def message_of(text: str, calls: list[str]) -> tuple[dict[str, Any], bool]:
    """The message that an engine with a tool-call parser makes from a text."""
    if not calls:
        return {"role": "assistant", "content": text, "tool_calls": None}, False
    functions = [json.loads(call) for call in calls]
    listed = [
        {"id": f"call_{zlib.crc32(text.encode()):08x}_{number}", "type": "function", "index": number,
         "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
        for number, call in enumerate(functions)
    ]  # fmt: skip
    return {"role": "assistant", "content": CALL.sub("", text).strip() or None, "tool_calls": listed}, True


def sglang(engine: Engine, made: dict[str, Any], model: str) -> dict[str, Any]:
    text = engine.tokenizer.decode(made["ids"])
    message, called = message_of(text, CALL.findall(text))
    meta: dict[str, Any] = {
        "id": f"sgl-{engine.asked}",
        "finish_reason": {"type": made["finish"]} | ({"message": "weight update"} if made["finish"] == "abort" else {}),
        "completion_tokens": len(made["ids"]),
        "weight_version": made["version"],
        "output_token_logprobs": [[logprob(token, at), token, None] for at, token in enumerate(made["ids"])],
    } | ({} if made["read"] is None else {"prompt_tokens": made["read"]})
    finish = "tool_calls" if called and made["finish"] == "stop" else made["finish"]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "meta_info": meta}
    usage = {"prompt_tokens": made["read"] or 0, "completion_tokens": len(made["ids"])}
    return {
        "id": f"sgl-{engine.asked}",
        "object": "chat.completion",
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


def vllm(engine: Engine, made: dict[str, Any], model: str) -> dict[str, Any]:
    text = engine.tokenizer.decode(made["ids"])
    message, called = message_of(text, CALL.findall(text))
    listed = [{"token": f"token_id:{token}", "logprob": logprob(token, at)} for at, token in enumerate(made["ids"])]
    finish = "tool_calls" if called and made["finish"] == "stop" else made["finish"]
    choice = {
        "index": 0, "message": message, "logprobs": {"content": listed}, "finish_reason": finish,
        "token_ids": made["ids"],
    }  # fmt: skip
    return {
        "id": f"vllm-{engine.asked}", "object": "chat.completion", "model": model, "choices": [choice],
        "prompt_token_ids": made["prompt"],
        "usage": {"prompt_tokens": len(made["prompt"]), "completion_tokens": len(made["ids"])},
    }  # fmt: skip


def completion(engine: Engine, made: dict[str, Any], model: str) -> dict[str, Any]:
    scores = [logprob(token, at) for at, token in enumerate(made["ids"])]
    choice = {
        "index": 0, "text": engine.tokenizer.decode(made["ids"]), "finish_reason": made["finish"],
        "token_ids": made["ids"], "prompt_token_ids": made["prompt"],
        "logprobs": {"tokens": [str(token) for token in made["ids"]], "token_logprobs": scores},
    }  # fmt: skip
    usage = {"prompt_tokens": len(made["prompt"]), "completion_tokens": len(made["ids"])}
    return {
        "id": f"vllm-{engine.asked}",
        "object": "text_completion",
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


def application(engine: Engine) -> Starlette:
    async def chat(request: Request) -> JSONResponse:
        asked = await request.json()
        ids = asked.get("input_ids") or asked.get("prompt_token_ids")
        if not ids:
            return JSONResponse({"error": {"message": "this engine takes token ids"}}, 400)
        made = await engine.answer(ids, asked.get("max_completion_tokens") or asked.get("max_tokens"))
        form = sglang if "input_ids" in asked else vllm
        return JSONResponse(form(engine, made, asked.get("model") or "mock"))

    async def completions(request: Request) -> JSONResponse:
        asked = await request.json()
        made = await engine.answer(asked["prompt"], asked.get("max_tokens"))
        return JSONResponse(completion(engine, made, asked.get("model") or "mock"))

    async def stats(_request: Request) -> JSONResponse:
        told = {"asked": engine.asked, "aborted": engine.aborted, "weight_version": engine.weight_version}
        return JSONResponse(told)

    async def update_weights(request: Request) -> JSONResponse:
        engine.hits += (await request.json())["hits"]
        return JSONResponse({"weight_version": engine.weight_version})

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        updating = asyncio.create_task(engine.update_weights())
        yield
        updating.cancel()
        with suppress(asyncio.CancelledError):
            await updating

    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/stats", stats),
        Route("/update_weights", update_weights, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def serve(options: argparse.Namespace) -> None:
    listener = listen(options.host, options.port)
    print(f"engine listens on http://{options.host}:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(application(Engine(options)), log_level="warning", access_log=False)
    await uvicorn.Server(config).serve([listener])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--abort-every", type=int, default=10)
    parser.add_argument("--update-every", type=float, default=2.0)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--latency", type=float, default=0.002)
    parser.add_argument("--log")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
