"""Ridge regression of a high polynomial on a few noisy points: does L2 regularisation help on points it has not seen?

`--l2 0` meets a singular matrix, gradient descent with a large step diverges to NaN, the right setting works. With
EXAMPLE_DIES=1 this process and the one that started it are killed in the middle of the run, as by a power cut.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path

import numpy as np

DEGREE, POINTS, NOISE = 14, 12, 0.2


def make(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(seed)
    x = source.uniform(-1, 1, count)
    return np.vander(x, DEGREE + 1), np.sin(3 * x) + NOISE * source.standard_normal(count)


def solve(features: np.ndarray, target: np.ndarray, l2: float) -> np.ndarray:
    # 15 coefficients from 12 points: without regularisation there is no single best answer.
    gram = features.T @ features + l2 * np.eye(features.shape[1])
    if l2 == 0 and np.linalg.matrix_rank(gram) < gram.shape[0]:
        raise np.linalg.LinAlgError("Singular matrix")
    return np.linalg.solve(gram, features.T @ target)


def descend(features: np.ndarray, target: np.ndarray, l2: float, step: float) -> np.ndarray:
    weights = np.zeros(features.shape[1])
    with np.errstate(all="ignore"):
        for _ in range(2_000):
            weights -= step * (features.T @ (features @ weights - target) + l2 * weights)
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--l2", type=float, required=True)
    parser.add_argument("--step", type=float, help="gradient descent with this step instead of the exact solution")
    chosen = parser.parse_args()
    features, target = make(1, POINTS)
    print(f"training on {POINTS} points, degree {DEGREE}, l2 {chosen.l2:g}", flush=True)
    if os.environ.get("EXAMPLE_DIES"):
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    weights = descend(features, target, chosen.l2, chosen.step) if chosen.step else solve(features, target, chosen.l2)
    unseen, truth = make(2, 1_000)
    error = float(np.mean((unseen @ weights - truth) ** 2))
    Path("metrics.json").write_text(json.dumps({"test_mse": round(error, 4)}) + "\n", encoding="utf-8")
    print(f"test mse {error:.4f}")


if __name__ == "__main__":
    main()
