"""The torture suite: what our own store survives, and that a careless store survives nothing."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from onrecord.errors import InvalidInput
from onrecord.testing import SessionStoreTorture
from onrecord.testing.torture import ATTACKS, Outcome
from onrecord.testing.torture.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "torture.md"


class Short(SessionStoreTorture):
    LISTED = 60
    OPENERS = 8
    GROWN = 40
    ROUNDS = 10
    FLIPS = 8


class Onrecord(Short):
    driver = "onrecord.testing.torture.own:OnrecordDriver"


class TestOnrecord(Onrecord):
    """Every attack, in a short form: the long one is `./dev torture`."""


def test_a_check_on_demand_finds_every_flipped_bit():
    """`verify` finds what a plain read notices of a flipped bit, too."""
    (outcome,) = Onrecord.run(["flipped_bit"])
    found, _, harmed = outcome.check.partition(" of ")
    assert found == harmed
    assert int(harmed)


class Controls(Short):
    OPENERS = 4
    GROWN = 20
    ROUNDS = 6


def outcome_of(driver: str, attack: str) -> Outcome:
    """How a control, of the module `careless`, ends under an attack."""
    kind: type[Controls] = type("Control", (Controls,), {"driver": f"tests.torture.careless:{driver}"})
    (outcome,) = kind.run([attack])
    return outcome


VERDICTS = [
    ("Careless", "crash_inside_a_tool", "the tool ran 2 times"),
    ("Forgetful", "crash_inside_a_tool", "the next model cannot read that the tool was called"),
    ("Careless", "crash_between_tool_and_save", "the tool ran 2 times"),
    ("Forgetful", "crash_between_tool_and_save", "the next model cannot read that the tool was called"),
    (
        "Careless",
        "two_writers",
        r"turn \w+ (was saved without an error and is gone|is mixed with the other writer's).*",
    ),
    ("Forgetful", "two_writers", r"turn \w+ is mixed with the other writer's, or stored in part"),
    ("Careless", "clocks", "the messages are in another order after a clock that stopped and went back"),
    ("Careless", "retry", "0 of 9 messages are missing and 3 are doubled after a retry"),
    ("Careless", "growth", r"[\d,]+ bytes of text take [\d,]+ bytes .*; twice the turns take 3\.\d times the bytes"),
    ("Careless", "list", "the newest of 60 sessions are not in the list of 50"),
    ("Slow", "list", r"listing took 1\.\d s with 60 sessions"),
    ("Forgetful", "list", "no interface for it: the driver has no `sessions`"),
    ("Careless", "cancellation", r"\d+ of 60 messages are missing and [1-9]\d* are doubled after cancelled writes"),
    ("Careless", "first_open", r"[1-3] of 4 failed: FileExistsError.*"),
    ("Careless", "poison", "reading ran a command that was in the stored bytes"),
    ("Forgetful", "poison", r"the damage went unnoticed: \d of 5 messages were read without an error"),
    ("Alarmed", "poison", "its own check finds damage where there is none"),
    ("Careless", "flipped_bit", r"[1-8] flipped bits changed what is read, and no error said so"),
    ("Alarmed", "flipped_bit", "its own check finds damage where there is none"),
    ("Careless", "killed_in_a_write", r"a write that was killed left [12] of 3 messages of its turn"),
]


@pytest.mark.parametrize(("driver", "attack", "verdict"), VERDICTS)
def test_a_careless_store_fails_as_the_attack_says(driver, attack, verdict):
    """Each attack finds what it is about: the verdict on a careless store is its sentence, not any other error."""
    outcome = outcome_of(f"{driver}Driver", attack)
    assert not outcome.passed
    assert re.fullmatch(verdict, outcome.said), outcome.said


def test_every_attack_has_a_control():
    """No attack is without a store that fails it."""
    assert {attack for _driver, attack, _verdict in VERDICTS} == set(ATTACKS)


@pytest.mark.parametrize(("attack", "found"), [("flipped_bit", "8 of 8"), ("poison", "1 of 1")])
def test_a_check_on_demand_is_counted_separately(attack, found):
    """Damage that only the store's own check finds is lost, as without the check; what it finds is counted."""
    checked, unchecked = (outcome_of(driver, attack) for driver in ("CheckedDriver", "ForgetfulDriver"))
    assert not checked.passed
    assert (checked.said, checked.check) == (unchecked.said, found)
    assert not unchecked.check


