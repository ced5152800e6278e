"""Moving sessions: export to a file, import from it. A bundle is verified before anything of it is written."""

from __future__ import annotations

import io
import json
import sys
from binascii import b2a_base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from onrecord.errors import DamagedBundle, LogMoved, SessionNotFound
from onrecord.session.bundle import lines_of, take_in
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.files import file_to_read, refuse_existing, write_file
from onrecord.surfaces.cli.shared.output import counted, dump
from onrecord.surfaces.cli.shared.sealing import is_encrypted, opened, sealed
from onrecord.surfaces.cli.shared.shapes import event_data, session_data
from onrecord.views.conversations import SUBLANE
from onrecord.views.dialects import to_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call

BUNDLE_LEVEL = 9
"""The compression level of a bundle: high, because it is written once and then moved."""
EXPORT_TRIES = 10
"""How often an export is tried while another process erases parts of the session."""
PEOPLE = ("html", "markdown")
"""The formats that are for people."""
ONLY_FOR_PEOPLE = ("from", "to", "no-tool-output")
"""The options of those formats."""
ONLY_FOR_BUNDLES = ("encrypt-to", "sign")
LINE_LIMIT = 128 * 1024 * 1024
"""The longest line of a bundle, in bytes: an event's payload and what surrounds it."""
FRAMEWORKS = ("langgraph", "google-adk", "openai-agents")
"""The frameworks whose own SQLite files can be imported."""
_CHUNK = 1 << 20


def export_session(call: Call) -> int:
    """Write a session as a bundle, as events, as messages, as Markdown or as a report in HTML."""
    form, out = call.get("format") or "bundle", call.get("out")
    if call.get("dialect") and form != "messages":
        raise UsageError("--dialect needs --format messages")
    if form not in PEOPLE and (option := next((name for name in ONLY_FOR_PEOPLE if name in call), None)):
        raise UsageError(f"--{option} needs --format html or --format markdown")
    if form != "bundle" and (option := next((name for name in ONLY_FOR_BUNDLES if name in call), None)):
        raise UsageError(f"--{option} needs --format bundle")
    if out:
        refuse_existing(Path(out).expanduser(), force="force" in call)
    session = call.session()
    if out:
        path = _written(call, session, out, form)
        head = session.log.head()
        data = {"file": str(path), "format": form, "bytes": path.stat().st_size, "session": session_data(head)}
        data |= {"signed": "sign" in call, "encrypted": "encrypt-to" in call}
        if session.log.key() is not None:
            call.output.note(f"{path} is a copy without the key of the session: erasing the session does not reach it")
        how = ", ".join([form, *(word for word in ("signed", "encrypted") if data[word])])
        return call.output.done(
            "export", data, f"wrote {counted(head.position, 'event')} of {head.name} to {path} ({how})"
        )
    if call.output.json and form != "bundle":
        content = b"".join(_chunks(call, session, form)).decode()
        call.output.envelope("export", {"format": form, "content": content, "session": session_data(session.head)})
        return 0
    if call.output.json or (form == "bundle" and sys.stdout.isatty()):
        raise UsageError("a bundle is compressed data, not text", hint="write it to a file with `--out FILE`")
    if form == "html" and sys.stdout.isatty():
        command = f"onrecord export {session.name} --format html --out {session.name}.html"
        raise UsageError("a report is a page for a browser, not text for a terminal", hint=f"`{command}`")
    sys.stdout.flush()
    for chunk in _chunks(call, session, form):
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    return 0


def _written(call: Call, session: Session, out: str, form: str) -> Path:
    """Write the file; again if another process erased a part of the session meanwhile."""
    for _again in range(EXPORT_TRIES - 1):
        try:
            return write_file(out, _chunks(call, session, form), force="force" in call)
        except LogMoved:
            continue
    return write_file(out, _chunks(call, session, form), force="force" in call)


def _chunks(call: Call, session: Session, form: str) -> Iterable[bytes]:
    if form == "bundle":
        return sealed(call, _compressed(lines_of(session)))
    if form == "jsonl":
        return ((dump(event_data(event)) + "\n").encode() for event in session.events())
    if form == "messages":
        return _messages(session, call.get("dialect") or "neutral")
    from onrecord.surfaces.cli.sessions.reports import pieces

    return pieces(call, session, form)


