"""Why a run stopped: what vendors print when they reach a limit, a server is overloaded or a signal ends them.

A run is finished only if its own stream confirms the end (or, without a stream, with exit status 0). Only errors are
searched for words of failure, never what an assistant said.
"""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.vendors.port import (
    CRASH,
    FINISHED,
    KILLED,
    OVERLOAD,
    RATE_LIMIT,
    REFUSED,
    TOKENS,
    UNKNOWN,
    USAGE_WINDOW,
    USER,
    Interruption,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MESSAGE_LIMIT = 2_000
"""The longest kept text of an error, in characters."""
USER_SIGNALS = frozenset({2})
CRASH_SIGNALS = frozenset({3, 4, 5, 6, 7, 8, 11, 31})
SIGNALLED = 128
"""A shell reports death by signal n as 128 + n."""
SIGNALS = 64

WORDS = {
    USAGE_WINDOW: (
        r"usage limit|session limit|5-hour limit|weekly limit|hit your (?:\w+ )?limit|(?<!rate[ _-])limit reached"
        r"|daily (?:quota|limit)|quota will reset|exhausted your (?:capacity|\w+ quota)|premium request"
    ),
    TOKENS: (
        r"prompt (?:is|as) too long|context[ _](?:window|length)|maximum context|context_length_exceeded"
        r"|input token count|exceeds the maximum number of tokens|token limit|max_(?:output_)?tokens"
    ),
    OVERLOAD: r"overloaded|\b529\b|\b503\b|service unavailable|\bUNAVAILABLE\b|at capacity|high demand",
    RATE_LIMIT: (
        r"rate.?limit|\b429\b|too many requests|RESOURCE_EXHAUSTED|quota exceeded|exceeded your current quota"
    ),
    KILLED: r"terminated by signal SIG(?:KILL|TERM)\b",  # a launcher reports how its program ended
    USER: r"interrupted by user|request interrupted|operation cancelled|user cancell?ed|aborted by user",
    REFUSED: (
        r"invalid api key|please run /login|not logged in|authentication|unauthorized|\b401\b|credit balance"
        r"|no conversation found|no previous sessions found|no rollout found|session not found|no saved session"
        r"|invalid session identifier"
        r"|no session, task, or name matched|already in use|already exists|active writer|permission denied"
    ),
}
"""What vendors print, by cause; the first match counts."""
EPOCH = re.compile(r"limit reached\|(\d{10})(\d{3})?\b", re.IGNORECASE)
RETRY = re.compile(r"retry[-_ ]?after\W{0,4}(\d+(?:\.\d+)?)\s*(ms|m|h|s)?", re.IGNORECASE)
WAIT = re.compile(
    r"(?:(?:try again|retry|reset)\w*|please wait)\s+(?:in|after)\s+((?:\d+(?:\.\d+)?\s*[a-z]+[ ,and]*)+)",
    re.IGNORECASE,
)
PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[dhms]|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?)", re.IGNORECASE)
SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
AT = re.compile(
    r"(?:resets?|try again|available again|until)\s+(?:at\s+|on\s+)?"
    r"(?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s*"
    r"(?:(?P<year>\d{4}),?\s*)?(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap]\.?m\.?)?(?:\s*\((?P<zone>[\w/+-]+)\))?",
    re.IGNORECASE,
)
SOON_SECONDS = 600.0
"""A time of day that passed this recently is not tomorrow's: vendors cut off the seconds, and a limit may end late."""
NEXT_TRY = 15.0
"""How long to wait, in seconds, when the announced time has just passed and the limit still holds."""
MINUTE = 60.0
HALF_A_YEAR = timedelta(days=182)
STACK = re.compile(
    r"^(?:at\s.+:\d+(?::\d+)?\)?(?: \{)?|File \".+\", line \d+.*|Node\.js v\S+|node:\S+:\d+.*|[\[\]{}()^~, ;]*"
    r"|(?:cause|code|details|status|errno|syscall|retryDelayMs|headers|requestID|requireStack)\b:.*|message: ['\"].*)$"
)
"""A line of a stack or of a printed object: it shows where a program failed, not why."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
NOON = 12


class End(NamedTuple):
    """What one line of a JSON stream says about the end of the run."""

    ok: bool | None = None
    """True: finished; False: failed; None: nothing about the end."""
    error: str = ""


def classify(
    lines: Sequence[str], status: int | None, says: Callable[[dict[str, Any]], End], now: float | None = None
) -> Interruption:
    """Why a run stopped; `says` reads one record of the vendor's stream."""
    ok, errors, streamed = _ending(lines, says)
    if status == 0 and (ok or (ok is None and not streamed)):
        return Interruption(FINISHED)
    now = time.time() if now is None else now
    text = "\n".join(errors)[-MESSAGE_LIMIT:]
    by_words = cause_of(text)
    by_status = _by_signal(status)
    # A limit explains a kill (a supervisor may have ended a run that waited for it); other messages do not.
    cause = by_words if by_words and (by_status is None or by_words in (USAGE_WINDOW, RATE_LIMIT)) else by_status
    if cause is None:
        cause = CRASH if status or ok is False else UNKNOWN
    return interruption(cause, text, now)


