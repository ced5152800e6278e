"""Secrets are found in the surroundings agents leave them in, ordinary text is left alone, and no text is slow."""

import json
import re
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onrecord.errors import InvalidInput
from onrecord.redaction.anchors import AUTOMATON, AUTOMATON_FROM, PLAIN, VECTORS, VECTORS_FROM, Anchors
from onrecord.redaction.known import known_values, variables_of
from onrecord.redaction.own_rules import allowed, rules_of
from onrecord.redaction.quick import is_plain
from onrecord.redaction.scanner import Scanner
from onrecord.redaction.values import PLACEHOLDER, Cleaner
from tests.redaction.corpus import CORPUS

UNSEEN = 90_001
"""A seed that no rule was written by."""
KEY = b"k" * 32


@pytest.fixture(scope="module", params=[PLAIN, AUTOMATON, VECTORS])
def scanner(request):
    return Scanner(way=request.param)


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


QUOTED = 'my "key" \\\\ {}\\n'
"""Text with a quote, a backslash and a line end, which JSON must escape."""


def shapes(secret: str) -> list[object]:
    """A secret where JSON has values and names: deep, in a list, as a name, escaped once, and as JSON within JSON."""
    said = QUOTED.format(secret)
    within = json.dumps({"token": secret, "said": said})
    return [
        said, [said], {"a": {"b": [said, 1, None, True]}}, {secret: said}, {"arguments": within},
        {"arguments": json.dumps({"deeper": within})}, {"text": f"\u001b[31m{secret}\u001b[0m \ud83d\ude00"},
        [{"url": f"https://a:{secret}@example.org/"}], {"key": f"-----BEGIN\n{secret}"},
    ]  # fmt: skip


def levels(value: object) -> list[object]:
    """Every JSON within a JSON, the outer ones first."""
    if isinstance(value, dict):
        return [found for one in value.values() for found in levels(one)]
    if isinstance(value, list):
        return [found for one in value for found in levels(one)]
    if isinstance(value, str) and value.startswith("{"):
        inner = json.loads(value)
        return [inner, *levels(inner)]
    return []


def shape(value: object) -> object:
    """What a JSON is without its texts."""
    if isinstance(value, dict):
        return [shape(one) for one in value.values()]
    if isinstance(value, list):
        return [shape(one) for one in value]
    return "text" if isinstance(value, str) else value


@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "as it is"])
def test_every_json_of_every_shape_stays_json(scanner, ascii_only):
    """Each secret in each place of a JSON text, also of JSON within JSON: it is valid afterwards, with the same shape, without it."""
    checked = 0
    for case in CORPUS.cases(UNSEEN + 4, 150):
        if case.sort != "format" or "\n" in case.secret:
            continue
        for value in shapes(case.secret):
            text = json.dumps(value, ensure_ascii=ascii_only)
            after = json.loads(cleaned(scanner, text))
            assert shape(after) == shape(value), text
            assert [shape(one) for one in levels(after)] == [shape(one) for one in levels(value)], text
            checked += after != value
    assert checked > 300


def test_control_a_blind_replacement_breaks_json():
    """The control: who replaces a span of JSON text by one with a quote in it gets text that is no JSON."""
    secret = CORPUS.FORMATS["github-classic"](CORPUS.Random(1))
    text = json.dumps({"said": secret})
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(text.replace(secret, '[secret:"github-token"]'))


def test_ordinary_text_is_left_alone(scanner):
    """In the standard library there is less than one mark in 100 KB, and look-alikes are left alone."""
    marks = size = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:40]:
        data = path.read_bytes()[:30_000]
        marks, size = marks + len(scanner.find(data)), size + len(data)
    assert marks <= size / 100_000, marks
    wrong = [line for line in CORPUS.LOOK_ALIKES if cleaned(scanner, line) != line]
    assert wrong == []


def test_plain_python_finds_what_the_libraries_find():
    """The libraries only save time: all ways mark the same secrets."""
    plain, *fast = (Scanner(way=way) for way in (PLAIN, AUTOMATON, VECTORS))
    for case in CORPUS.cases(UNSEEN + 1, 300):
        assert {cleaned(one, case.text) for one in fast} == {cleaned(plain, case.text)}, case


def test_the_libraries_find_the_same_places():
    """Both libraries report each literal at each place, whatever its case, overlapping ones too."""
    literals = sorted({b"sk", b"sk-", b"token", b"api_key", b"key", b"://"})
    text = b"SK-sk-Token=api_KEY http://a sksk \xff key" * 3
    automaton, vectors = (Anchors(literals, way=way).hits(text) for way in (AUTOMATON, VECTORS))
    assert sorted(automaton) == sorted(vectors)
    assert len(vectors) == 3 * 11


