"""`onrecord store`: create a store in PostgreSQL, upgrade its schema, inspect it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.connection import make_store, migrate_store, open_store, store_url
from onrecord.surfaces.cli.shared.place import act, need

if TYPE_CHECKING:
    from onrecord.surfaces.cli.shared.call import Call


def store(call: Call) -> int:
    """Init, migrate or status."""
    return act(call, _ACTIONS)


def _url(call: Call, words: list[str]) -> str:
    """The named store, or the default of every verb."""
    return need(call, words, "URL")[0] if words else store_url(call.get("store"))


def _init(call: Call, words: list[str]) -> int:
    data = make_store(_url(call, words), call.get("owner"), call.get("app"))
    already = bool(data.pop("before"))
    data["state"] = "already_initialised" if already else "initialised"
    if already:
        return call.output.done("store", data, f"{data['store']} already has a store, schema {data['schema']}")
    call.output.note(
        f"connect as {data['app']}, or grant it to the roles of your agents; if the server needs a password, set one "
        f"first (\\password {data['app']} in psql)"
    )
    return call.output.done("store", data, f"{data['store']} is ready: schema {data['schema']}, owner {data['owner']}")


def _migrate(call: Call, words: list[str]) -> int:
    data = migrate_store(_url(call, words))
    before = data["before"]
    data["state"] = "already_migrated" if before == data["schema"] else "migrated"
    said = f"already has schema {data['schema']}" if before == data["schema"] else f"now has schema {data['schema']}"
    return call.output.done("store", data, f"{data['store']} {said}")


def _status(call: Call, words: list[str]) -> int:
    found = open_store(_url(call, words))
    try:
        facts = found.describe()  # type: ignore[attr-defined]  # every store that is kept anywhere describes itself
    finally:
        found.close()
    data = {"store": found.url, "state": "ready"} | facts
    if call.output.json:
        call.output.envelope("store", data)
        return 0
    names = ("store", "server", "sqlite", "schema_version", "tenant", "owner", "app", "sessions", "events",
             "primary_loss_can_lose", "power_cut_can_lose")  # fmt: skip
    call.output.table((), [[name.replace("_", " "), str(data[name])] for name in names if name in data])
    return 0


_ACTIONS = {"init": _init, "migrate": _migrate, "status": _status}
