"""Where a text has one of many literals: by an automaton if its library is installed, else in plain Python.

The automaton reads a text once for all literals. It takes about a millisecond to load and build, so a process that
looks at little, such as a hook, does without. Plain Python finds whatever can lead to a secret, and is slower: most
literals begin a token, so it looks for them only in long words that are not all lower-case letters.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

AUTOMATON_FROM = 16 * 1024
"""How many bytes a process has looked through before it builds the automaton."""
SHORTEST_TOKEN = 16
"""A word of fewer characters contains no token."""
STEM = 5
"""How many bytes of a literal the automaton knows: its table must fit into a processor's cache."""
Hit = tuple[int, int]
"""The number of a literal, and where it begins."""
_GATES = (b"pass", b"pw", b"secret", b"token", b"key", b"credential", b"auth")
_DIGITS = b"0123456789"


class Anchors:
    """A set of literals in lower case; `anywhere` are those that need not be part of a long word."""

    def __init__(self, literals: list[bytes], anywhere: Iterable[bytes] = (), *, automaton: bool | None = None) -> None:
        self.literals = literals
        self._wanted = automaton
        self._looked = 0
        self._automaton: Any = None
        self._by_stem: list[list[tuple[int, bytes]]] = []
        free = set(anywhere)
        self._in_words = [(number, one) for number, one in enumerate(literals) if one not in free]
        self._gated: dict[bytes, list[Hit | tuple[int, bytes]]] = {}
        for number, one in enumerate(literals):
            if one in free:
                gate = next((gate for gate in _GATES if gate in one), one)
                self._gated.setdefault(gate, []).append((number, one))

    def hits(self, data: bytes, lowered: bytes) -> list[Hit]:
        """The literals of a text that may lead to a secret, in the order of the text."""
        if self._automaton is None and self._wanted is not False:
            self._looked += len(data)
            if self._wanted or self._looked > AUTOMATON_FROM:
                self._build()
        if self._automaton is None:
            return self._plainly(data, lowered)
        found = [
            (number, start)
            for stem, start, _end in self._automaton(lowered, overlapping=True)
            for number, literal in self._by_stem[stem]
            if lowered.startswith(literal, start)
        ]
        found.sort(key=_start)
        return found

    def _build(self) -> None:
        try:
            from ahocorasick_rs import BytesAhoCorasick, Implementation
        except ImportError:
            self._wanted = False
            return
        stems: dict[bytes, list[tuple[int, bytes]]] = {}
        for number, literal in enumerate(self.literals):
            stems.setdefault(literal[:STEM], []).append((number, literal))
        self._by_stem = list(stems.values())
        self._automaton = BytesAhoCorasick(list(stems), implementation=Implementation.DFA).find_matches_as_indexes

    def _plainly(self, data: bytes, lowered: bytes) -> list[Hit]:
        words = b" ".join({word for word in data.split() if len(word) >= SHORTEST_TOKEN and _is_mixed(word)}).lower()
        wanted = [pair for pair in self._in_words if pair[1] in words] if words else []
        for gate, pairs in self._gated.items():
            if gate in lowered:
                wanted += pairs  # type: ignore[arg-type]  # numbers and literals
        found: list[Hit] = []
        for number, literal in wanted:
            at = lowered.find(literal)
            while at >= 0:
                found.append((number, at))
                at = lowered.find(literal, at + 1)
        found.sort(key=_start)
        return found


def _start(hit: Hit) -> int:
    return hit[1]


def _is_mixed(word: bytes) -> bool:
    return word != word.lower() or len(word.translate(None, _DIGITS)) < len(word)
