"""The user's own rules, from the table `[secrets]` of the settings: patterns with keywords, an allow list, people."""

from __future__ import annotations

import re
from re import _constants as op  # type: ignore[attr-defined]  # only the parser knows what a pattern repeats
from re import _parser as parser  # type: ignore[attr-defined]  # as above

from onrecord.errors import InvalidInput
from onrecord.redaction.scanner import STRETCH, OwnRule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KIND = re.compile(r"[a-z][a-z0-9-]{0,40}")
RULES_LIMIT = 200
"""How many rules a user may have."""
WAYS_LIMIT = 8 * STRETCH
"""In how many ways a pattern may match one text; a pattern with more can take for ever to find that it does not."""
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)
_LUHN = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_CARD = range(13, 20)
_PHONE_LEAST = 9


def rules_of(chosen: Any) -> list[OwnRule]:
    """The rules of `[[secrets.rules]]`: `kind`, `pattern` (its group `secret`, or all of it), `keywords`."""
    if not isinstance(chosen, list) or len(chosen) > RULES_LIMIT:
        raise InvalidInput(f"secrets.rules must be up to {RULES_LIMIT} tables", hint="write each as [[secrets.rules]]")
    return [_rule(one) for one in chosen]


def _rule(one: Any) -> OwnRule:
    keywords = one.get("keywords", []) if isinstance(one, dict) else None
    known = isinstance(one, dict) and set(one) <= {"kind", "pattern", "keywords"}
    texts = isinstance(keywords, list) and all(isinstance(word, str) and word for word in keywords)
    if not known or not texts or not KIND.fullmatch(str(one.get("kind"))) or not isinstance(one.get("pattern"), str):
        raise InvalidInput(
            "a rule of secrets.rules is not complete",
            hint='it has kind = "our-token", pattern = "ours_[a-z0-9]{20}" and keywords = ["ours_"]',
        )
    words = tuple(word.lower().encode() for word in keywords or ())
    pattern = _compiled(one["pattern"])
    _least, most = parser.parse(pattern.pattern).getwidth()
    return OwnRule(one["kind"], words, pattern, in_stretches=most > STRETCH)


def allowed(chosen: Any) -> list[re.Pattern[bytes]]:
    """The patterns of `secrets.allow`: a value that one of them matches as a whole is no secret."""
    if not isinstance(chosen, list) or not all(isinstance(one, str) for one in chosen):
        raise InvalidInput("secrets.allow must be a list of patterns", hint='for example allow = ["AKIAEXAMPLE.*"]')
    return [_compiled(one) for one in chosen]


def _compiled(pattern: str) -> re.Pattern[bytes]:
    try:
        made = re.compile(pattern.encode())
        ways = _ways(parser.parse(made.pattern))
    except (re.error, RecursionError, OverflowError) as problem:
        raise InvalidInput(
            f"{pattern!r:.80} is not a pattern: {problem}", hint="use Python's regular expressions"
        ) from None
    if ways > WAYS_LIMIT:
        raise InvalidInput(
            f"the pattern {pattern!r:.80} can take very long: it can match one text in too many ways",
            hint="give all but one of its repetitions a small limit: [a-z]{1,20} for [a-z]+",
        )
    return made


def _ways(parsed: Any) -> int:
    """In how many ways a pattern can match one text at one place, at most: what backtracking may have to try."""
    ways = 1
    for code, about in parsed:
        if code in _REPEATS:
            least, most, body = about
            inner, most = _ways(body), min(int(most), STRETCH)
            ways *= (most - least + 1) * inner ** min(most, 64)
        elif code is op.BRANCH:
            ways *= sum(map(_ways, about[1]))
        elif code is op.SUBPATTERN:
            ways *= _ways(about[-1])
        elif code in (op.ASSERT, op.ASSERT_NOT):
            ways *= _ways(about[1])
        ways = min(ways, WAYS_LIMIT + 1)
    return ways


def _checks_out(value: bytes) -> bool:
    """Whether the last digit of a card number fits the others."""
    digits = [int(chr(one)) for one in value if chr(one).isdigit()]
    total = sum(_LUHN[one] if number % 2 else one for number, one in enumerate(reversed(digits)))
    return len(digits) in _CARD and total % 10 == 0 and len(set(digits)) > 1


def _is_iban(value: bytes) -> bool:
    plain = value.replace(b" ", b"").decode()
    return int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97 == 1


def _is_phone(value: bytes) -> bool:
    return sum(chr(one).isdigit() for one in value) >= _PHONE_LEAST


PERSONAL = (
    OwnRule("mail-address", (b"@",), re.compile(
        rb"(?<![\w.%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")),
    OwnRule("phone-number", (b"+", b"00"), re.compile(
        rb"(?<![\w.])(?:\+|00)[1-9]\d{0,2}[ ./()-]{0,2}(?:\d[ ./()-]{0,2}){6,12}\d(?!\d)"),
            _is_phone),
    OwnRule("card-number", (), re.compile(
        rb"(?<![\w.-])[2-6]\d{3}(?:[ -]?\d{4}){2}[ -]?\d{1,7}(?![\w-])"), _checks_out),
    OwnRule("iban", (), re.compile(rb"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)"), _is_iban),
)  # fmt: skip
"""Rules for personal data, off unless they are asked for."""
