"""Text from agents is data: it is shown and never acts."""

import json
import re
import unicodedata

import pytest

ESCAPE = "red \x1b[31mtext\x1b[0m \x1b]0;title\x07"
BIDI = "ends \u202eexe.txt\u202c \u2066x\u2069"
CONTROL = "bell\x07 back\x08space null-ish\x7f c1\x9b31m line\u2028sep zero\u200bwidth"
MANY_LINES = "first\nerror: forged\r\nnote: forged\ttabbed"
HOSTILE = [ESCAPE, BIDI, CONTROL, MANY_LINES]


def harmful(text: str) -> set[str]:
    """Characters that would act on a terminal or hide; line breaks and tabs are ours to write."""
    return {
        letter for letter in text
        if letter not in "\n\t" and unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    }  # fmt: skip


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory, bytecode):
    """A store in which every text is hostile."""
    from tests.cli.conftest import Command

    command = Command(tmp_path_factory.mktemp("poisoned"), bytecode)
    for number, text in enumerate(HOSTILE):
        name = f"s{number}"
        command.ok("open", name, "--objective", text, "--meta", f"key={text}")
        command.ok("decide", text, "--why", text, "--session", name)
        command.ok("evidence", "add", text, "--kind", "log", "--id", "log-1", "--text", text, "--session", name)
        command.ok("finding", "state", text, "--label", "blocked", "--evidence", "log-1", "--session", name)
        command.ok("next", text, "--command", text, "--session", name)
        items = [
            {
                "role": "assistant",
                "content": text,
                "tool_calls": [{"id": "c1", "name": text, "arguments": {text: text}}],
            },
            {"role": "tool", "call": "c1", "content": text},
        ]
        command.ok("record", "--session", name, stdin=json.dumps(items))
        command.ok("pause", name, "--reason", text)
    return command


@pytest.mark.parametrize("number", range(len(HOSTILE)))
@pytest.mark.parametrize(
    "words",
    [["show"], ["note"], ["note", "--format", "brief"], ["log"], ["at", "4"], ["diff", "1"], ["verify"],
     ["export", "--format", "markdown"], ["show", "--json"], ["log", "--json"], ["log", "--jsonl"],
     ["export", "--format", "jsonl"], ["export", "--format", "messages"]],
)  # fmt: skip
def test_reading_is_inert(poisoned, words, number):
    """No control, bidi or invisible character of the record reaches stdout through a reading verb (P31)."""
    out = poisoned.ok(*words, "--session", f"s{number}")
    assert harmful(out) == set()


@pytest.mark.parametrize("words", [[], ["list"], ["search", "ends"], ["search", "red"], ["list", "--json"], ["--json"]])
def test_lists_are_inert(poisoned, words):
    """The overview, lists and search results are inert, and one entry stays on one line (P31)."""
    out = poisoned.ok(*words)
    assert harmful(out) == set()
    if words in ([], ["list"]):
        assert len(out.splitlines()) == len(HOSTILE)
        assert len({line.count("\t") for line in out.splitlines()}) == 1


def test_json_is_exact(poisoned):
    """What JSON escapes is decoded to the same text."""
    for number, text in enumerate(HOSTILE):
        whole = poisoned.data("show", f"s{number}", kind="session")
        assert whole["objective"]["text"] == text
        assert whole["decisions"][0]["why"] == text


@pytest.mark.parametrize("words", [["show", "--session"], ["search"], ["open"], ["log", "--kind"], []])
@pytest.mark.parametrize("text", HOSTILE)
def test_errors_are_inert(poisoned, words, text):
    """Hostile names, kinds and verbs are quoted visibly in errors; a forged line does not become a line (P31)."""
    done = poisoned.run(*words, text)
    assert harmful(done.err + done.out) == set()
    assert "\nerror: forged" not in done.err
    assert len(done.err.splitlines()) <= 3


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/b", ".", "..", "-x", "", "x" * 65, ESCAPE, "a\nb", "$(id)", "~"]
)
def test_hostile_names_are_refused(command, name):
    """An illegal name is refused as a usage error, and no file is created outside the store."""
    before = {path for path in command.place.rglob("*") if "data" not in path.parts}
    done = command.run("open", "--", name)
    assert done.code == 2
    assert {path for path in command.place.rglob("*") if "data" not in path.parts} == before


def test_the_terminal_is_inert_too(poisoned):
    """On a terminal only our own styles are written: no escape sequence of the record reaches it (P31)."""
    for words in (
        ["--no-input"],
        ["list"],
        ["show", "s0"],
        ["log", "s0"],
        ["show", "s1"],
        ["diff", "s0", "1"],
        ["search", "red"],
    ):
        shown = poisoned.on_terminal(*words).out
        styles = re.findall(r"\x1b\[[0-9;]*m", shown)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r\n", "\n")
        assert harmful(plain) == set(), words
        assert "\x1b[31m" not in styles