class Stranger(Short):
    driver = "my_torture:MyDriver"


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A module `my_torture` with this text, which processes can import."""
    monkeypatch.syspath_prepend(tmp_path)
    yield (tmp_path / "my_torture.py").write_text
    sys.modules.pop("my_torture", None)


def test_the_driver_of_the_page_loses_what_the_page_says(written):
    """The complete driver in docs/torture.md works as it is, and its store loses poison and flipped bits only."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    written(code)
    lost = {outcome.attack: outcome.said for outcome in Stranger.run() if not outcome.passed}
    assert lost.keys() == {"poison", "flipped_bit"}
    assert "went unnoticed" in lost["poison"]


def test_an_error_of_a_driver_is_told_with_its_line(written):
    """The outcome of a mistake in a driver says what failed and where; that of a missing method names the method."""
    head = "from onrecord.testing.torture import Driver\n\n\nclass MyDriver(Driver):\n"
    written(f"{head}    def write(self, session, turn):\n        turn.text\n")
    said = {outcome.attack: outcome.said for outcome in Stranger.run(["retry", "list", "crash_inside_a_tool"])}
    assert said["retry"] == "writing failed: AttributeError: 'Turn' object has no attribute 'text' (my_torture.py:6)"
    assert said["list"] == "no interface for it: the driver has no `sessions`"
    assert said["crash_inside_a_tool"] == "no interface for it: the driver has no `work`"


@pytest.mark.parametrize("attack", ["killed_in_a_write", "crash_between_tool_and_save"])
def test_a_store_without_calls_to_die_at_does_not_pass(written, attack):
    """A store elsewhere, whose calls the suite does not see, does not survive an attack that never happened."""
    written(
        "from onrecord.testing.torture import Driver\n\n\nclass MyDriver(Driver):\n"
        "    def write(self, session, turn):\n        pass\n\n"
        "    def work(self, session, tool):\n        tool()\n"
    )
    (outcome,) = Stranger.run([attack])
    assert outcome.said.startswith("the attack cannot be carried out: no call from Python into a database or a file")


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("", "is named as `module:Class`"),
        ("tests.torture.careless", "is named as `module:Class`"),
        ("nowhere:MyDriver", "cannot be imported: No module named 'nowhere'"),
        ("tests.torture.careless:Path", "has no subclass of Driver with the name Path"),
    ],
)
def test_a_driver_that_is_not_there_is_an_error_before_any_attack(driver, said, capsys):
    """A wrong name of a driver, or of an attack, is one sentence and a hint, in Python and on the command line."""
    kind: type[Short] = type("Wrong", (Short,), {"driver": driver})
    with pytest.raises(InvalidInput, match=said) as problem:
        kind.run(["retry"])
    assert "my_package.torture:MyDriver" in problem.value.hint
    assert main([driver]) == 2
    assert said in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="there is no attack 'tickle'"):
        Onrecord.run(["tickle"])


def test_the_page_has_the_measured_outcomes(monkeypatch):
    """The table of the page is made from the outcomes in docs/torture.json; a new run of an attack replaces the old."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    tool = importlib.import_module("torture")
    results = json.loads((ROOT / "docs" / "torture.json").read_text())
    assert tool.table(results) in PAGE.read_text()
    again = {"attack": "poison", "passed": True, "said": "", "check": "3 of 4"}
    made = tool.merged(results["onrecord"], {"store": results["onrecord"]["store"], "outcomes": [again]})
    assert [one["attack"] for one in made["outcomes"]] == list(ATTACKS)
    assert "| poison: found by its check on demand | 3 of 4 |" in tool.table({"onrecord": made})
    newer = tool.merged(results["onrecord"], {"store": "onrecord 9.0", "outcomes": [again]})
    assert newer["outcomes"] == [again]


def test_every_attack_has_its_test():
    """The attacks of the table are the tests of the class."""
    tests = [name.removeprefix("test_") for name in dir(SessionStoreTorture) if name.startswith("test_")]
    assert sorted(tests) == sorted(ATTACKS)
    assert len(ATTACKS) == 12


def test_the_outcome_is_printed_for_programs(capsys):
    """`python -m onrecord.testing.torture` prints the outcomes as JSON; a wrong word gives the usage."""
    assert main([TestOnrecord.driver, "retry"]) == 0
    assert json.loads(capsys.readouterr().out)["outcomes"] == [
        {"attack": "retry", "passed": True, "said": "", "check": ""}
    ]
    assert main([TestOnrecord.driver, "tickle"]) == 2
    assert "usage: " in capsys.readouterr().err
