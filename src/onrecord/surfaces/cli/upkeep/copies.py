"""`onrecord copy`: sessions from one store to another, and what is new in them later."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onrecord.connection import connect, store_file
from onrecord.errors import OnrecordError
from onrecord.session.copying import AHEAD, ALREADY_THERE, Copied, Copier
from onrecord.surfaces.cli.shared.exits import OK, PARTIAL, NotInitialised, UsageError
from onrecord.surfaces.cli.shared.hints import hint_of
from onrecord.surfaces.cli.shared.output import Cell
from onrecord.surfaces.cli.upkeep.prove import Progress, all_heads
from onrecord.work.project import spelled_out

if TYPE_CHECKING:
    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call

_STYLES = {ALREADY_THERE: "quiet", AHEAD: "attention", "refused": "bad"}


class Refused:
    """A session that was not copied, and why; the others were."""

    def __init__(self, head: Head, problem: OnrecordError) -> None:
        self.head = head
        self.problem = problem


def copy(call: Call) -> int:
    """Copy sessions between two stores; what is there already is extended."""
    source_url, target_url = call.positional["FROM"], call.positional["TO"]
    if "store" in call:
        raise UsageError(
            "copy takes its two stores as arguments, not as --store", hint=f"for example: `{call.verb.example}`"
        )
    chosen = call.many("session")
    if call.get("as") and len(chosen) != 1:
        raise UsageError("--as needs exactly one session", hint="choose it with `--session NAME`")
    file = store_file(source_url)
    if file is not None and not os.access(file, os.F_OK):
        raise NotInitialised(f"there is no store to copy from: {file} does not exist", step="name_store")
    project = spelled_out(call.get("project") or "") or None
    with connect(source_url, project=project) as source, connect(target_url, project=project) as target:
        heads = [source.find(name) for name in chosen] if chosen else list(all_heads(source))
        copied, refused = _copy_all(call, source, target, heads)
    if refused and len(heads) == 1:
        raise refused[0].problem
    _answer(call, copied, refused)
    return PARTIAL if refused else OK


def _copy_all(
    call: Call, source: SessionStore, target: SessionStore, heads: list[Head]
) -> tuple[dict[str, Copied], list[Refused]]:
    """Copy one after the other; one that is refused does not stop the others."""
    copied: dict[str, Copied] = {}
    refused: list[Refused] = []
    progress = Progress(call, "copying")
    number = 0

    def tell(step: str, head: Head, done: int) -> None:
        progress.what = f"{number} of {len(heads)}, {step} {head.name}"
        progress(done, head.position - head.forked_at)

    copier = Copier(source.store, target.store, progress=tell)
    for number, head in enumerate(heads, 1):  # noqa: B007  # `tell` says which one it is
        try:
            for one in copier.copy(head.session, name=call.get("as"), project=call.get("into")):
                if one.events or one.session not in copied:
                    copied[one.session] = one
        except OnrecordError as problem:
            refused.append(Refused(head, problem))
    progress.finish()
    return copied, refused


def _answer(call: Call, copied: dict[str, Copied], refused: list[Refused]) -> None:
    if call.output.json:
        problems = [
            {"session": one.head.session, "name": one.head.name, "kind": one.problem.code,
             "message": one.problem.message, "hint": hint_of(one.problem, call.verb)}
            for one in refused
        ]  # fmt: skip
        call.output.envelope("copy", {"sessions": [one._asdict() for one in copied.values()], "refused": problems})
        return
    rows: list[tuple[str | Cell, ...]] = [
        (Cell(one.state.replace("_", " "), _STYLES.get(one.state, "good")), one.name, f"{one.position:,}",
         f"{one.events:,}")
        for one in copied.values()
    ]  # fmt: skip
    call.output.table(("!state", "#session", ">position", ">events copied"), rows)
    for one in refused:
        call.output.note(f"{one.head.name} was not copied: {one.problem.message}; {hint_of(one.problem, call.verb)}")
    if any(one.state == AHEAD for one in copied.values()):
        call.output.note(
            "sessions that are ahead have new events in the target store; copy them in the other direction"
        )
