"""One laboratory for each test, with the programs its class asks for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.install import CannotInstall
from tests.e2e.lab import Lab
from tests.skips import in_ci


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A machine with the real programs. Every process that a test leaves running is ended."""
    try:
        made = Lab(tmp_path, request.cls.programs)
    except CannotInstall as why:
        if in_ci():
            pytest.fail(f"CI runs the real coding agents: {why}", pytrace=False)
        pytest.skip(f"cannot run here: {why}")
    try:
        yield made
    finally:
        made.close()
