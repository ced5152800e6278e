"""The torture suite: our own store survives every attack, and a careless store none."""

import json
import re

import pytest

from onrecord.testing import SessionStoreTorture
from onrecord.testing.torture import ATTACKS, Outcome
from onrecord.testing.torture.__main__ import main


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

    def test_flipped_bit(self) -> None:
        """Whatever a plain read does not notice of a flipped bit, `verify` finds."""
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
    ("Forgetful", "list", "no interface for it"),
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
