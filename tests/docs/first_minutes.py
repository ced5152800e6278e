"""The commands of docs/guide/first-five-minutes.md, by the reader they are for."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "first-five-minutes.md"
_BLOCK = re.compile(r"^```console (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Typed(NamedTuple):
    """A command as a reader types it, and the exit code that the guide announces."""

    words: list[str]
    code: int


def commands_for(reader: str, variables: dict[str, str] | None = None) -> list[Typed]:
    """The commands for one reader, in order. A line `exit N` belongs to the command above it."""
    found: list[Typed] = []
    for line in "".join(body for name, body in _BLOCK.findall(GUIDE.read_text()) if name == reader).splitlines():
        if line.startswith("$ "):
            words = [(variables or {}).get(word.removeprefix("$"), word) for word in shlex.split(line[2:])]
            found.append(Typed(words, 0))
        else:
            found[-1] = found[-1]._replace(code=int(line.removeprefix("exit ")))
    return found


def readers() -> set[str]:
    return {name for name, _body in _BLOCK.findall(GUIDE.read_text())}
