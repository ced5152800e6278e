"""The official conformance suite and the inspector's command line against our server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onrecord.connection import connect
from onrecord.surfaces.mcp.schemas import TOOLS
from tests.e2e.install import CannotInstall, cache, ensure
from tests.skips import in_ci

HERE = Path(__file__).parent
INSTALLING_TOO_SECONDS = 600
PATIENCE_SECONDS = 300
"""For one run of a program: far more than it needs, also on a busy machine."""
REVISIONS = {"2025-11-25": 60, "2026-07-28": 120}
"""The revisions that are served, and how many checks pass at least: a suite that ran nothing would have no failures."""


def program(name: str) -> tuple[list[str], dict[str, str]]:
    """A program of the npm registry: its command and the environment it runs in."""
    try:
        found = ensure(name)
    except CannotInstall as why:
        if in_ci():
            pytest.fail(f"CI tests the protocol: {why}", pytrace=False)
        pytest.skip(f"cannot run here: {why}")
    path = os.pathsep.join([*map(str, found.path), os.environ.get("PATH", os.defpath)])
    return [str(found.command)], os.environ | {"PATH": path, "NODE_COMPILE_CACHE": str(cache() / "node-compiled")}


@pytest.fixture(scope="session")
def conformance() -> tuple[list[str], dict[str, str]]:
    """Found before a test has a home of its own: the cache is in the person's."""
    return program("conformance")


@pytest.fixture(scope="session")
def inspector() -> tuple[list[str], dict[str, str]]:
    return program("inspector")


@pytest.fixture
def served(project) -> Iterator[str]:
    """Our server with the suite's fixtures; its URL."""
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    server = subprocess.Popen([sys.executable, "-m", "tests.mcp.fixtures"], stdout=subprocess.PIPE, env=env)
    assert server.stdout is not None
    yield server.stdout.readline().decode().strip()
    server.terminate()
    server.stdout.close()
    server.wait(90)


@pytest.mark.timeout(INSTALLING_TOO_SECONDS)
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_server_conforms(conformance, served, tmp_path, revision):
    """Every scenario of the suite passes except those that are listed with a reason; none of those passes by now."""
    command, env = conformance
    expected = HERE / "conformance" / f"{revision}.yml"
    wanted = ["server", "--url", served, "--requirements", revision, "--expected-failures", str(expected)]
    done = subprocess.run(
        [*command, *wanted],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-1_000:]
    passed = int(done.stdout.partition("Total: ")[2].split()[0])
    assert passed >= REVISIONS[revision], done.stdout[-2_000:]


@pytest.mark.timeout(INSTALLING_TOO_SECONDS)
def test_the_inspector_reads_and_calls(inspector, tools, tmp_path):
    """The inspector's command line accepts every schema, calls a tool, and reads a resource and a prompt, over stdio."""
    command, env = inspector[0], os.environ | {name: inspector[1][name] for name in ("PATH", "NODE_COMPILE_CACHE")}
    server = [sys.executable, "-m", "onrecord", "mcp"]

    def inspected(*words: str) -> dict[str, Any]:
        asked = [
            *command,
            "--cli",
            "--connect-timeout",
            "60000",
            "-e",
            f"ONRECORD_STORE={os.environ['ONRECORD_STORE']}",
            *server,
            *words,
        ]
        done = subprocess.run(asked, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, done
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    listed = inspected("--method", "tools/list", "--strict")
    assert [tool["name"] for tool in listed["tools"]] == list(TOOLS)
    fact = ("--tool-arg", "kind=decision", "--tool-arg", "text=From the inspector")
    assert inspected("--method", "tools/call", "--tool-name", "record", *fact)["structuredContent"]["position"] == 2
    uri = "onrecord://sessions/fix-403/brief"
    assert "Fix the 403" in inspected("--method", "resources/read", "--uri", uri)["contents"][0]["text"]
    with connect() as records:
        assert [event.data["text"] for event in records.get("fix-403").events(kinds=["decision.made"])] == [
            "From the inspector"
        ]
