"""A pytest plugin for the tests of Strands: their `InMemoryStorage` and `LocalFileStorage` become our storage.

`./dev frameworks strands-storage` runs them with it. Tests of its private dictionary, its `clear`, its own class of
namespaces and its search strategies are not portable, and left out.
"""

import inspect
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import strands.storage
import strands.storage.in_memory_storage

import onrecord
from onrecord.frameworks.strands_storage import OnrecordStorage

INTERNALS = (
    "clear()", "isinstance(", "search_strategy", "_store", "_NAMESPACED", "namespace(", "_ephemeral", "os.path", '"inline"',
    '== "LocalFileStorage"',
)  # fmt: skip
_place = Path(tempfile.mkdtemp())


class Swapped(OnrecordStorage):
    """Our storage with the constructors of theirs: in a new file, or in one that belongs to a directory."""

    count = 0

    def __init__(self, directory: str = "", **_options: Any) -> None:
        Swapped.count += 1
        name = sha256(directory.encode()).hexdigest() if directory else str(Swapped.count)
        super().__init__(onrecord.connect(str(_place / f"{name}.db"), project="upstream"))


strands.storage.InMemoryStorage = strands.storage.LocalFileStorage = Swapped
strands.storage.in_memory_storage.InMemoryStorage = Swapped


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that read what only their class has."""
    portable: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        source = inspect.getsource(item.function)  # type: ignore[attr-defined]  # every item is a function
        (left_out if any(word in source for word in INTERNALS) else portable).append(item)
    items[:] = portable
    config.hook.pytest_deselected(items=left_out)
