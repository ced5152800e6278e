"""Where Gemini CLI keeps the conversations of a directory: its list of projects, folders and file names."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.machine.files import read_regular
from onrecord.vendors.base import settings_at, text
from onrecord.vendors.jsonl import write_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.vendors.transcripts import Location

FILE_NAME = r"session-\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-{}\.jsonl"


def folder_for(cwd: str, home: Path) -> Path:
    """The folder of a directory: the existing one, or a new one with a free name."""
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
    """The file name of a conversation, original or made from the time in its head; and its unchanged lines."""
    pattern = FILE_NAME.replace("{}", re.escape(vendor_id[:8]))
    if re.fullmatch(pattern, name := os.path.basename(path)):  # noqa: PTH119 - a name of another machine, not a path here
        return name, entries
    first = next(entries, "{}")
    begun = text(json.loads(first).get("startTime"))[:16].replace(":", "-")
    name = f"session-{begun}-{vendor_id[:8]}.jsonl"
    if not re.fullmatch(pattern, name):
        raise InvalidInput("the mirrored conversation does not begin with a head record", hint="import it again")
    return name, chain([first], entries)


def with_head(entries: Iterator[str], vendor_id: str, cwd: str) -> Iterator[str]:
    """The lines of a conversation, with a head if they have none."""
    first = next(entries, None)
    if first is None:
        return iter(())
    whole = chain([first], entries)
    return whole if '"projectHash"' in first else chain([head_of(vendor_id, cwd, first)], whole)


def head_of(vendor_id: str, cwd: str, first: str) -> str:
    """A head as Gemini writes it; it began with its first record."""
    try:
        record = json.loads(first)
        begun = text(record.get("timestamp")) if isinstance(record, dict) else ""
    except ValueError:
        begun = ""
    begun = begun or datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps(
        {
            "sessionId": vendor_id, "projectHash": sha256(cwd.encode()).hexdigest(), "startTime": begun,
            "lastUpdated": begun, "kind": "main",
        },
        separators=(",", ":"),
    )  # fmt: skip


def write_head(location: Location) -> None:
    """Put a head before the lines of a file that lost it."""
    path = Path(location.path)
    lines = path.read_text(encoding="utf-8")
    first = next((line for line in lines.splitlines() if line.strip()), "")
    if '"projectHash"' not in first:
        write_over(path, f"{head_of(location.vendor_id, location.cwd, first)}\n{lines}")


def in_project(raw: str, cwd: str, *, moved: bool) -> str:
    """A line for the project of `cwd`: a head names the project by a digest of its directory."""
    if not moved or '"projectHash"' not in raw:
        return raw
    record = json.loads(raw)
    if not isinstance(record, dict) or "projectHash" not in record:
        return raw
    return json.dumps(record | {"projectHash": sha256(cwd.encode()).hexdigest()}, separators=(",", ":"))


def retention_in(settings: Path) -> dict[str, Any]:
    """The retention in its settings; empty if they say nothing."""
    general = settings_at(settings).get("general")
    retention = general.get("sessionRetention") if isinstance(general, dict) else None
    return retention if isinstance(retention, dict) else {}


def switch_retention_off(path: Path) -> None:
    """Set only this in its settings."""
    settings = settings_at(path)
    if path.exists() and not settings and read_regular(path).strip() not in (b"", b"{}"):
        raise InvalidInput(f"{path} is not plain JSON", hint="set general.sessionRetention.enabled to false by hand")
    general = settings.get("general") if isinstance(settings.get("general"), dict) else {}
    settings["general"] = {**(general or {}), "sessionRetention": {**retention_in(path), "enabled": False}}
    write_over(path, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
