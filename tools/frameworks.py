"""Run the frameworks' own test suites, and ours, against the adapters: `./dev frameworks [NAME...]`.

`--here NAME` runs one suite in the environment that runs this file, as CI does with that of openai-agents.
A suite that is not published is run from a checkout of the framework's repository: `./dev frameworks NAME=DIRECTORY`.

The environments are below `.venvs`, made from `tools/pins/ENVIRONMENT.txt`; frameworks that cannot live side by side
have one each. Their tests come from their source distributions, by name; nothing of theirs is copied
into this repository. The table is printed, and written to `docs/frameworks.md`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from marked import write_table

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venvs"
PAGE = ROOT / "docs" / "frameworks.md"
SECONDS = 900
"""How long one suite may take."""
COUNTS = re.compile(r"(\d+) (passed|failed|error|errors|skipped|deselected)")
SUMMARY = re.compile(r"\d+ (passed|failed|errors?|skipped|deselected)\b.* in \d")


class Failed(Exception):
    """A step did not work."""


def say(text: str) -> None:
    """Tell what happens."""
    sys.stderr.write(f"frameworks: {text}\n")
    sys.stderr.flush()


def run(command: list[str], where: Path = ROOT, **environment: str) -> tuple[int, str]:
    """Run a command and return its status and output."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # some suites leave their stores behind
        Path(scratch).chmod(0o711)  # PostgreSQL does not run as root
        always = {"NO_COLOR": "1", "COLUMNS": "200", "TMPDIR": scratch}
        try:
            done = subprocess.run(
                command, cwd=where, env={**own, **always, **environment}, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, f"it did not end within {SECONDS} seconds"
    return done.returncode, done.stdout


def environment(name: str) -> Path:
    """The Python of a framework's environment, made if its list of packages has changed."""
    pins = ROOT / "tools" / "pins" / f"{name}.txt"
    wanted = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    place = PLACE / name
    stamp, python = place / "onrecord.stamp", place / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"making .venvs/{name}")
    shutil.rmtree(place, ignore_errors=True)
    installing = [str(python), "-m", "pip", "-q", "--disable-pip-version-check", "install"]
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [*installing, "-r", str(pins)],
        [*installing, "--no-build-isolation", "--no-deps", "-e", str(ROOT)],
    ):
        status, said = run(command)
        if status:
            raise Failed(f"{' '.join(command[-3:])} failed:\n{said[-2000:]}")
    stamp.write_text(wanted)
    return python


def unpacked(python: Path, sdist: str) -> Path:
    """The source distribution of a framework, from the registry that pip is configured with."""
    kept = PLACE / "sdist" / sdist.replace("==", "-")
    if not kept.exists():
        say(f"fetching {sdist}")
        loading = kept.with_suffix(".part")
        shutil.rmtree(loading, ignore_errors=True)
        loading.mkdir(parents=True)
        name = sdist.partition("==")[0]
        command = [str(python), "-m", "pip", "-q", "--disable-pip-version-check", "download", "--no-deps"]
        status, said = run([*command, "--no-binary", name, "-d", str(loading), sdist])
        if status:
            raise Failed(f"{sdist} could not be fetched:\n{said[-2000:]}")
        (file,) = loading.glob("*.tar.gz")
        with tarfile.open(file) as archive:
            archive.extractall(loading, filter="data")
        loading.rename(kept)
    (found,) = (one for one in kept.iterdir() if one.is_dir())
    return found


def counted(said: str) -> dict[str, int]:
    """How many tests passed, failed and were left out, from pytest's last line; a framework may say more after it."""
    last = next((line for line in reversed(said.splitlines()) if SUMMARY.search(line)), "")
    return {"failed" if word.startswith("error") else word: int(number) for number, word in COUNTS.findall(last)}


