"""Evidence: captured by onrecord itself (a command, a part of a file), or asserted by a person or an agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.session.evidence import EVIDENCE_KINDS
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import Cell
from onrecord.surfaces.cli.shared.place import act, need, option, root_of, seconds
from onrecord.surfaces.cli.work import state_file
from onrecord.views.findings import CAPTURED, subject_of
from onrecord.views.render import visible

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.findings import Findings
    from onrecord.views.values import Evidence

ASSERTABLE = tuple(kind for kind in EVIDENCE_KINDS if kind not in ("run", "file"))


def evidence(call: Call) -> int:
    """Add, run, file, show or list."""
    return act(call, _ACTIONS, "list")


def evidence_data(view: Findings, one: Evidence) -> dict[str, Any]:
    """One piece of evidence: how it was recorded, and which findings depend on it."""
    return {**one, "how": view.how(one["id"]), "findings": view.resting_on(one["id"])}


def _add(call: Call, words: list[str]) -> int:
    (reference,) = need(call, words, "REFERENCE")
    kind = option(call, "kind", "onrecord evidence add build-17.log --kind log")
    if kind not in ASSERTABLE:
        raise UsageError(
            f"evidence of kind {kind!r} cannot be asserted, only captured",
            hint=f"use `onrecord evidence {kind}`, or --kind {', '.join(ASSERTABLE)}",
        )
    session = call.session()
    event = session.evidence.record(kind, id=call.get("id"), reference=reference, text=call.get("text"))
    return _answer(call, session, event.data["id"], event.position)


def _run(call: Call, words: list[str]) -> int:
    from onrecord.work.capturing import capture_run
    from onrecord.work.running import show_rest

    if not words:
        raise UsageError("the command is missing", hint=f"for example: `{call.verb.example}`")
    limit = seconds(call)
    session = call.session()
    found = capture_run(
        session, words, root=root_of(session), cwd=Path(os.curdir), id=call.get("id"), timeout=limit,
        show=not call.output.json,
    )  # fmt: skip
    show_rest(found.ran)
    if not call.output.json:
        # The command's own output is the answer.
        how = found.error or f"exit code {found.ran.exit_code}"
        call.output.note(f"captured as {found.evidence}: {how} (position {found.position} of {session.name})")
        state_file.after(call, session)
    else:
        _answer(call, session, found.evidence, found.position)
    return found.ran.exit_code if found.ran.stopped_by else 0


def _file(call: Call, words: list[str]) -> int:
    from onrecord.work.capturing import capture_file

    (place,) = need(call, words, "PATH")
    session = call.session()
    made = capture_file(session, place, root=root_of(session), here=Path.cwd(), id=call.get("id"))
    return _answer(call, session, made["id"], made["position"])


def _show(call: Call, words: list[str]) -> int:
    from onrecord.work.capturing import full_output

    (word,) = need(call, words, "EVIDENCE")
    session = call.session()
    view, name = session.views.findings, session.evidence.resolve(word)
    one = view.evidence[name]
    text = full_output(session, one) if "full" in call else str(one.get("output") or one.get("excerpt") or "")
    if call.output.json:
        call.output.envelope("evidence", evidence_data(view, one) | ({"full": text} if "full" in call else {}))
        return 0
    revision, anchor = one.get("revision") or {}, one.get("anchor")
    lines = [
        ("evidence", name), ("kind", one["kind"]), ("how", view.how(name)), ("what", subject_of(one)),
        ("directory", one.get("cwd")), ("exit code", one.get("exit_code")), ("seconds", one.get("seconds")),
        ("error", one.get("error")), ("attempt", one.get("attempt")), ("text", one.get("text")),
        ("fingerprint", anchor and anchor["fingerprint"]), ("revision", revision.get("revision")),
        ("dirty", revision.get("dirty")),
        ("recorded", f"{call.when(one['at'])} by {one['by']}, position {one['position']}"),
        ("findings", ", ".join(view.resting_on(name))),
    ]  # fmt: skip
    call.output.table((), [[title, str(value)] for title, value in lines if value not in (None, "")])
    if text:
        call.output.line()
        call.output.write(visible(text, lines=True).rstrip("\n") + "\n")
    if one.get("kept_at") is not None and "full" not in call:
        call.output.note(f"shortened from {one['output_bytes']:,} bytes; `--full` shows the full output")
    return 0


def _list(call: Call, words: list[str]) -> int:
    need(call, words)
    view = call.session().views.findings
    if call.output.json:
        call.output.envelope("evidence_list", [evidence_data(view, one) for one in view.evidence.values()])
        return 0
    rows: list[list[str | Cell]] = []
    for name, one in view.evidence.items():
        how = view.how(name)
        style = "good" if how == CAPTURED else "quiet"
        resting = Cell(", ".join(view.resting_on(name)), "quiet")
        rows.append([name, Cell(how, style), one["kind"], subject_of(one), resting])
    call.output.table(("#id", "!how", "kind", "*what", "findings"), rows)
    if not rows:
        call.output.note("no evidence yet; `onrecord evidence run -- COMMAND` captures some")
    return 0


def _answer(call: Call, session: Session, name: str, position: int) -> int:
    state_file.after(call, session)
    view = session.views.findings
    data = evidence_data(view, view.evidence[name]) | {"state": "recorded", "position": position}
    return call.output.done("evidence", data, f"{view.how(name)} as {name} (position {position} of {session.name})")


_ACTIONS = {"add": _add, "run": _run, "file": _file, "show": _show, "list": _list}
