"""Proof: verify the chain, and checkpoints that are kept outside the store."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.errors import DamagedLog, SessionNotFound
from onrecord.log.verify import COVERS, LEAVES_OUT
from onrecord.machine.files import refuse_special
from onrecord.surfaces.cli.shared.exits import FAILED, OK, UsageError
from onrecord.surfaces.cli.shared.files import write_file
from onrecord.surfaces.cli.shared.output import SCHEMA_VERSION, Cell, counted, dump
from onrecord.surfaces.cli.shared.shapes import session_data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.head import Head
    from onrecord.log.verify import Report
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.values import Checkpoint

PATIENCE_SECONDS = 2.0
"""After this many seconds, progress is printed on stderr."""
_EVERY_SECONDS = 0.5
_HASH_SHOWN = 12
_HOW_TO_CHECKPOINT = "write one with `onrecord checkpoint --all --out checkpoints.json`"


class Progress:
    """Prints progress on stderr when the work takes longer than a moment."""

    def __init__(self, call: Call, what: str) -> None:
        self._silent = call.output.quiet or call.output.json
        self.what = what
        self._start = self._told = time.monotonic()
        self._live = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Print how much is done."""
        now = time.monotonic()
        if self._silent or now - self._start < PATIENCE_SECONDS or now - self._told < _EVERY_SECONDS:
            return
        self._told = now
        share = f" ({done * 100 // total}%)" if total else ""
        start, end = ("\r\x1b[K", "") if self._live else ("", "\n")
        sys.stderr.write(f"{start}{self.what}: {done:,} of {total:,}{share}{end}")
        sys.stderr.flush()

    def finish(self) -> None:
        """End the line of progress."""
        if self._live and self._told != self._start:
            sys.stderr.write("\r\x1b[K")


def verify(call: Call) -> int:
    """Verify the hash chain of one session or of all, also against checkpoints."""
    records = call.records(make=False)
    checkpoints = _read_checkpoints(call.get("checkpoint"))
    missing: list[Checkpoint] = []
    if "all" in call:
        heads = list(all_heads(records))
        known = {head.session for head in heads}
        missing = [point for id_, point in checkpoints.items() if id_ not in known]
    else:
        heads, missing = _chosen(call, records, checkpoints)
    reports = _verify(call, records, heads, checkpoints)
    good = all(report.ok for _head, report in reports) and not missing
    if call.output.json:
        sessions = [report_data(head, report) for head, report in reports]
        call.output.envelope("verification", {
            "ok": good, "sessions": sessions, "missing": missing, "covers": COVERS, "leaves_out": LEAVES_OUT,
        })  # fmt: skip
    else:
        _print(call, reports, missing)
    return OK if good else FAILED


def _chosen(
    call: Call, records: SessionStore, checkpoints: dict[str, Checkpoint]
) -> tuple[list[Head], list[Checkpoint]]:
    """The named session; without a name, those of the checkpoint file."""
    named = call.positional.get("NAME") or call.get("session")
    if named or not checkpoints:
        return [call.head()], []
    heads, missing = [], []
    for id_, point in checkpoints.items():
        try:
            heads.append(records.head(id_))
        except SessionNotFound:
            missing.append(point)
    return heads, missing


def _verify(
    call: Call, records: SessionStore, heads: list[Head], checkpoints: dict[str, Checkpoint]
) -> list[tuple[Head, Report]]:
    total, done = sum(head.position for head in heads), 0
    progress = Progress(call, "events verified")
    reports = []
    for head in heads:
        base = done

        def tell(count: int, base: int = base) -> None:
            progress(base + count, total)

        session = records.handle(head.session)
        reports.append((head, session.verify(checkpoints.get(head.session), progress=tell)))
        done += head.position
    progress.finish()
    return reports


def report_data(head: Head, report: Report) -> dict[str, Any]:
    """The outcome for one session."""
    return {
        "session": session_data(head), "ok": report.ok, "events": report.events, "position": report.position,
        "hash": report.hash.hex(), "erased": report.erased,
        "unread": report.unread,
        "problems": [problem._asdict() for problem in report.problems],
    }  # fmt: skip


