"""Sessions with keys of their own: switching them on, erasing one with a statement, and checking a statement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.connection import open_store, owners_desk, session_keys, store_file, store_url
from onrecord.errors import InvalidInput, SessionErased
from onrecord.log.head import ERASED
from onrecord.machine.files import refuse_special
from onrecord.session.erasure import check as findings_of
from onrecord.surfaces.cli.shared.exits import FAILED, OK, UsageError
from onrecord.surfaces.cli.shared.files import refuse_existing, refuse_missing_directory, write_file
from onrecord.surfaces.cli.shared.output import SCHEMA_VERSION, Cell, counted, dump, shown
from onrecord.surfaces.cli.shared.sealing import checked, known_signers, signed
from onrecord.surfaces.cli.shared.shapes import session_data

if TYPE_CHECKING:
    from onrecord.session.erasure import Finding
    from onrecord.surfaces.cli.shared.call import Call

NAMESPACE = "onrecord-erasure"
"""What the signature is for."""
STATEMENT_LIMIT = 64 * 1024
"""How much of a statement's file is read."""
KIND = "erasure_statement"


def use_session_keys(call: Call, url: str) -> int:
    """From now on, give every new session of a store a key of its own."""
    file, there = store_file(url), True
    if file is None:
        desk, place = owners_desk(url)
        keys = session_keys()
        keys.check()
        new, shown, where = desk.use_session_keys(place), place.shown, keys.directory
        call.output.note("every client needs this directory and the store key; older clients are refused")
    else:
        there = Path(file).expanduser().exists()
        store: Any = open_store(url)  # made if it is missing: then no session of it is without a key
        try:
            new, shown, where = store.use_session_keys(), file, store.session_keys.directory
        finally:
            store.close()
    call.output.note(f"the keys are in {where}; copies of the store do not have them, and cannot be read without them")
    if new and there:
        call.output.note("sessions that exist stay as they are; `onrecord copy` into a new store encrypts them there")
    data = {"store": shown, "keys": where, "state": "session_keys" if new else "already_session_keys"}
    said = "now gets" if new else "already gets"
    return call.output.done("store", data, f"every new session in {shown} {said} a key of its own")


def certify(call: Call, reason: str, *, everything: bool) -> int:
    """Erase a session with its key, and write a statement that others can check."""
    if not everything:
        raise UsageError("--certify goes with --all: a key is destroyed with the whole session, not with single events")
    session, path = call.session(), Path(str(call.get("certify"))).expanduser()
    refuse_existing(path, force="force" in call)
    refuse_missing_directory(path)
    key = session.log.key()
    if key is None:
        raise InvalidInput(
            f"nothing was erased: {session.name!r} has no key of its own, so every copy of the store keeps its content",
            hint="erase it without `--certify`, and delete the copies; `onrecord store session-keys` is for new ones",
        )
    if session.head.status != ERASED or key[1] != "destroyed":
        call.confirm(f"Erase everything of {session.name} and destroy its key? No copy can be read afterwards.")
    already = False
    try:
        session.log.erase(reason)
    except SessionErased:
        already = True  # the statement is all that is left to do
    said: dict[str, Any] = session.log.certificate()
    file = _written(call, path, said)
    data = {
        "session": session_data(session.head), "state": "already_erased" if already else "erased", "file": str(file),
        "signed": "sign" in call, "statement": said,
    }  # fmt: skip
    count = counted(said["erasure"]["payloads"], "payload")
    return call.output.done(
        "erasure", data,
        f"erased {count} of {session.name} and destroyed its key {said['key']['id']}; wrote the statement to {file}",
    )  # fmt: skip


def _written(call: Call, path: Path, said: dict[str, Any]) -> Path:
    answer: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "kind": KIND, "data": said}
    if key := call.get("sign"):
        answer["signature"] = signed(_canonical(said), str(key), NAMESPACE).decode()
    return write_file(str(path), [(dump(answer) + "\n").encode()], force="force" in call)


def check(call: Call) -> int:
    """Check a statement against a store or a copy of it."""
    path = Path(str(call.get("check"))).expanduser()
    said, signature = _read(path)
    who = None
    if signature is not None:
        found = checked(_canonical(said), signature.encode(), known_signers(call), NAMESPACE)
        if found is None:
            raise InvalidInput(f"{path} was changed after it was signed", hint="ask for the statement again")
        who = found
    findings = findings_of(call.records(make=False).store, said)
    good = all(finding.ok for finding in findings)
    by = "not signed" if who is None else who.said
    if call.output.json:
        call.output.envelope("erasure_check", {
            "ok": good, "file": str(path), "store": call.records().store.url, "signature": by, "statement": said,
            "checks": [finding._asdict() for finding in findings],
        })  # fmt: skip
        return OK if good else FAILED
    call.output.table(("claim", "!", "~"), [_row(finding) for finding in findings])
    call.output.note(f"the statement is {by}")
    name, key = shown(said["name"]), shown(said["key"]["id"])
    outcome = "holds" if good else "does not hold"
    call.output.write(f"the erasure of {name} with its key {key} {outcome} for {store_url(call.get('store'))}\n")
    return OK if good else FAILED


def _row(finding: Finding) -> list[str | Cell]:
    return [finding.claim, Cell("ok", "good") if finding.ok else Cell("wrong", "bad"), finding.detail]


def _read(path: Path) -> tuple[dict[str, Any], str | None]:
    """A statement and its signature."""
    try:
        refuse_special(path)
        with path.open("rb") as file:
            found = json.loads(file.read(STATEMENT_LIMIT))
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != KIND or not isinstance(found.get("data"), dict):
        hint = "`onrecord erase NAME --all --certify FILE` writes one"
        raise UsageError(f"{path} is not a statement of an erasure", hint=hint)
    signature = found.get("signature")
    return found["data"], signature if isinstance(signature, str) else None


def _canonical(said: dict[str, Any]) -> bytes:
    """The bytes that are signed."""
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
