"""Which agents are installed here, and how their hooks find onrecord.

What setup writes into a vendor's file is the same on every machine: it names no directory. A hook looks for `onrecord`
on the PATH, like a person; if it is not there, it uses the launcher that setup leaves in the user's data directory when
onrecord runs from an environment that is not on everyone's PATH. If that does not work either, the start of a
conversation says so in one sentence, and no hook ever stops the agent.
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
"""What a hook says at the start of a conversation if onrecord cannot be found."""
FOLDER = "${XDG_DATA_HOME:-$HOME/.local/share}/onrecord/bin"
SCRIPT = (
    f'unset PYTHONPATH PYTHONHOME; PATH="$PATH:{FOLDER}"; "$0" "$@"; s=$?; [ $s -lt 126 ] && exit $s; '
    f'case "$3" in *ession[Ss]tart|session.start) echo "{{\\"systemMessage\\": \\"{GONE}\\"}}";; esac; exit 0'
)
"""Its words are: onrecord hook VENDOR EVENT. A program that is missing (status 126 or 127) is no error of the agent.

The variables are unset because a project may have modules of its own: a `json.py` must not run inside the hook.
"""
HOOK_COMMAND = ("sh", "-c", SCRIPT, "onrecord")
"""How a hook runs onrecord."""
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
    """Where the launcher is, if there is one."""
    base = env.get("XDG_DATA_HOME") or Path(env.get("HOME") or Path.home()) / ".local" / "share"
    return Path(base) / "onrecord" / "bin" / "onrecord"


def public_program(env: Mapping[str, str]) -> str | None:
    """The onrecord that every terminal of this user finds on its PATH: not one in this private environment."""
    private = {str(Path(sys.prefix) / "bin"), str(Path(sys.executable).parent)} if is_private() else set()
    folders = [folder for folder in env.get("PATH", os.defpath).split(os.pathsep) if folder not in private]
    return shutil.which("onrecord", path=os.pathsep.join(folders))


def is_private() -> bool:
    """Whether this Python is an environment of its own, not the system's."""
    return sys.prefix != sys.base_prefix


def launcher_text() -> str:
    """A launcher for the onrecord that runs now, in the way it was run."""
    said = "# Written by `onrecord setup`, for hooks that do not find onrecord on the PATH."
    return f'#!/bin/sh\n{said}\nexec {launch()} "$@"\n'


def launch() -> str:
    """The command that runs this onrecord again: the tool that made its environment for one run, or its Python."""
    here = Path(sys.prefix)
    if "archive-v0" in here.parts or "environments-v2" in here.parts:
        return "uvx onrecord"
    if ".cache" in here.parts and "pipx" in here.parts:
        return "pipx run onrecord"
    if is_found_isolated():
        return shlex.join([sys.executable, "-I", "-m", "onrecord"])
    return shlex.join(["env", f"PYTHONPATH={_PACKAGE.parent.parent}", sys.executable, "-P", "-m", "onrecord"])


def is_found_isolated() -> bool:
    """Whether this Python finds this onrecord without PYTHONPATH and the working directory (`-I`)."""
    ask = [sys.executable, "-I", "-c", "import onrecord; print(onrecord.__file__)"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=LOOK_SECONDS, cwd="/").stdout
    except (OSError, subprocess.SubprocessError):
        told = ""
    return told.strip() == str(_PACKAGE)


def leave_launcher(env: Mapping[str, str]) -> Path | None:
    """Write the launcher, if hooks need it; returns its path, or None if every terminal finds onrecord anyway."""
    if public_program(env):
        return None
    path, text = launcher_path(env), launcher_text().encode()
    if not path.is_file() or path.read_bytes() != text:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, [text], exact_mode=LAUNCHER_MODE)
    return path


def found_by_hooks(env: Mapping[str, str]) -> Found:
    """The onrecord that a hook runs in this environment."""
    look = [*HOOK_COMMAND[:2], SCRIPT.partition('"$0"')[0] + 'command -v "$0"', HOOK_COMMAND[-1]]
    try:
        asked = subprocess.run(look, capture_output=True, text=True, check=False, timeout=LOOK_SECONDS, env=env)
        program = asked.stdout.strip()
        if not program:
            return Found("", "")
        told = subprocess.run(
            [program, "version"], capture_output=True, text=True, check=False, timeout=LOOK_SECONDS, env=env
        )
    except (OSError, subprocess.SubprocessError):
        return Found("", "")
    return Found(program, told.stdout.strip() if told.returncode == 0 else "")
