"""What is kept and what is erased: sweep, hold, erase. Every erasure is an event; nothing is erased unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.errors import OnrecordError
from onrecord.surfaces.cli.shared.call import whole_number
from onrecord.surfaces.cli.shared.exits import OK, PARTIAL, UsageError
from onrecord.surfaces.cli.shared.output import Cell
from onrecord.surfaces.cli.shared.shapes import receipt_data, session_data

if TYPE_CHECKING:
    from onrecord.session.retention import Policy, Swept
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call


def sweep(call: Call) -> int:
    """Apply the retention policy of the settings, or say what it would do."""
    from onrecord.connect import retention_policy

    records, policy, dry_run = call.records(make=False), retention_policy(), "dry-run" in call
    planned = list(records.sweep(policy, dry_run=True))
    due = [swept for swept in planned if swept.action != "kept"]
    if due and not dry_run:
        erased = sum(swept.size for swept in due if swept.action == "erase")
        call.confirm(f"This archives or erases {len(due)} sessions ({size(erased)} of transcript, for good).")
    done, stopped = (planned, None) if dry_run else _sweep(records, policy)
    status = OK if stopped is None else PARTIAL
    if call.output.json:
        freed = sum(swept.size for swept in done if swept.action == "erase")
        data = {"dry_run": dry_run, "policy": policy._asdict(), "bytes": freed, "swept": [s._asdict() for s in done]}
        call.output.envelope(
            "sweep", data | {"stopped": stopped and {"kind": stopped.code, "message": stopped.message}}
        )
        return status
    call.output.table(("action", "session", ">events", ">bytes", "*reason"), [_row(swept) for swept in done])
    if stopped is not None:
        call.output.note(f"stopped there: {stopped.message}; run it again for the rest")
    elif not done:
        call.output.note("nothing is due")
    elif dry_run:
        call.output.note("nothing was changed; without --dry-run it is done")
    return status


def _sweep(records: SessionStore, policy: Policy) -> tuple[list[Swept], OnrecordError | None]:
    """Sweep as far as it goes: what was done is told even if something stopped it."""
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
    """Protect a session against erasure, or lift that."""
    session, lift = call.session(), "release" in call
    head = session.head
    if head.held is not lift:
        state = "already_released" if lift else "already_held"
        return call.output.done(
            "session", session_data(head) | {"state": state}, f"{head.name} is {state.replace('_', ' ')}"
        )
    reason = call.get("reason")
    if not reason:
        raise UsageError("a hold, and lifting one, needs --reason", hint=f"for example: {call.verb.example}")
    event = session.log.release(reason) if lift else session.log.hold(reason)
    state = "released" if lift else "held"
    data = session_data(session.head) | {"state": state}
    return call.output.done("session", data, f"{head.name} is {state} at position {event.position}")


def erase(call: Call) -> int:
    """Erase what single events say, or everything a session says."""
    positions = [whole_number(text, "--position") for text in call.many("position")]
    everything, reason = "all" in call, call.get("reason")
    if everything == bool(positions):
        raise UsageError("say what to erase: --position N (as often as need be), or --all", hint=call.verb.example)
    if not reason:
        raise UsageError("an erasure needs --reason; it is put on record", hint=f"for example: {call.verb.example}")
    session = call.session()
    what = "everything" if everything else f"position {', '.join(map(str, sorted(set(positions))))}"
    call.confirm(f"This erases {what} of {session.name} for good; no backup of ours keeps it.")
    event = session.log.erase(reason, positions=None if everything else positions)
    data = receipt_data(session.head, event, "erased") | {"count": event.data["count"], "ranges": event.data["ranges"]}
    return call.output.done(
        "erasure",
        data,
        f"erased {event.data['count']} payloads of {session.name}; on record at position {event.position}",
    )


def size(count: int) -> str:
    """Bytes in words."""
    amount = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if amount < 1024 or unit == "GB":  # noqa: PLR2004  # a KB is 1,024 bytes
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return ""
