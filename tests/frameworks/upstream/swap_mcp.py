"""A pytest plugin for the tests of the MCP SDK: their `SequencedEventStore` becomes our store.

`./dev frameworks mcp` runs them with it, under BlockBuster: a store that blocks the event loop fails.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio

import onrecord
from onrecord.frameworks.mcp_events import OnrecordEventStore

_place = Path(__import__("tempfile").mkdtemp())
_stores: list[Any] = []


class Swapped(OnrecordEventStore):
    """Our store, with the two things that only the tests ask of theirs."""

    count = 0

    def __init__(self) -> None:
        if not _stores:
            _stores.append(onrecord.connect(str(_place / "x.db"), project="upstream"))
        Swapped.count += 1
        super().__init__(f"server-{Swapped.count}", _stores[0])

    async def wait_until_stored(self, count: int) -> None:
        while len(self._kept.entries) < count:  # noqa: ASYNC110  # another server may store them
            await anyio.sleep(0.005)

    @property
    def _events(self) -> list[tuple[str, Any]]:
        from mcp_types import jsonrpc_message_adapter

        rows = [json.loads(one.line) for one in self._kept.entries.values()]
        return [(stream, body and jsonrpc_message_adapter.validate_python(body)) for stream, body in rows]


_stores.append(onrecord.connect(str(_place / "x.db"), project="upstream"))
_stores[0].sessions()  # opens the file now, outside of any event loop


def pytest_collection_finish() -> None:
    """Put our store into the modules of the tests."""
    for module in list(sys.modules.values()):
        if getattr(getattr(module, "SequencedEventStore", None), "__name__", "") == "SequencedEventStore":
            module.SequencedEventStore = Swapped  # type: ignore[attr-defined]  # that is the purpose
