"""Compares every pinned dependency with the published advisories: `./dev audit`.

pip-audit does it, in an environment of its own that is removed afterwards. Where it cannot reach the advisories it
skips every package and still says that it knows of no vulnerability; here that is a failure.

The tests run without a network. They compare the pins with the advisories in tools/advisories.json, which is as old as
it says (tests/test_pins.py). `python tools/audit.py --keep FOLDER` writes it from a clone of pypa/advisory-database.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PINS = (ROOT / "constraints.txt", *sorted((ROOT / "tools" / "pins").glob("*.txt")))
"""Those of the tests, and of the agent frameworks that are tested in environments of their own."""
KEPT = ROOT / "tools" / "advisories.json"
SOURCE = "https://github.com/pypa/advisory-database"
FOUND, NOT_COMPARED = 1, 75
"""Exit statuses: advisories that concern a pin; pins that could not be compared."""


def judged(report: dict[str, Any], wanted: int) -> tuple[list[str], int]:
    """What a report of pip-audit means, as lines and an exit status; `wanted` is the number of pins."""
    compared = [one for one in report["dependencies"] if "skip_reason" not in one]
    found = [
        f"{one['name']} {one['version']}: {bug['id']}, fixed in {', '.join(bug['fix_versions']) or 'no version yet'}"
        for one in compared
        for bug in one["vulns"]
    ]
    if missing := wanted - len(compared):
        told = f"{missing} of {wanted} pins could not be compared: the advisories could not be reached"
        return [*found, told], FOUND if found else NOT_COMPARED
    return found or [f"{wanted} pins compared: no advisory concerns them"], FOUND if found else 0


def pinned(file: Path) -> list[tuple[str, str]]:
    """The names, in their canonical form, and versions in a file of pins."""
    found = (re.match(r"([A-Za-z0-9._-]+)==([^ ;]+)", line) for line in file.read_text().splitlines())
    return [(re.sub(r"[-_.]+", "-", one[1]).lower(), one[2]) for one in found if one]


def concerning(kept: dict[str, Any], pins: list[tuple[str, str]]) -> list[str]:
    """The advisories that concern one of these pins."""
    from packaging.version import Version

    return [
        f"{name} {version}: {one['id']}"
        for name, version in pins
        for one in kept["advisories"].get(name, ())
        if any(
            Version(first) <= Version(version) and (fixed is None or Version(version) < Version(fixed))
            for first, fixed in one["ranges"]
        )
    ]


def _git(folder: str, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout


def _ranges(affected: dict[str, Any]) -> list[list[str | None]]:
    """The ranges of versions: from the first affected one up to the one that mends it, which may not exist."""
    found: list[list[str | None]] = []
    for one in affected.get("ranges", ()):
        for event in one["events"] if one["type"] == "ECOSYSTEM" else ():
            if "introduced" in event:
                found.append([str(event["introduced"]), None])
            elif "fixed" in event:
                found[-1][1] = str(event["fixed"])
    return found


def keep(folder: str) -> int:
    """Write what a clone of the advisories says about the pinned names."""
    import yaml  # type: ignore[import-untyped]  # only this function needs it

    names = sorted({name for file in PINS for name, _version in pinned(file)})
    files = _git(folder, "ls-tree", "-r", "--name-only", "HEAD", "vulns").split()
    advisories: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        name = file.split("/")[1]
        if name not in names:
            continue
        one = yaml.safe_load(_git(folder, "show", f"HEAD:{file}"))
        ranges = [pair for affected in one["affected"] for pair in _ranges(affected)]
        if ranges and "withdrawn" not in one:
            advisories.setdefault(name, []).append({"id": one["id"], "ranges": ranges})
    commit, date = _git(folder, "log", "-1", "--format=%H %cs").split()
    about = json.dumps({"source": SOURCE, "commit": commit, "date": date})[1:-1]
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(advisories.items()))
    KEPT.write_text(f'{{{about}, "advisories": {{\n{rows}\n}}}}\n')
    print(f"{sum(map(len, advisories.values()))} advisories of {date} about {len(advisories)} of {len(names)} names")
    return 0


def main() -> int:
    """Audit every file of pins and print what was found."""
    worst = 0
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        programs = Path(place) / "bin"
        subprocess.run([str(programs / "pip"), "install", "--quiet", "pip-audit"], check=True)
        for file in PINS:
            words = ["-r", str(file), "--no-deps", "--disable-pip", "--format", "json"]
            done = subprocess.run([str(programs / "pip-audit"), *words], capture_output=True, text=True, check=False)
            report = json.loads(done.stdout) if done.stdout.startswith("{") else {"dependencies": []}
            lines, status = judged(report, len(pinned(file)))
            print("\n".join(f"{file.relative_to(ROOT)}: {line}" for line in lines))
            worst = FOUND if FOUND in (worst, status) else worst or status
    return worst


if __name__ == "__main__":
    sys.exit(keep(sys.argv[2]) if sys.argv[1:2] == ["--keep"] else main())
