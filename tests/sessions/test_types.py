"""The types, as a user's type checker sees them: programs against the installed package, and the public signatures."""

import inspect
import os
import re
import subprocess
import sys
import traceback
import typing
from pathlib import Path

import pytest

import onrecord
from onrecord.aio.deriving import CHAPTER, kind_of, members_of
from onrecord.session.handle import Session

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The rollout guide shows a toy tokenizer in as few words as possible: it has no annotations to check.
# The programs of the other two call other people's SDKs, whose parameters need more annotations than a guide has room for.
UNTYPED = {"frameworks", "loop", "rollouts"}
NAMES = 40
"""A user reads through the names of a session once: they must not grow back."""


def documents() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
    return [path for path in found if path.stem not in UNTYPED and FENCE.search(path.read_text())]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """What mypy knows about the package after its first run."""
    found: Path = tmp_path_factory.mktemp("mypy")
    return found


def mypy(cache: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The output of mypy, in a folder without any configuration, for a package that it finds installed."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(cache)]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MYPY")}
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, check=False, env=outside)


def test_the_examples_and_the_documents_pass_a_strict_type_check(tmp_path, cache):
    """A user's `mypy --strict` accepts the example programs and the Python of every document unchanged."""
    for example in ("experiment", "flaky"):
        (tmp_path / f"example_{example}.py").write_text((ROOT / "examples" / example / "run.py").read_text())
    for path in documents():
        (tmp_path / f"doc_{path.stem.lower()}.py").write_text("\n".join(FENCE.findall(path.read_text())))
    done = mypy(cache, tmp_path, *(path.name for path in tmp_path.glob("*.py")))
    assert done.returncode == 0, done.stdout


WRONG = """
import onrecord
from onrecord import aio

session = onrecord.connect("memory:").open("typed")
number: str = session.attempts.all()[0]["number"]
session.attempts.all()[0]["nunber"]
session.findings.relabel("f1", 5)
session.budget.spent()["costs"]
item: onrecord.Item = {"role": "user", "contents": "hello"}
session.transcript().items[0]["tool_calls"][0]["argument"]
session.record_turn(["hello"])


@session.tool(safe_to_repeat=True)
def add(a: int, b: int) -> int:
    return a + b


text: str = add(1, 2)
add("one")


async def work() -> None:
    awaited = await aio.over(onrecord.connect("memory:")).open("typed")
    await awaited.attempts.settle("one", "failed")
    lane: int = await awaited.agents.lane()
    async with awaited.attempts.record("make") as attempt:
        attempt.metric("loss", "low")
"""


def test_a_type_checker_finds_what_is_wrong(tmp_path, cache):
    """Keys that do not exist, wrong arguments and wrong results are found, in the synchronous form and the async one."""
    (tmp_path / "wrong.py").write_text(WRONG)
    found = {
        int(line)
        for line in re.findall(r"^wrong\.py:(\d+): error", mypy(cache, tmp_path, "wrong.py").stdout, re.MULTILINE)
    }
    assert found == {6, 7, 8, 9, 10, 11, 12, 20, 21, 26, 27, 29}


def public_classes() -> list[type]:
    chapters = [
        type(getattr(Session.__new__(Session), name))
        for name, member in members_of(Session).items()
        if kind_of(name, member) == CHAPTER
    ]
    named = (getattr(onrecord, name) for name in onrecord.__all__)
    return [*chapters, *(value for value in named if isinstance(value, type) and not typing.is_typeddict(value))]


@pytest.mark.parametrize("of", public_classes(), ids=lambda of: of.__name__)
def test_public_signatures_have_named_types(of):
    """No field of a public class is just anything, and no verb takes or returns that: what is the caller's is `Json`."""
    assert "Any" not in str(inspect.get_annotations(of)), of.__name__
    for name, member in members_of(of).items():
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function):
            assert not re.search(r"\bAny\b", str(inspect.unwrap(function).__annotations__)), f"{of.__name__}.{name}"


def test_a_session_has_few_names():
    """The names of a session fit on one page; those of a chapter are in the chapter."""
    names = [name for name in dir(Session) if not name.startswith("_")]
    assert len(names) <= NAMES
    assert {"wait", "use", "reach", "join", "take_up", "arrive", "go_on", "depart"}.isdisjoint(names)


def test_dir_shows_the_lazy_names():
    """`dir(onrecord)` shows the public names and modules, loaded or not, and no other module."""
    code = (
        "import sys, onrecord; found = set(dir(onrecord)); print('typing' in sys.modules); onrecord.connect('memory:');"
        "assert found == set(dir(onrecord));"
        "assert {name for name in found if name[:2] != '__'} == {*onrecord.__all__, 'aio', 'errors'} - {'__version__'};"
        "assert issubclass(onrecord.errors.SessionNotFound, onrecord.OnrecordError)"
    )
    done = subprocess.run([sys.executable, "-Sc", code], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": str(ROOT / "src")})  # fmt: skip
    assert done.stdout.strip() == "False"


def test_a_traceback_shows_the_hint():
    """An error that no one catches ends with what to do next."""
    with pytest.raises(onrecord.errors.SessionNotFound) as caught:
        onrecord.connect("memory:").get("nope")
    assert traceback.format_exception(caught.value)[-1] == f"hint: {caught.value.hint}\n"
    assert str(caught.value) == "there is no session 'nope'"


def test_what_a_person_holds_says_what_it_is():
    """In an interpreter, a store, a session, a chapter, a turn and a transcript show their name and state."""
    store = onrecord.connect("memory:", project="here")
    session = store.open("fix")
    with session.turn() as turn:
        turn.user("why?")
        assert repr(turn) == "<Turn of 'main' in session 'fix', open, items: 1>"
    assert repr(store) == "<SessionStore memory:, project 'here'>"
    assert repr(session.attempts) == "<AttemptVerbs of session 'fix'>"
    assert repr(session.transcript()) == "<Transcript committed: 1, provisional: 0>"