def cause_of(text: str) -> str | None:
    """The cause that the words of an error name, if they name one."""
    return next((cause for cause, words in WORDS.items() if re.search(words, text, re.IGNORECASE)), None)


def interruption(cause: str, text: str, now: float) -> Interruption:
    """A stop with this cause: what the text means, and the times it states."""
    retry = retry_after(text)
    reset = resets_at(text, now) if cause in (USAGE_WINDOW, RATE_LIMIT, OVERLOAD) else None
    if reset is None and retry is not None and cause == USAGE_WINDOW:
        reset = now + retry
    said = meaning(cause, text)
    return Interruption(cause, said, reset, retry, detail="" if text.strip() == said else text.strip())


def meaning(cause: str, text: str) -> str:
    """The line that says why: the last one that names the cause; else the last one that is no part of a stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not STACK.match(line.strip())]
    words = WORDS.get(cause)
    named = [line for line in lines if words and re.search(words, line, re.IGNORECASE)]
    return (named or lines or [text.strip()])[-1]


def _ending(lines: Sequence[str], says: Callable[[dict[str, Any]], End]) -> tuple[bool | None, list[str], bool]:
    ok: bool | None = None
    errors = []
    streamed = False
    for line in lines:
        record = record_in(line)
        if record is None:
            if line.strip():
                errors.append(line.strip())
            continue
        streamed = True
        end = says(record)
        ok = end.ok if end.ok is not None else ok
        if end.error:
            errors.append(end.error)
    return ok, errors, streamed


def record_in(line: str) -> dict[str, Any] | None:
    """A line of a JSON stream; None for plain text."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def text_in(value: object) -> str:
    """The text of an error, whatever its form."""
    if isinstance(value, dict):
        words = [
            text_in(value.get(name))
            for name in ("type", "name", "code", "status", "message", "error", "data", "result")
        ]
        return " ".join(word for word in words if word)
    if isinstance(value, list):
        return " ".join(filter(None, map(text_in, value)))
    return "" if value is None or isinstance(value, bool) else str(value)


def _by_signal(status: int | None) -> str | None:
    if status is None or 0 <= status <= SIGNALLED or status > SIGNALLED + SIGNALS:
        return None
    number = -status if status < 0 else status - SIGNALLED
    return USER if number in USER_SIGNALS else CRASH if number in CRASH_SIGNALS else KILLED


def retry_after(text: str) -> float | None:
    """How many seconds to wait, if a message says so."""
    if found := RETRY.search(text):
        unit = (found[2] or "s").lower()
        return float(found[1]) * (0.001 if unit == "ms" else SECONDS[unit])
    if found := WAIT.search(text):
        pieces = PIECE.findall(found[1])
        total = sum(float(n) * (0.001 if unit.lower() == "ms" else SECONDS[unit[0].lower()]) for n, unit in pieces)
        return total or None
    return None


def resets_at(text: str, now: float) -> float | None:
    """When a limit ends, in any form that vendors print: an epoch, a time of day, a date, or hours from now."""
    if found := EPOCH.search(text):
        return float(found[1])
    wait = WAIT.search(text)
    if wait is None and (found := AT.search(text)):
        return _time_of(found, now)
    seconds = retry_after(text)
    return None if seconds is None else now + seconds


def _time_of(found: re.Match[str], now: float) -> float | None:
    zone = _zone(found["zone"])
    here = datetime.fromtimestamp(now, zone) if zone else datetime.fromtimestamp(now, UTC).astimezone()
    hour, half = int(found["hour"]), (found["half"] or "").replace(".", "").lower()
    if half:
        if hour > NOON:
            return None
        hour = hour % NOON + (NOON if half == "pm" else 0)
    elif found["minute"] is None and not found["month"]:
        return None  # a bare number is no time of day
    try:
        then = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"]:
            month = MONTHS.index(found["month"].lower()) + 1
            then = then.replace(month=month, day=int(found["day"]), year=int(found["year"] or then.year))
        return _ahead(then, here, dated=bool(found["month"]), year=bool(found["year"]))
    except ValueError:
        return None


def _ahead(then: datetime, here: datetime, *, dated: bool, year: bool) -> float:
    """The moment that is meant: a time without a date, or a date without a year, is the next one, or just passed."""
    past = (here - then).total_seconds()
    if past < 0:
        return then.timestamp()
    if past <= SOON_SECONDS or (dated and not year and here - then < HALF_A_YEAR):
        return max(then.timestamp() + MINUTE, here.timestamp() + NEXT_TRY)
    if dated:
        return then.timestamp() if year else then.replace(year=then.year + 1).timestamp()
    return (then + timedelta(days=1)).timestamp()


def _zone(name: str | None) -> tzinfo | None:
    if not name:
        return None
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return UTC if name.upper() in ("UTC", "GMT", "Z") else None
