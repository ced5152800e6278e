"""Rollouts of a small agent through the recording proxy: weights change, the proxy is killed, and samples follow.

Run it: `python examples/rollout/run.py [--out DIR]`. It needs no network and no GPU: the engine is a mock that speaks
SGLang's dialect, in its own process. Everything else is real: the proxy, the record, the samples, the kill -9.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx

from examples.rollout.running import Server, engine, proxy
from examples.rollout.tokenizer import make

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
SYSTEM = {"role": "system", "content": "You are a careful assistant. You have a tool that adds two numbers. Use it."}
RETRIES = 2
STORE = "rollouts.db"


class Agent:
    """An ordinary agent loop: it knows an OpenAI-compatible address, and nothing about tokens."""

    def __init__(self, url: str, task: str) -> None:
        self.task = task
        self.session = httpx.post(f"{url}/sessions", json={"name": task}, trust_env=False).json()["session_id"]
        self.messages: list[dict[str, Any]] = [SYSTEM]

    def work(self, url: str, question: str, **options: int) -> str:
        """Ask, call the tool as often as the model wants, and return the answer, or how the turn ended."""
        self.messages.append({"role": "user", "content": question})
        while True:
            body = {"model": "policy", "messages": self.messages, "tools": TOOLS, **options}
            path = f"{url}/sessions/{self.session}/v1/chat/completions"
            choice = httpx.post(path, json=body, timeout=30, trust_env=False).raise_for_status().json()["choices"][0]
            message = choice["message"]
            if choice["finish_reason"] not in ("stop", "tool_calls"):
                return f"({choice['finish_reason']}) {message['content'] or ''}".rstrip()
            self.messages.append(message)
            calls = message.get("tool_calls") or []
            if not calls:
                return str(message["content"])
            for call in calls:
                result = sum(json.loads(call["function"]["arguments"]).values())
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})


def say(who: str, what: str) -> None:
    print(f"[{who}] {what}", flush=True)


def ask(agent: Agent, url: str, question: str, **options: int) -> None:
    say(agent.task, f"{question} -> {agent.work(url, question, **options)}")


def record_of(url: str, agent: Agent) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/sessions/{agent.session}?tokens=true", trust_env=False).json()
    return found


def hit(upstream: Server, generations: int) -> None:
    """Make weight updates hit the next generations."""
    httpx.post(f"{upstream.url}/update_weights", json={"hits": generations}, trust_env=False)


def roll_out(place: Path, tokenizer: Path, upstream: Server) -> None:
    """Four rollouts, and what happens to each."""
    store, log = place / STORE, place / "proxy.log"
    with proxy(store, upstream.url, tokenizer, "--retries", str(RETRIES), log=log) as first:
        calm = Agent(first.url, "calm")
        ask(calm, first.url, "What is 17 plus 25?")
        ask(calm, first.url, "What is 42 plus 8?")

        updated = Agent(first.url, "updated")
        ask(updated, first.url, "What is 3 plus 4?")
        hit(upstream, 1)
        ask(updated, first.url, "What is 7 plus 5?")
        weights = [span[0] for one in record_of(first.url, updated)["records"] for span in one["weight_versions"]]
        say("updated", f"weights changed under a turn; it was asked again. Weights by turn: {' '.join(weights)}")

        before = record_of(first.url, calm)
        first.kill()
        say("proxy", "killed with SIGKILL")
    with proxy(store, upstream.url, tokenizer, "--retries", str(RETRIES), log=log) as second:
        say("proxy", f"started again; calm is as it was: {record_of(second.url, calm) == before}")
        ask(calm, second.url, "What is 50 plus 1?")

        unlucky = Agent(second.url, "unlucky")
        ask(unlucky, second.url, "What is 1 plus 1?")
        hit(upstream, 1 + RETRIES)
        ask(unlucky, second.url, "What is 2 plus 2?")

        short = Agent(second.url, "short")
        ask(short, second.url, "What is 9 plus 9?", max_tokens=5)


def samples_of(place: Path) -> list[dict[str, Any]]:
    """Write the samples of all rollouts to one file, and read it as a trainer does."""
    import pyarrow.parquet  # type: ignore[import-untyped]  # it ships no types

    target = place / "samples.parquet"
    command = ["rollout", "export", "--all", "--to", str(target), "--force", "--store", str(place / STORE)]
    subprocess.run([sys.executable, "-m", "onrecord", *command], check=True, stdout=subprocess.DEVNULL)
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(target).to_pylist()
    return rows


def plot(rows: list[dict[str, Any]], target: Path) -> None:
    """Tokens by status, and which of them the policy sampled."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    sampled, given = Counter[str](), Counter[str]()
    for row in rows:
        sampled[row["status"]] += sum(row["loss_mask"])
        given[row["status"]] += len(row["tokens"]) - sum(row["loss_mask"])
    names = [name for name in ("COMPLETED", "TRUNCATED", "ABORTED", "INCOMPLETE", "INFRA") if name in given]
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    axes.barh(names, [given[name] for name in names], color="#b8c4d6", label="given (loss mask 0)")
    left = [given[name] for name in names]
    axes.barh(names, [sampled[name] for name in names], left=left, color="#2f6db5", label="sampled (loss mask 1)")
    axes.invert_yaxis()
    axes.set_xlabel("tokens")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="keep store, samples and plot in this directory")
    chosen = parser.parse_args()
    if chosen.out and (chosen.out / STORE).exists():
        parser.error(f"{chosen.out} has the rollouts of an earlier run; name another directory")
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="onrecord-rollout-", ignore_cleanup_errors=True) as temporary:
        place = chosen.out or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        tokenizer = make(place / "tokenizer")
        quiet = ("--abort-every", "0", "--update-every", "0")
        with engine(tokenizer, *quiet, log=place / "engine.log") as upstream:
            roll_out(place, tokenizer, upstream)
        rows = samples_of(place)
        for row in sorted(rows, key=lambda row: str(row["session"])):
            say(
                "sample",
                f"{row['status']:<10} {len(row['tokens']):>4} tokens, {sum(row['loss_mask']):>3} of them sampled",
            )
        plot(rows, place / "tokens-by-status.svg")
        say("plot", "tokens-by-status.svg" + (f" in {place}" if chosen.out else "; --out DIR keeps it"))
    print(f"done in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
