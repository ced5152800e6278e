"""Words as `shlex` splits and quotes them: attempts on record are compared by this text, so it must not change."""

import shlex

from hypothesis import given
from hypothesis import strategies as st

from onrecord.shell.splitting import OPERATORS, join, quote, split

LINES = st.text("ab \\'\"\n\t\r;&|()<>#é$`~*=.-_/\x0b", max_size=24)


def outcome(words):
    """The words, or what is wrong with the line."""
    try:
        return list(words())
    except ValueError as problem:
        return str(problem)


def by_shlex(text):
    """The words and operators of a line, by the standard library."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return lexer


@given(LINES)
def test_a_line_is_split_as_shlex_splits_it(text):
    """The words of any line, with and without operators, and its errors, are those of `shlex`."""
    assert outcome(lambda: split(text)) == outcome(lambda: shlex.split(text))
    assert outcome(lambda: split(text, OPERATORS)) == outcome(lambda: by_shlex(text))


@given(st.lists(LINES))
def test_words_are_quoted_as_shlex_quotes_them(words):
    """Every word is quoted as `shlex` does it, and splitting the line gives the words back."""
    assert [quote(word) for word in words] == [shlex.quote(word) for word in words]
    assert join(words) == shlex.join(words)
    assert list(split(join(words))) == words
