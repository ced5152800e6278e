"""Where Gemini CLI keeps the conversations of a directory: its list of projects, folders and file names."""

from __future__ import annotations

import json
import os
import re
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.errors import InvalidInput
from onrecord.vendors.base import settings_at, text
from onrecord.vendors.jsonl import write_over

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_NAME = r"session-\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-{}\.jsonl"


def folder_for(cwd: str, home: Path) -> Path:
    """The folder of a directory: the one it has, or a new one under a free name."""
    listed = settings_at(home / "projects.json")
    projects = listed.get("projects") if isinstance(listed.get("projects"), dict) else {}
    slugs: dict[str, str] = {root: slug for root, slug in (projects or {}).items() if isinstance(slug, str)}
    slug = slugs.get(cwd, "")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", slug):
        base = re.sub(r"[^a-z0-9]+", "-", Path(cwd).name.lower()).strip("-") or "project"
        taken = set(slugs.values()) | {path.name for path in (home / "tmp").glob("*")}
        slug = next(
            name for number in range(len(taken) + 1) if (name := f"{base}-{number}" if number else base) not in taken
        )
        write_over(home / "projects.json", json.dumps(listed | {"projects": slugs | {cwd: slug}}, indent=2) + "\n")
    folder = home / "tmp" / slug
    if not (folder / ".project_root").exists():
        write_over(folder / ".project_root", cwd)
    return folder


def name_of(path: str, vendor_id: str, entries: Iterator[str]) -> tuple[str, Iterator[str]]:
    """The file name a conversation had, or has by the time in its head; and its lines, untouched."""
    pattern = FILE_NAME.replace("{}", re.escape(vendor_id[:8]))
    if re.fullmatch(pattern, name := os.path.basename(path)):  # noqa: PTH119 - a name of another machine, not a path here
        return name, entries
    first = next(entries, "{}")
    begun = text(json.loads(first).get("startTime"))[:16].replace(":", "-")
    name = f"session-{begun}-{vendor_id[:8]}.jsonl"
    if not re.fullmatch(pattern, name):
        raise InvalidInput("the mirrored conversation does not start with its header", hint="import it again")
    return name, chain([first], entries)


def in_project(raw: str, cwd: str, *, moved: bool) -> str:
    """A line as it belongs into the project of `cwd`: a head names the project by a digest of its directory."""
    if not moved or '"projectHash"' not in raw:
        return raw
    record = json.loads(raw)
    if not isinstance(record, dict) or "projectHash" not in record:
        return raw
    return json.dumps(record | {"projectHash": sha256(cwd.encode()).hexdigest()}, separators=(",", ":"))
