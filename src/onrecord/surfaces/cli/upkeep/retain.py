"""Retention: sweep, hold, erase. Every erasure is an event; nothing is erased without a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.errors import OnrecordError
from onrecord.surfaces.cli.shared.call import whole_number
from onrecord.surfaces.cli.shared.exits import OK, PARTIAL, UsageError
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.shapes import receipt_data, session_data

if TYPE_CHECKING:
    from onrecord.session.retention import Policy, Swept
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call


def sweep(call: Call) -> int:
    """Apply the retention policy of the settings, or print what it would do."""
    from onrecord.connection import retention_policy

    records, dry_run = call.records(make=False), "dry-run" in call
    decided: dict[str, float] = getattr(records.store, "retention", dict)()
    policy = retention_policy(decided)
    if decided:
        said = ", ".join(f"{name} {'never' if days < 0 else f'{days:g} days'}" for name, days in decided.items())
        call.output.note(f"the owner of the store decided for this tenant: {said}")
    planned = list(records.sweep(policy, dry_run=True))
    due = [swept for swept in planned if swept.action not in ("kept", "idle")]
    if due and not dry_run:
        erased = sum(swept.size for swept in due if swept.action == "erase")
        call.confirm(
            f"Archive or erase {counted(len(due), 'session')}? This erases {size(erased)} of transcripts for good."
        )
    done, stopped = (planned, None) if dry_run else _sweep(records, policy)
    status = OK if stopped is None else PARTIAL
    if call.output.json:
        freed = sum(swept.size for swept in done if swept.action == "erase")
        data = {"dry_run": dry_run, "policy": policy._asdict(), "bytes": freed, "swept": [s._asdict() for s in done]}
        call.output.envelope(
            "sweep", data | {"stopped": stopped and {"kind": stopped.code, "message": stopped.message}}
        )
        return status
    call.output.table(("!action", "#session", ">events", ">bytes", "~reason"), [_row(swept) for swept in done])
    if stopped is not None:
        call.output.note(f"stopped: {stopped.message}; run the command again for the rest")
    elif not due:
        call.output.note("nothing to archive or erase")
    elif dry_run:
        call.output.note("nothing was changed; run it without `--dry-run` to apply this")
    idle = [swept.name for swept in done if swept.action == "idle"]
    if idle:
        call.output.note(
            f"{counted(len(idle), 'session has', 'sessions have')} been idle for long and stay as they are; "
            f"`onrecord close {idle[0]}` closes one; the setting retention.erase_idle_after erases their transcripts"
        )
    return status


def _sweep(records: SessionStore, policy: Policy) -> tuple[list[Swept], OnrecordError | None]:
    """Sweep as far as possible; what was done is reported even if an error stops it."""
    done: list[Swept] = []
    try:
        for swept in records.sweep(policy):
            done.append(swept)  # noqa: PERF402  # what was done before an error must not be lost with it
    except OnrecordError as problem:
        if not done:
            raise
        return done, problem
    return done, None


def _row(swept: Swept) -> list[str | Cell]:
    style = "attention" if swept.action == "erase" else ""
    return [Cell(swept.action, style), swept.name, str(swept.events), str(swept.size), swept.reason]


def hold(call: Call) -> int:
    """Protect a session against erasure, or lift the hold."""
    session, lift = call.session(), "release" in call
    head = session.head
    if head.held is not lift:
        state = "already_released" if lift else "already_held"
        return call.output.done(
            "session",
            session_data(head) | {"state": state},
            f"{head.name} {'has no hold' if lift else 'already has a hold'}",
        )
    reason = call.get("reason")
    if not reason:
        raise UsageError("--reason is missing", hint=f"for example: `{call.verb.example}`")
    event = session.log.release(reason) if lift else session.log.hold(reason)
    state = "released" if lift else "held"
    data = session_data(session.head) | {"state": state}
    return call.output.done(
        "session", data, f"{'lifted the hold of' if lift else 'put a hold on'} {head.name} at position {event.position}"
    )


def erase(call: Call) -> int:
    """Erase the content of single events, or of the whole session; certify that, or check a certificate."""
    if "check" in call:
        from onrecord.surfaces.cli.upkeep.certifying import check

        return check(call)
    positions = [whole_number(text, "--position") for text in call.many("position")]
    everything, reason = "all" in call, call.get("reason")
    if everything == bool(positions):
        raise UsageError(
            "name what to erase: --position N (repeatable) or --all", hint=f"for example: `{call.verb.example}`"
        )
    if not reason:
        raise UsageError("--reason is missing; it is recorded", hint=f"for example: `{call.verb.example}`")
    if "certify" in call:
        from onrecord.surfaces.cli.upkeep.certifying import certify

        return certify(call, str(reason), everything=everything)
    session = call.session()
    what = "everything" if everything else f"position {', '.join(map(str, sorted(set(positions))))}"
    call.confirm(f"Erase {what} of {session.name} for good? This cannot be undone.")
    event = session.log.erase(reason, positions=None if everything else positions)
    data = receipt_data(session.head, event, "erased") | {"count": event.data["count"], "ranges": event.data["ranges"]}
    return call.output.done(
        "erasure",
        data,
        f"erased {counted(event.data['count'], 'payload')} of {session.name}; recorded at position {event.position}",
    )


def size(count: int) -> str:
    """A size in bytes, for people."""
    amount = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if amount < 1024 or unit == "GB":  # noqa: PLR2004  # a KB is 1,024 bytes
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return ""
