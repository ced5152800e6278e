"""A profile is data: a mistake in it is reported with its place."""

import copy
import re
from typing import Any

import pytest

from onrecord.connection import load_profile, profile_files
from onrecord.errors import Conflict, InvalidInput, NotFound
from onrecord.session.profiles import check
from tests.phases.conftest import SMALL


def changed(path: str, value: object) -> dict[str, Any]:
    """SMALL with one entry changed; the path is written like `phases.0.name`."""
    made = copy.deepcopy(SMALL)
    *way, last = path.split(".")
    place: Any = made
    for step in way:
        place = place[int(step)] if step.isdigit() else place[step]
    place[int(last) if last.isdigit() else last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("name", "", "'' is not a valid name"),
        ("name", 7, "name must be text"),
        ("colour", "red", "unknown field 'colour'"),
        ("phases", [], "has no phases"),
        ("sections", [], "has no sections"),
        ("phases", "Plan", "phases must be a list"),
        ("phases.0", "Plan", "phase 0 is not a table"),
        ("phases.0.number", 1, "its number must be 0, not 1"),
        ("phases.1.name", "plan", "phase 'Plan' appears twice"),
        ("phases.0.checkpoint", ["Designs"], "requires the section 'Designs', which does not exist"),
        ("phases.0.all_features", 1, "all_features must be true or false"),
        ("sections.0.name", "a\nb", "is not a valid name"),
        ("sections.0.name", "<!-- x", "is not a valid name"),
        ("sections.1.name", "Spec", "section 'Spec' appears twice"),
        ("sections.0.rule", "strict", "rule must be one of free, append, generated"),
        ("sections.2.from", "the air", "unknown source 'the air'"),
        ("sections.1.from", "attempts", "only a generated section may have `from`"),
        ("sections.1.rule", "generated", "a generated section needs `from`"),
        ("sections.0.description", "two\nlines", "description must be one line"),
        ("sections.0.description", "a <!-- b", "description must be one line"),
        ("sections.0.description", "x" * 201, "the limit is 200"),
        ("instructions", "x" * 2001, "the limit is 2,000"),
    ],
)
def test_a_wrong_profile_is_refused_where_it_is_wrong(path, value, complaint):
    """Every mistake in a profile is an error that names the path and the valid values."""
    with pytest.raises(InvalidInput, match=re.escape(complaint)):
        check(changed(path, value))


def test_what_a_profile_leaves_out_is_filled_in():
    """Phases are numbered from 0 in their order; a section is free unless the profile says more."""
    profile = check(SMALL)
    assert [phase["number"] for phase in profile["phases"]] == [0, 1, 2]
    assert [section["rule"] for section in profile["sections"]] == ["append", "free", "generated"]
    assert check(profile) == profile


def test_the_shipped_profiles_are_complete():
    """Research has the seven phases and ten sections people know; all three profiles pass the check (D11, E04-E12)."""
    assert {"research", "bugfix", "build"} <= set(profile_files())
    research = load_profile("research")
    assert [phase["name"] for phase in research["phases"]] == [
        "Motivation", "Planning", "Setup", "Implementation", "Analysis", "Documentation", "Validation",
    ]  # fmt: skip
    rules = {section["name"]: (section["rule"], section.get("from")) for section in research["sections"]}
    assert list(rules) == [
        "Session Title", "Current State", "Worklog", "Research Specification", "Files and Resources", "Workflow",
        "Experiment Design", "Experiment Attempts", "Experiment Results", "Learnings",
    ]  # fmt: skip
    assert rules["Research Specification"] == ("append", None)
    assert rules["Workflow"] == ("generated", "workflow")
    assert rules["Experiment Attempts"] == ("generated", "attempts")
    for name in ("research", "bugfix", "build"):
        assert all(phase["checkpoint"] for phase in load_profile(name)["phases"])


def test_users_add_their_own_profiles(tmp_path, monkeypatch):
    """A TOML file in the config directory is chosen by name, any other by its path; a broken one is an error."""
    monkeypatch.setenv("ONRECORD_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "profiles").mkdir()
    text = 'name = "mine"\n[[phases]]\nname = "One"\n[[sections]]\nname = "S"\n'
    (tmp_path / "profiles" / "mine.toml").write_text(text)
    assert load_profile("mine")["phases"][0]["name"] == "One"
    other = tmp_path / "other.toml"
    other.write_text(text.replace("mine", "other"))
    assert load_profile(str(other))["name"] == "other"
    other.write_text("name = ")
    with pytest.raises(InvalidInput, match="is not valid TOML"):
        load_profile(str(other))
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_profile(str(tmp_path / "none.toml"))
    with pytest.raises(NotFound, match="there is no profile 'nothing'"):
        load_profile("nothing")


def test_a_session_keeps_its_kind_of_work(session):
    """Another profile is refused; the same one may be updated if it has the phases that were entered."""
    with pytest.raises(Conflict, match="already has the profile 'small'"):
        session.phases.choose_profile(changed("name", "other"))
    session.phases.enter("Plan")
    with pytest.raises(Conflict, match="phase 'Plan' was entered"):
        session.phases.choose_profile(changed("phases.0.name", "Planning"))
    session.phases.choose_profile(changed("sections.1.description", "Better words."))
    assert session.views.phases.profile["sections"][1]["description"] == "Better words."
    assert session.views.phases.status("Plan") == "in progress"


def test_an_unchecked_profile_cannot_be_put_on_record(records):
    """The verb checks its argument: nothing malformed becomes part of a log."""
    plain = records.create("plain", agent="main")
    with pytest.raises(InvalidInput):
        plain.phases.choose_profile({"name": "x", "phases": [{"name": "A"}]})
    assert plain.head.position == 1
