"""Config homes rebuilt from files of the real programs, and the payloads they sent."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onrecord.rules import ToolRequest
    from onrecord.vendors.hooks import HookCall
    from onrecord.vendors.port import Location, Vendor

DATA = Path(__file__).with_name("data")
PAYLOADS = Path(__file__).parent.parent / "hook" / "payloads"


def copied(vendor: str, home: Path) -> Path:
    """A config home with the vendor's files in it."""
    shutil.copytree(DATA / vendor, home)
    return home


def lines(vendor: str, name: str = "stream.jsonl") -> list[str]:
    return (DATA / vendor / name).read_text(encoding="utf-8").splitlines()


def recorded(vendor: str) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """The payloads the program sent, with their events."""
    for line in (PAYLOADS / f"{vendor}.jsonl").read_text(encoding="utf-8").splitlines():
        about = json.loads(line)
        yield about["event"], about["payload"], about.get("env", {})


def opencode_database(path: Path, *, rows: bool) -> None:
    """Opencode's database with its real schema, with or without its rows."""
    path.parent.mkdir(parents=True)
    database = sqlite3.connect(path)
    database.executescript((DATA / "opencode" / "schema.sql").read_text(encoding="utf-8"))
    kept = json.loads((DATA / "opencode" / "rows.json").read_text(encoding="utf-8")) if rows else {}
    for table in ("project", "session", "message", "part") if rows else ():
        for row in kept[table]:
            put_row(database, table, row)
    database.commit()
    database.close()


def put_row(database: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    values = [json.dumps(value) if isinstance(value, dict | list) else value for value in row.values()]
    marks = ", ".join("?" * len(values))
    database.execute(f"INSERT OR REPLACE INTO {table} ({', '.join(row)}) VALUES ({marks})", values)


def processes_file(home: Path, about: dict[str, Any], **changed: Any) -> None:
    """The file a running process keeps about itself."""
    folder = home / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    whole = about | changed
    (folder / f"{whole['pid']}.json").write_text(json.dumps(whole))


def at(of: "Vendor", vendor_id: str, env: dict[str, str]) -> "Location":
    """The location of a conversation that must exist."""
    found = of.find(vendor_id, env)
    assert found is not None, f"{vendor_id} is not there"
    return found


def wanted(of: "Vendor", call: "HookCall") -> "ToolRequest":
    """What a tool is about to do, for the gate."""
    asked = of.tool_request(call, "w")
    assert asked is not None, f"{call.tool} asks for nothing"
    return asked
