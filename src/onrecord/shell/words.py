"""A command line as a shell reads it: simple commands, their words, redirections and here-documents.

Quotes matter here: `grep '>' file` writes nothing. A word is *sure* if it has no variable and no command in it.
"""

from __future__ import annotations

_OPERATORS = ";|()"


class Word:
    """One word of a command, without its quotes."""

    __slots__ = ("sure", "text")

    def __init__(self, text: str, sure: bool = True) -> None:  # noqa: FBT001, FBT002  # a word and a fact about it
        self.text = text
        self.sure = sure


class Simple:
    """One simple command."""

    __slots__ = ("body", "inner", "words", "written")

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.written: list[Word] = []
        """The files that its output is redirected to."""
        self.inner: list[str] = []
        """The command lines inside it: `$(...)`, backquotes, `<(...)`."""
        self.body = ""
        """Its here-document."""


def simple_commands(text: str) -> list[Simple] | None:
    """The simple commands of a command line, in order; None if it cannot be read, for instance with an open quote."""
    try:
        return _Lexer(text).commands()
    except IndexError:
        return None


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found = [Simple()]
        self.word: list[str] | None = None
        self.sure = True
        self.bare = True
        self.redirects = ""
        """The redirection whose target is read next."""
        self.waiting: list[tuple[Simple, str, bool]] = []
        """Here-documents that begin at the next line: their command, their end, and whether tabs are removed."""

    def commands(self) -> list[Simple]:
        while self.at < len(self.text):
            self.step(self.text[self.at])
        self.end_word()
        return [one for one in self.found if one.words or one.written or one.inner]

    def step(self, letter: str) -> None:
        if letter == "\n":
            self.end_command()
            self.at += 1
            self.read_bodies()
        elif letter.isspace():
            self.end_word()
            self.at += 1
        elif letter == "#" and self.word is None:
            end = self.text.find("\n", self.at)
            self.at = end if end >= 0 else len(self.text)
        elif letter in "<>" or (letter == "&" and self.ahead(1) == ">"):
            self.redirect(letter)
        elif letter in _OPERATORS or letter == "&":
            self.end_command()
            self.at += 1
        else:
            self.letter(letter)

    def ahead(self, count: int) -> str:
        return self.text[self.at + count : self.at + count + 1]

    def add(self, text: str, *, sure: bool = True, bare: bool = False) -> None:
        self.word = [*(self.word or []), text]
        self.sure = self.sure and sure
        self.bare = self.bare and bare

    def letter(self, letter: str) -> None:
        """One letter of a word, with what quotes and expansions make of it."""
        if letter == "\\":
            following = self.text[self.at + 1]
            self.at += 2
            if following != "\n":
                self.add(following)
        elif letter == "'":
            end = _find(self.text, "'", self.at + 1)
            self.add(self.text[self.at + 1 : end])
            self.at = end + 1
        elif letter == '"':
            self.at += 1
            self.add("")
            while self.text[self.at] != '"':
                self.quoted(self.text[self.at])
            self.at += 1
        elif letter in "$`":
            self.expand(letter)
        else:
            self.add(letter, bare=True)
            self.at += 1

    def quoted(self, letter: str) -> None:
        if letter == "\\" and self.ahead(1) in ("$", "`", '"', "\\", "\n"):
            self.add(self.ahead(1).replace("\n", ""))
            self.at += 2
        elif letter in "$`":
            self.expand(letter)
        else:
            self.add(letter)
            self.at += 1

    def expand(self, letter: str) -> None:
        """A variable or a command inside a word: its value is not known, but the command is read."""
        if letter == "`":
            end = _find(self.text, "`", self.at + 1)
            self.found[-1].inner.append(self.text[self.at + 1 : end])
            self.add("", sure=False)
            self.at = end + 1
        elif self.ahead(1) == "(":
            self.inside(self.at + 2)
            self.add("", sure=False)
        else:
            known = self.ahead(1).isalnum() or self.ahead(1) in ("{", "_", "@", "*", "?", "!", "#", "'")
            self.add("$", sure=not known)
            self.at += 1

    def inside(self, start: int) -> None:
        """The command line in parentheses that begins here; the position afterwards is behind it."""
        depth, at, quote = 1, start, ""
        while depth:
            letter = self.text[at]
            if quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"":
                quote = letter
            else:
                depth += (letter == "(") - (letter == ")")
            at += 1
        self.found[-1].inner.append(self.text[start : at - 1])
        self.at = at

    def redirect(self, letter: str) -> None:
        if self.word is not None and self.bare and "".join(self.word).isdigit():
            self.word = None  # the number of a descriptor, as in `2>`
        self.end_word()
        operator = ""
        while self.at < len(self.text) and self.text[self.at] in "<>&|" and len(operator) < 3:  # noqa: PLR2004  # the longest one is a here-string
            if self.text[self.at] == "|" and operator != ">":
                break
            operator += self.text[self.at]
            self.at += 1
        if letter in "<>" and self.ahead(0) == "(" and operator in ("<", ">"):
            self.inside(self.at + 1)
            return
        if operator.startswith("<<") and operator != "<<<":
            operator, stripped = "<<", self.ahead(0) == "-"
            self.at += stripped
            operator += "-" if stripped else ""
        self.redirects = operator

    def end_word(self) -> None:
        if self.word is not None:
            word = Word("".join(self.word), self.sure)
            operator, self.redirects = self.redirects, ""
            if not operator:
                self.found[-1].words.append(word)
            elif operator in ("<<", "<<-"):
                self.waiting.append((self.found[-1], word.text, operator == "<<-"))
            elif operator == "<<<":
                self.found[-1].body = word.text
            elif ">" in operator and not (operator.endswith("&") and (word.text.isdigit() or word.text == "-")):
                self.found[-1].written.append(word)
        self.word, self.sure, self.bare = None, True, True

    def end_command(self) -> None:
        self.end_word()
        self.redirects = ""
        self.found.append(Simple())

    def read_bodies(self) -> None:
        for command, end, stripped in self.waiting:
            lines = []
            while self.at < len(self.text):
                line, _newline, _rest = self.text[self.at :].partition("\n")
                self.at += len(line) + 1
                if (line.lstrip("\t") if stripped else line) == end:
                    break
                lines.append(line)
            command.body = "\n".join(lines)
        self.waiting = []


def _find(text: str, letter: str, start: int) -> int:
    found = text.find(letter, start)
    if found < 0:
        raise IndexError(letter)
    return found