def _compressed(lines: Iterable[str]) -> Iterator[bytes]:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=BUNDLE_LEVEL, write_checksum=True).compressobj()
    for line in lines:
        yield compressor.compress(line.encode())
    yield compressor.flush()


def _messages(session: Session, dialect: str) -> Iterator[bytes]:
    """A JSON list, one message per line; always well formed."""
    start = b"[\n"
    agents = (turn for turn in session.transcript() if SUBLANE not in turn.agent)  # a subagent has its own messages
    for message in to_messages((item for turn in agents for item in turn.items), dialect):
        yield start + dump(_as_json(message)).encode()
        start = b",\n"
    yield b"\n]\n" if start == b",\n" else b"[]\n"


def _as_json(value: object) -> object:
    """Gemini's SDK takes bytes, and its API base64 text."""
    if isinstance(value, bytes):
        return b2a_base64(value, newline=False).decode()
    if isinstance(value, dict):
        return {name: _as_json(one) for name, one in value.items()}
    return [_as_json(one) for one in value] if isinstance(value, list) else value


def import_session(call: Call) -> int:
    """Import a bundle, or the conversations of a vendor or of a framework's own file."""
    from onrecord.vendors.port import VENDORS

    if call.positional["FILE"] in VENDORS:
        from onrecord.surfaces.cli.agents.importing import import_vendor

        return import_vendor(call)
    if call.positional["FILE"] in FRAMEWORKS:
        from onrecord.surfaces.cli.sessions.framework_files import import_framework

        return import_framework(call)
    if "WHAT" in call.positional or any(name in call for name in ("all", "session", "agent")):
        names = ", ".join((*VENDORS, *FRAMEWORKS))
        raise UsageError(f"{call.positional['FILE']!r} is not a vendor or framework", hint=f"use one of {names}")
    path = file_to_read(call.positional["FILE"])
    content, signature = opened(call, path)
    file = BundleFile(path, content)
    records = call.records()
    known = _position(records, file)
    session = take_in(records, file, name=call.get("as"), update="update" in call)
    head = session.views.head
    state = "imported" if known is None else "updated" if head.position > known else "already_imported"
    data: dict[str, Any] = session_data(head) | {
        "state": state, "file": str(path), "encrypted": content is not None and is_encrypted(path),
        "signature": signature._asdict(),
    }  # fmt: skip
    return call.output.done(
        "session",
        data,
        f"{state.replace('_', ' ')}: {head.name} ({head.session}), verified to position {head.position}; "
        f"{signature.said}",
    )


def _position(records: SessionStore, file: BundleFile) -> int | None:
    """The position of the bundle's session in this store, if it has it; the bundle is not verified yet."""
    try:
        return records.head(str(json.loads(next(iter(file)))["session"])).position
    except (SessionNotFound, DamagedBundle, StopIteration, ValueError, KeyError, TypeError):
        return None


class BundleFile:
    """The lines of a bundle, read again each time they are asked for; a file that is not one fails early."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self._path = path
        self._content = content
        """What a signature was checked for, or what was decrypted; the file is not read again then."""

    def __iter__(self) -> Iterator[str]:
        import zstandard

        path, size = self._path, 0
        rest: list[bytes] = []
        try:
            with self._opened() as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
                while chunk := stream.read(_CHUNK):
                    *lines, tail = chunk.split(b"\n")
                    if lines:
                        yield f"{b''.join((*rest, lines[0])).decode()}\n"
                        yield from (f"{line.decode()}\n" for line in lines[1:])
                        rest, size = [], 0
                    rest.append(tail)
                    size += len(tail)
                    if size > LINE_LIMIT:
                        raise DamagedBundle(f"{path} has a line over {LINE_LIMIT:,} bytes")
            if last := b"".join(rest):
                yield last.decode()
        except (zstandard.ZstdError, UnicodeDecodeError) as problem:
            raise DamagedBundle(f"{path} is not a bundle of onrecord, or it is damaged ({problem})") from None

    def _opened(self) -> BinaryIO:
        return self._path.open("rb") if self._content is None else io.BytesIO(self._content)
