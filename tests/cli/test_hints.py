"""A hint works when it is typed as printed, in the interface where it appears."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

import onrecord
from onrecord import errors
from onrecord.session.handle import Session
from onrecord.surfaces.cli import catalogue
from onrecord.surfaces.cli.shared.call import Call
from onrecord.surfaces.cli.shared.hints import BY_CODE, BY_STEP, hint_of
from tests.cli.conftest import copied

PACKAGE = Path(onrecord.__file__).parent
COMMAND = re.compile(r"`([^`]+)`")
VERBS = "|".join(verb.name for verb in catalogue.VERBS if verb.group)


class Detailed(dict[str, str]):
    """Details of an error: any key has a value."""

    def __missing__(self, key):
        return "7" if key == "number" else "x"


def parse(line: str) -> None:
    """The parser must accept a command line of ours; an option alone must be an option of some verb."""
    words = shlex.split(line)
    if words[0] == "onrecord":
        verb = catalogue.find(words[1]) if len(words) > 1 and not words[1].startswith("-") else catalogue.find("")
        call = Call(verb, words[2:])
        if call.words and re.match(r"[a-z]+\|", verb.usage):
            assert call.words[0] in re.split(r"[| \[\]]", verb.usage), line
    elif words[0].startswith("-"):
        flags = {flag for verb in catalogue.VERBS for one in verb.all_options() for flag in (one.flag, one.short)}
        assert words[0] in flags, line
    else:
        assert words[0] == "pip" or ":" not in words[0], line


def test_a_mistyped_name_comes_with_the_command_that_was_meant(crowd):
    """The nearest names of this project, the first in the same command, which works when it is typed."""
    hint = crowd.error("show", "fix-invte-403", code=4, kind="session_not_found")["hint"]
    (line,) = COMMAND.findall(hint)
    assert line == "onrecord show fix-invite-403 --json"
    crowd.ok(*shlex.split(line)[1:])
    hint = crowd.error("log", "--session", "fix-invite-43", "--limit", "1", code=4, kind="session_not_found")["hint"]
    assert "`onrecord log --session fix-invite-403 --limit 1 --json`" in hint
    set_here = {"ONRECORD_SESSION": "fix-invte-403"}
    assert crowd.error("show", code=4, kind="session_not_found", env=set_here)["hint"] == "did you mean fix-invite-403?"
    assert "list --all" in crowd.error("show", "zzz", code=4, kind="session_not_found")["hint"]


@pytest.mark.parametrize("step", sorted(BY_STEP) + sorted(BY_CODE))
def test_every_hint_of_the_table_parses(step):
    """Each command in backquotes names a verb, an action and options that exist, and is complete."""
    hint = (BY_STEP | BY_CODE)[step].format_map(Detailed())
    for line in COMMAND.findall(hint):
        if line not in ("onrecord team", "onrecord evidence"):
            parse(line)


@pytest.fixture(scope="module")
def crowd(crowd, tmp_path_factory, bytecode, stores):
    """A copy of its own: a command that is not refused changes it, and other modules share the original."""
    return copied(crowd, tmp_path_factory.mktemp("refused"), bytecode, stores)


@pytest.mark.parametrize(
    "words",
    [
        ["shwo"], ["status"], ["show", "nothing"], ["show", "o"], ["at", "999"], ["at", "x"], ["list", "--stauts", "open"],
        ["list", "--status", "asleep"], ["list", "more"], ["decide"], ["decide", "two", "words"], ["log", "--kind"],
        ["log", "--kind", "decison.made"], ["log", "--follow", "--after", "1", "--limit", "2"],
        ["finding", "state", "x", "--label", "verified"], ["finding", "stat", "x"], ["finding", "state"],
        ["finding", "relabel", "f9", "open"], ["finding", "state", "The middleware is the cause"],
        ["finding", "relabel", "f1", "verified"], ["finding", "uphold", "f1"], ["finding", "recheck", "f1"],
        ["evidence", "add", "x"], ["evidence", "run"], ["evidence", "show", "x"], ["attempt", "start"],
        ["attempt", "show", "9"], ["attempt", "succeed", "9"], ["attempt", "fail"], ["attempt", "correct", "9"],
        ["hold"], ["record"], ["open", "../outside"], ["diff", "9", "1"], ["diff"], ["completion", "tcsh"],
        ["rename", "fix-invite-403", "other"], ["archive", "other"], ["decide", "x", "--session", "ended"],
        ["record", "--user", "x", "--session", "paused"], ["resume", "ended"], ["resume", "--prompt", "x"],
        ["list", "--store", "mysql://x/y"], ["export", "--to", "x"], ["import", "missing.bundle"], ["import", "claude", "x"],
        ["start", "nobody"], ["start", "claude"], ["handoff"], ["adopt", "claude", "--pid", "1"], ["mirror"], ["restore"],
        ["team", "up"], ["team", "logs", "x"], ["team", "scale"], ["gate"], ["gate", "override"],
        ["gate", "override", "session_paused", "--reason", "x"], ["phase", "enter"], ["phase", "leap"],
        ["profile", "choose"], ["profile", "choose", "cooking"], ["section", "x", "--text", "x", "--file", "x"],
        ["feature", "pass", "x"], ["feature", "add", "x"], ["note", "none"], ["note", "a", "b"], ["state-file"],
        ["state-file", "fold"], ["verify", "--checkpoint", "none.json"], ["backup"], ["backup", "--restore", "none.db"],
        ["copy", "none.db", "other.db"], ["copy", "a", "b", "--as", "x"], ["erase"], ["erase", "--all"],
        ["erase", "--all", "--reason", "x"], ["rollout", "export"], ["rollout", "serve"], ["setup", "--user", "--project"],
        ["reached", "root-cause"], ["reached", "fix"], ["finding", "challenge", "f1", "no"], ["attempt", "compare", "1"], ["close", "other"], ["fork", "other"], ["search"], ["run"], ["store", "init", "x.db"],
        ["state", "x"], ["instructions", "x"], ["open"], ["continue", "nothing"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_hints_of_refused_commands_parse(crowd, words):
    """Whatever is refused, the parser accepts the command that the hint shows in backquotes."""
    done = crowd.run(*words, env={"ONRECORD_SESSION": "fix-invite-403"})
    if done.code == 0:
        return
    hints = [line.removeprefix("hint: ") for line in done.err.splitlines() if line.startswith("hint: ")]
    assert len(hints) == 1, done
    assert "evidence=[" not in hints[0]
    assert "session." not in hints[0]
    assert "store.sessions" not in hints[0]
    lines = COMMAND.findall(hints[0])
    for line in lines:
        if line not in ("onrecord evidence", "onrecord team", "onrecord export", "onrecord finding state"):
            parse(line)
    named = re.search(rf"\bonrecord ({VERBS})\b", COMMAND.sub("", hints[0]))
    assert named is None, "a command without backquotes"


@cache
def raised():
    """Every call of one of our error classes in the library below the surfaces: file, class, keywords."""
    kinds = {name for name, value in vars(errors).items() if isinstance(value, type)}
    return [
        (path, node, {word.arg: word.value for word in node.keywords})
        for path in sorted(PACKAGE.rglob("*.py"))
        if "surfaces" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds
    ]


def constant_parts(node):
    return " ".join(one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


def test_python_programs_get_no_commands():
    """No hint of the library names a command or an option of the command line: a traceback is not a shell."""
    command = re.compile(rf"\bonrecord ({VERBS})\b|(^|[\s`(])--[a-z]")
    for path, node, keywords in raised():
        if "hint" in keywords and "server" not in path.parts:
            said = constant_parts(keywords["hint"]).replace("pip install --upgrade", "")
            assert not command.search(said), f"{path}:{node.lineno}: {said}"
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.OnrecordError):
            assert not command.search(kind.hint), name


def test_every_step_has_its_command():
    """Each step that the library names is in the table of the command line, and each entry of the table is named."""
    named = {keywords["step"].value for _path, _node, keywords in raised() if "step" in keywords}
    assert named <= set(BY_STEP)
    assert [f"{path}:{node.lineno}" for path, node, given in raised() if "step" in given and "hint" not in given] == []
    everywhere = "".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "hints.py")
    assert [step for step in BY_STEP if f'"{step}"' not in everywhere] == []
    codes = {getattr(kind, "code", None) for kind in vars(errors).values()}
    assert set(BY_CODE) <= codes


def test_hints_in_python_name_what_exists():
    """A hint that names a method of a session names one that exists."""
    for _path, node, keywords in raised():
        said = constant_parts(keywords["hint"]) if "hint" in keywords else ""
        for method in re.findall(r"\bsession\.(\w+)\(", said):
            assert hasattr(Session, method), (node.lineno, method)
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.OnrecordError):
            assert all(hasattr(Session, method) for method in re.findall(r"\bsession\.(\w+)\(", kind.hint)), kind


def test_details_are_quoted_for_a_shell():
    """A phase with a space or a quote in its name is one word of the hinted command."""
    hint = hint_of(errors.Conflict("no", step="enter_phase", phase="Do it; rm -rf 'x'"), None)
    line = COMMAND.findall(hint)[0]
    assert shlex.split(line) == ["onrecord", "phase", "enter", "Do it; rm -rf 'x'"]


def test_one_error_has_two_hints():
    """The same error says how to continue in Python and on the command line."""
    closed = errors.SessionClosed("session 'a' is closed", name="a")
    assert "session.resume(reopen=True)" in closed.hint
    assert "`onrecord resume a --reopen`" in hint_of(closed, None)
    nameless = errors.SessionClosed("closed")
    assert hint_of(nameless, None) == "see `onrecord help`"
