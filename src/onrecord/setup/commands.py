"""Which agents are installed here, and how their hooks find onrecord.

What setup writes into a vendor's file is the same on every machine: it names no directory of an installation. A hook
runs the `onrecord` on the PATH, like a person; if there is none, the launcher that setup leaves in the user's data
directory, which runs the onrecord that ran setup. If that is gone too, the launcher says so at the start of a
conversation, in one sentence, and no hook ever stops the agent.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onrecord.machine.files import write_file
from onrecord.vendors.port import VENDORS, vendor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.vendors.port import Vendor

LOOK_SECONDS = 20.0
"""How long a program may take to report which onrecord it is."""
GONE = "onrecord is no longer installed, so this conversation is not recorded: install it, or remove its hooks"
"""What the launcher says at the start of a conversation if it cannot run onrecord."""
LAUNCHER = Path(".local", "share", "onrecord", "bin", "onrecord")
"""Where the launcher is, below the user's home."""
HOOK_COMMAND = ("sh", "-c", f'unset PYTHONPATH; "$0" "$@" || "$HOME/{LAUNCHER.parent}/$0" "$@" || :', "onrecord")
"""How a hook runs onrecord; `hook VENDOR EVENT` follows. A hook of ours has status 0 whatever happens to it.

The variable is unset because a project may have modules of its own: its `json.py` must not run inside the hook.
"""
SERVER_COMMAND = (
    "sh", "-c",
    f'unset PYTHONPATH; command -v "$0" >/dev/null 2>&1 || PATH="$HOME/{LAUNCHER.parent}:$PATH"; exec "$0" "$@"',
    "onrecord", "mcp",
)  # fmt: skip
"""How an MCP client starts our server: the same onrecord as a hook's."""
UVX, PIPX_RUN = "uvx onrecord", "pipx run onrecord"
"""Commands that make an environment for one run of onrecord."""
_PACKAGE = Path(__file__).parent.parent / "__init__.py"
LAUNCHER_MODE = 0o700


class Found(NamedTuple):
    """The onrecord that a hook would run."""

    program: str
    """Its path; empty if there is none."""
    version: str
    """What it reports; empty if it cannot be run."""


def installed_vendors() -> list[Vendor]:
    """Agents with a program on PATH or a home here."""
    found = []
    for name in VENDORS:
        one = vendor(name)
        if any(shutil.which(program) for program in one.programs) or one.home(os.environ).is_dir():
            found.append(one)
    return found


def launcher_path(env: Mapping[str, str]) -> Path:
    """Where this user's launcher is."""
    return Path(env.get("HOME") or Path.home()) / LAUNCHER


def launcher_text() -> str:
    """A launcher for the onrecord that runs now, in the way it was run."""
    return (
        "#!/bin/sh\n# Written by `onrecord setup`, for hooks that do not find onrecord on the PATH.\n"
        f'{launch()} "$@" && exit\n'
        'case "$2 $3" in\n'
        f"""'copilot sessionStart') echo '{{"type": "progress", "message": "{GONE}"}}' ;;\n"""
        f"""*ession[Ss]tart | *session.start) echo '{{"systemMessage": "{GONE}"}}' ;;\nesac\n"""
    )


def launch() -> str:
    """The command that runs this onrecord again: the tool that made its environment for one run, or its Python."""
    if runner := for_one_run():
        return runner
    if is_found_isolated():
        return shlex.join([sys.executable, "-I", "-m", "onrecord"])
    return shlex.join(["env", f"PYTHONPATH={_PACKAGE.parent.parent}", sys.executable, "-P", "-m", "onrecord"])


def for_one_run() -> str:
    """The command that made this environment for one run (`uvx onrecord`); empty if onrecord is installed."""
    here = Path(sys.prefix).parts
    if "archive-v0" in here or "environments-v2" in here:
        return UVX
    return PIPX_RUN if ".cache" in here and "pipx" in here else ""


def installing_with(extra: str = "") -> str:
    """The command that installs onrecord, with an extra, in the way this one was installed."""
    what = f'"onrecord[{extra}]"' if extra else "onrecord"
    here, runner = Path(sys.prefix), for_one_run()
    if runner == UVX or (here / "uv-receipt.toml").is_file():
        return f"uv tool install {what}"
    if runner == PIPX_RUN or (here / "pipx_metadata.json").is_file():
        return f"pipx install --force {what}"
    return f"pip install {what}"


def is_found_isolated() -> bool:
    """Whether this Python finds this onrecord without PYTHONPATH and the working directory (`-I`)."""
    ask = [sys.executable, "-I", "-c", "import onrecord; print(onrecord.__file__)"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=LOOK_SECONDS, cwd="/").stdout
    except (OSError, subprocess.SubprocessError):
        told = ""
    return told.strip() == str(_PACKAGE)


def has_server() -> bool:
    """Whether the package that the MCP server needs is installed beside this onrecord."""
    from importlib.util import find_spec

    return find_spec("mcp") is not None


def leave_launcher(env: Mapping[str, str]) -> Path:
    """Write the launcher, unless it is there; returns its path."""
    path, text = launcher_path(env), launcher_text().encode()
    if not path.is_file() or path.read_bytes() != text:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, [text], exact_mode=LAUNCHER_MODE)
    return path


def found_by_hooks(env: Mapping[str, str]) -> Found:
    """The onrecord that a hook runs in this environment."""
    launcher = launcher_path(env)
    program = shutil.which(HOOK_COMMAND[-1], path=env.get("PATH")) or (str(launcher) if launcher.is_file() else "")
    if not program:
        return Found("", "")
    try:
        told = subprocess.run(
            [program, "version"], capture_output=True, text=True, check=False, timeout=LOOK_SECONDS, env=env
        )
    except (OSError, subprocess.SubprocessError):
        return Found(program, "")
    return Found(program, told.stdout.strip() if told.returncode == 0 else "")
