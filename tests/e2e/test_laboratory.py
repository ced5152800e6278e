"""The laboratory itself: no program gets out or is left behind, and a machine that cannot provide it says so."""

import os
import sys
from pathlib import Path

import pytest

from tests.e2e import install
from tests.e2e.lab import Lab
from tests.e2e.modelserver import patiently
from tests.e2e.room import CLOSED_PORT
from tests.e2e.suite import Laboratory

OUTSIDE = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
"""An address that is reserved for documentation: no machine has it."""
ASK = """
import json, sys, urllib.request
body = {"stream": False, "tools": [{"function": {"name": "bash"}}], "messages": [{"role": "user", "content": sys.argv[2]}]}
asked = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", json.dumps(body).encode())
print(json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"])
"""
DAEMON = "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(600)"


class TestRoom(Laboratory):
    programs = ()

    def test_the_only_way_leads_to_the_model_server(self, lab: Lab):
        """A program in the room reaches our server, and no network outside."""
        done = lab.run([sys.executable, "-c", ASK, lab.server.url, "[[say hello]]"])
        assert done.out == "hello\n", done
        if not lab.room.isolated:
            assert lab.environment["HTTPS_PROXY"].endswith(f":{CLOSED_PORT}")
            pytest.skip("cannot run here: this user may make no network namespace; proxies lead nowhere instead")
        assert "Network is unreachable" in lab.run([sys.executable, "-c", OUTSIDE]).err

    def test_nobody_is_left_behind(self, lab: Lab):
        """Every process started in the room is found and ended, even a daemon without its parents, group and session."""
        assert lab.run([sys.executable, "-c", DAEMON]).status == 0
        patiently(lambda: len(lab.room.inhabitants()) == 1, "only the daemon is there")
        lab.room.clear()
        assert lab.room.inhabitants() == []


def test_no_registry_and_no_cache_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where a program is not in the cache and no registry can be reached, the error says so, and nothing is half installed."""
    monkeypatch.setenv("ONRECORD_TESTS_CACHE", str(tmp_path))
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{CLOSED_PORT}")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(install.CannotInstall, match="no npm registry can be reached"):
        install.ensure("gemini")
    assert [name for name in os.listdir(tmp_path) if "gemini-" in name] == []  # noqa: PTH208  # hidden ones, too
