"""The glossary: thirty words that exist as it says, and phrases that the texts of this repository do not use."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from onrecord.log.events import KINDS

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
ROW = re.compile(r"^\| \*\*(?P<word>[a-z ]+)\*\* \| (?P<meaning>.+) \| (?P<code>.+) \|$", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

COVERED = ("AGENTS.md", "CONTRIBUTING.md", "README.md", "bench", "docs", "examples", "src", "tests", "tools")
"""The files and folders that are held to the list below."""

DIALECT = {
    r"\b(go|goes|went|gone|going) on\b": "continue, keep running, resume",
    r"\btells\b|\b(is|are|was|were|be|been) told\b": "says, reports, shows; gets, reads",
    r"\botherwise\b": "if not, else, or name the case",
    r"\bput(s|ting)? (away|aside)\b": "save, rename, keep",
    r"\bsomebody('s)?\b": "a person, another process, the caller",
    r"\b(nobody|anybody|whoever)\b(?!`)": "name the actor, or say that there is none",
    r"\bput on record\b": "record",
    r"\bunder way\b": "in progress, running",
    r"\b(is|are) to\b(?! [`\d])": "must, should, will",
    r"\b(has|have) more than (the|before)\b": "has new messages, grew",
    r"\bat hand\b": "available, in memory",
    r"\blook(s|ed)? at it\b": "check, read, inspect",
    r"\bstands\b|\bstand for\b": "is, remains, replaces, means",
    r"\b(find|finds|found) out\b": "learn, detect, see",
    r"\banew\b": "again",
    r"\bto be had\b": "available",
    r"\bno session fits\b": "no matching sessions",
    r"\bby office\b": "say who does it",
    r"\bwhat is asked of\b": "the request",
}
"""What reads as translated, as a pattern, and plain words for it."""
ANY = re.compile("|".join(f"(?:{pattern})" for pattern in DIALECT), re.IGNORECASE)
"""All patterns in one: most texts have none, and are read once."""


def rows() -> list[dict[str, str]]:
    return [match.groupdict() for match in ROW.finditer(GLOSSARY.read_text())]


def test_the_glossary_has_thirty_words_with_one_meaning_each():
    """Thirty words, each explained once, each with the name it has in the code."""
    words = [row["word"] for row in rows()]
    assert len(words) == 30
    assert len(set(words)) == len(words)


def exists(name: str) -> bool:
    """Whether a name of the third column is a command, an event kind, or a Python name that can be imported."""
    if name.startswith("onrecord "):
        return (
            re.search(rf"^\$ {name} --help$", (ROOT / "docs" / "reference" / "cli.md").read_text(), re.MULTILINE)
            is not None
        )
    if not name.startswith("onrecord."):
        return name in KINDS
    module = name.split(".")
    names: list[str] = []
    while module:
        try:
            value: object = import_module(".".join(module))
        except ModuleNotFoundError:
            names.insert(0, module.pop())
            continue
        for part in names:
            if not hasattr(value, part):
                return part in getattr(value, "__annotations__", ())
            value = getattr(value, part)
        return True
    return False


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["word"])
def test_every_word_exists_in_the_code(row):
    """Every name that the glossary gives for a word is a command, an event kind or a Python name."""
    names = NAME.findall(row["code"])
    assert names
    assert [name for name in names if not exists(name)] == []


def test_a_name_that_does_not_exist_is_found():
    """The check above has teeth: a wrong module, attribute, event kind and command are all found."""
    wrong = ["onrecord.log.nothing", "onrecord.Event.nothing", "turn.superseded", "onrecord nothing"]
    assert not any(exists(name) for name in wrong)


def python_prose(text: str, *, messages: bool = True) -> Iterator[tuple[int, str]]:
    """The comments and docstrings of a program, and its other strings if they are messages, with their lines."""
    # To separate comments from strings takes long: only where something after a # has a phrase of the list.
    if any(ANY.search(" ".join(line.partition("#")[2].split())) for line in text.splitlines() if "#" in line):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        said = node.value if isinstance(node, ast.Expr) else node if messages else None
        if isinstance(said, ast.Constant) and isinstance(said.value, str):
            yield said.lineno, said.value


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The English text of a file, with its lines. Examples inside documents and data of tests do not count."""
    text = path.read_text()
    if path.suffix == ".py":
        yield from python_prose(text, messages=path.is_relative_to(ROOT / "src"))
    elif path.suffix == ".md":
        text = FENCE.sub(lambda fence: "." + "\n" * fence[0].count("\n"), text.partition("\n## Say this")[0])
        yield from ((text[: part.start()].count("\n") + 1, part[0]) for part in re.finditer(r"(.+\n?)+", text))
    elif path.suffix == ".txt":
        yield 1, text.partition("-- log --")[0]
    else:
        yield from enumerate(text.splitlines(), 1)


def files(covered: str) -> list[Path]:
    path = ROOT / covered
    if path.is_file():
        return [path]
    return [
        file
        for suffix in ("md", "py", "toml", "txt", "sql", "js")
        for file in sorted(path.rglob(f"*.{suffix}"))
        if "data" not in file.parts and file != Path(__file__)
    ]


@pytest.mark.parametrize("covered", COVERED)
def test_texts_are_in_plain_words(covered):
    """No text of the covered files uses a phrase of the list; each finding names the line and plain words for it."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r}; plain: {plain}"
        for path in files(covered)
        for line, text in prose(path)
        if ANY.search(said := " ".join(text.split()))
        for pattern, plain in DIALECT.items()
        for match in re.finditer(pattern, said, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)


def test_a_phrase_of_the_list_is_found():
    """The check above has teeth: it reads docstrings, comments and messages of a program."""
    program = '"""Goes on."""\nx = f"{1} is told"  # put away\n'
    said = " ".join(text for _, text in python_prose(program))
    assert sum(bool(re.search(pattern, said, re.IGNORECASE)) for pattern in DIALECT) == 3
    assert "told" not in " ".join(text for _, text in python_prose(program, messages=False))


def test_the_readme_leads_to_the_glossary():
    """A reader of the README finds the glossary."""
    assert "(docs/glossary.md)" in (ROOT / "README.md").read_text()
