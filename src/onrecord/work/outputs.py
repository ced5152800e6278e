"""A command's output: kept within bounds, and searched for the exact error and the metrics."""

from __future__ import annotations

import json
import math
import re
import signal
from collections import deque
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.machine.files import read_regular, refuse_special

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onrecord.work.ran import Ran

TAIL_KEPT = 64 * 1024
"""How many bytes of the end of the output are kept."""
HEAD_KEPT = 8 * 1024
"""How many bytes of the beginning are also kept."""
ERROR_LIMIT = 500
"""The longest error line that is kept, in characters."""
METRICS_LIMIT = 200
"""How many metrics one run may have."""
METRICS_BYTES = 1024 * 1024
"""The largest metrics file."""

METRIC_WORDS = frozenset(
    {"loss", "losses", "error", "err", "mse", "rmse", "mae", "mape", "acc", "accuracy", "precision", "recall", "auc",
     "bleu", "rouge", "nll", "kl", "elbo", "ppl", "perplexity", "grad", "gradient", "norm", "reward", "return", "score",
     "metric"}
)  # fmt: skip
"""A name with one of these words in it is a metric even if no pattern declares it, as far as NaN and infinity go."""
_BOUNDS = frozenset({"best", "min", "max", "limit", "init", "initial", "threshold", "clip"})
_REPORTED = re.compile(
    r"(?P<name>['\"]?[A-Za-z][\w./-]*['\"]?)(?:\s*[:=]\s*|\s+)(?:\w+\()?"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+))(?!\w|\.\w)",
    re.IGNORECASE,
)
_TRACE = b"Traceback (most recent call last):"
_TRACEBACK = re.compile(r"^[\s+|]*(?:Exception Group )?Traceback \(most recent call last\):")
_ERROR_LINE = re.compile(
    r"^(?:E\s+)?(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*|^(?:error|fatal|FAILED|panic)\b.*", re.IGNORECASE
)


_FROM_OUTSIDE = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGQUIT})
"""Signals that others send. A program that crashes ends with another one, such as SIGSEGV."""


class Kept:
    """The beginning and the end of an output, within bounds."""

    def __init__(self, head: int = HEAD_KEPT, tail: int = TAIL_KEPT) -> None:
        self._head_limit, self._tail_limit = head, tail
        self._head = b""
        self._tail: deque[bytes] = deque()
        self._held = 0
        self._last = b""
        self.size = 0
        self.left_out = 0
        self.traceback = False
        """Whether the output had a Python traceback, even in a part that is not kept."""

    def add(self, part: bytes) -> None:
        """Add output."""
        self.size += len(part)
        seam = self._last + part
        self.traceback = self.traceback or _TRACE in seam
        self._last = seam[-len(_TRACE) :]
        room = self._head_limit - len(self._head)
        self._head += part[:room]
        part = part[room:]
        if part:
            self._tail.append(part)
            self._held += len(part)
        while self._held - len(self._tail[0] if self._tail else b"") >= self._tail_limit:
            self._drop(len(self._tail[0]))
        if self._held > self._tail_limit:
            self._drop(self._held - self._tail_limit)

    def _drop(self, count: int) -> None:
        first = self._tail.popleft()
        if count < len(first):
            self._tail.appendleft(first[count:])
        self._held -= count
        self.left_out += count

    def text(self) -> str:
        """The kept output, with a mark where something is left out."""
        end = b"".join(self._tail)
        if not self.left_out:
            return (self._head + end).decode(errors="replace")
        # Half a line may be half a secret, which nothing recognises.
        head, end = self._head[: self._head.rfind(b"\n") + 1 or None], end[end.find(b"\n") + 1 :]
        left_out = self.size - len(head) - len(end)
        mark = f"\n… {left_out:,} bytes left out …\n" if self._head else ""
        return head.decode(errors="replace") + mark + end.decode(errors="replace")


