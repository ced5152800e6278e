"""Training on exact ids: REINFORCE with a tiny random policy, rollouts through the recording proxy, on a CPU.

Run it: `python examples/rollout/train.py [--steps 16]`. The policy is a real one, with weights that are trained: a
low-rank bigram model in NumPy. It earns a reward for every digit it says. The engine samples from it, updates of the
weights abort some generations, and the proxy continues them. The trainer reads the samples: exact ids, the logprobs
they were sampled with, and rewards. Then the same run trains on re-tokenised text, as many trainers do.

Each rollout has a seed, which the engine samples with: the same run gives the same rewards, whatever the order in which
its requests arrive.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from examples.rollout.running import proxy
from examples.rollout.tokenizer import make

SAID = 10
"""How many tokens the policy says in a turn."""
ROLLOUTS, TURNS, RATE, RANK = 16, 2, 30.0, 24
ABORT_EVERY = 9
Floats = NDArray[np.float64]


class Policy:
    """Logits of the next token from the one before: two small matrices."""

    def __init__(self, tokens: int, end: int, seed: int) -> None:
        self.end = end
        random = np.random.default_rng(seed)
        self.read = random.normal(0, 0.5, (tokens, RANK))
        self.write = random.normal(0, 0.5, (RANK, tokens))
        self.version = 0

    def logprobs(self, before: list[int]) -> Floats:
        """The log-probabilities of every token after each of these."""
        logits = self.read[before] @ self.write
        logits[:, self.end] = -np.inf  # it speaks until the engine stops it
        logits -= logits.max(axis=-1, keepdims=True)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))

    def divergence(self, sampled: list[int], assumed: list[int]) -> Floats:
        """KL of what a trainer assumes from what was sampled from, at each position; 0 if the ids before are equal."""
        count = min(len(sampled), len(assumed))
        theirs, ours = (np.delete(self.logprobs(ids[:count]), self.end, axis=1) for ids in (sampled, assumed))
        return np.asarray((np.exp(theirs) * (theirs - ours)).sum(axis=1))

    def learn(self, lines: list[tuple[list[int], list[int], float]]) -> None:
        """One step of REINFORCE: (tokens before, tokens said, advantage)."""
        read, write = np.zeros_like(self.read), np.zeros_like(self.write)
        count = sum(len(said) for _before, said, _advantage in lines)
        for before, said, advantage in lines:
            slope = -np.exp(self.logprobs(before))
            slope[np.arange(len(said)), said] += 1
            slope *= advantage / count
            np.add.at(read, before, slope @ self.write.T)
            write += self.read[before].T @ slope
        self.read += RATE * read
        self.write += RATE * write
        self.version += 1


class Engine:
    """An HTTP server that samples from the policy by ids; about every ninth generation is cut short by an update."""

    def __init__(self, policy: Policy, tokenizer: Tokenizer, seed: int) -> None:
        self.policy, self.tokenizer, self.seed = policy, tokenizer, seed
        self.lock, self.aborted = threading.Lock(), 0
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                body = json.dumps(engine.answer(asked["input_ids"], asked["max_tokens"], asked["seed"])).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def answer(self, prompt: list[int], left: int, seed: int) -> dict[str, Any]:
        """Sample until the turn is complete, or until an update of the weights aborts it."""
        random = np.random.default_rng((self.seed, seed, len(prompt)))
        with self.lock:
            cut = left == SAID and random.integers(ABORT_EVERY) == 0
            ids, rows, last = [], [], prompt[-1]
            for _ in range(left // 2 if cut else left):
                scores = self.policy.logprobs([last])[0]
                last = int(random.choice(len(scores), p=np.exp(scores)))
                ids.append(last)
                rows.append([float(scores[last]), last, None])
            self.aborted += cut
        reason = "abort" if cut else "stop"
        meta = {
            "finish_reason": {"type": reason}, "completion_tokens": len(ids), "prompt_tokens": len(prompt),
            "output_token_logprobs": rows, "weight_version": str(self.policy.version),
        }  # fmt: skip
        message = {"role": "assistant", "content": self.tokenizer.decode(ids)}
        return {"id": "r", "choices": [{"message": message, "finish_reason": reason, "meta_info": meta}]}

    def stop(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def roll_out(url: str, step: int, number: int) -> dict[str, Any]:
    """One rollout through the proxy, with its reward on record; returns its sample."""
    asked = {"name": f"{step}-{number}", "group": str(step)}
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        session = http.post("/sessions", json=asked).json()["session_id"]
        messages: list[dict[str, Any]] = []
        for turn in range(TURNS):
            messages.append({"role": "user", "content": f"Say numbers, {turn}."})
            seed = step * ROLLOUTS + number
            body = {"model": "policy", "messages": messages, "max_tokens": SAID, "seed": seed}
            reply = http.post(f"/sessions/{session}/v1/chat/completions", json=body).raise_for_status().json()
            messages.append(reply["choices"][0]["message"])
        said = "".join(message["content"] for message in messages if message["role"] == "assistant")
        reward = sum(letter.isdigit() for letter in said) / len(said)
        http.post(f"/sessions/{session}/reward", json={"reward": reward}).raise_for_status()
        frozen = http.post(f"/sessions/{session}/samples").raise_for_status().json()
        http.post(f"/sessions/{session}/samples", json={"acknowledge": frozen["digest"]}).raise_for_status()
    sample: dict[str, Any] = frozen["samples"][0]
    return sample


def turns_of(sample: dict[str, Any]) -> list[tuple[list[int], list[int], list[float]]]:
    """(ids before, ids said, their logprobs) of each turn: `before` has the id that precedes each said one."""
    found = []
    for _version, start, end in _merged(sample["weight_versions"]):
        tokens = sample["tokens"]
        found.append((tokens[start - 1 : end - 1], tokens[start:end], sample["logprobs"][start:end]))
    return found


def _merged(spans: list[list[Any]]) -> list[list[Any]]:
    joined: list[list[Any]] = []
    for version, start, end in spans:
        if joined and joined[-1][2] == start:
            joined[-1][2] = end
        else:
            joined.append([version, start, end])
    return joined


def again(tokenizer: Tokenizer, turn: tuple[list[int], list[int], list[float]]) -> tuple[list[int], list[int]]:
    """The same turn as a trainer sees it that keeps only the text."""
    before, said, _logprobs = turn
    ids = tokenizer.encode(tokenizer.decode(said), add_special_tokens=False).ids
    return [before[0], *ids[:-1]], ids


class Result:
    """What one run showed."""

    def __init__(self) -> None:
        self.rewards: list[float] = []
        self.drifted = self.tokens = self.aborted = 0
        self.difference = 0.0
        """How far the trainer's logprobs are from the engine's at step 0, on average; 0 if the ids are the same."""
        self.kl = 0.0
        """KL of the trainer's distributions from the engine's at step 0, on average."""


def train(place: Path, *, exact: bool, steps: int, seed: int = 3) -> Result:
    """One training run, on exact ids or on re-tokenised text."""
    tokenizer = Tokenizer.from_file(str(place / "tokenizer" / "tokenizer.json"))
    policy = Policy(tokenizer.get_vocab_size(), tokenizer.token_to_id("<|im_end|>") or 0, seed)
    engine, result = Engine(policy, tokenizer, seed), Result()
    kind = "exact" if exact else "text"
    store, options = place / f"{kind}.db", ("--abort-policy", "continue", "--matcher", "role_content_only")
    try:
        with proxy(store, engine.url, place / "tokenizer", *options) as server, ThreadPoolExecutor(4) as threads:
            for step in range(steps):
                samples = list(threads.map(partial(roll_out, server.url, step), range(ROLLOUTS)))
                rewards = np.array([sample["reward"] for sample in samples])
                result.rewards.append(float(rewards.mean()))
                lines, gaps, divergences = [], [], []
                advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
                for sample, advantage in zip(samples, advantages, strict=True):
                    for turn in turns_of(sample):
                        before, said = turn[:2] if exact else again(tokenizer, turn)
                        same = sum(one == other for one, other in zip(said, turn[1], strict=False))
                        result.drifted += len(turn[1]) - same
                        result.tokens += len(turn[1])
                        lines.append((before, said, float(advantage)))
                        scores = policy.logprobs(before)[np.arange(len(said)), said]
                        divergences += policy.divergence(turn[0], before).tolist()
                        gaps += [abs(mine - theirs) for mine, theirs in zip(scores, turn[2], strict=False)]
                if step == 0:
                    result.difference, result.kl = float(np.mean(gaps)), float(np.mean(divergences))
                policy.learn(lines)
            result.aborted = engine.aborted
    finally:
        engine.stop()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=16)
    chosen = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="onrecord-train-", ignore_cleanup_errors=True) as temporary:
        make(Path(temporary) / "tokenizer")
        for exact, name in ((True, "exact ids"), (False, "text, tokenised again")):
            result = train(Path(temporary), exact=exact, steps=chosen.steps)
            curve = " ".join(f"{reward:.2f}" for reward in result.rewards[:: max(1, chosen.steps // 8)])
            print(f"[{name}] reward by step: {curve} ... {result.rewards[-1]:.2f}")
            print(
                f"[{name}] {result.drifted / result.tokens:.0%} of the tokens drifted; at step 0 the trainer's "
                f"logprobs differ by {result.difference:.3f} from the engine's (KL {result.kl:.3f}); "
                f"{result.aborted} generations were aborted and continued",
                flush=True,
            )
    print(f"done in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
