"""The apsw with ciphers, in a directory of its own: `python tools/ciphers.py` makes it if needed and prints its path.

`apsw-sqlite3mc` has the module name of `apsw`, so the two cannot be installed side by side. A process with this
directory at the front of PYTHONPATH uses the one with ciphers; everything else comes from its environment as usual.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "tools" / "pins" / "ciphers.txt"
PLACE = ROOT / ".venvs" / "ciphers"


def library() -> Path:
    """The directory, made again if the pins or the Python have changed."""
    wanted = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()
    stamp = PLACE / "onrecord.stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return PLACE
    part = PLACE.with_name(f"ciphers.part-{os.getpid()}")
    subprocess.run(
        [*installer(), "--no-deps", "--target", str(part), "-r", str(PINS)], check=True, stdout=subprocess.DEVNULL
    )
    (part / stamp.name).write_text(wanted)
    shutil.rmtree(PLACE, ignore_errors=True)
    part.rename(PLACE)
    return PLACE


def installer() -> list[str]:
    """The command that installs packages: pip, or uv where an environment has no pip."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--no-input", "install"]
    return ["uv", "--quiet", "pip", "install", "--python", sys.executable]


if __name__ == "__main__":
    print(library())
