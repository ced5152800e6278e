"""What the attacks share: a pretended agent's desk, and bundles that an attacker wrote."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import onrecord
from onrecord.session import bundle
from onrecord.session.session_store import SessionStore
from tests.agents.conftest import Desk, bytecode
from tests.crew.conftest import Squad, squad

__all__ = ["Squad", "bytecode", "squad"]


@pytest.fixture
def desk(tmp_path: Path, bytecode: Path) -> Desk:
    return Desk(tmp_path, bytecode)


@pytest.fixture
def elsewhere() -> Iterator[SessionStore]:
    """The attacker's own store."""
    with onrecord.connect("memory:", project="/elsewhere") as records:
        yield records


def packed(lines: list[str], path: Path) -> Path:
    """A bundle as a file."""
    import zstandard

    path.write_bytes(zstandard.ZstdCompressor().compress("".join(lines).encode()))
    return path


@pytest.fixture
def forged(elsewhere: SessionStore, tmp_path: Path) -> Callable[..., Path]:
    """Makes the bundle of a session to which the attacker appended these events."""

    def make(*events: tuple[str, dict[str, Any]], name: str = "gift") -> Path:
        session = elsewhere.create(name)
        for kind, data in events:
            session._record(kind, data)
        return packed(list(bundle.lines_of(session)), tmp_path / f"{name}.onrecord")

    return make
