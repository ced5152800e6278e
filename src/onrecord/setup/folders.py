"""The folders that setup made for its files: removing our part removes those that are empty again, and no others.

They are remembered beside the launcher, each with the number its file system gave it: a folder that someone removed and
made again is theirs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.machine.files import write_file
from onrecord.setup.commands import launcher_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REMEMBERED = "setup-folders.json"


def made_for(path: Path, mode: int) -> list[Path]:
    """Make the folders that a file needs; returns those that were not there, the outermost first."""
    missing = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True, mode=mode)
    return missing[::-1]


def remember(env: Mapping[str, str], folders: Iterable[Path]) -> None:
    """Note that setup made these folders."""
    if new := {str(folder): _number(folder) for folder in folders}:
        _write(env, _known(env) | new)


def remove_empty(env: Mapping[str, str], path: Path) -> None:
    """Remove the folders above a file that is gone, from the inside out, while setup made them and they are empty."""
    before = _known(env)
    known = dict(before)
    for folder in path.parents:
        if str(folder) not in known or known[str(folder)] != _number(folder):
            break
        try:
            folder.rmdir()
        except OSError:
            break  # something else is in it
        del known[str(folder)]
    if known != before:
        _write(env, known)


def _number(folder: Path) -> list[int]:
    try:
        found = folder.lstat()
    except OSError:
        return []
    return [found.st_dev, found.st_ino]


def _file(env: Mapping[str, str]) -> Path:
    return launcher_path(env).parent.parent / REMEMBERED


def _known(env: Mapping[str, str]) -> dict[str, list[int]]:
    try:
        found = json.loads(_file(env).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(env: Mapping[str, str], known: Mapping[str, list[int]]) -> None:
    file = _file(env)
    if not known:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(file, [json.dumps(known, indent=1).encode()])
