"""Cleaning values: every text inside a payload, with its structure kept; and records that are JSON text, in place.

A secret becomes `[secret:KIND:MARK]`. The mark is a keyed hash: equal secrets of one store have equal marks, so work
can refer to them, and a guess cannot be checked without the store's key. A text is never decoded and written again as a
whole: only the JSON string that had the secret is, so a vendor's record stays as it was around it.
"""

from __future__ import annotations

from onrecord import lean_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable
    from typing import Any

    from onrecord.redaction.scanner import Scanner, Span

MARK_DIGITS = 4
"""How many hexadecimal digits of the keyed hash a placeholder shows."""
NAMED_LIMIT = 512
"""Up to how many bytes a text is judged by the name it is under."""
# As text: a process that finds no secret compiles none of them.
PLACEHOLDER_START = "[secret:"
PLACEHOLDER = r"\[secret:([a-z0-9-]{1,64}):[0-9a-f]{4}\]"
_SPACE = rb"\\+[nrt]|\s"
_STRING = r'(?s)"((?:[^"\\]|\\.)*+)"(\s*:)?'

Found = dict[tuple[str, str], int]
"""How often each kind was found, by kind and place."""


class Cleaner:
    """Replaces the secrets of values and counts them by kind and place; with `replace=False` it only counts."""

    def __init__(self, scanner: Scanner, key: Callable[[], bytes], *, replace: bool = True) -> None:
        self._scanner = scanner
        self._key = key
        self._replace = replace
        self.found: Found = {}

    def text(self, text: str, place: str, name: str = "") -> str:
        """A text without its secrets; `name` is the name it is under."""
        data = text.encode(errors="surrogatepass")
        if name and len(data) <= NAMED_LIMIT and self._scanner.names(name):
            front = f'{name}="'.encode(errors="replace")
            spans = [
                one._replace(start=one.start - len(front), end=one.end - len(front))
                for one in self._scanner.find(front + data + b'"')
                if one.start >= len(front)
            ]
        else:
            spans = self._scanner.find(data)
        return self._replaced(data, spans, place).decode(errors="surrogatepass") if spans else text

    def _replaced(self, data: bytes, spans: list[Span], place: str) -> bytes:
        parts, end = [], 0
        for span in spans:
            self.found[span.kind, place] = self.found.get((span.kind, place), 0) + 1
            parts += [data[end : span.start], self._placeholder(span.kind, data[span.start : span.end])]
            end = span.end
        return b"".join([*parts, data[end:]]) if self._replace else data

    def _placeholder(self, kind: str, secret: bytes) -> bytes:
        import re
        from hashlib import blake2b  # a process that finds nothing does not load it

        digest = blake2b(re.sub(_SPACE, b"", secret), key=self._key()[:64], digest_size=8).hexdigest()
        return f"[secret:{kind}:{digest[:MARK_DIGITS]}]".encode()

    def value(self, value: Any, place: str = "", name: str = "") -> Any:
        """A copy of a JSON value without secrets; parts that have none are the same objects."""
        if isinstance(value, str):
            return self.text(value, place, name)
        if isinstance(value, dict):
            label = value.get("name", value.get("key"))
            under = label if isinstance(label, str) and "value" in value else ""
            made = {}
            for key, part in value.items():
                known = self.text(key, place)  # a secret may be a name, too
                inside = f"{place}.{known}" if place else known
                made[known] = self.value(part, inside, under if under and key == "value" else known)
            return made
        if isinstance(value, list):
            return [self.value(part, f"{place}[{number}]", name) for number, part in enumerate(value)]
        return value

    def record(self, raw: str, place: str) -> str:
        """A record in JSON text, each of its strings cleaned in place; other text as a whole."""
        if not self._scanner.find(raw.encode(errors="surrogatepass")):
            return raw
        if raw[:1] not in "{[" or not _is_json(raw):
            return self.text(raw, place)
        import json
        import re

        name = ""

        def clean(found: re.Match[str]) -> str:
            nonlocal name
            try:
                text = json.loads(f'"{found[1]}"', strict=False)
            except ValueError:
                return found[0]
            cleaned = self.text(text, place, "" if found[2] is not None else name)
            if found[2] is not None:
                name = cleaned
            written = f'"{found[1]}"' if cleaned == text else json.dumps(cleaned, ensure_ascii="\\u" in found[1])
            return written + (found[2] or "")

        return re.sub(_STRING, clean, raw)


def _is_json(raw: str) -> bool:
    try:
        lean_json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True
