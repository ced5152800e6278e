"""The hook path loads what it needs and nothing else."""

import json
import subprocess
import sys

import pytest

from onrecord.vendors.port import VENDORS
from tests.vendors.homes import recorded

DEAR = {"pathlib", "subprocess", "sqlite3", "typing", "urllib", "datetime", "tempfile", "apsw"}
CODE = """
import json, sys
before = set(sys.modules)
from importlib import import_module
VENDOR = import_module("onrecord.vendors." + sys.argv[1]).VENDOR
from onrecord.vendors.hooks import HookAnswer
for payload in json.loads(sys.argv[2]):
    call = VENDOR.parse_hook(payload, {})
    VENDOR.reply(call, HookAnswer(context="c", decision="deny", reason="r", notice="n"))
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


@pytest.mark.parametrize("name", VENDORS)
def test_answering_a_hook_loads_nothing_dear(name):
    """Importing a vendor and answering its hooks loads no path, process, database or network module."""
    payloads = [{"hook_event_name": event, **payload} for event, payload, _env in recorded(name)]
    done = subprocess.run(
        [sys.executable, "-c", CODE, name, json.dumps(payloads)], capture_output=True, text=True, check=True, timeout=60
    )
    assert not set(done.stdout.split()) & DEAR, done.stdout
