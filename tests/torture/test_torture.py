"""The torture suite: our own store survives every attack, and a careless store none."""

import json

import pytest

from onrecord.testing import SessionStoreTorture
from onrecord.testing.torture import ATTACKS
from onrecord.testing.torture.__main__ import main


class TestOnrecord(SessionStoreTorture):
    """Every attack, in a short form: the long one is `./dev torture`."""

    driver = "onrecord.testing.torture.own:OnrecordDriver"
    LISTED = 60
    OPENERS = 8
    GROWN = 40
    ROUNDS = 10
    FLIPS = 8


class Careless(SessionStoreTorture):
    driver = "tests.torture.careless:CarelessDriver"
    GROWN = 20
    OPENERS = 4
    ROUNDS = 6
    FLIPS = 8


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_careless_store_fails(attack):
    """Each attack finds what is wrong with a store that was written without care, and says it in a sentence."""
    (outcome,) = Careless.run([attack])
    assert not outcome.passed
    assert outcome.said


def test_every_attack_has_its_test():
    """The attacks of the table are the tests of the class."""
    tests = [name.removeprefix("test_") for name in dir(SessionStoreTorture) if name.startswith("test_")]
    assert sorted(tests) == sorted(ATTACKS)
    assert len(ATTACKS) == 12


def test_the_outcome_is_printed_for_programs(capsys):
    """`python -m onrecord.testing.torture` prints the outcomes as JSON; a wrong word gives the usage."""
    assert main([TestOnrecord.driver, "retry"]) == 0
    assert json.loads(capsys.readouterr().out)["outcomes"] == [{"attack": "retry", "passed": True, "said": ""}]
    assert main([TestOnrecord.driver, "tickle"]) == 2
    assert "usage: " in capsys.readouterr().err