def checked(name: str, about: dict[str, Any], checkout: Path | None) -> dict[str, Any]:
    """Run one framework's suite and ours."""
    python = environment(about["environment"])
    begun = time.monotonic()
    results: dict[str, Any] = {"name": name, "suite": about["suite"], "versions": versions(python, about)}
    if "tests" in about:
        status, said = suite(python, about)
        results["upstream"] = counted(said) | ({"status": status, "said": said[-3000:]} if status else {})
    ours = ["-q", "-p", "no:cacheprovider", "-n", "0", "-W", "default", *about["ours"].split()]
    source = ""
    if checkout:
        if not (checkout / about["checkout"]).is_dir():
            raise Failed(f"{checkout} has no {about['checkout']}: a checkout of the framework's repository is needed")
        source = str(checkout / about["checkout"])
        results["versions"] += f", repository at {revision(checkout)}"
    status, said = run([str(python), "-m", "pytest", *ours], PYTHONPATH=source)
    counts = counted(said)
    counts.pop("deselected", None)  # of ours, these are tests that another row has
    results["ours"] = counts | ({"status": status, "said": said[-3000:]} if status else {})
    results["seconds"] = round(time.monotonic() - begun)
    return results


def suite(python: Path, about: dict[str, Any]) -> tuple[int, str]:
    """Run a framework's own tests, with our adapter in place of its store; status and output."""
    return run(
        [str(python), "-m", "pytest", "-q", "-p", about["plugin"], *about["tests"]],
        unpacked(python, about["sdist"]),
        PYTHONPATH=str(ROOT / "tests" / "frameworks" / "upstream"),
    )


def here(name: str) -> int:
    """Run one suite in the environment of this Python; the counts are printed, and nothing is written."""
    status, said = suite(Path(sys.executable), _known()[name])
    sys.stdout.write((said[-3000:] if status else "") + json.dumps(counted(said)) + "\n")
    return status


def _known() -> dict[str, Any]:
    return tomllib.loads((ROOT / "tools" / "frameworks.toml").read_text())


def revision(checkout: Path) -> str:
    """The revision and date of a checkout."""
    return run(["git", "log", "-1", "--format=%h of %cs"], checkout)[1].strip() or "an unknown revision"


def versions(python: Path, about: dict[str, Any]) -> str:
    """The version of the framework that was tested."""
    package = about.get("package") or about.get("sdist", "").partition("==")[0] or about["adapter"]
    script = f"import importlib.metadata as m; print({package!r}, m.version({package!r}))"
    return run([str(python), "-c", script])[1].strip()


def shown(counts: dict[str, Any] | None) -> str:
    """Counts in a few words."""
    if not counts:
        return "–"
    words = [f"{counts.get('passed', 0)} passed", *(f"{counts[one]} {one}" for one in ("failed",) if counts.get(one))]
    return ", ".join(words) + (f" ({counts['deselected']} not portable)" if counts.get("deselected") else "")


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["| framework | its own suite | result | ours | seconds | on |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {one['versions']} | {one['suite']} | {shown(one.get('upstream'))} | {shown(one['ours'])} "
        f"| {one['seconds']} | {one['on']} |"
        for one in results.values()
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run what was asked for; write the table; fail if anything failed."""
    if arguments[:1] == ["--here"]:
        return here(arguments[1])
    known = _known()
    checkouts = {name: Path(where).resolve() for name, _, where in (one.partition("=") for one in arguments) if where}
    names = [one.partition("=")[0] for one in arguments] or list(known)
    wrong = [name for name in names if name not in known]
    if wrong:
        say(f"there is no framework {wrong[0]!r}; there are {', '.join(known)}")
        return 2
    kept = ROOT / "docs" / "frameworks.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    failed = []
    for name in names:
        if "checkout" in known[name] and name not in checkouts:
            say(f"{name}: not run; it needs a checkout of the repository: ./dev frameworks {name}=DIRECTORY")
            continue
        say(f"{name}: its own tests and ours")
        try:
            one = checked(name, known[name], checkouts.get(name))
        except Failed as problem:
            say(str(problem))
            failed.append(name)
            continue
        for part in ("upstream", "ours"):
            if one.get(part, {}).get("status"):
                failed.append(name)
                sys.stdout.write(one[part].pop("said"))
        results[name] = one | {"on": time.strftime("%Y-%m-%d")}
    results = {name: results[name] for name in known if name in results}
    kept.write_text(json.dumps(results, indent=1) + "\n")
    write_table(PAGE, "results", "./dev frameworks", table(results))
    sys.stdout.write(table(results) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
