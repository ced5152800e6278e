"""Help is one screen of everyday verbs; one word shows the rest."""

import re

import pytest

from onrecord.surfaces.cli.catalogue import EVERYDAY, VERBS, shown
from onrecord.surfaces.cli.help import text_of


def test_bare_help_is_one_screen(command):
    """`onrecord --help` fits a terminal of 24 lines and 80 columns, with the next prompt, and names the everyday verbs."""
    out = command.ok("--help")
    lines = out.splitlines()
    assert len(lines) < 24
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


@pytest.mark.parametrize("verb", [*shown()], ids=lambda verb: verb.name)
def test_help_names_each_option_once(verb):
    """An option that a verb defines itself does not appear a second time among those of every verb."""
    flags = re.findall(r"^ {2,6}(?:-\w, )?(--[a-z-]+)", text_of(verb), re.MULTILINE)
    assert sorted(flags) == sorted(set(flags))


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


@pytest.mark.parametrize(("verb", "action"), [(verb.name, one.name) for verb in VERBS for one in verb.actions])
def test_an_action_with_many_options_has_its_own_help(command, verb, action):
    """`onrecord VERB ACTION --help` fits a screen of 40 lines and 80 columns, and has only what belongs to the action."""
    out = command.run(verb, action, "--help", env={"COLUMNS": "80"}).out
    lines = out.splitlines()
    assert out.startswith(f"usage: onrecord {verb} {action} ")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert command.run("help", verb, action, env={"COLUMNS": "80"}).out == out
    others = [other.name for one in VERBS for other in one.actions if other.name != action]
    assert not [other for other in others if f" {other}: " in out]
    whole = command.ok(verb, "--help")
    assert f"\n  {action} " in whole
    assert re.search(rf"`onrecord {verb} \S+ --help` explains one of these, with its options", whole)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.actions], ids=lambda verb: verb.name)
def test_the_help_names_the_actions_that_there_are(command, verb):
    """The verb knows every action of its help, and refuses any other."""
    command.ok("open", "fix", "--profile", "bugfix")
    for action in verb.actions:
        assert "unknown action" not in command.run(verb.name, action.name, "--no-input").err
    assert command.run(verb.name, "no-such-action", "--no-input").code == 2


@pytest.mark.parametrize(
    "verb", ["attempt", "finding", "evidence", "worktree", "phase", "feature", "profile", "project"]
)
def test_without_an_action_a_verb_shows_what_there_is(command, verb):
    """`onrecord attempt` alone lists the attempts; no verb with actions fails only because none was named."""
    command.ok("open", "fix")
    action = "show" if verb == "project" else "list"
    assert command.ok(verb) == command.ok(verb, action)


def test_an_example_fits_a_line():
    """Every example of the help can be read and copied as one line of 80 columns."""
    examples = [verb.example for verb in VERBS] + [action.example for verb in VERBS for action in verb.actions]
    assert not [example for example in examples if len(f"example: {example}") > 80]
