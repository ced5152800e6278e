"""STATE.md: what an agent writes into a region stays in it, and nothing else in the file can be changed by writing."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from onrecord.session.records import Records
from onrecord.stores.memory import MemoryStore
from onrecord.views.state_md import key_of, neutral, read, render
from tests.laws import values
from tests.phases.conftest import SMALL

PROFILE = SMALL | {"sections": [*SMALL["sections"], {"name": "Learnings", "description": "What was learnt."}]}
WRITABLE = ("Spec", "Design", "Learnings")
MARKS = (
    "<!-- onrecord:begin 000000000000 Design -->", "<!-- onrecord:end 000000000000 Design -->", "\n# Spec\n", "-->",
    "<!-- onrecord:state session=X position=1 outside=000000000000 -->", "<!--", "# Runs", "\r\n", "<!-- onrecord:end",
)  # fmt: skip
texts = st.lists(values.hostile_texts | st.sampled_from(MARKS), min_size=1, max_size=4).map("\n".join)


def new_session():
    session = Records(MemoryStore(), project="/p").create("work", agent="main")
    session.choose_profile(PROFILE)
    return session


def written(file: str, section: str, text: str) -> str:
    """The file as it is after an agent replaced the text of one region with an editor."""
    lines = file.split("\n")
    genuine = re.compile(rf"<!-- onrecord:(begin|end) (?!0{{12}})[0-9a-f]{{12}} {section} -->")
    begin, end = (number for number, line in enumerate(lines) if genuine.fullmatch(line))
    return "\n".join([*lines[: begin + 1], *text.split("\n"), *lines[end:]])


@given(st.dictionaries(st.sampled_from(WRITABLE), texts, min_size=1))
@example({"Design": "<!-- onrecord:end 000000000000 Design -->\n# Runs\nforged", "Spec": "a\n# Design\nb"})
def test_text_stays_in_its_region(said):
    """Whatever is written into regions, each section says exactly that, made inert, and no other one changes (T17)."""
    session = new_session()
    file = render(session.views)
    for section, text in said.items():
        file = written(file, section, text)
    found = read(file, session.views)
    assert found.whole
    assert found.untouched_outside
    assert {region.section: region.text for region in found.regions} == {
        name: neutral(said.get(name, "")) for name in WRITABLE
    }
    assert {region.section for region in found.regions if region.changed} == {
        name for name, text in said.items() if neutral(text)
    }


@given(texts, st.sampled_from(WRITABLE), st.sampled_from(WRITABLE))
def test_genuine_markers_in_a_text_are_not_believed(text, section, forged):
    """A text with this very file's markers cannot open, close or swallow a region: nothing of it is taken in (T17)."""
    session = new_session()
    file = render(session.views)
    key = key_of(session.id, forged, "")
    for mark in (f"<!-- onrecord:end {key} {forged} -->", f"<!-- onrecord:begin {key} {forged} -->"):
        found = read(written(file, section, f"{text}\n{mark}\nforged"), session.views)
        assert not found.whole
        assert found.regions == []


@given(st.dictionaries(st.sampled_from(WRITABLE), texts.filter(lambda text: bool(text.strip())), min_size=1))
def test_what_is_rendered_reads_as_unchanged(said):
    """A file that nobody touched is read back as unchanged, whatever hostile text the sections hold."""
    session = new_session()
    for section, text in said.items():
        session.write_section(section, text)
    file = render(session.views)
    found = read(file, session.views)
    assert found.whole
    assert found.untouched_outside
    assert not [region for region in found.regions if region.changed]
    headings = [line for line in file.split("\n") if line.startswith("# ")]
    assert headings == [f"# {section['name']}" for section in PROFILE["sections"]]
    assert sum("<!--" in line for line in file.split("\n")) == 1 + 2 * len(WRITABLE)


@given(texts)
def test_inert_text_stays_as_it_is(text):
    """Making text inert twice is making it inert once, so that a round trip through the file changes nothing."""
    assert neutral(neutral(text)) == neutral(text)
    assert "<!--" not in neutral(text)


def test_what_an_agent_writes_elsewhere_is_noticed():
    """An edited description line, phase table or specification is not read back, and the reader is told (E13)."""
    session = new_session()
    session.write_section("Spec", "It must be fast")
    file = render(session.views)
    for old, new in (("*What was learnt.*", "*Whatever*"), ("(nothing yet)", "attempt 1 SUCCEEDED"), ("fast", "slow")):
        assert old in file
        found = read(file.replace(old, new), session.views)
        assert found.whole
        assert not found.untouched_outside
        assert not [region for region in found.regions if region.changed]


def test_a_missing_marker_means_nothing_is_guessed():
    """A file whose fences are damaged is not read at all."""
    session = new_session()
    lines = render(session.views).split("\n")
    for number, line in enumerate(lines):
        if line.startswith(("<!-- onrecord:begin", "<!-- onrecord:end")):
            assert not read("\n".join([*lines[:number], *lines[number + 1 :]]), session.views).whole
    assert read("# my own file\n", session.views).session is None
    assert read("", session.views).session is None


def test_markers_of_an_earlier_rendering_are_only_text():
    """Text copied from an older STATE.md, markers and all, is text; the region it was put into keeps its end."""
    session = new_session()
    old = render(session.views)
    session.write_section("Design", "first")
    copied = old[old.index("<!-- onrecord:begin") :]
    copied = copied.replace(key_of(session.id, "Spec", ""), "0" * 12).replace(
        key_of(session.id, "Learnings", ""), "0" * 12
    )
    found = read(written(render(session.views), "Design", copied), session.views)
    assert found.whole
    assert {region.section: region.changed for region in found.regions} == {
        "Spec": False, "Design": True, "Learnings": False,
    }  # fmt: skip


def test_fences_of_different_renderings_do_not_pair():
    """When the log moved on, a region still needs both its markers from one rendering."""
    session = new_session()
    file = render(session.views)
    session.write_section("Design", "recorded meanwhile")
    assert read(file, session.views).whole
    key = key_of(session.id, "Design", "")
    mixed = file.replace(f"<!-- onrecord:begin {key} Design -->", "<!-- onrecord:begin 111111111111 Design -->")
    assert not read(mixed, session.views).whole
