"""Scanner: the spans of a text that are secrets, each with its kind.

One search for literals, then a bounded pattern at each of them. Specific formats count before named values, which
count before nothing; spans that meet become one. Placeholders of an earlier pass are left alone.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64

from onrecord.lean_typing import NamedTuple
from onrecord.redaction.anchors import Anchors
from onrecord.redaction.formats import ALONE, BEFORE, ENCODED, FORMATS, REACH_BACK
from onrecord.redaction.keyed import KEYWORDS, SURROUNDED, accepts, compiled, keyed_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Mapping

SPACED = (b"flyv1", b"-----begin", b"private-lines:", b"privatekey")
"""Literals of formats that may stand apart from their token."""
KEY_END = b"-----end"
KEY_LINES = 200
"""How many lines of a private key are looked for before its end."""
KEY_LINE_LEAST = 40
"""The shortest line of a private key, apart from its last one."""
KEYED_KIND = "keyed-value"
ENCODED_BYTES = 4_096
"""How much of a base64 text is decoded at a time, in characters."""
ENCODED_LEAST = 4
"""The fewest characters of a beginning in base64 that are searched."""
STRETCH = 1_024
"""Over how many bytes at a time a user's pattern runs that repeats something without a limit: its time may grow with
the square of that."""
DEPTH = 2
"""How often base64 inside base64 is decoded."""
_ESCAPE = rb"(?:\\[nrtbfv0]|\[[0-9;]{0,16}m|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2})\Z"
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_ALONE = _WORD | frozenset(b"-.")
_RUN = rb"[A-Za-z0-9+/]{8,%d}={0,2}" % ENCODED_BYTES
_KEY_END = rb"-----END[A-Z0-9 ]{0,40}PRIVATE KEY"
_KEY_LINE = rb"(?:(?<=\\[nrt])|(?<![A-Za-z0-9+/=\\]))(?P<line>[A-Za-z0-9+/=]{4,80})(?:\s|\\+[nrt]|[+>|,\"']){1,12}\Z"
_MARK = b"[secret:"
_MARKED = rb"\[secret:[a-z0-9-]{1,64}:[0-9a-f]{4}\]"
_CONTINUES = 0x80, 0xC0
_COUNTED = rb's?\\{0,3}":\s?(?:\d[\d.]{0,18}|null)[,}]'
"""What follows a name of JSON whose value is a number, such as a count of tokens: `keyed_value` would refuse it too."""


class Span(NamedTuple):
    """A secret: its bytes in the text, and what it is."""

    start: int
    end: int
    kind: str


class OwnRule(NamedTuple):
    """A rule of the user: its pattern runs over texts that have one of the literals (all texts, if there are none)."""

    kind: str
    literals: tuple[bytes, ...]
    """In lower case."""
    pattern: re.Pattern[bytes]
    """Its group `secret` is replaced, or all of it if it has none."""
    accepts: Callable[[bytes], bool] | None = None
    in_stretches: bool = False
    """Whether the pattern has no limit of its own: it then runs over one stretch of a text after the other."""


class _Format:
    """A format, compiled when its literal is first seen."""

    __slots__ = ("_before", "_compiled", "_pattern", "edge", "kind")

    def __init__(self, kind: str, pattern: str, edge: int) -> None:
        self.kind = kind
        self.edge = edge
        self._pattern = pattern
        self._compiled: re.Pattern[bytes] | None = None
        self._before: re.Pattern[bytes] | None = None

    def find(self, data: bytes, start: int) -> tuple[int, int] | None:
        if self.edge and not _has_edge(data, start, _ALONE if self.edge == ALONE else _WORD):
            return None
        if self._compiled is None:
            import re

            before = BEFORE.get(self.kind)
            self._before = re.compile(before.encode()) if before else None
            self._compiled = re.compile(self._pattern.encode())  # last: another thread may see this one and not wait
        found = self._compiled.match(data, start)
        if found is None:
            return None
        begin, end = found.span("secret" if "secret" in self._compiled.groupindex else 0)
        if self._before is not None:
            front = self._before.search(data[max(0, start - REACH_BACK) : start])
            if front is None:
                return None
            begin = start - len(front.group())
        return begin, end


class Scanner:
    """Finds secrets. `known` are exact values, `own` the user's rules; what `allow` matches is no secret."""

    def __init__(
        self, *, known: Mapping[str, str] | None = None, own: Iterable[OwnRule] = (),
        allow: Iterable[re.Pattern[bytes]] = (), way: str | None = None,
    ) -> None:  # fmt: skip
        self._allow = tuple(allow)
        self._known: dict[bytes, tuple[bytes, str]] = {}
        for value, kind in (known or {}).items():
            for form in _forms(value):
                self._known.setdefault(form.lower(), (form, kind))
        self._rules: dict[bytes, list[_Format]] = {}
        for kind, literals, pattern, edge in FORMATS:
            made = _Format(kind, pattern, edge)
            for word in literals.split():
                self._rules.setdefault(word.encode(), []).append(made)
        self._around: dict[bytes, list[tuple[str, bytes]]] = {}
        for kind, announced, expression in SURROUNDED:
            for literal in _literals(announced):
                self._around.setdefault(literal, []).append((kind, expression))
        self._own = tuple(own)
        self._keywords = frozenset(word.encode() for word in KEYWORDS)
        self._encoded = dict(_encoded())
        found = sorted({*self._rules, *self._around, *self._keywords, *self._encoded, *self._known, KEY_END})
        anywhere = {*self._around, *self._keywords, *self._known, *SPACED, KEY_END}
        self._anchors = Anchors(found, anywhere, way=way)
        more = {*self._rules, *self._around, *self._encoded, *self._known, KEY_END}
        self._only_names = [len(one) if one in self._keywords and one not in more else 0 for one in found]
        """By the number of a literal: its size if it is part of a name and nothing else, as most hits in texts are."""

    def find(self, data: bytes, depth: int = 0) -> list[Span]:
        """The secrets of a text, in order, apart from one another; the text may be JSON, escaped as it is."""
        hits = self._anchors.hits(data)
        own = self._owned(data) if self._own and not depth else []
        return self._judge(data, hits, own, depth) if hits or own else []

    def names(self, key: str) -> bool:
        """Whether a value under this name may be a secret only because of the name."""
        lowered = key.lower().encode(errors="replace") + b":"
        return any(word in lowered for word in self._keywords)

    def _owned(self, data: bytes) -> list[Span]:
        found, lowered = [], data.lower()
        for rule in self._own:
            if rule.literals and not any(literal in lowered for literal in rule.literals):
                continue
            group = "secret" if "secret" in rule.pattern.groupindex else 0
            for match in _in_stretches(rule.pattern, data) if rule.in_stretches else rule.pattern.finditer(data):
                start, end = match.span(group)
                if end > start and (rule.accepts is None or rule.accepts(data[start:end])):
                    found.append(Span(start, end, rule.kind))
        return found

    def _judge(self, data: bytes, hits: list[tuple[int, int]], own: list[Span], depth: int) -> list[Span]:
        certain: list[Span] = own
        named: list[Span] = []
        decoded = [0, 0, 0]
        literals = self._anchors.literals
        reached = named_reached = 0
        for number, start in hits:
            if size := self._only_names[number]:
                after = start + size
                if start < named_reached or _in_prose(data, start, after) or compiled(_COUNTED).match(data, after):
                    continue
                if (pair := keyed_value(data, start)) is not None:
                    named.append(Span(*pair, KEYED_KIND))
                    named_reached = pair[1]
                continue
            literal = literals[number]
            if start >= reached:
                for rule in self._rules.get(literal, ()):
                    if (span := rule.find(data, start)) is not None:
                        certain.append(Span(*span, rule.kind))
                        reached = max(reached, span[1])
                for kind, pattern in self._around.get(literal, ()):
                    if (pair := _surrounded(kind, pattern, data, start)) is not None:
                        certain.append(Span(*pair, kind))
                if literal == KEY_END and (pair := _key_before(data, start)) is not None:
                    certain.append(Span(*pair, "private-key"))
                if (known := self._known.get(literal)) is not None and data.startswith(known[0], start):
                    certain.append(Span(start, start + len(known[0]), known[1]))
                for offset in self._encoded.get(literal, ()) if depth < DEPTH else ():
                    certain += self._in_base64(data, start, offset, decoded, depth)
            if start >= named_reached and literal in self._keywords and (pair := keyed_value(data, start)) is not None:
                named.append(Span(*pair, KEYED_KIND))
                named_reached = pair[1]
        return self._apart(data, certain, named)

    def _in_base64(self, data: bytes, start: int, offset: int, decoded: list[int], depth: int) -> list[Span]:
        """Secrets inside base64: a literal was seen there, `offset` bytes after the beginning of a group of three."""
        group = start - _skipped(offset)
        if start < decoded[offset] or group < 0:
            return []
        found = compiled(_RUN).match(data, group)
        if found is None:
            return []
        decoded[offset] = found.end()
        run = found.group().rstrip(b"=")
        try:
            inner = a2b_base64(run + b"=" * (-len(run) % 4))
        except ValueError:
            inner = a2b_base64(run[: len(run) // 4 * 4])
        spans = []
        for one in self.find(inner[offset:], depth + 1):
            begin, end = (one.start + offset) * 4 // 3, -(-(one.end + offset) * 4 // 3)
            spans.append(Span(group + begin, min(found.end(), group + end), one.kind))
        return spans

    def _apart(self, data: bytes, certain: list[Span], named: list[Span]) -> list[Span]:
        if not certain and not named:
            return []
        taken = _merged(certain)
        taken = _merged(
            taken + [one for one in named if not any(one.start < it.end and it.start < one.end for it in taken)]
        )
        marks = [found.span() for found in compiled(_MARKED).finditer(data)] if _MARK in data else []
        whole = [_characters(data, one) for one in taken]
        return [
            one
            for one in whole
            if not any(one.start < end and start < one.end for start, end in marks)
            and not self._is_allowed(data[one.start : one.end])
        ]  # fmt: skip

    def _is_allowed(self, value: bytes) -> bool:
        return any(pattern.fullmatch(value) for pattern in self._allow)


def _in_stretches(pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """The matches of a pattern in stretches that overlap by half; what two of them cut in different ways is merged."""
    for start in range(0, max(1, len(data) - STRETCH // 2), STRETCH // 2):
        yield from pattern.finditer(data, start, start + STRETCH)


def _in_prose(data: bytes, start: int, end: int) -> bool:
    """Whether short words follow a name, as in a sentence: `keyed_value` would see the same, more slowly."""
    return (
        data[end : end + 1] == b" "
        and data[end + 1 : end + 2].islower()
        and b" " in data[end + 2 : end + 21]
        and b"-" not in data[max(0, start - 24) : start]
    )


def _surrounded(kind: str, pattern: bytes, data: bytes, start: int) -> tuple[int, int] | None:
    found = compiled(pattern).match(data, start)
    if found is None:
        return None
    begin, end = found.span("secret")
    return (begin, end) if accepts(kind, data[begin:end]) else None


def _key_before(data: bytes, start: int) -> tuple[int, int] | None:
    """The lines of a private key whose beginning is missing, because the text was cut."""
    if compiled(_KEY_END).match(data, start) is None:
        return None
    begin = start
    for number in range(KEY_LINES):
        found = compiled(_KEY_LINE).search(data, max(0, begin - 120), begin)
        if found is None or (number and len(found["line"]) < KEY_LINE_LEAST):
            break
        begin = found.start("line")
    return (begin, start) if begin < start else None


def _merged(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for one in sorted(spans, key=lambda span: (span.start, -span.end)):
        if found and one.start < found[-1].end:
            if one.end > found[-1].end:
                found[-1] = found[-1]._replace(end=one.end)
        else:
            found.append(one)
    return found


def _characters(data: bytes, span: Span) -> Span:
    """The span, widened to whole characters of UTF-8."""
    start, end = span.start, span.end
    while start > 0 and _CONTINUES[0] <= data[start] < _CONTINUES[1]:
        start -= 1
    while end < len(data) and _CONTINUES[0] <= data[end] < _CONTINUES[1]:
        end += 1
    return Span(start, end, span.kind)


def _has_edge(data: bytes, start: int, word: frozenset[int]) -> bool:
    return (
        start == 0
        or data[start - 1] not in word
        or compiled(_ESCAPE).search(data, max(0, start - 20), start) is not None
    )


def _literals(text: str) -> list[bytes]:
    """The literals of a list; `identified by` and others with a space are one each."""
    if text in ("identified by", '"auth'):
        return [text.encode()]
    return [word.encode() for word in text.split()]


def _forms(value: str) -> Iterable[bytes]:
    """A known value as it is, as JSON writes it, as a URL has it and as base64."""
    from json import dumps

    plain = value.encode()
    found = {plain, dumps(value)[1:-1].encode(), dumps(value, ensure_ascii=False)[1:-1].encode()}
    found.add(
        "".join(c if c.isalnum() or c in "-._~" else "".join(f"%{b:02X}" for b in c.encode()) for c in value).encode()
    )
    found.add(b2a_base64(plain, newline=False).rstrip(b"="))
    return found


def _skipped(offset: int) -> int:
    """How many characters of base64 belong to the bytes before: the first one that is wholly ours comes after them."""
    return (0, 2, 3)[offset]


def _encoded() -> Iterable[tuple[bytes, list[int]]]:
    found: dict[bytes, list[int]] = {}
    for beginning in ENCODED:
        for offset in range(3):
            whole = bytes(offset) + beginning.encode()
            sure = b2a_base64(whole, newline=False)[_skipped(offset) : len(whole) * 8 // 6]
            if len(sure) >= ENCODED_LEAST:
                found.setdefault(sure.lower(), []).append(offset)
    return found.items()
