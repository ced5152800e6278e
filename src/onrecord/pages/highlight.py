"""Code in colours: comments, strings, numbers and the keywords that most languages share. It does not parse."""

from __future__ import annotations

import re

from onrecord.pages.diffs import diff_lines
from onrecord.pages.text import shown

HIGHLIGHT_LIMIT = 20_000
"""The longest code that is coloured, in characters; longer code is shown as it is."""
_words = str.split
_HASH = frozenset(
    _words(
        "py python python3 pycon sh bash zsh shell console fish yaml yml toml ruby rb perl r ini conf makefile make "
        "dockerfile docker nix elixir julia"
    )
)
_SLASH = frozenset(
    _words(
        "js javascript ts typescript tsx jsx mjs c h cpp c++ cc cs csharp java kotlin kt go golang rust rs swift scala "
        "php json jsonc dart zig css scss less proto groovy"
    )
)
_DASH = frozenset(_words("sql psql mysql lua haskell hs ada"))
_KEYWORDS = frozenset(
    _words(
        "alter and as assert async await break by case catch class const continue create def default del "
        "delete do done drop elif else elseif end enum esac except export extends false False fi final "
        "finally fn for foreach from func function global go group if impl implements import in insert "
        "instanceof interface into is join lambda let local loop match mut namespace new nil none None "
        "nonlocal not null of on or order package pass private protected pub public raise return select self "
        "set static struct super switch table then this throw throws trait true True try type typeof union "
        "unless until update use using values var void when where while with yield "
    )
)
_COLOURED = re.compile(r"<b class=[csnk]>([^<]*)</b>")
_STRING = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
_NUMBER = r"\b\d[\d_]*(?:\.\d+)?\b"
_WORD = r"[A-Za-z_]\w*"


def _pattern(comment: str) -> re.Pattern[str]:
    return re.compile(f"(?P<c>{comment})|(?P<s>{_STRING})|(?P<n>{_NUMBER})|(?P<k>{_WORD})")


_PATTERNS = (
    (_HASH, _pattern(r"(?<![\w$&])#[^\n]*")),
    (_SLASH, _pattern(r"//[^\n]*|/\*(?:[^*]|\*(?!/)){0,5000}\*/")),
    (_DASH, _pattern(r"--[^\n]*")),
)


def uncoloured(html: str) -> str:
    """The same page without colours in code: a long report opens sooner without their elements."""
    return _COLOURED.sub(r"\1", html)


def highlighted(code: str, language: str) -> str:
    """The code, escaped; with colours if its language is known."""
    named = language.lower()
    if named in ("diff", "patch"):
        return diff_lines(code.split("\n"))
    pattern = next((found for names, found in _PATTERNS if named in names), None)
    if pattern is None or len(code) > HIGHLIGHT_LIMIT:
        return shown(code)
    made, end = [], 0
    for found in pattern.finditer(code):
        kind, word = str(found.lastgroup), found[0]
        if kind == "k" and (word.lower() if named in _DASH else word) not in _KEYWORDS:
            continue
        made += [shown(code[end : found.start()]), f"<b class={kind}>{shown(word)}</b>"]
        end = found.end()
    return "".join(made) + shown(code[end:])
