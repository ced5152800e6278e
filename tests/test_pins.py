"""Dependencies: everything that is installed is pinned, so what was tested is what an audit compares with advisories."""

import importlib.util
import json
import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
OURS_AND_INSTALLERS = {"onrecord", "pip", "setuptools", "wheel"}
"""Not dependencies: the project, and what came with the environment."""
EXACT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.+!]*)(?: *;.*)?")


FRAMEWORKS = sorted((ROOT / "tools" / "pins").glob("*.txt"))
"""The pins of agent frameworks that are tested in environments of their own."""


def pinned(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    found = [EXACT.fullmatch(line) for line in lines]
    assert None not in found, "every line is one name and one exact version: no host, no file, no range"
    pairs = [(canonicalize_name(one[1]), one[2]) for one in found if one]
    assert len(pairs) == len(dict(pairs)), "no name twice"
    return dict(pairs)


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    return pinned(ROOT / "constraints.txt")


def test_every_dependency_is_pinned_within_what_it_may_be(pins):
    """Those of the core, of every extra and of the build: with a pin each, which the requirement allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    listed = [project["project"]["dependencies"], project["build-system"]["requires"], *extras.values()]
    wanted = [Requirement(line) for lines in listed for line in lines]
    assert len(wanted) > 20, "the control"
    everywhere = [pins, *map(pinned, FRAMEWORKS)]
    for one in wanted:
        name = canonicalize_name(one.name)
        versions = [found[name] for found in everywhere if name in found]
        assert name == "onrecord" or any(one.specifier.contains(it, prereleases=True) for it in versions), one


def test_what_is_tested_is_what_is_pinned(pins):
    """Every installed distribution has the pinned version, indirect ones included."""
    installed = {canonicalize_name(one.metadata["Name"]): one.version for one in distributions()}
    assert len(installed) > 50, "the control"
    other = {name: version for name, version in installed.items() if pins.get(name) != version}
    assert other.keys() <= OURS_AND_INSTALLERS, other


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_audit_without_advisories_does_not_pass(audit):
    """pip-audit skips what it cannot look up, says that it found nothing, and exits with 0."""
    sound = {"name": "a", "version": "1", "vulns": []}
    skipped = {"name": "b", "skip_reason": "could not be audited"}
    bad = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
    assert audit.judged({"dependencies": [sound, sound]}, 2) == (["2 pins compared: no advisory concerns them"], 0)
    lines, status = audit.judged({"dependencies": [sound, skipped]}, 2)
    assert (status, lines[0][:32]) == (audit.NOT_COMPARED, "1 of 2 pins could not be compare")
    assert audit.judged({"dependencies": [sound]}, 2)[1] == audit.NOT_COMPARED, "left out is not compared either"
    assert audit.judged({"dependencies": [bad, skipped]}, 2)[1] == audit.FOUND
    assert audit.judged({"dependencies": [bad]}, 1) == (["c 2: PYSEC-1, fixed in 3"], audit.FOUND)


def test_no_pin_has_an_advisory_that_is_kept_here(audit):
    """Every pin, also of agent frameworks, is compared with the advisories that the repository has; old pins are found."""
    kept = json.loads(audit.KEPT.read_text())
    assert (kept["source"], len(kept["commit"]), kept["date"][:2]) == (audit.SOURCE, 40, "20")
    assert audit.concerning(kept, [pin for file in audit.PINS for pin in audit.pinned(file)]) == []
    assert sum(map(len, kept["advisories"].values())) > 100
    old = [("aiohttp", "3.7.3"), ("aiohttp", "3.7.4"), ("jinja2", "2.11.2"), ("requests", "2.30.0")]
    found = audit.concerning(kept, old)
    assert "aiohttp 3.7.3: PYSEC-2021-76" in found, "the control"
    assert not any(one.startswith("aiohttp 3.7.4: PYSEC-2021-76") for one in found), "it is mended there"
    assert any(one.startswith("jinja2") for one in found)
    assert any(one.startswith("requests") for one in found)


def test_a_range_without_an_end_concerns_every_later_version(audit):
    """An advisory that nothing mends concerns a pin until the name is given up."""
    kept = {"advisories": {"a": [{"id": "X", "ranges": [["1.0", None]]}, {"id": "Y", "ranges": [["0", "0.9"]]}]}}
    assert audit.concerning(kept, [("a", "99"), ("a", "0.9.1"), ("b", "1")]) == ["a 99: X"]
