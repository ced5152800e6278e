"""The gate through the installed command, and through the verbs."""

import pytest

import onrecord
from tests.cli.conftest import bytecode, command, kind, stores

__all__ = ["bytecode", "command", "kind", "stores"]


@pytest.fixture(params=["memory", "sqlite"])
def records(request, tmp_path):
    url = "memory:" if request.param == "memory" else str(tmp_path / "data" / "store.db")
    with onrecord.connect(url, project="/project") as found:
        yield found


@pytest.fixture
def session(records):
    return records.create("invite-403", agent="claude")