def _print(call: Call, reports: list[tuple[Head, Report]], missing: list[Checkpoint]) -> None:
    rows: list[list[str | Cell]] = []
    for head, report in reports:
        state = Cell("verified", "good") if report.ok else Cell("damaged", "bad")
        erased = f"{counted(report.erased, 'payload')} erased" if report.erased else ""
        if report.unread:
            erased = f"{counted(report.unread, 'payload')} not read: the session's own key is not here"
        digest = report.hash.hex()
        rows.append([
            head.name, state, counted(report.events, "event"),
            digest[:_HASH_SHOWN] if call.output.terminal else digest, erased,
        ])  # fmt: skip
        rows += [
            ["", Cell(problem.cause, "bad"), f"position {problem.position}", "", problem.detail]
            for problem in report.problems
        ]
    rows += [
        [str(point["session"]), Cell("missing", "bad"), f"position {point['position']}", "",
         "the session of this checkpoint is not in this store: it was rolled back, or this is another store"]
        for point in missing
    ]  # fmt: skip
    call.output.table(("#session", "!chain", "!read", "last hash", "~"), rows)
    if reports and all(report.ok for _head, report in reports):
        call.output.note(f"checked: {'; '.join(COVERS)}. Not checked: {', '.join(LEAVES_OUT)}")


def checkpoint(call: Call) -> int:
    """Position and hash, to be kept where the store's owner cannot change them."""
    records = call.records(make=False)
    heads = list(all_heads(records)) if "all" in call else [call.head()]
    points = [{"session": head.session, "position": head.position, "hash": head.hash.hex()} for head in heads]
    data: Any = points if "all" in call else points[0]
    answer = {"schema_version": SCHEMA_VERSION, "kind": "checkpoint", "data": data}
    out = call.get("out")
    if not out:
        call.output.write(dump(answer) + "\n")
        return OK
    path = write_file(out, [(dump(answer) + "\n").encode()], force="force" in call)
    summary = {"file": str(path), "sessions": len(points), "checkpoint": data}
    what = counted(len(points), "checkpoint") if "all" in call else f"a checkpoint at position {points[0]['position']}"
    return call.output.done("checkpoint_file", summary, f"wrote {what} to {path}; keep it outside the store")


def _read_checkpoints(file: str | None) -> dict[str, Checkpoint]:
    if not file:
        return {}
    try:
        refuse_special(file)
        value = json.loads(Path(file).read_bytes())
        value = value["data"] if isinstance(value, dict) and "data" in value else value
        points = value if isinstance(value, list) else [value]
        checked: dict[str, Checkpoint] = {
            str(point["session"]): {
                "session": str(point["session"]), "position": int(point["position"]), "hash": str(point["hash"]),
            }
            for point in points
        }  # fmt: skip
    except FileNotFoundError:
        raise UsageError(f"the file {file} does not exist", hint=_HOW_TO_CHECKPOINT) from None
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        raise UsageError(f"{file} is not a checkpoint", hint=_HOW_TO_CHECKPOINT) from None
    return checked


def verify_every(call: Call, records: SessionStore, count: dict[str, int], what: str, hint: str) -> None:
    """Verify every session of a store, counting sessions and events; `DamagedLog` names the first damage in `what`."""
    heads = list(all_heads(records))
    progress, total = Progress(call, "events verified"), sum(head.position for head in heads)
    for head in heads:
        report = records.handle(head.session).verify()
        if not report.ok:
            first = report.problems[0]
            where = f"session {head.name!r}, position {first.position}"
            raise DamagedLog(f"{what} is damaged: {where}, {first.cause}: {first.detail}", hint=hint)
        count["sessions"] += 1
        count["events"] += report.events
        progress(count["events"], total)
    progress.finish()


def all_heads(records: SessionStore) -> Iterator[Head]:
    """Every session of the store, whatever its project."""
    before = None
    while page := records.sessions(project="", limit=500, before=before):
        yield from page
        before = page[-1]
