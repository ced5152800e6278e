"""Vendors that keep a file per conversation in a folder per project, and a file per running process."""

from __future__ import annotations

from onrecord.vendors.base import text
from onrecord.vendors.claude_shaped import Shaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from onrecord.vendors.transcripts import Location


class ByProject(Shaped):
    """Finds such a vendor's conversations."""

    folders = "projects/*"
    """The folders with conversations, from the home."""

    if TYPE_CHECKING:

        def home(self, env: Mapping[str, str]) -> Path:
            """The vendor's config home."""

    def locate(self, pid: int, env: Mapping[str, str]) -> str | None:
        """By the file that each running process keeps; it follows new ids, and may belong to a child."""
        from onrecord.vendors.processes import conversation_of

        found = conversation_of(pid, self.home(env) / "sessions")
        return found if self.is_id(found) else None

    def holders(self, location: Location, env: Mapping[str, str]) -> Iterable[int]:
        """The running processes with a file that names the conversation."""
        from onrecord.vendors.processes import holders_of

        return holders_of(location.vendor_id, self.home(env) / "sessions")

    def find(self, vendor_id: str, env: Mapping[str, str]) -> Location | None:
        """In any project's folder; the id is unique."""
        if not self.is_id(vendor_id):
            return None
        home = self.home(env)
        found = sorted(home.glob(f"{self.folders}/{vendor_id}.jsonl"))
        return self._location(found[0], home) if found else None

    def locations(self, env: Mapping[str, str]) -> Iterator[Location]:
        """Every conversation of every project."""
        home = self.home(env)
        for path in sorted(home.glob(f"{self.folders}/*.jsonl")):
            if self.is_id(path.stem):
                yield self._location(path, home)

    def _location(self, path: Path, home: Path) -> Location:
        from onrecord.vendors.jsonl import first_record
        from onrecord.vendors.transcripts import Location

        first = first_record(str(path), lambda record: bool(record.get("cwd"))) or {}
        return Location(path.stem, str(path), str(home), text(first.get("cwd")))
