"""Further files of a conversation: the transcripts of subagents and the results of tools, found and written back."""

from __future__ import annotations

import os

from onrecord.agents.generations import besides, generations, kept
from onrecord.lean_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onrecord.session.handle import Session
    from onrecord.vendors.port import Location, Vendor

RECORDS = ".jsonl"
"""How the names of transcripts end, among the further files of a conversation."""
FILES_LIMIT = 2_000
"""How many further files of one conversation are kept."""
FILE_LIMIT = 8 * 1024 * 1024
"""The largest file beside a conversation that is kept, in bytes; transcripts may be larger."""
NAME_LIMIT = 100
"""The longest name of such a file, in characters."""

_read_before: dict[tuple[str, str], tuple[int, int]] = {}
"""Sizes and times of files as this process read them; it only saves time."""


def files_beside(of: Vendor, location: Location, session: str) -> Iterator[tuple[str, Path]]:
    """The further files of a conversation that changed since this process read them, by their names in its folder."""
    found = of.beside(location)
    if found is None or not os.path.isdir(found):
        return
    from pathlib import Path

    folder = Path(found)
    for path in sorted(folder.rglob("*"))[:FILES_LIMIT]:
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_file() or len(name) > NAME_LIMIT or not name.isprintable():
            continue
        about = path.stat()
        now = about.st_size, about.st_mtime_ns
        if (about.st_size <= FILE_LIMIT or path.suffix == RECORDS) and _read_before.get((session, str(path))) != now:
            yield name, path
            _read_before[(session, str(path))] = now


def put_files_back(session: Session, of: Vendor, location: Location) -> list[Path]:
    """Write the further files of a conversation back into its folder; one that is there stays as it is."""
    from pathlib import Path, PurePosixPath

    from onrecord.machine.files import write_file

    found, written = of.beside(location), []
    if found is None:
        return []
    folder = Path(found)
    for name in besides(session, of.name, location.vendor_id):
        path, parts = folder / name, PurePosixPath(name).parts
        if not parts or parts[0] == "/" or ".." in parts or path.exists():
            continue  # the record may come from elsewhere: it names no other place than this folder
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        end, newest = ("\n", None) if path.suffix == RECORDS else ("", _newest(session, of, location, name))
        records = kept(session, of.name, location.vendor_id, beside=name, generation=newest)
        write_file(path, (f"{one.raw}{end}".encode() for one in records), replace=False)
        written.append(path)
    return written


def _newest(session: Session, of: Vendor, location: Location, name: str) -> int:
    """A file that is no transcript is replaced as a whole: its newest version counts."""
    return max(generations(session, of.name, location.vendor_id, name), default=0)