def error_of(output: str, exit_code: int) -> str:
    """The exact error: the last line of a traceback, or the last line that reads like an error, or the last line."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    if not lines:
        return f"exit code {exit_code}, no output"
    trace = [number for number, line in enumerate(lines) if _TRACEBACK.match(line)]
    if trace:
        edge = re.match(r"[\s+|]*", lines[trace[-1]])
        prefix = edge.group().replace("+", " ") if edge else ""
        inner = [line.replace("+", " ", 1).removeprefix(prefix) for line in lines[trace[-1] + 1 :]]
        after = [line for line in inner if line and not line.startswith((" ", "\t"))]
        if after:
            return after[0].strip()[:ERROR_LIMIT]
    errors = [line for line in lines if _ERROR_LINE.match(line.strip())]
    return (errors[-1] if errors else lines[-1]).strip()[:ERROR_LIMIT]


def interruption_of(ran: Ran) -> str | None:
    """What stopped a run from outside: a signal to onrecord, or to the command itself; None if nothing did."""
    if ran.timed_out:
        return None
    return failure_of(ran, timeout=None) if ran.stopped_by or ran.killed_by in _FROM_OUTSIDE else None


def failure_of(ran: Ran, *, timeout: float | None, allow_traceback: bool = False) -> str | None:
    """Why a run failed: timeout, stopped, killed, non-zero exit, traceback; None if it did not."""
    if ran.timed_out:
        return f"timed out after {timeout:g} s"
    if ran.stopped_by:
        how = "interrupted with Ctrl-C" if ran.stopped_by == signal.SIGINT else "onrecord was stopped"
        return f"{how} ({signal.Signals(ran.stopped_by).name}) after {ran.seconds:.1f} s"
    if ran.killed_by:
        return f"killed by {_signal_name(ran.killed_by)}"
    if ran.exit_code or (ran.traceback and not allow_traceback):
        # Standard error first: buffered standard output often appears only after the traceback.
        apart = ran.error_output if ran.error_output.strip() else ran.output
        return error_of(apart if ran.exit_code or _TRACE.decode() in apart else ran.output, ran.exit_code)
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Before:
    """Files as they are before a run: only what the run itself wrote counts as its output."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._seen = {file: (_inode(file), _content(file)) for file in files}

    def wrote(self, file: Path) -> bool:
        """Whether the file is new, has another content, or was replaced by another file. A new date is not enough."""
        inode, content = self._seen[file]
        return content is None or _inode(file) != inode or _content(file) != content


def _inode(file: Path) -> int | None:
    try:
        return file.stat().st_ino
    except OSError:
        return None


def _content(file: Path) -> tuple[str, int] | None:
    """Hash and size of a file; None if there is no regular file."""
    whole = sha256()
    try:
        refuse_special(file)
        with file.open("rb") as opened:
            while part := opened.read(1 << 20):
                whole.update(part)
            return whole.hexdigest(), opened.tell()
    except OSError:
        return None


def metrics_of_file(file: Path, before: Before) -> dict[str, float]:
    """The numbers of a JSON file, nested ones under `outer.inner`. It must have been written by this run."""
    try:
        about = file.stat()
        if not before.wrote(file):
            raise InvalidInput(f"the metrics file {file.name} was not written by this run: it is as it was before")
        if about.st_size > METRICS_BYTES:
            raise InvalidInput(f"the metrics file {file.name} is larger than {METRICS_BYTES:,} bytes")
        found = _flat(json.loads(read_regular(file)))
    except OSError:
        raise InvalidInput(f"the metrics file {file.name} is missing") from None
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(f"the metrics file {file.name} is not JSON: {problem}") from None
    if len(found) > METRICS_LIMIT:
        raise InvalidInput(f"the metrics file {file.name} has {len(found):,} numbers; the limit is {METRICS_LIMIT}")
    return found


def _flat(value: Any, name: str = "") -> dict[str, float]:
    if isinstance(value, dict):
        inner = [_flat(part, f"{name}.{key}" if name else str(key)) for key, part in value.items()]
        return {key: number for part in inner for key, number in part.items()}
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {name or "value": value} if number else {}


def metric_in(output: str, name: str, pattern: re.Pattern[str]) -> float:
    """The number in the last match of a pattern: its first group, or the whole match."""
    matches = deque(pattern.finditer(output), maxlen=1)
    if not matches:
        raise InvalidInput(f"metric {name} was not found: no output matches {pattern.pattern!r}")
    text = matches[0].group(1 if pattern.groups else 0)
    return as_number(text or "", f"metric {name}")


def as_number(text: str, what: str) -> float:
    """A number as people and programs print it; `nan` and `inf` count as numbers here, and make the run fail."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{what} is not a number: {text!r:.80}") from None


def output_file(root: Path, path: Path) -> dict[str, Any] | None:
    """Path, size and sha256 of a file that a run produced; None if it does not exist."""
    found = _content(path)
    if found is None:
        return None
    root, path = root.resolve(), path.parent.resolve() / path.name
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return {"path": shown.as_posix(), "size": found[1], "sha256": found[0]}


def state_of_output(root: Path, output: dict[str, Any]) -> str:
    """Whether an output is still there as it was recorded: "", "changed since" or "gone". Its path is from the root."""
    found = _content(root / str(output["path"]))
    if found is None:
        return "gone"
    return "" if found[0] == output.get("sha256") else "changed since"


def not_finite_in(output: str) -> dict[str, float]:
    """Metrics whose last value is NaN or infinite, in the usual forms (`loss: nan`, `val_loss=inf`)."""
    last = {found["name"].strip("'\""): found["value"] for found in _REPORTED.finditer(output) if _is_metric(found)}
    numbers = {name: float(value) for name, value in last.items()}
    return {name: number for name, number in numbers.items() if not math.isfinite(number)}


def _is_metric(found: re.Match[str]) -> bool:
    """Whether a name is one of a metric; the best value so far starts at infinity, and that is no result."""
    words = set(re.split(r"[^a-z]+", found["name"].casefold()))
    return bool(words & METRIC_WORDS) and not words & _BOUNDS
