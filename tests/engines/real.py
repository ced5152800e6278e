"""A real engine as a process: started, paused, given other weights, killed, started again."""

import json
import os
import signal
import socket
import subprocess
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venvs"
MODEL = ENVIRONMENTS / "tiny-model"
START_SECONDS = 600
"""How long an engine may take to start: a busy machine takes minutes."""
FIRST, SECOND = "1", "2"
"""The versions of the weights `a` and `b`."""


def about(name: str) -> dict[str, Any]:
    known: dict[str, Any] = tomllib.loads((ROOT / "tools" / "engines.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = known[name]
    return found


def python_of(name: str) -> str:
    return str(ENVIRONMENTS / name / "bin" / "python")


class Scorer:
    """Transformers in the engine's environment: the logprobs of tokens under both sets of weights."""

    def __init__(self, name: str, log: Path) -> None:
        command = [python_of(name), str(ROOT / "tests" / "engines" / "tiny_model.py"), "score", str(MODEL)]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def score(self, samples: list[list[int]]) -> dict[str, list[list[float]]]:
        """For each sample the logprob of each token, by the name of the weights."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(samples) + "\n")
        self.process.stdin.flush()
        found: dict[str, list[list[float]]] = json.loads(self.process.stdout.readline())
        return found

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


class Engine:
    """One engine. Its weights are those of `a` after each start."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log, self.about = name, log, about(name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # An engine reads its weights again from the same path: a link says which ones.
        self.point("a")
        words = {"MODEL": str(self.log.parent / "weights"), "PORT": str(self.port)}
        start = [word.replace("SCRIPTS", str(Path(__file__).parent)) for word in self.about["start"]]
        command = [python_of(self.name), *(words.get(word, word) for word in start)]
        own = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, start_new_session=True, cwd=self.log.parent,
                env={**own, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **self.about["environment"]},
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"{self.name} did not start:\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.5)
        self.starts += 1

    def answers(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", timeout=5, trust_env=False).status_code == httpx.codes.OK
        return False

    def point(self, weights: str) -> None:
        link = self.log.parent / "weights"
        new = link.with_name("weights.new")
        new.unlink(missing_ok=True)
        new.symlink_to(MODEL / weights)
        new.replace(link)

    def kill(self) -> None:
        """Kill it and all its processes."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def post(self, path: str, body: Any = None, **query: str) -> Any:
        answer = httpx.post(f"{self.url}{path}", json=body, params=query, timeout=120, trust_env=False)
        assert answer.status_code == httpx.codes.OK, answer.text
        with suppress(ValueError):
            return answer.json()
        return None

    def sampled(self) -> float:
        """How many tokens it has sampled so far, or holds; it grows while a generation runs."""
        if self.name == "sglang":
            loads = httpx.get(f"{self.url}/v1/loads", params={"include": "core"}, timeout=60, trust_env=False).json()
            return float(sum(one["num_used_tokens"] for one in loads["loads"]))
        text = httpx.get(f"{self.url}/metrics", timeout=60, trust_env=False).text
        return sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("vllm:generation_tokens_total")
        )

    def pause(self, *, abort: bool = True) -> None:
        """Pause by the engine's own endpoint: running generations are aborted, or wait and are continued later.

        SGLang computes the prompt again with the new weights when it continues; vLLM keeps what it has computed.
        """
        if self.name == "sglang":
            self.post("/pause_generation", {"mode": "abort" if abort else "retract"})
        else:
            self.post("/pause", mode="abort" if abort else "keep")

    def resume(self) -> None:
        if self.name == "sglang":
            self.post("/continue_generation", {})
        else:
            self.post("/resume")

    def name_weights(self, version: str) -> None:
        """Say which version its weights are, without changing them."""
        if self.name == "vllm":
            self.post("/update_weight_version", {"new_version": version})
        else:
            self.post("/update_weight_version", {"new_version": version, "abort_all_requests": False})

    def update(self, weights: str, version: str) -> None:
        """Load other weights while it is paused."""
        self.point(weights)
        if self.name == "sglang":
            self.post(
                "/update_weights_from_disk",
                {"model_path": str(MODEL / weights), "weight_version": version, "flush_cache": True,
                 "abort_all_requests": False},
            )  # fmt: skip
        else:
            self.post("/collective_rpc", {"method": "reload_weights"})
            self.post("/reset_prefix_cache")
            self.name_weights(version)
