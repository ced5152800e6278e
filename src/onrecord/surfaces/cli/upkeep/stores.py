"""`onrecord store`: create, upgrade and inspect a store; encrypt one in a file. `store_people` has the rest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onrecord.connection import of_tenant, open_store, owners_desk, store_file, store_url
from onrecord.surfaces.cli.shared.exits import NotInitialised
from onrecord.surfaces.cli.shared.place import act, need
from onrecord.surfaces.cli.upkeep import store_people

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.surfaces.cli.shared.call import Call


def store(call: Call) -> int:
    """Create, upgrade or inspect it, or decide who may use it."""
    return act(call, _ACTIONS)


def _url(call: Call, words: list[str]) -> str:
    """The named store, or the default of every verb; --tenant in place of the tenant that it names."""
    url = need(call, words, "URL")[0] if words else store_url(call.get("store"))
    tenant = call.get("tenant")
    return of_tenant(url, tenant) if tenant else url


def _init(call: Call, words: list[str]) -> int:
    desk, place = owners_desk(_url(call, words))
    data = desk.make(place, call.get("owner"), call.get("app"), call.get("auditors"))
    already = bool(data.pop("before"))
    data["state"] = "already_initialised" if already else "initialised"
    if already:
        return call.output.done("store", data, f"{data['store']} already has a store, schema {data['schema']}")
    call.output.note(
        f"{data['app']} may write for tenant {data['tenant']}, and for no other; `onrecord store grant LOGIN --tenant "
        f"TENANT` lets a login work for a tenant; if the server needs a password, set one first (\\password "
        f"{data['app']} in psql)"
    )
    return call.output.done("store", data, f"{data['store']} is ready: schema {data['schema']}, owner {data['owner']}")


def _migrate(call: Call, words: list[str]) -> int:
    desk, place = owners_desk(_url(call, words))
    data = desk.upgrade(place)
    before = data["before"]
    data["state"] = "already_migrated" if before == data["schema"] else "migrated"
    said = f"already has schema {data['schema']}" if before == data["schema"] else f"now has schema {data['schema']}"
    return call.output.done("store", data, f"{data['store']} {said}")


def _status(call: Call, words: list[str]) -> int:
    url = _url(call, words)
    file = store_file(url)
    if file is not None and not os.access(file, os.F_OK):
        raise NotInitialised(f"nothing is on record yet: there is no store at {file}")
    found = open_store(url)
    try:
        facts = found.describe()  # type: ignore[attr-defined]  # every store that is kept anywhere describes itself
    finally:
        found.close()
    data = {"store": found.url, "state": "ready"} | facts
    if call.output.json:
        call.output.envelope("store", data)
        return 0
    names = ("store", "server", "sqlite", "encrypted", "schema_version", "tenant", "login", "member", "owner", "app",
             "sessions", "events", "primary_loss_can_lose", "power_cut_can_lose")  # fmt: skip
    if "encrypted" in data:
        data["encrypted"] = "yes" if data["encrypted"] else "no"
    call.output.table((), [[name.replace("_", " "), str(data[name])] for name in names if name in data])
    return 0


def _encrypted(action: str) -> Callable[[Call, list[str]], int]:
    def run(call: Call, words: list[str]) -> int:
        from onrecord.surfaces.cli.upkeep import encryption

        if action == "new-key":
            return encryption.new_key(call, words)
        return encryption.change(call, _url(call, words), action)

    return run


def _session_keys(call: Call, words: list[str]) -> int:
    from onrecord.surfaces.cli.upkeep.certifying import use_session_keys

    return use_session_keys(call, _url(call, words))


_ACTIONS = (
    {"init": _init, "migrate": _migrate, "status": _status}
    | store_people.ACTIONS
    | {"session-keys": _session_keys}
    | {action: _encrypted(action) for action in ("encrypt", "rekey", "decrypt", "new-key")}
)
