"""`onrecord store grant`, `revoke`, `who`, `audit`, `retention`, `erase`: the owner's decisions about tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.connection import connect, of_tenant, owners_desk, store_url
from onrecord.errors import OnrecordError
from onrecord.session.retention import policy_of
from onrecord.surfaces.cli.shared.exits import OK, PARTIAL, UsageError
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.place import need
from onrecord.views.render import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onrecord.session.retention import Swept
    from onrecord.surfaces.cli.shared.call import Call

LINES = 50
"""How many lines of an audit are shown unless --limit says so."""


def _url(call: Call) -> str:
    url, tenant = store_url(call.get("store")), call.get("tenant")
    return of_tenant(url, tenant) if tenant else url


def _tenant(call: Call, desk: Any, place: Any) -> str:
    """Which tenant a grant is about."""
    if "every-tenant" not in call:
        return str(place.tenant)
    if "tenant" in call:
        raise UsageError("--tenant and --every-tenant contradict each other", hint="leave one of them out")
    return str(desk.EVERY_TENANT)


def _shown(tenant: str) -> str:
    return "every tenant" if tenant == "*" else f"tenant {tenant}"


def grant(call: Call, words: list[str]) -> int:
    """Bind a login to a tenant."""
    (login,) = need(call, words, "LOGIN")
    desk, place = owners_desk(_url(call))
    tenant, role = _tenant(call, desk, place), "auditor" if "auditor" in call else "writer"
    changed = desk.grant(place, login, role, tenant)
    data = {"login": login, "tenant": tenant, "role": role, "state": "granted" if changed else "already_granted"}
    article = "an auditor" if role == "auditor" else "a writer"
    said = "is now" if changed else "is already"
    return call.output.done("member", data, f"{login} {said} {article} of {_shown(tenant)}")


def revoke(call: Call, words: list[str]) -> int:
    """Take a tenant from a login."""
    (login,) = need(call, words, "LOGIN")
    desk, place = owners_desk(_url(call))
    tenant = _tenant(call, desk, place)
    taken = desk.revoke(place, login, tenant)
    rest = [member.tenant for member in desk.who(place, None)[0] if member.login == login and member.role != "owner"]
    data = {"login": login, "tenant": tenant, "state": "revoked" if taken else "already_revoked", "still": rest}
    if rest:
        still = ", ".join(map(_shown, rest))
        call.output.note(f"{login} may still work for {still}")
    said = "may no longer work for" if taken else "was not a member of"
    return call.output.done("member", data, f"{login} {said} {_shown(tenant)}")


def who(call: Call, words: list[str]) -> int:
    """List who may work for which tenant."""
    need(call, words)
    desk, place = owners_desk(_url(call))
    members, everybody = desk.who(place, place.tenant if "tenant" in call else None)
    if call.output.json:
        rows = [member._asdict() | {"at": iso(member.at) if member.at else None} for member in members]
        call.output.envelope("members", {"members": rows, "everybody": everybody})
        return OK
    call.output.table(
        ("#login", "!role", "tenant", "since", "~by"),
        [
            [
                member.login,
                Cell(member.role, "attention" if member.role == "owner" else ""),
                "(every tenant)" if member.tenant == "*" else member.tenant,
                call.when(member.at) if member.at else "-",
                member.by,
            ]
            for member in members
        ],
    )
    if not everybody:
        call.output.note("these are the rows of your own login; the owner of the store sees all")
    return OK


def audit(call: Call, words: list[str]) -> int:
    """Switch the record of who reads on or off, or show it."""
    desk, place = owners_desk(_url(call))
    if words:
        (switch,) = need(call, words, "on|off")
        if switch not in ("on", "off"):
            raise UsageError(f"{switch!r:.40} is neither on nor off", hint="for example: `onrecord store audit on`")
        changed, since = desk.audit(place, on=switch == "on")
        data = {"tenant": place.tenant, "audited": switch == "on", "from": iso(since) if since else None}
        data["state"] = f"switched_{switch}" if changed else f"already_{switch}"
        said = f"recorded from {call.when(since)} on" if since else "not recorded"
        return call.output.done("audit", data, f"who reads sessions of tenant {place.tenant} is {said}")
    reads, since = desk.reads(place, call.get("session"), call.number("limit", LINES))
    if call.output.json:
        rows = [read._asdict() | {"at": iso(read.at)} for read in reads]
        data = {"tenant": place.tenant, "audited": since is not None, "from": iso(since) if since else None}
        call.output.envelope("audit", data | {"reads": rows})
        return OK
    call.output.table(
        ("at", "#login", "~session"),
        [[call.when(read.at), read.login, _read(read.session, read.name)] for read in reads],
    )
    if since is None:
        call.output.note(
            f"reads of tenant {place.tenant} are not recorded; `onrecord store audit on` records them from then on"
        )
    elif not reads:
        call.output.note("no session has been read since then")
    return OK


def _read(session: str, name: str | None) -> str:
    return "(search in all sessions)" if session == "*" else f"{name} ({session})" if name else session


def retention(call: Call, words: list[str]) -> int:
    """Decide after how many days what of a tenant is erased, or say what was decided."""
    desk, place = owners_desk(_url(call))
    if not words:
        decided = desk.retain(place, None)
    elif words == ["default"]:
        decided = desk.retain(place, {})
    else:
        decided = desk.retain(place, desk.retain(place, None) | _days(words))
    data = {"tenant": place.tenant, "decided": decided, "policy": policy_of(decided)._asdict()}
    if call.output.json:
        call.output.envelope("retention", data)
        return OK
    rows = [
        [
            name.replace("_", " "),
            "never" if days is None else f"{days:g} days",
            "decided" if name in decided else "default",
        ]
        for name, days in data["policy"].items()
    ]
    call.output.table(("rule", ">days", "~from"), rows)
    call.output.note(f"`onrecord sweep` applies this to tenant {place.tenant}, whatever the settings of its user say")
    return OK


def _days(words: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            found[name.replace("-", "_")] = -1.0 if text == "never" else float(text)
        except ValueError:
            raise UsageError(
                f"{word!r:.60} is not RULE=DAYS", hint="for example: `onrecord store retention erase_closed_after=30`"
            ) from None
    policy_of(found)
    return found


def erase(call: Call, words: list[str]) -> int:
    """Erase the content of every session of a tenant."""
    need(call, words)
    reason, dry_run = call.get("reason"), "dry-run" in call
    if not reason:
        raise UsageError(
            "--reason is missing; it is recorded",
            hint='for example: `onrecord store erase --tenant acme --reason "the contract ended"`',
        )
    owners_desk(_url(call))
    with connect(_url(call), project=call.get("project")) as records:
        due = [one for one in records.erase_everything(reason, dry_run=True) if one.action == "erase"]
        tenant = records.url.partition("tenant=")[2]
        if due and not dry_run:
            call.confirm(
                f"Erase all content of {counted(len(due), 'session')} of tenant {tenant} for good? "
                "This cannot be undone."
            )
        done, stopped = _carried_out(records.erase_everything, reason, dry_run=dry_run)
    kept = [one for one in done if one.action == "kept"]
    data = {"tenant": tenant, "dry_run": dry_run, "sessions": [one._asdict() for one in done]}
    if call.output.json:
        call.output.envelope(
            "erasure", data | {"stopped": stopped and {"kind": stopped.code, "message": stopped.message}}
        )
        return PARTIAL if kept or stopped else OK
    call.output.table(
        ("!action", "#session", ">events", ">bytes", "~reason"),
        [[one.action, one.name, str(one.events), str(one.size), one.reason] for one in done],
    )
    if stopped is not None:
        call.output.note(f"stopped: {stopped.message}; run the command again for the rest")
    elif not done:
        call.output.note(f"tenant {tenant} has nothing to erase")
    elif dry_run:
        call.output.note("nothing was changed; run it without `--dry-run` to erase this")
    return PARTIAL if kept or stopped else OK


def _carried_out(
    every: Callable[..., Iterator[Swept]], reason: str, *, dry_run: bool
) -> tuple[list[Swept], OnrecordError | None]:
    """Erase as far as possible; what was done is reported even if an error stops it."""
    done: list[Swept] = []
    try:
        for one in every(reason, dry_run=dry_run):
            done.append(one)  # noqa: PERF402  # what was done before an error must not be lost with it
    except OnrecordError as problem:
        if not done:
            raise
        return done, problem
    return done, None


ACTIONS = {"grant": grant, "revoke": revoke, "who": who, "audit": audit, "retention": retention, "erase": erase}
