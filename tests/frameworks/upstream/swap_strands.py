"""A pytest plugin for the tests of Strands: their mocked repository becomes our repository.

`./dev frameworks strands` runs them with it.
"""

import sys
import tempfile
from pathlib import Path

import onrecord
from onrecord.frameworks.strands import OnrecordRepository

_place = Path(tempfile.mkdtemp())


class Swapped(OnrecordRepository):
    """Our repository in a new file, made without arguments like theirs."""

    count = 0

    def __init__(self) -> None:
        Swapped.count += 1
        super().__init__(onrecord.connect(str(_place / f"{Swapped.count}.db"), project="upstream"))


def pytest_collection_finish() -> None:
    """Put our repository into the modules of the tests."""
    for module in list(sys.modules.values()):
        if getattr(getattr(module, "MockedSessionRepository", None), "__name__", "") == "MockedSessionRepository":
            module.MockedSessionRepository = Swapped  # type: ignore[attr-defined]  # that is the purpose