def test_threads_search_at_the_same_time():
    """A search with vectors may run in several threads, and inside another one: each has its own working memory."""
    finder = Scanner(way=VECTORS)
    text = (f"a line {CORPUS.FORMATS['github-classic'](CORPUS.Random(1))}\n" * 200).encode()
    with ThreadPoolExecutor(8) as pool:
        assert {len(found) for found in pool.map(finder.find, [text] * 200)} == {200}


@pytest.mark.parametrize(
    ("looked", "modules"), [(0, set()), (1, {"ahocorasick_rs"}), (2, {"ahocorasick_rs", "hyperscan"})]
)
def test_a_process_loads_what_it_is_worth(looked, modules):
    """Each library is loaded when a process has looked through enough text, and not before."""
    size = (1_000, AUTOMATON_FROM + 1, VECTORS_FROM + 1)[looked]
    code = (
        "import sys; from onrecord.redaction.scanner import Scanner; one = Scanner()\n"
        f"for _ in range(2): one.find(b' ' * {size // 2 + 1})\n"
        "print(*sorted({'ahocorasick_rs', 'hyperscan'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == modules


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
    assert secret not in cleaned(Scanner(way=AUTOMATON), f"x{before}{secret} y")


NAMED, WORD = "kQ7vX2mP9rT4wZ8nB3cY6", "Tr0ub4dor&3x"


@pytest.mark.parametrize(
    "text",
    [f"API key: {NAMED}", f'the api key = "{NAMED}"', f"Access key: {NAMED}", f"secret access key: {NAMED}",
     f"signing key {NAMED}", f"--password {WORD}", f'["--password {WORD}"]', f"<password>{WORD}</password>",
     f"| password | {WORD} |", f'auth: {{ user: "a", pass: "{WORD}" }}', f'{{"pass": "{WORD}"}}', f"pass = '{WORD}'",
     f"docker login -u bob -p {WORD} registry.example.org", f"redis-cli -h cache -a {NAMED} ping"],
)  # fmt: skip
def test_a_named_value_is_found_in_everyday_surroundings(scanner, text):
    """Names of two words, a flag at the very beginning, elements, tables, and the options of two programs."""
    assert not {NAMED, WORD} & set(cleaned(scanner, text).replace('"', " ").replace("'", " ").replace("<", " ").split())
    assert re.search(PLACEHOLDER, cleaned(scanner, text))


@pytest.mark.parametrize(
    "text",
    ["the access key to success is practice", "API key: see the vault", "pass: 12, fail: 3", "<password>string</password>",
     "| password | the new one |", "docker login -p", "redis-cli -a monitor", "if ok: pass = True", "try: pass"],
)  # fmt: skip
def test_ordinary_words_after_such_names_are_left_alone(scanner, text):
    """The same names in sentences, schemas and summaries."""
    assert cleaned(scanner, text) == text


HOSTILE = (
    "docker login -p ", "redis-cli -a ", "api key ", "<password>", "pass:",
    "eyJ", "eyJ-", "sk-ant-", "token=", "password: ", "://a:", "-----BEGIN PRIVATE KEY-----", "AKIA", "Z2hwX", "Oi8v",
    "authorization: bearer ", "cookie: a=", "curl -u ", "mysql -p", "discord ", "-----END PRIVATE KEY-----\n", "x", "=",
    "\\", '\\"token\\":', "ya29.", "ghp_", "pat", "sk", "aA1", "machine a login b ", "token\x1b[0m", "[secret:",
)  # fmt: skip


@pytest.mark.parametrize("way", [AUTOMATON, VECTORS])
@pytest.mark.parametrize("part", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_is_slow(part, way):
    """No text of 100 KB takes a second, however it repeats what rules look for."""
    finder = Scanner(way=way)
    data = (part * (100_000 // len(part) + 1))[:100_000].encode()
    begun = time.process_time()
    finder.find(data)
    finder.find(data + b"A" * 100)
    assert time.process_time() - begun < 2.0  # two of them


def test_control_a_pattern_without_bounds_is_slow():
    """The control: a pattern without bounds takes longer for 23 bytes than ours may take for as many of the longest text."""
    begun = time.process_time()
    assert re.match(rb"(?:a+)+\Z", b"a" * 22 + b"b") is None
    assert time.process_time() - begun > 23 * 2.0 / 200_000


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
    first = re.search(PLACEHOLDER, cleaned(finder, f"export TOKEN={token}"))
    again = re.search(PLACEHOLDER, cleaned(finder, json.dumps({"x": [f"log {token}"]})))
    other = re.search(PLACEHOLDER, Cleaner(finder, lambda: b"o" * 32).text(token, ""))
    assert first
    assert again
    assert other
    assert first.group() == again.group() == "[secret:github-token:" + first.group()[-5:]
    assert first.group() != other.group(), "the control: the key of another store"


def test_what_the_quick_look_lets_pass_has_no_secret():
    """The short way for hooks never lets a case of the corpus pass, and does let an ordinary command pass."""
    for case in CORPUS.cases(UNSEEN + 3, 400):
        assert not is_plain(case.text.encode(), ())
        assert not is_plain(case.secret.encode(), ()) or len(case.secret) < 12
    command = json.dumps({"act": "run", "command": "pytest -q tests/test_login.py", "exit_code": 0, "tool": "Bash"})
    assert is_plain(command.encode(), ())
    assert not is_plain(command.encode(), ["test_login"])
    assert not is_plain(b"a " * 4_000, ())


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", r"(\w+\.)+com", r"\w+\w+@", "(a{1,9}){1,9}$", r"(?s).*key=(.*?)end"]
)
def test_a_rule_that_can_take_for_ever_is_refused(pattern):
    """A user's pattern that an agent's output could keep busy for hours is refused when the settings are read."""
    with pytest.raises(InvalidInput, match="can take very long"):
        rules_of([{"kind": "ours", "pattern": pattern}])
    with pytest.raises(InvalidInput, match="can take very long"):
        allowed([pattern])


@pytest.mark.parametrize(
    "pattern", [r"badge-[0-9]{6}", r"(?:\d{1,3}\.){3}\d{1,3}", r"(?:foo|bar){1,3}-\w{4,20}", r"ours_\S+"]
)
def test_an_ordinary_rule_is_taken(pattern):
    """Control: limits, one repetition without a limit, groups and alternatives are fine."""
    assert rules_of([{"kind": "ours", "pattern": pattern}])


@pytest.mark.parametrize("before", [0, 500, 900, 1_023, 1_024, 1_100])
def test_a_rule_without_a_limit_finds_its_secret_anywhere(before):
    """Such a pattern runs over one stretch of a text after the other; a secret across two of them is one span."""
    scanner = Scanner(own=rules_of([{"kind": "ours", "pattern": r"ours_\S+"}]))
    text = b"x " * (before // 2) + b"ours_" + b"z" * 300 + b" y" * 2_000
    assert [(one.start, one.end, one.kind) for one in scanner.find(text)] == [
        (before // 2 * 2, before // 2 * 2 + 305, "ours")
    ]


@pytest.mark.parametrize(
    ("line", "value"),
    [("DB_PASSWORD=hunter2#9xyz", "hunter2#9xyz"), ("DB_PASSWORD=hunter2-9xyz # the old one", "hunter2-9xyz"),
     ('DB_PASSWORD="hunter\\"2-9xyz"', 'hunter"2-9xyz'), ("DB_PASSWORD='hunter2 9xyz' # x", "hunter2 9xyz"),
     ("export DB_PASSWORD = hunter2 9xyz", "hunter2 9xyz"), ('DB_PASSWORD="hunter2-\n9xyz"', "hunter2-\n9xyz")],
)  # fmt: skip
def test_a_value_of_a_dotenv_file_is_known_whole(line, value):
    """As programs read such files: a hash inside a value, escaped quotes, blanks and several lines belong to the value."""
    assert known_values(variables_of(f"A=1\n{line}\nB=2\n"), "dotenv") == {value: "dotenv-value"}
    assert variables_of(f"A=1\n{line}\nB=2\n")["B"] == "2"


def test_a_quote_that_is_never_closed_hides_nothing():
    """A line that begins a value and does not end it leaves the variables of the following lines known."""
    assert variables_of("NAME='it\nDB_PASSWORD=hunter2-9xyz\n# isn't closed\n")["DB_PASSWORD"] == "hunter2-9xyz"


def test_the_password_in_a_url_is_known():
    """A URL in a variable is no secret as a whole; its password is one wherever it turns up, also decoded."""
    variables = {
        "DATABASE_URL": "postgresql://app:hunter2%2F9xyz@db.example/x",
        "PROXY_URL": "https://db.example/a@b:c",
    }
    assert known_values(variables, "environment") == {"hunter2/9xyz": "environment-value"}


def test_bytes_that_are_no_text_are_no_known_value():
    """A variable may have any bytes, also in the password of a URL; no text can have them, and nothing fails."""
    variables = {"DB_PASSWORD": "hunter2-\udcff9xyz", "DB_URL": "x://u:p%41\udcff12345@h", "API_KEY": "hunter2-9xyz"}
    found = known_values(variables, "environment")
    assert "hunter2-9xyz" in found
    assert Scanner(known=found).find(b"it is hunter2-9xyz")
