"""Which agents are installed here, and the command by which their hooks run this very onrecord."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onrecord.vendors.port import VENDORS, vendor

if TYPE_CHECKING:
    from onrecord.vendors.port import Vendor

LOOK_SECONDS = 20.0
"""How long an interpreter may take to report which onrecord it imports."""


_PACKAGE = Path(__file__).parent.parent / "__init__.py"


class HookCommand(NamedTuple):
    """How a hook runs onrecord."""

    words: list[str]
    is_found_anywhere: bool
    """Whether every process finds this onrecord; False when it takes PYTHONPATH."""


def installed_vendors() -> list[Vendor]:
    """Agents with a program on PATH or a home here."""
    found = []
    for name in VENDORS:
        one = vendor(name)
        if any(shutil.which(program) for program in one.programs) or one.home(os.environ).is_dir():
            found.append(one)
    return found


def hook_command() -> HookCommand:
    """How a hook runs this very onrecord, from whatever directory and environment the agent gives it.

    `-I` keeps modules of the agent's directory and its PYTHON variables out: a project that has a `json.py` must not
    run inside the hook. If this onrecord is found through PYTHONPATH only, `-P` keeps the directory out.
    """
    isolated = [sys.executable, "-I", "-m", "onrecord"]
    ask = [*isolated[:2], "-c", "import onrecord; print(onrecord.__file__)"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=LOOK_SECONDS, cwd="/").stdout
    except (OSError, subprocess.SubprocessError):
        told = ""
    if told.strip() == str(_PACKAGE):
        return HookCommand(isolated, is_found_anywhere=True)
    return HookCommand([sys.executable, "-P", "-m", "onrecord"], is_found_anywhere=False)
