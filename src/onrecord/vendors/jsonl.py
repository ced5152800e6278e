"""Transcripts in files of JSON lines: read as they grow, in bounded memory, and written back whole.

Vendors append while we read, are killed in the middle of a line, append their next record to half a line, and replace
whole files. So we read whole records only, count a cut-off line and never rewrite it, and still find a record that
follows on the same line. A mark carries digests, so that a replaced file is noticed.
"""

from __future__ import annotations

import errno
import os

from onrecord import lean_json
from onrecord.errors import Conflict, NotFound
from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple
from onrecord.log import digest
from onrecord.vendors.transcripts import Chunk, Entry, Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import BufferedReader
    from pathlib import Path

PROBE = 4096
"""How many bytes at the beginning, and before the mark, identify a file."""
DIGEST_CHARACTERS = 12
"""How much of a digest a mark has: every part of a conversation has one, and it only shows that a file was replaced."""
HEAD = 256 * 1024
"""How far into a file its head may be, in bytes."""
LINE_LIMIT = 64 * 1024 * 1024
"""The longest record, in bytes; a longer line counts as torn."""
RECORD_START = r'\{"'
HALVES = r"\\u[dD][89a-fA-F]"
SALVAGE_TRIES = 5_000
"""At how many positions of a torn line a whole record is searched."""
SALVAGE_CHARACTERS = 8 * 1024 * 1024
"""How many characters are read in that search: a line of many beginnings without ends is not read for each of them."""

Record = dict[str, Any]


class Found(NamedTuple):
    """A record of a line, and its text."""

    raw: str
    record: Record | None
    """None: JSON but not an object, or nested too deeply."""


def read(
    path: str, mark: Mark | None, limit: int, translate: Callable[[Found], Entry], whole: Callable[[Record], bool]
) -> Chunk:
    """The records added to a file since the mark. `whole` says whether JSON is a whole record of this vendor."""
    if not os.path.isfile(path):
        raise NotFound(f"the transcript {path} does not exist", hint="restore the mirrored copy", step="restore_copy")
    with opened(path) as file:
        offset, rewritten = _begin(file, mark)
        file.seek(offset)
        entries: list[Entry] = []
        torn = 0
        start = offset
        for line, ended in _lines(file):
            if not ended and not _complete(line):
                break  # its writer is not done, or died: the next read will show
            found, broken = records_of(line, whole)
            entries += [translate(one) for one in found]
            torn += broken
            offset += len(line)
            if offset - start >= limit and (entries or torn):
                break  # never with nothing in hand: an empty chunk means the end
        return Chunk(entries, _mark(file, offset), torn=torn, rewritten=rewritten)


def opened(path: str) -> BufferedReader:
    """A transcript, for reading; what is no regular file is none, and a named pipe would block for ever."""
    if not os.path.isfile(path):
        raise FileNotFoundError(errno.ENOENT, "no transcript", path)
    return open(path, "rb")


def near_the_end(path: str, size: int) -> Mark | None:
    """A mark at the first line that begins within the last `size` bytes of a file; None: the beginning."""
    with opened(path) as file:
        length = os.fstat(file.fileno()).st_size
        if length <= size:
            return None
        file.seek(length - size)
        file.readline()
        return Mark(file.tell())


def _begin(file: BufferedReader, mark: Mark | None) -> tuple[int, bool]:
    if mark is None or mark.offset <= 0:
        return 0, False
    same = os.fstat(file.fileno()).st_size >= mark.offset
    if same and isinstance(mark.extra, dict):
        found: dict[str, str] = _mark(file, mark.offset).extra  # older marks have more of each digest
        same = all(str(mark.extra.get(name))[:DIGEST_CHARACTERS] == digest for name, digest in found.items())
    return (mark.offset, False) if same else (0, True)


