"""An intermittent 403, investigated by three agents one after another. No agent repeats known work.

Run it: `python examples/flaky/run.py`. It needs no network, takes a few seconds, and works in a temporary directory
with its own store. The test really is flaky: it depends on the order of a set of strings, which Python shuffles in
every process.
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
BUG = '    roles = {invitation["role"], "guest"}\n    return next(iter(roles))\n'
FIX = '    return invitation["role"]\n'


class Workplace:
    """A project directory, a store, and the agent at work there."""

    def __init__(self, place: Path) -> None:
        self.project = place / "project"
        shutil.copytree(HERE / "project", self.project, ignore=shutil.ignore_patterns("__pycache__"))
        python = str(Path(sys.executable).parent)
        self.environment = os.environ | {
            "ONRECORD_STORE": str(place / "store" / "onrecord.db"), "ONRECORD_PROJECT": "flaky-example",
            "PATH": f"{python}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        for name in ("ONRECORD_SESSION", "ONRECORD_AGENT", "PYTHONHASHSEED"):
            self.environment.pop(name, None)
        self.agent = ""
        self.git("init", "-q", "-b", "main")
        self.commit("Invitations")

    def git(self, *words: str) -> None:
        """Run git. Name and date are fixed, so that every run has the same revisions."""
        who = {"NAME": "Example", "EMAIL": "example@example.org", "DATE": "2026-05-18T12:00:00Z"}
        names = {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in who.items()}
        own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", *words], cwd=self.project, env=self.environment | names | own, check=True)

    def commit(self, message: str) -> None:
        """Commit everything."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def do(self, *words: str) -> str:
        """Run one onrecord command as an agent would, and print what the terminal shows."""
        print(f"\n[{self.agent}] $ onrecord {shlex.join(words)}", flush=True)
        environment = self.environment | {"ONRECORD_AGENT": self.agent}
        done = subprocess.run(
            [*ONRECORD, *words], cwd=self.project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        print("\n".join(f"    {line}" for line in done.stdout.splitlines()), flush=True)
        if done.returncode:
            print(f"    (exit {done.returncode})", flush=True)
        return done.stdout


def first(work: Workplace) -> None:
    """Reproduce; rule out the obvious suspect; run out of tokens."""
    work.agent = "claude"
    work.do("open", "invite-403", "--objective", "Fix the intermittent 403 after accepting an invitation")
    seen = work.do("evidence", "run", "--id", "repro-a", "--", "python", "repeat.py", "test_enters_after_accepting")
    rate = seen.partition("failed ")[2].split(",")[0].split()[0]
    work.do("reproduction", "python repeat.py test_enters_after_accepting", "--rate", rate)
    work.do(
        "finding",
        "state",
        "The middleware refuses sessions that are too young",
        "--on",
        "middleware.py",
        "--hypothesis",
    )
    work.do(
        "evidence", "run", "--id", "without-middleware", "--", "python", "repeat.py", "test_enters_without_middleware"
    )
    work.do("finding", "relabel", "f1", "rejected", "-e", "without-middleware",
            "--why", "it fails as often without the middleware")  # fmt: skip
    work.do("next", "See which role accept() returns under a failing hash seed", "--command",
            "python -c 'from invites import accept; print(accept({\"role\": \"member\"}))'")  # fmt: skip
    work.do("pause", "--reason", "usage limit")


def second(work: Workplace) -> None:
    """Read the note, leave the middleware alone, run the focused test, find the cause."""
    work.agent = "codex"
    work.do("resume", "invite-403")
    work.do("continue")
    work.do("gate", "--tool", "Edit", "--path", "middleware.py")
    probe = "from invites import accept; print({accept({'role': 'member'})})"
    for seed in range(10):
        output = subprocess.run(
            [sys.executable, "-c", probe], cwd=work.project, capture_output=True, text=True, check=True,
            env=work.environment | {"PYTHONHASHSEED": str(seed)},
        ).stdout  # fmt: skip
        if "guest" in output:
            break
    work.do("evidence", "run", "--id", "guest-role", "--", "env", f"PYTHONHASHSEED={seed}", "python", "-c", probe)
    work.do("finding", "state", "accept() takes the first of a set of roles, in an order that differs by process",
            "--label", "verified", "-e", "guest-role", "--on", "invites.py::accept")  # fmt: skip
    work.do("reached", "root_cause", "--finding", "f2")
    work.do("next", "Return the invitation's own role, then repeat the test", "--command",
            "python repeat.py test_enters_after_accepting")  # fmt: skip


def third(work: Workplace) -> None:
    """Fix it, prove it, and leave a record that the next agent can trust."""
    work.agent = "gemini"
    work.do("continue")
    work.do("gate", "--tool", "Edit", "--path", "invites.py")
    place = work.project / "invites.py"
    place.write_text(place.read_text(encoding="utf-8").replace(BUG, FIX), encoding="utf-8")
    work.do("survey")
    work.do("finding", "list")
    work.do("run", "--", "python", "repeat.py", "test_enters_after_accepting")
    work.commit("Return the invitation's own role")
    work.do("reached", "fix", "--evidence", "last")
    work.do("finding", "recheck", "f2")
    work.do("note")
    work.do("close")
    work.do("verify", "invite-403")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="onrecord-flaky-") as place:
        work = Workplace(Path(place))
        for session in (first, second, third):
            session(work)


if __name__ == "__main__":
    main()
