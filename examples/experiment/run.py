"""An experiment that fails twice, is killed in the middle of its third run, and continues in the right phase.

Run it: `python examples/experiment/run.py`. It needs numpy and no network, takes a few seconds, and works in a
temporary directory with its own store.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAM = Path(sys.executable).with_name("onrecord")
ONRECORD = [str(PROGRAM)] if PROGRAM.exists() else [sys.executable, "-m", "onrecord"]


class Workplace:
    """A project directory and a store, and an agent at work there."""

    def __init__(self, place: Path) -> None:
        self.project = place / "project"
        self.project.mkdir()
        shutil.copy(HERE / "train.py", self.project)
        python = str(Path(sys.executable).parent)
        self.environment = os.environ | {
            "ONRECORD_STORE": str(place / "store" / "onrecord.db"), "ONRECORD_PROJECT": "l2-example",
            "PATH": f"{python}:{os.environ['PATH']}", "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        for name in ("ONRECORD_SESSION", "ONRECORD_AGENT", "EXAMPLE_DIES"):
            self.environment.pop(name, None)
        self.agent = "researcher"

    def do(self, *words: str, show: bool = True, **more: str) -> int:
        """Run one onrecord command as an agent would, and print what the terminal shows."""
        if show:
            print(f"\n[{self.agent}] $ onrecord {shlex.join(words)}", flush=True)
        environment = self.environment | {"ONRECORD_AGENT": self.agent} | more
        done = subprocess.run(
            [*ONRECORD, *words], cwd=self.project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        if show:
            print("\n".join(f"    {line}" for line in done.stdout.splitlines()), flush=True)
            print(f"    (exit {done.returncode})" if done.returncode else "", end="", flush=True)
        elif done.returncode:
            raise SystemExit(done.stdout)
        return done.returncode


def first_session(work: Workplace) -> None:
    """The work up to the kill."""
    title = "Does L2 regularisation help a polynomial of degree 14 on 12 points?"
    work.do("open", "l2", "--objective", title, "--profile", "research")
    texts = {
        "Motivation": {"Session Title": title, "Research Specification": "Hypothesis: l2 > 0 lowers the test error."},
        "Planning": {"Experiment Design": "Exact solution; l2 is varied, seed, degree and data are held."},
        "Setup": {"Files and Resources": str(work.project / "train.py")},
    }
    for phase, sections in texts.items():
        if phase == next(iter(texts)):
            work.do("phase", "enter", phase, show=False)
        for section, text in sections.items():
            work.do("section", section, "--text", text, show=False)
        work.do("phase", "finish", phase, show=False)
    work.do("phase", "list")
    work.do("run", "--metrics-file", "metrics.json", "--", "python", "train.py", "--l2", "0")
    work.do("attempt", "correct", "1", "--fix", "regularise: l2 > 0")
    work.do("run", "--metrics-file", "metrics.json", "--", "python", "train.py", "--l2", "0.1", "--step", "9")
    work.do("attempt", "correct", "2", "--fix", "the exact solution instead of gradient descent")
    work.do("run", "--metrics-file", "metrics.json", "--", "python", "train.py", "--l2", "0.1", EXAMPLE_DIES="1")


def second_session(work: Workplace) -> None:
    """Another process, which knows only the record."""
    work.do("continue")
    work.do("attempt", "list")
    work.do("gate", "--tool", "Edit", "--path", "train.py")
    work.do("attempt", "fail", "3", "--error", "killed between RUNNING and the result", "--fix", "run it again")
    work.do("gate", "--tool", "Bash", "--command", "python train.py --l2 0")
    work.do("run", "--metrics-file", "metrics.json", "--", "python", "train.py", "--l2", "0.1")
    work.do("phase", "finish", "Implementation")
    work.do("phase", "list")
    work.do("verify")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="onrecord-experiment-") as place:
        work = Workplace(Path(place))
        first_session(work)
        print("\n--- the process is gone; the next one knows nothing but the record ---", flush=True)
        second_session(work)


if __name__ == "__main__":
    main()
