"""Words of a command line, split and quoted as Python's `shlex` does it: attempts on record are compared by this text.

`shlex` imports `re`, which takes longer than a hook's decision.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OPERATORS = "();<>|&"
"""Characters that are words of their own, where operators are wanted."""
_SPACE = " \t\r\n"
_SAFE = frozenset("@%+=:,./-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_BETWEEN, _WORD, _OPERATOR, _SINGLE, _DOUBLE, _ESCAPE = " ", "a", "c", "'", '"', "\\"
_UNENDED = {_ESCAPE: "No escaped character", _SINGLE: "No closing quotation", _DOUBLE: "No closing quotation"}


def split(text: str, operators: str = "") -> Iterator[str]:
    """The words of a text, without their quotes; `ValueError` where a quote or an escape has no end."""
    state, returns, word, quoted = _BETWEEN, _WORD, "", False
    for letter in text:
        if state == _ESCAPE:
            # Between double quotes a backslash escapes only itself and the quote.
            word += letter if returns == _WORD or letter in (_ESCAPE, _DOUBLE) else _ESCAPE + letter
            state = returns
        elif state in (_SINGLE, _DOUBLE):
            if letter == state:
                state = _WORD
            elif letter == _ESCAPE and state == _DOUBLE:
                state, returns = _ESCAPE, _DOUBLE
            else:
                word += letter
        elif state == _OPERATOR and letter in operators:
            word += letter
        else:
            if (state == _OPERATOR or letter in _SPACE or letter in operators) and (word or quoted):
                yield word
                state, word, quoted = _BETWEEN, "", False
            if letter in _SPACE:
                state = _BETWEEN
            elif letter in operators:
                state, word = _OPERATOR, letter
            elif letter in (_SINGLE, _DOUBLE):
                state, quoted = letter, True
            elif letter == _ESCAPE:
                state, returns = _ESCAPE, _WORD
            else:
                state, word = _WORD, word + letter
    if state in _UNENDED:
        raise ValueError(_UNENDED[state])
    if word or quoted:
        yield word


def quote(word: str) -> str:
    """A word quoted for a shell."""
    if word and _SAFE.issuperset(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def join(words: Iterable[str]) -> str:
    """Words as a command line."""
    return " ".join(map(quote, words))
