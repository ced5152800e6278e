"""Where a text has one of many literals: by a library for it if one is installed, else in plain Python.

Three ways, each faster than the one before and dearer to set up, so a process takes the next one when it has looked
through enough: a hook, which looks at little, stays with plain Python. That finds whatever can lead to a secret: most
literals begin a token, so it looks for them only in long words that are not all lower-case letters. The automaton reads
a text once for all literals, byte by byte; the vectors of a processor read many bytes at a time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PLAIN, AUTOMATON, VECTORS = "plain", "automaton", "vectors"
AUTOMATON_FROM = 16 * 1024
"""How many bytes a process has looked through before it builds the automaton, which takes a millisecond."""
VECTORS_FROM = 2 * 1024 * 1024
"""How many bytes before it loads and builds the search with vectors, which takes 40 milliseconds."""
SHORTEST_TOKEN = 16
"""A word of fewer characters contains no token."""
STEM = 5
"""How many bytes of a literal the automaton knows: its table must fit into a processor's cache."""
COMMON = b'x-=k_)(`:.,\n"gvbypumfwcldhrisnaote '
"""The characters of ordinary texts, the most common one last: a stem begins with a rare one, where there is one."""
Hit = tuple[int, int]
"""The number of a literal, and where it begins."""
if TYPE_CHECKING:
    Search = Callable[[bytes], list[Hit]]
_GATES = (b"pass", b"pw", b"secret", b"token", b"key", b"credential", b"auth")
_DIGITS = b"0123456789"


class Anchors:
    """A set of literals in lower case; `anywhere` are those that need not be part of a long word."""

    def __init__(self, literals: list[bytes], anywhere: Iterable[bytes] = (), *, way: str | None = None) -> None:
        self.literals = literals
        self._looked = 0
        self._search = _plain(literals, set(anywhere))
        self._later = [(0 if way else least, make) for least, of, make in _FASTER if way in (None, of)]
        """The ways that were not worth it so far: from how many bytes on they are."""

    def hits(self, data: bytes) -> list[Hit]:
        """The literals of a text that may lead to a secret, in the order of the text."""
        if self._later:
            self._looked += len(data)
            self._hasten()
        return self._search(data)

    def _hasten(self) -> None:
        later = self._later
        while later and self._looked >= later[0][0]:
            self._search = later[0][1](self.literals) or self._search
            later = self._later = later[1:]


def _plain(literals: list[bytes], free: set[bytes]) -> Search:
    in_words = [(number, one) for number, one in enumerate(literals) if one not in free]
    gated: dict[bytes, list[tuple[int, bytes]]] = {}
    for number, one in enumerate(literals):
        if one in free:
            gate = next((gate for gate in _GATES if gate in one), one)
            gated.setdefault(gate, []).append((number, one))

    def search(data: bytes) -> list[Hit]:
        lowered = data.lower()
        words = b" ".join({word for word in data.split() if len(word) >= SHORTEST_TOKEN and _is_mixed(word)}).lower()
        wanted = [pair for pair in in_words if pair[1] in words] if words else []
        for gate, pairs in gated.items():
            if gate in lowered:
                wanted += pairs
        found: list[Hit] = []
        for number, literal in wanted:
            at = lowered.find(literal)
            while at >= 0:
                found.append((number, at))
                at = lowered.find(literal, at + 1)
        found.sort(key=_start)
        return found

    return search


def _automaton(literals: list[bytes]) -> Search | None:
    try:
        from ahocorasick_rs import BytesAhoCorasick, Implementation
    except ImportError:
        return None
    stems: dict[bytes, list[tuple[int, bytes, int]]] = {}
    for number, literal in enumerate(literals):
        stem, before = _stem(literal)
        stems.setdefault(stem, []).append((number, literal, before))
    by_stem = list(stems.values())
    stems_of = BytesAhoCorasick(list(stems), implementation=Implementation.DFA).find_matches_as_indexes

    def search(data: bytes) -> list[Hit]:
        lowered = data.lower()
        found = [
            (number, start - before)
            for stem, start, _end in stems_of(lowered, overlapping=True)
            for number, literal, before in by_stem[stem]
            if start >= before and lowered.startswith(literal, start - before)
        ]
        found.sort(key=_start)
        return found

    return search


def _vectors(literals: list[bytes]) -> Search | None:
    try:
        import hyperscan
    except ImportError:
        return None
    try:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(
            expressions=literals,
            ids=list(range(len(literals))),
            elements=len(literals),
            flags=[hyperscan.HS_FLAG_CASELESS] * len(literals),
            literal=True,
        )
    except hyperscan.error:  # a processor without the instructions it needs
        return None
    sizes = [len(one) for one in literals]
    spare: list[hyperscan.Scratch] = []
    """Working memory that no search uses: a search in another thread or in a signal handler takes its own."""

    def search(data: bytes) -> list[Hit]:
        found: list[Hit] = []

        def note(number: int, _from: int, end: int, _flags: int, _context: object) -> None:
            found.append((number, end - sizes[number]))

        try:
            scratch = spare.pop()
        except IndexError:
            scratch = hyperscan.Scratch(database)
        database.scan(data, match_event_handler=note, scratch=scratch)
        spare.append(scratch)
        if len(found) > 1:
            found.sort(key=_start)
        return found

    return search


def _start(hit: Hit) -> int:
    return hit[1]


def _stem(literal: bytes) -> tuple[bytes, int]:
    """The part of a literal that ordinary texts have least, and how many bytes are before it."""
    parts = [(literal[at : at + STEM], at) for at in range(max(1, len(literal) - STEM + 1))]
    return min(parts, key=lambda part: [COMMON.find(one) for one in part[0]])


def _is_mixed(word: bytes) -> bool:
    return word != word.lower() or len(word.translate(None, _DIGITS)) < len(word)


_FASTER: list[tuple[int, str, Callable[[list[bytes]], Search | None]]] = [
    (AUTOMATON_FROM, AUTOMATON, _automaton), (VECTORS_FROM, VECTORS, _vectors),
]  # fmt: skip
