"""Help is one screen of everyday verbs; one word shows the rest."""

import pytest

from onrecord.surfaces.cli.catalogue import EVERYDAY, VERBS, shown


def test_bare_help_is_one_screen(command):
    """`onrecord --help` fits a terminal of 24 lines and 80 columns and names the everyday verbs."""
    out = command.ok("--help")
    lines = out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for name in EVERYDAY:
        assert f"\n  {name} " in out
    assert "`onrecord help --all`" in out
    assert command.ok("help") == out == command.ok("-h")


def test_help_all_has_every_verb_in_groups(command):
    """`onrecord help --all` names every verb once, under the heading of its group, and still fits 80 columns."""
    out = command.run("help", "--all", env={"COLUMNS": "80"}).out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    for verb in shown():
        assert [line for line in lines if line.startswith(f"  {verb.name} ")], verb.name
        assert verb.group in lines
    assert command.ok("--help", "--all") == command.ok("help", "--all")


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS if verb.group])
def test_a_line_of_help_fits_its_line(verb):
    """Every verb is described in one line that fits beside its name, starts with a capital and has no full stop."""
    (about,) = [one.about for one in VERBS if one.name == verb]
    assert len(about) <= 66, about
    assert about[0].isupper()
    assert not about.endswith(".")


def test_one_verb_for_one_thing(command):
    """No two verbs call the same function, and a finding is stated by `finding state` only."""
    functions = [(verb.module, verb.function) for verb in VERBS]
    assert len(functions) == len(set(functions))
    assert "`onrecord finding state`" in command.error("state", "x", code=2, kind="usage")["hint"]


def test_every_option_is_described_in_plain_words():
    """Every option has a description in small letters; one with a default names it the same way everywhere."""
    for verb in VERBS:
        for option in verb.all_options():
            assert option.about, (verb.name, option.flag)
            assert "(else" not in option.about, (verb.name, option.flag)
