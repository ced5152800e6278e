"""A proxy on a thread, and an engine that follows a script, for the proxy's tests. Both speak HTTP."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import uvicorn

from onrecord.machine.http_server import listen
from onrecord.rollout.server.app import Proxy
from onrecord.rollout.server.serving import config_of
from onrecord.rollout.server.settings import Settings
from onrecord.rollout.trajectory import Policy

USER = {"role": "user", "content": "What is 17 plus 25?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 17, "b": 25}'}}


class ScriptedEngine:
    """An engine like SGLang. `script` has one entry per request; without one, the engine echoes."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.script: deque[Any] = deque()
        self.requests: list[dict[str, Any]] = []
        self.arrived = threading.Semaphore(0)
        self.go_on = threading.Event()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                engine.requests.append(asked)
                does = engine.script.popleft() if engine.script else says("Fine.")
                engine.arrived.release()
                status, headers, body = does(engine, asked)
                if status is None:
                    self.close_connection = True
                    return
                if isinstance(body, Iterator):
                    self._stream(body, headers)
                    return
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"content-length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def _stream(self, chunks, headers):
                """Send chunks as they come; the connection ends with the last one, or where an error ends them."""
                self.close_connection = True
                self.send_response(200)
                for name, value in {"content-type": "text/event-stream", "connection": "close", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                sized = "transfer-encoding" in headers
                with suppress(OSError):  # the client hung up
                    for chunk in chunks:
                        said = b"data: " + (chunk if chunk == b"[DONE]" else json.dumps(chunk).encode()) + b"\n\n"
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(said), said) if sized else said)
                        self.wfile.flush()

            def log_message(self, *_args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def prompts(self):
        """The ids of every prompt it got."""
        return [
            asked.get("input_ids") or asked.get("prompt_token_ids") or asked.get("prompt") for asked in self.requests
        ]

    def stop(self):
        self.go_on.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def ids_of(tokenizer, text):
    return list(tokenizer._tokenized(text, []).ids)


def reply(engine, text, *, finish="stop", cut=None, calls=None, version="1", read=True, prompt=None):
    """A reply like SGLang's: the ids of a text, with the end of the turn unless it was cut."""
    ids = ids_of(engine.tokenizer, text + ("" if finish in ("abort", "length") else "<|im_end|>"))[:cut]
    meta = {
        "finish_reason": {"type": finish} | ({"message": "weights changed"} if finish == "abort" else {}),
        "completion_tokens": len(ids),
        "weight_version": version,
        "output_token_logprobs": [[-0.5 - place / 64, token, None] for place, token in enumerate(ids)],
    } | ({"prompt_tokens": len(prompt)} if read and prompt is not None else {})
    message = {"role": "assistant", "content": text, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": finish, "meta_info": meta}
    return {"id": f"r{len(engine.requests)}", "object": "chat.completion", "choices": [choice]}


def says(text, **how):
    """A script entry: the engine says this."""
    return lambda engine, asked: (200, {}, reply(engine, text, prompt=asked.get("input_ids"), **how))


def aborts(text="", **how):
    """A script entry: the engine aborts after saying this much."""
    return says(text, finish="abort", read=bool(text), **how)


def answers(status, body=b"", **headers):
    """A script entry: the engine answers with this status."""
    return lambda _engine, _asked: (status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def hangs_up(_engine, _asked):
    """A script entry: the connection ends without an answer."""
    return None, {}, b""


def streams(*words, finish="stop", wait=None, end=True, calls=None, error=None, headers=None):
    """A script entry: an engine like vLLM streams these words, a chunk each.

    Before the word with the index `wait` it waits until the test releases it; without `end`, the connection breaks.
    """

    def chunks(engine, asked):
        ids = asked.get("prompt") or asked["prompt_token_ids"]
        head = {"id": f"s{len(engine.requests)}", "model": "policy"}
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        if "prompt" not in asked:
            yield {**head, "choices": [first], "prompt_token_ids": ids}
        place, ended = 0, "tool_calls" if calls else finish
        for index, word in enumerate([*words, ""]):
            if index == wait:
                assert engine.go_on.wait(90)
            if index == len(words) and error:
                yield {"error": {"message": error}}
                return
            if index == len(words) and not end:
                return
            last = index == len(words)
            text = word + ("<|im_end|>" if last and finish == "stop" else "")
            tokens = ids_of(engine.tokenizer, text)
            scores = [-0.5 - (place + at) / 64 for at in range(len(tokens))]
            place += len(tokens)
            choice = {"index": 0, "token_ids": tokens, "finish_reason": ended if last else None}
            if "prompt" in asked:
                choice |= {"text": word, "logprobs": {"tokens": [str(id) for id in tokens], "token_logprobs": scores}}
                choice |= {"prompt_token_ids": ids} if index == 0 else {}
            else:
                delta = {"tool_calls": calls} if last and calls else {"content": word} if word else {}
                choice |= {"delta": delta, "logprobs": {"content": [{"logprob": score} for score in scores]}}
            yield {**head, "choices": [choice]}
        yield {**head, "choices": [], "usage": {"prompt_tokens": len(ids), "completion_tokens": place}}
        yield b"[DONE]"

    return lambda engine, asked: (200, headers or {}, chunks(engine, asked))


def completes(text, *, shown=None, ids=None, **choice):
    """A script entry: the completions endpoint of vLLM says this; `shown` is the text without a stop word."""

    def do(engine, asked):
        sampled = ids or ids_of(engine.tokenizer, text + "<|im_end|>")
        scores = {"tokens": [str(id) for id in sampled], "token_logprobs": [-0.5] * len(sampled)}
        made = {"index": 0, "text": text if shown is None else shown, "finish_reason": "stop", "logprobs": scores}
        made |= {"token_ids": sampled, "prompt_token_ids": asked["prompt"], **choice}
        return 200, {}, {"id": f"c{len(engine.requests)}", "choices": [made]}

    return do


def waits(then):
    """A script entry: the engine waits until the test releases it, then does something."""

    def wait(engine, asked):
        assert engine.go_on.wait(90)
        return then(engine, asked)

    return wait


class RunningProxy:
    """A proxy that serves on a thread of this process, over real sockets."""

    def __init__(self, records, tokenizer, upstream, *, policy=None, **settings):
        self.settings = Settings(upstream, **{"retry_pause": 0.001, "drain_seconds": 5, **settings})
        self.proxy = Proxy(records, tokenizer, self.settings, policy or Policy())
        self.records = records
        listener = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.server = uvicorn.Server(config_of(self.proxy.front(), self.settings.drain_seconds))
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve(listener)))
        self.thread.start()
        self.http = httpx.Client(base_url=self.url, timeout=90, trust_env=False)

    async def _serve(self, listener):
        await self.server.serve([listener])
        for left in list(self.server.server_state.connections):
            left.transport.abort()  # a client that never hung up; its socket would warn in a later test
        await asyncio.sleep(0)

    def stop(self):
        self.http.close()
        self.server.should_exit = True
        self.thread.join(90)
        assert not self.thread.is_alive()

    def new(self, **body):
        return self.http.post("/sessions", json=body).json()["session_id"]

    def chat(self, session, messages, *, headers=None, **options):
        request = {"model": "policy", "messages": messages, **options}
        return self.http.post(f"/sessions/{session}/v1/chat/completions", json=request, headers=headers)

    def record(self, session):
        response = self.http.get(f"/sessions/{session}?tokens=true")
        assert response.status_code == 200, response.text
        return response.json()

    def metric(self, name, **labels):
        return self.proxy.metrics.registry.get_sample_value(f"onrecord_rollout_{name}", labels)


def message_of(response):
    """The assistant's message of an answer."""
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]


def code_of(response):
    """Status and code of a refusal."""
    return response.status_code, response.json()["error"]["code"]
