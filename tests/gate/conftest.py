"""The gate through the installed command, and through the verbs."""

import pytest

import onrecord
from tests.cli.conftest import bytecode, command
from tests.stores import EVERY, url_of

__all__ = ["bytecode", "command"]


@pytest.fixture(params=EVERY)
def records(request, tmp_path):
    url = url_of(request.param, request, tmp_path)
    with onrecord.connect(url, project="/project") as found:
        yield found


@pytest.fixture
def session(records):
    return records.create("invite-403", agent="claude")