def _mark(file: BufferedReader, offset: int) -> Mark:
    digests = {}
    for name, start in (("head", 0), ("tail", max(0, offset - PROBE)))[offset <= PROBE :]:  # the same, in a short file
        file.seek(start)
        digests[name] = digest.sha256(file.read(min(PROBE, offset - start))).hexdigest()[:DIGEST_CHARACTERS]
    return Mark(offset, digests)


def _lines(file: BufferedReader) -> Iterator[tuple[bytes, bool]]:
    """Lines with their ends, and whether they have one. A line that is too long comes in pieces, none a record."""
    end = os.fstat(file.fileno()).st_size  # what is appended meanwhile is read next time
    position = file.tell()
    while position < end:
        line = file.readline(min(LINE_LIMIT, end - position))
        if not line:
            return  # it was cut short just now
        position += len(line)
        yield line, line.endswith(b"\n") or len(line) >= LINE_LIMIT


def _complete(line: bytes) -> bool:
    """Whether a last line without a line end is still a whole record: no object is a prefix of another."""
    stripped = line.strip()
    if not stripped.startswith(b"{") or not stripped.endswith(b"}"):
        return False
    try:
        return isinstance(loads(stripped.decode()), dict)
    except (ValueError, RecursionError):
        return False


def records_of(line: bytes, whole: Callable[[Record], bool]) -> tuple[list[Found], int]:
    """The whole records of a line, and the number of its torn pieces."""
    text = line.decode("utf-8", "surrogateescape").strip("\r\n\t ")
    if not text:
        return [], 0
    try:
        return _accept(text, loads(text))
    except RecursionError:
        return [Found(text, None)], 0
    except ValueError:
        pass
    found: list[Found] = []
    torn = 0
    position = 0
    search = _Search()
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        begun = _record_at(text, position)
        if begun is None:
            torn += 1
            position = search.next(text, position + 1, whole)
        else:
            accepted, broken = _accept(text[position : begun[1]], begun[0])
            found += accepted
            torn += broken
            position = begun[1]
    return found, torn


def _accept(text: str, value: Any) -> tuple[list[Found], int]:
    if not _is_text(text):
        return [], 1  # its bytes are no UTF-8: keeping it would mean changing it
    if not isinstance(value, dict):
        return [Found(text, None)], 0
    return [Found(text, _clean(value) if "\\u" in text and _has_halves(text) else value)], 0


def _has_halves(text: str) -> bool:
    import re

    return re.search(HALVES, text) is not None


def _record_at(text: str, position: int) -> tuple[Record, int] | None:
    try:
        value, end = lean_json.standard_decoder().raw_decode(text, position)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


class _Search:
    """Looks for whole records in one torn line, with limits on all of its tries together."""

    def __init__(self) -> None:
        self._tries = SALVAGE_TRIES
        self._characters = SALVAGE_CHARACTERS

    def next(self, text: str, position: int, whole: Callable[[Record], bool]) -> int:
        """Where a whole record begins after a torn piece; the end if there is none."""
        import re

        for start in re.compile(RECORD_START).finditer(text, position):
            if self._tries <= 0 or self._characters <= 0:
                break
            self._tries -= 1
            found = self._record_at(text, start.start())
            if found is not None and whole(found):
                return start.start()
        return len(text)

    def _record_at(self, text: str, position: int) -> Record | None:
        import json

        try:
            value, end = lean_json.standard_decoder().raw_decode(text, position)
        except RecursionError:
            self._characters = 0
            return None
        except json.JSONDecodeError as problem:
            # A string without an end is blamed where it begins, and was read to the end of the text.
            unended = problem.msg.startswith("Unterminated")
            self._characters -= (len(text) if unended else problem.pos) - position
            return None
        except ValueError:  # a number that is none
            self._characters -= len(text) - position
            return None
        self._characters -= end - position
        return value if isinstance(value, dict) else None


def loads(text: str) -> Any:
    """Standard JSON: no NaN, no infinity."""
    return lean_json.loads_standard(text)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _clean(value: Any) -> Any:
    """Replace halves of surrogate pairs: JSON may contain them escaped, our texts may not."""
    if isinstance(value, str):
        return value if _is_text(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_clean(one) for one in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(one) for name, one in value.items()}
    return value


