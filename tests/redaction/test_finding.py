"""Secrets are found in the surroundings agents leave them in, ordinary text is left alone, and no text is slow."""

import json
import sysconfig
import time
from collections import Counter
from pathlib import Path

import pytest

from onrecord.redaction.quick import is_plain
from onrecord.redaction.scanner import Scanner
from onrecord.redaction.values import PLACEHOLDER, Cleaner
from tests.redaction.corpus import CORPUS

UNSEEN = 90_001
"""A seed that no rule was written by."""
KEY = b"k" * 32


@pytest.fixture(scope="module", params=[True, False], ids=["automaton", "plain"])
def scanner(request):
    return Scanner(automaton=request.param)


def cleaned(scanner: Scanner, text: str) -> str:
    return Cleaner(scanner, lambda: KEY).record(text, "text")


def test_the_aims_for_recall_are_met(scanner):
    """Of synthetic secrets in agent-like surroundings at least 98 % of formats and 95 % of all are found."""
    cases = CORPUS.cases(UNSEEN)
    missed = Counter(case.sort for case in cases if CORPUS.leaks(case, cleaned(scanner, case.text)))
    total = Counter(case.sort for case in cases)
    assert len({case.kind for case in cases}) >= 70
    assert missed["format"] <= total["format"] * 0.02, missed
    assert sum(missed.values()) <= len(cases) * 0.05, missed


def test_a_corpus_without_rules_leaks():
    """The measure can fail: untouched, every case leaks."""
    assert all(CORPUS.leaks(case, case.text) for case in CORPUS.cases(UNSEEN, 60))


def test_every_json_stays_json(scanner):
    """A text that was JSON is JSON afterwards, with the same structure around what was replaced."""
    whole = [case.text for case in CORPUS.cases(UNSEEN, 300) if case.text[:1] == "{"]
    assert len(whole) > 50
    for text in whole:
        before, after = json.loads(text), json.loads(cleaned(scanner, text))
        assert before.keys() == after.keys()


def test_ordinary_text_is_left_alone(scanner):
    """In the standard library there is less than one mark in 100 KB, and look-alikes are left alone."""
    marks = size = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:40]:
        data = path.read_bytes()[:30_000]
        marks, size = marks + len(scanner.find(data)), size + len(data)
    assert marks <= size / 100_000, marks
    wrong = [line for line in CORPUS.LOOK_ALIKES if cleaned(scanner, line) != line]
    assert wrong == []


def test_plain_python_finds_what_the_automaton_finds():
    """The library only saves time: both ways mark the same secrets."""
    fast, plain = Scanner(automaton=True), Scanner(automaton=False)
    for case in CORPUS.cases(UNSEEN + 1, 300):
        assert cleaned(fast, case.text) == cleaned(plain, case.text), case


def test_a_cleaned_text_is_clean(scanner):
    """Cleaning twice is cleaning once: a placeholder is no secret."""
    for case in CORPUS.cases(UNSEEN + 2, 200):
        once = cleaned(scanner, case.text)
        assert cleaned(scanner, once) == once


@pytest.mark.parametrize("before", ["\\n", "\\t", "\x1b[31m", "\\u001b[0;33m", "%20", "=", "(", "\\\\n"])
@pytest.mark.parametrize("kind", ["github-classic", "deepseek", "huggingface", "sendgrid", "jwt", "twilio"])
def test_a_token_is_found_right_after_an_escape_or_a_colour(before, kind):
    r"""A word boundary would fail there: `\nsk-...` and a colour's `m` look like part of the word."""
    secret = CORPUS.FORMATS[kind](CORPUS.Random(kind))
    assert secret not in cleaned(Scanner(automaton=True), f"x{before}{secret} y")


HOSTILE = (
    "eyJ", "eyJ-", "sk-ant-", "token=", "password: ", "://a:", "-----BEGIN PRIVATE KEY-----", "AKIA", "Z2hwX", "Oi8v",
    "authorization: bearer ", "cookie: a=", "curl -u ", "mysql -p", "discord ", "-----END PRIVATE KEY-----\n", "x", "=",
    "\\", '\\"token\\":', "ya29.", "ghp_", "pat", "sk", "aA1", "machine a login b ", "token\x1b[0m", "[secret:",
)  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_is_slow(part):
    """No text of 100 KB takes a second, however it repeats what rules look for."""
    finder = Scanner(automaton=True)
    data = (part * (100_000 // len(part) + 1))[:100_000].encode()
    begun = time.process_time()
    finder.find(data)
    finder.find(data + b"A" * 100)
    assert time.process_time() - begun < 2.0  # two of them


def test_a_key_that_was_cut_is_found_from_either_end():
    """Output is kept from its beginning and its end, so a key in it may lack one of its own."""
    key = CORPUS.FORMATS["pem"](CORPUS.Random(5))
    lines = key.split("\n")
    for cut in ("\n".join(lines[:-1]), "\n".join(lines[2:]), "\\n".join(lines[2:])):
        result = cleaned(Scanner(), f"before\n{cut}\nafter, as it was")
        assert not any(line in result for line in lines[2:-1])
        assert result.startswith("before\n")
        assert result.endswith("after, as it was")


def test_equal_secrets_have_equal_marks():
    """A mark identifies a secret within one store, in whatever surroundings; another key gives another mark."""
    token = "ghp_" + "a1B2c3" * 6
    finder = Scanner()
    first = PLACEHOLDER.search(cleaned(finder, f"export TOKEN={token}"))
    again = PLACEHOLDER.search(cleaned(finder, json.dumps({"x": [f"log {token}"]})))
    other = PLACEHOLDER.search(Cleaner(finder, lambda: b"o" * 32).text(token, ""))
    assert first
    assert again
    assert other
    assert first.group() == again.group() == "[secret:github-token:" + first.group()[-5:]
    assert first.group() != other.group()


def test_what_the_quick_look_lets_pass_has_no_secret():
    """The short way for hooks never lets a case of the corpus pass, and does let an ordinary command pass."""
    for case in CORPUS.cases(UNSEEN + 3, 400):
        assert not is_plain(case.text.encode(), ())
        assert not is_plain(case.secret.encode(), ()) or len(case.secret) < 12
    command = json.dumps({"act": "run", "command": "pytest -q tests/test_login.py", "exit_code": 0, "tool": "Bash"})
    assert is_plain(command.encode(), ())
    assert not is_plain(command.encode(), ["test_login"])
    assert not is_plain(b"a " * 4_000, ())
