"""`onrecord redact`: secrets that are in a log already are found, and the events that have them are erased."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.session.redacting import Leak, leaks
from onrecord.session.redacting import redact as erase_leaks
from onrecord.surfaces.cli.shared.exits import OK
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.shared.shapes import session_data
from onrecord.surfaces.cli.upkeep.prove import Progress
from onrecord.workspace.files import copies_of

if TYPE_CHECKING:
    from onrecord.surfaces.cli.shared.call import Call


def redact(call: Call) -> int:
    """List events with secrets by rule and place; without --dry-run, erase them and bring the files up to date."""
    session, dry_run = call.session(), "dry-run" in call
    progress, end = Progress(call, "events searched"), session.head.position
    found = leaks(session, lambda position: progress(position, end))
    progress.finish()
    if found and not dry_run:
        events = counted(len(found), "event")
        call.confirm(f"Erase all content of {events} of {session.name} for good? Words beside the secrets go too.")
    erased = None if dry_run or not found else erase_leaks(session, found)
    older: list[str] = []
    if erased is not None:
        from onrecord.surfaces.cli.work import state_file

        state_file.after(call, session)
        older = copies_of(state_file.paths(call, session).state)
    if call.output.json:
        data = {
            "session": session_data(session.head), "dry_run": dry_run,
            "found": [row for one in found for row in _rows(one)],
            "erased": len(found) if erased is not None else 0, "recorded_at": erased.position if erased else None,
        }  # fmt: skip
        call.output.envelope("redaction", data)
        return OK
    if found:
        rows = [
            [str(row["position"]), row["kind"], row["rule"], row["place"], str(row["count"])]
            for one in found
            for row in _rows(one)
        ]
        call.output.table((">position", "kind", "#rule", "~place", ">count"), rows)
    call.output.note(_said(session.name, found, erased.position if erased else None))
    if older:
        call.output.note(f"earlier copies of STATE.md may still have them: delete {', '.join(older)}")
    return OK


def _rows(leak: Leak) -> list[dict[str, Any]]:
    return [
        {"position": leak.position, "kind": leak.kind, "rule": rule, "place": place, "count": count}
        for (rule, place), count in sorted(leak.found.items())
    ]


def _said(name: str, found: list[Leak], recorded_at: int | None) -> str:
    if not found:
        return f"{name} has no secrets that the rules know"
    if recorded_at is None:
        return f"nothing was changed; run it without `--dry-run` to erase the content of {counted(len(found), 'event')}"
    return (
        f"erased the content of {counted(len(found), 'event')} of {name}; recorded at position {recorded_at}. "
        "Replace these secrets: backups, bundles and the agent's own files may still have them"
    )
