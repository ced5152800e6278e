"""`onrecord doctor`: is the store safe, intact and fast, and what could a power cut lose? `--fix` does what is safe."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord import __version__, machine
from onrecord.connection import (
    config_path,
    is_store,
    notify_settings,
    retention_policy,
    settings,
    shown_url,
    store_file,
    store_url,
)
from onrecord.environment import KEY_VARIABLE
from onrecord.errors import OnrecordError
from onrecord.log.head import LIVE
from onrecord.machine.keys import is_configured
from onrecord.shell.splitting import quote
from onrecord.surfaces.cli.help import ENVIRONMENT
from onrecord.surfaces.cli.shared.exits import FAILED, OK
from onrecord.surfaces.cli.shared.hints import hint_of
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.upkeep.checks import Check
from onrecord.surfaces.cli.upkeep.retain import size

if TYPE_CHECKING:
    from onrecord.log.store import Store
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call

VERIFIED = 5
"""How many of the newest sessions are verified."""
LOOKED_AT = 200
"""How many of the newest live sessions are searched for leases of ended processes."""
DISK_LOW = 256 * 1024 * 1024
"""Less free space than this is reported as wrong."""
WAL_LARGE = 64 * 1024 * 1024
"""A write-ahead log larger than this has a reader that keeps it from being emptied."""
_COMPANIONS = ("", "-wal", "-shm", "-journal", ".lock")
_SHAPES = {"ok": ("✓", "good"), "info": (" ", ""), "fixed": ("✓", "good"), "wrong": ("✗", "bad")}


def doctor(call: Call) -> int:
    """Check everything; with --fix, restrict permissions, empty the write-ahead log and delete snapshots."""
    fix = "fix" in call
    facts: dict[str, Any] = {}
    checks = [*_programs(), *_settings()]
    try:
        place = store_file(call.get("store"))
        file = None if place is None else Path(place)
        checks.append(Check("store", "info", shown_url(store_url(call.get("store")))))
    except OnrecordError as problem:
        checks.append(Check("store", "wrong", problem.message, hint_of(problem, None)))
        return _answer(call, checks, facts)
    if file is not None and not file.exists():
        return _answer(call, [*checks, _missing(file), *_agents(None)], facts)
    if file is not None:
        ours = is_store(str(file))
        checks += [*(_permissions(file, fix=fix) if ours else ()), _disk(file)]
    try:
        records = call.records()
        facts = _describe(records.store)
        checks += [*_store(records.store, facts, fix=fix), *_sessions(records), *_secrets(records), *_agents(records)]
    except OnrecordError as problem:
        checks.append(Check("opening", "wrong", problem.message, hint_of(problem, None)))
    return _answer(call, checks, facts)


def _agents(records: SessionStore | None) -> list[Check]:
    from onrecord.surfaces.cli.upkeep.doctor_agents import agents

    return agents(records)


def _secrets(records: SessionStore) -> list[Check]:
    from onrecord.surfaces.cli.upkeep.doctor_secrets import secrets

    return secrets(records)


def _programs() -> list[Check]:
    python = ".".join(map(str, sys.version_info[:3]))
    return [Check("versions", "info", f"onrecord {__version__}, Python {python}")]


def _settings() -> list[Check]:
    checks = []
    try:
        for read in (settings, notify_settings, retention_policy):
            read()
        there = Path(config_path()).exists()
        checks.append(Check("settings", "info", f"{config_path()}{'' if there else ' (none)'}"))
    except OnrecordError as problem:
        checks.append(Check("settings", "wrong", problem.message, hint_of(problem, None)))
    try:
        in_force = [f"{name}={_shown(name)}" for name in ENVIRONMENT if os.environ.get(name)]
        checks.append(Check("environment", "info", ", ".join(in_force) or "no variable is set"))
    except OnrecordError as problem:
        checks.append(Check("environment", "wrong", problem.message, hint_of(problem, None)))
    return checks


def _shown(name: str) -> str:
    """The value of a variable as it may be shown: neither a password nor a key."""
    return "(set, not shown)" if name == KEY_VARIABLE else shown_url(os.environ[name])


def _missing(file: Path) -> Check:
    """A store that does not exist: whether it can be made where it should be."""
    said, above = f"{file} does not exist yet", file.expanduser().absolute().parent
    while not above.exists():
        above = above.parent
    if os.access(above, os.W_OK):
        return Check("file", "info", said, "`onrecord open my-task` creates it")
    return Check(
        "file", "wrong", f"{said}, and nothing can be written to {above}", "set ONRECORD_STORE to another path"
    )


def _permissions(file: Path, *, fix: bool) -> list[Check]:
    """Checked before the store is opened, because opening it restricts permissions or refuses."""
    checks = [_owner(file)]
    for companion in _COMPANIONS:
        path = file.with_name(file.name + companion)
        if path.exists():
            checks += _narrow(
                path, 0o077, "other users may read or change it", f"chmod 600 {quote(str(path))}", fix=fix
            )
    directory, advice = file.parent.stat(), f"chmod go-w {quote(str(file.parent))}"
    if machine.others_may_write(directory) and not directory.st_mode & stat.S_ISVTX:
        checks += _narrow(file.parent, 0o022, "other users may replace the file", advice, fix=fix)
    remarkable = [check for check in checks[1:] if check.state != "ok"]
    if not any(check.state == "wrong" for check in remarkable):
        remarkable.append(Check("permissions", "ok", "only you can read and write the store"))
    return [checks[0], *remarkable]


def _owner(file: Path) -> Check:
    owner = file.stat().st_uid
    if owner == os.geteuid():
        return Check("owner", "ok", f"you (user {owner})")
    return Check("owner", "wrong", f"user {owner}, and you are {os.geteuid()}", "run onrecord as the owner")


def _narrow(path: Path, forbidden: int, why: str, advice: str, *, fix: bool) -> list[Check]:
    facts = path.stat()
    mode = stat.S_IMODE(facts.st_mode)
    if not mode & forbidden:
        return [Check("permissions", "ok", f"{path} {mode:04o}")]
    if not fix or facts.st_uid != os.geteuid():
        return [Check("permissions", "wrong", f"{path} has mode {mode:04o}: {why}", advice)]
    path.chmod(mode & ~forbidden)
    return [Check("permissions", "fixed", f"{path}: changed mode {mode:04o} to {mode & ~forbidden:04o}")]


def _disk(file: Path) -> Check:
    free = shutil.disk_usage(file.parent).free
    if free < DISK_LOW:
        return Check(
            "disk", "wrong", f"{size(free)} free", "free some space; acknowledged events are safe when the disk is full"
        )
    return Check("disk", "ok", f"{size(free)} free")


def _describe(store: Store) -> dict[str, Any]:
    describe = getattr(store, "describe", None)
    return describe(check=True) if describe else {}


def _store(store: Store, facts: dict[str, Any], *, fix: bool) -> list[Check]:
    if not facts:
        return [Check("durability", "info", "in memory: everything is lost when the process ends")]
    if "server" in facts:
        from onrecord.surfaces.cli.upkeep.doctor_server import server_checks

        return server_checks(store, facts, fix=fix)
    whole = facts["integrity"] == "ok"
    forgets = facts["power_cut_can_lose"].startswith("everything")
    power_safe = facts["synchronous"] in ("full", "extra") and not forgets
    durability = f"{facts['durability']} (synchronous {facts['synchronous']}, {facts['journal_mode']})"
    files = ", ".join(f"{name} {size(about['bytes'])}" for name, about in facts["files"].items() if about["bytes"])
    kept = ", ".join(counted(facts[f"{what}s"], what) for what in ("session", "event", "snapshot"))
    checks = [
        Check("sqlite", "ok", f"{facts['sqlite']} (apsw {facts['apsw']}), schema {facts['schema_version']}"),
        _encryption(encrypted=facts["encrypted"]),
        *_session_keys(store),
        Check("durability", "ok" if power_safe else "info", durability),
        Check(
            "a power cut", "ok" if power_safe else "info", f"can lose {facts['power_cut_can_lose']}",
            "keep the store on a disk (set ONRECORD_STORE)" if forgets else "",
        ),
        Check("file system", "info", facts["file_system"] or "unknown"),
        *([] if facts["writable"] else [Check("writing", "info", "not possible here: read-only, or no permission")]),
        Check("files", "info", files),
        Check("structure", "ok" if whole else "wrong", facts["integrity"], "" if whole else "restore the last backup"),
        Check("kept", "info", kept),
        Check("search", "info", _searching(facts)),
    ]  # fmt: skip
    return [*checks, _wal(store, facts["wal_bytes"], fix=fix)]


def _searching(facts: dict[str, Any]) -> str:
    behind = counted(facts["search_behind"], "event")
    if facts["writable"]:
        return f"the next search will index {behind}"
    return f"every search reads {behind} that cannot be added to the index"


def _encryption(*, encrypted: bool) -> Check:
    if encrypted:
        return Check("encryption", "ok", "the file is encrypted at rest")
    if is_configured(settings().get("encryption", {})):
        advice = "`onrecord store encrypt` encrypts it"
        return Check("encryption", "wrong", "a key is configured, and this store is not encrypted", advice)
    return Check("encryption", "info", "off: a copy of the file can be read by anyone")


def _session_keys(store: Any) -> list[Check]:
    """Sessions with keys of their own: those that cannot be read, and those whose erasure was interrupted."""
    found = store.keyed_sessions()
    if not found:
        return [Check("session keys", "info", "on")] if store.uses_session_keys() else []
    states = [(store.key_state(session), status) for session, _key, status in found]
    halfway = sum(status == "erased" and state != "destroyed" for state, status in states)
    missing = sum(status != "erased" and state != "present" for state, status in states)
    where = store.session_keys.directory
    if halfway:
        advice = "erase each again: `onrecord erase NAME --all --reason TEXT`"
        said = f"{counted(halfway, 'session is', 'sessions are')} erased, and the key is not destroyed"
        return [Check("session keys", "wrong", said, advice)]
    if missing:
        advice = f"put copies of the keys into {where}"
        said = f"{counted(missing, 'session has', 'sessions have')} no key in {where}, and cannot be read"
        return [Check("session keys", "wrong", said, advice)]
    present = sum(state == "present" for state, _status in states)
    return [Check("session keys", "ok", f"{counted(present, 'key')} in {where}; keep a copy elsewhere")]


def _wal(store: Store, amount: int, *, fix: bool) -> Check:
    if fix:
        store.tidy()  # type: ignore[attr-defined]  # a store that describes itself can also tidy itself
        return Check("write-ahead", "fixed", f"emptied (it had {size(amount)}); snapshots deleted")
    if amount > WAL_LARGE:
        return Check(
            "write-ahead",
            "wrong",
            f"{size(amount)}: a reader keeps it from being emptied",
            "stop the reader, then `onrecord doctor --fix`",
        )
    return Check("write-ahead", "ok", size(amount))


def _sessions(records: SessionStore) -> list[Check]:
    newest = records.sessions(project="", limit=VERIFIED)
    checks = []
    for head in newest:
        report = records.handle(head.session).verify()
        if not report.ok:
            first = report.problems[0]
            what = f"{head.name}: position {first.position}, {first.cause}: {first.detail}"
            checks.append(
                Check("chain", "wrong", what, f"see `onrecord verify {head.session}`; restore a backup or a bundle")
            )
    if newest and not checks:
        checks.append(Check("chain", "ok", f"verified {counted(len(newest), 'session')}, newest first"))
    live = records.sessions(project="", status=LIVE, limit=LOOKED_AT)
    leases = [(head.name, lease) for head in live for lease in records.leases(head.session)]
    dead = [f"{name}/{lease.lane}" for name, lease in leases if machine.is_gone(lease.holder)]
    alive = len(leases) - len(dead)
    said = f"{counted(alive, 'lease')} in use" + (
        f"; free, because their process has ended: {', '.join(dead)}" if dead else ""
    )
    return [*checks, Check("lanes", "info", said)]


def _answer(call: Call, checks: list[Check], facts: dict[str, Any]) -> int:
    wrong = [check for check in checks if check.state == "wrong"]
    if call.output.json:
        data = {"ok": not wrong, "checks": [check._asdict() for check in checks], "store": facts}
        call.output.envelope("doctor", data)
        return FAILED if wrong else OK
    if call.output.terminal:
        rows: list[list[str | Cell]] = []
        for check in checks:
            shape, style = _SHAPES[check.state]
            said = check.value + (f" ({check.advice})" if check.advice and check.state == "info" else "")
            rows.append([Cell(shape, style), check.name, Cell(said, "bad" if check.state == "wrong" else "")])
            rows += [["", "", Cell(f"-> {check.advice}", "strong")]] if check.state == "wrong" and check.advice else []
        call.output.table(("!", "#", "~"), rows)
    else:
        call.output.table((), [[check.state, check.name, check.value, check.advice] for check in checks])
    if wrong:
        call.output.note(f"{counted(len(wrong), 'problem')} found")
    return FAILED if wrong else OK