def first_record(path: str, whole: Callable[[Record], bool] = bool) -> Record | None:
    """The first record among the first lines of a file that `whole` accepts."""
    try:
        with opened(path) as file:
            for line, _ended in _lines(file):
                for found in records_of(line, whole)[0]:
                    if found.record is not None and whole(found.record):
                        return found.record
                if file.tell() > HEAD:
                    return None
    except OSError:
        return None
    return None


def records_in(path: str, whole: Callable[[Record], bool], containing: bytes = b"") -> Iterator[Record]:
    """Every whole record of the lines that contain some bytes, in bounded memory; none of what is no file."""
    if not os.path.isfile(path):
        return
    with opened(path) as file:
        for line, _ended in _lines(file):
            if containing in line:
                yield from (found.record for found in records_of(line, whole)[0] if found.record is not None)


def unfinished_tail(path: str) -> int:
    """How many bytes follow the last line end of a file; 0: the next record gets its own line."""
    with opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        position = size
        while position > 0:
            step = min(PROBE * 16, position)
            position -= step
            file.seek(position)
            end = file.read(step).rfind(b"\n")
            if end >= 0:
                position += end + 1
                break
        file.seek(position)
        return size - position if file.read(PROBE).strip() else 0


def cut_tail(path: str) -> None:
    """Remove the unfinished last line of a file and keep it beside the file; a whole record only gets its line end."""
    length = unfinished_tail(path)
    if not length:
        return
    with open(path, "r+b") as file:
        start = file.seek(0, os.SEEK_END) - length
        file.seek(start)
        if length <= LINE_LIMIT and _complete(file.read(length)):
            file.write(b"\n")
        else:
            file.seek(start)
            from pathlib import Path

            _write(Path(f"{path}.onrecord-torn-{start}"), iter(lambda: file.read(PROBE * 16), b""), replace=True)
            file.truncate(start)
        file.flush()
        os.fsync(file.fileno())


def glued_lines(path: str, whole: Callable[[Record], bool], start: bytes) -> int:
    """How many lines have a whole record after a torn one; a record of this vendor begins with `start`."""
    with opened(path) as file:
        return sum(
            1
            for line, _ended in _lines(file)
            if line.find(start, 1) > 0 and (split := records_of(line, whole)) and split[1] and split[0]
        )


def repair(path: str, whole: Callable[[Record], bool]) -> None:
    """Rewrite a file with every whole record on its own line, and keep the old file beside it."""
    from pathlib import Path

    target = Path(path)
    kept = target.with_name(f"{target.name}.onrecord-before-repair")
    kept.unlink(missing_ok=True)
    kept.hardlink_to(target)
    with target.open("rb") as file:
        pieces = (found.raw.encode() + b"\n" for line, _ended in _lines(file) for found in records_of(line, whole)[0])
        _write(target, pieces, replace=True)


def write_new(path: Path, lines: Iterable[str]) -> None:
    """Write a new transcript, all or nothing; `Conflict` if the file exists."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(path, (line.encode() + b"\n" for line in lines), replace=False)


def write_over(path: Path, text: str) -> None:
    """Replace a small file of settings, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(path, iter([text.encode()]), replace=True)


def _write(path: Path, pieces: Iterator[bytes], *, replace: bool) -> None:
    from onrecord.machine.files import write_file

    try:
        write_file(path, pieces, replace=replace)
    except FileExistsError:
        raise Conflict(f"{path} is there already", hint="nothing was replaced; resume it as it is") from None


def has_since(path: str, start: bytes, mark: bytes) -> bool:
    """Whether a file has the mark after the last place that begins so; True if there is no such place, or no file."""
    found = True
    try:
        with opened(path) as file:
            for line in file:  # one at a time: a transcript may be large
                last = line.rfind(start)
                found = mark in line[last:] if last >= 0 else found or mark in line
    except OSError:
        return True
    return found
