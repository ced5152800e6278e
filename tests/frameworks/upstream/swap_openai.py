"""A pytest plugin for the tests of openai-agents: their `SQLiteSession` becomes our session.

`./dev frameworks openai-agents` and CI run them with it. Tests that read SQLite's own tables are not portable, and left out.
"""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import agents
import agents.memory
import pytest

import onrecord
from onrecord.frameworks.openai_agents import OnrecordSession

INTERNALS = (
    "_get_connection", "_lock", "_shared_connection", "sqlite3", "SQLiteSession._", "_locked_connection",
    "_connections", "sessions_table", "messages_table", "_init_db", "_write_connection", "_file_lock", "_insert_items",
    "SQLiteSession is closed",
)  # fmt: skip
"""What only a test of SQLite's own tables and connections mentions."""
_stores: dict[str, Any] = {}


class Swapped(OnrecordSession):
    """Our session with the constructor of theirs."""

    def __init__(self, session_id: str, db_path: str | Path = ":memory:", **options: Any) -> None:
        place = "memory:" if str(db_path) == ":memory:" else f"{db_path}.onrecord"
        if place == "memory:" or place not in _stores:
            store = onrecord.connect(place, project="upstream")
            if place != "memory:":
                _stores[place] = store
        else:
            store = _stores[place]
        super().__init__(session_id, store, session_settings=options.get("session_settings"))


agents.SQLiteSession = agents.memory.SQLiteSession = Swapped  # type: ignore[assignment,misc]  # that is the purpose


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that read the tables or the connections of SQLiteSession."""
    portable: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        source = inspect.getsource(item.function)  # type: ignore[attr-defined]  # every item is a function
        (left_out if any(word in source for word in INTERNALS) else portable).append(item)
    items[:] = portable
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines, where no plugin for them is installed."""
    if pyfuncitem.config.pluginmanager.hasplugin("asyncio") or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}))
    return True
