"""STATE.md: text that an agent writes into a region stays in it, and editing changes nothing else."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.views.sections import WORKLOG_SHOWN
from onrecord.views.state_md import key_of, neutral, read, render
from tests.laws import values
from tests.phases.conftest import SMALL
from tests.proofs import cite

PROFILE = SMALL | {"sections": [*SMALL["sections"], {"name": "Learnings", "description": "What was learnt."}]}
WRITABLE = ("Spec", "Design", "Learnings")
MARKS = (
    "<!-- onrecord:begin 000000000000 Design -->", "<!-- onrecord:end 000000000000 Design -->", "\n# Spec\n", "-->",
    "<!-- onrecord:state session=X position=1 outside=000000000000 -->", "<!--", "# Runs", "\r\n", "<!-- onrecord:end",
)  # fmt: skip

texts = st.lists(values.hostile_texts | st.sampled_from(MARKS), min_size=1, max_size=4).map("\n".join)


def new_session(profile=PROFILE):
    session = SessionStore(MemoryStore(), project="/p").create("work", agent="main")
    session.phases.choose_profile(profile)
    return session


def generated(*sources):
    """A session of a profile with a generated section for each source, and a function that returns the lines of a section."""
    sections = [{"name": source, "rule": "generated", "from": source} for source in sources]
    session = new_session({"name": "made", "phases": [{"name": "Plan"}, {"name": "Do"}], "sections": sections})

    def lines(source):
        _before, _heading, text = render(session.views).partition(f"\n# {source}\n\n")
        return text.partition("\n# ")[0].strip("\n").split("\n")

    return session, lines


def written(file: str, section: str, text: str) -> str:
    """The file after an agent replaced the text of one region with an editor."""
    lines = file.split("\n")
    genuine = re.compile(rf"<!-- onrecord:(begin|end) (?!0{{12}})[0-9a-f]{{12}} {section} -->")
    begin, end = (number for number, line in enumerate(lines) if genuine.fullmatch(line))
    return "\n".join([*lines[: begin + 1], *text.split("\n"), *lines[end:]])


@given(st.dictionaries(st.sampled_from(WRITABLE), texts, min_size=1))
@example({"Design": "<!-- onrecord:end 000000000000 Design -->\n# Runs\nforged", "Spec": "a\n# Design\nb"})
def test_text_stays_in_its_region(said):
    """Whatever is written into regions, each section has exactly that, made inert, and no other one changes (T17)."""
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
    """A text with this very file's markers cannot open, close or swallow a region: nothing of it is recorded (T17)."""
    session = new_session()
    file = render(session.views)
    key = key_of(session.id, forged, "")
    for mark in (f"<!-- onrecord:end {key} {forged} -->", f"<!-- onrecord:begin {key} {forged} -->"):
        found = read(written(file, section, f"{text}\n{mark}\nforged"), session.views)
        assert not found.whole
        assert found.regions == []


@given(st.dictionaries(st.sampled_from(WRITABLE), texts.filter(lambda text: bool(text.strip())), min_size=1))
def test_what_is_rendered_reads_as_unchanged(said):
    """A file that was not edited is read back as unchanged, whatever hostile text the sections hold."""
    session = new_session()
    for section, text in said.items():
        session.phases.write_section(section, text)
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
    """An edited description line, phase table or specification is not read back, and the report says so (E13)."""
    session = new_session()
    session.phases.write_section("Spec", "It must be fast")
    file = render(session.views)
    for old, new in (("*What was learnt.*", "*Whatever*"), ("(nothing yet)", "attempt 1 SUCCEEDED"), ("fast", "slow")):
        assert old in file
        found = read(file.replace(old, new), session.views)
        assert found.whole
        assert not found.untouched_outside
        assert not [region for region in found.regions if region.changed]


def test_attempts_are_shown_with_what_came_out():
    """An attempt's line has its status, command, metrics, error, fix and the files it wrote (E08)."""
    session, lines = generated("attempts", "workflow")
    session.attempts.start("python train.py 0")
    session.attempts.settle(1, "failed", error="Singular matrix", fix="l2 above zero")
    session.attempts.start("python train.py 0.1")
    outputs = [{"path": "model.json", "size": 7}, {"path": "plot.svg", "size": 9}]
    session.attempts.settle(2, "succeeded", metrics={"mse": 0.06}, outputs=outputs)
    assert lines("attempts") == [
        "- attempt 1 Status: FAILED: `python train.py 0`; error: Singular matrix; fix: l2 above zero",
        "- attempt 2 Status: SUCCESS: `python train.py 0.1`; mse=0.06; files: model.json, plot.svg",
    ]
    assert lines("workflow") == ["1. `python train.py 0.1` (attempt 2)"]


def test_the_phase_table_ends_with_the_next_action():
    """Below the phases are the current state and the next action with its command; its own section has it too (E08)."""
    session, lines = generated("phases", "next_action")
    assert lines("phases")[-1] == "Next action: (none on record)"
    assert lines("next_action") == ["(nothing yet)"]
    session.phases.enter("Plan")
    session.facts.set_next_action("Read the commit order", command="pytest -k commit")
    assert lines("phases") == [
        "| phase | name | status |", "|---|---|---|", "| 0 | Plan | in progress |", "| 1 | Do | pending |", "",
        "Now: phase 0, Plan (in progress).", "Next action: Read the commit order  $ pytest -k commit",
    ]  # fmt: skip
    assert lines("next_action") == ["Read the commit order  $ pytest -k commit"]
    for phase in ("Plan", "Do"):
        session.phases.enter(phase)
        session.phases.finish(phase)
    assert "Every phase is done; nothing pending." in lines("phases")


def test_the_work_log_shows_time_phase_and_text():
    """Every line of the work log has its time and the phase it was written in (E08)."""
    session, lines = generated("worklog")
    session.phases.log_work("Downloaded the data")
    session.phases.finish("Plan", retroactive=True)
    session.phases.log_work("Trained")
    shown = [re.sub(r"^- \d{4}-\d\d-\d\dT[0-9:.]+Z ", "", line) for line in lines("worklog")]
    assert shown[1:] == ["[Plan] Downloaded the data", "[Do] Trained"]


def test_a_long_work_log_shows_its_newest_lines_and_counts_the_rest():
    """The file stays readable: it shows the newest lines, and how many earlier ones are in the log."""
    session, lines = generated("worklog")
    for number in range(WORKLOG_SHOWN + 1):
        session.phases.log_work(f"line {number}")
    first, second, *_between, last = lines("worklog")
    assert first == "- (2 earlier lines are in the log)", "the start line is one of them"
    assert second.endswith(" line 1")
    assert last.endswith(f" line {WORKLOG_SHOWN}")
    assert len(lines("worklog")) == 1 + WORKLOG_SHOWN == 501


def test_findings_facts_and_features_have_sections():
    """Findings by label, decisions, evidence, reproduction and features are rendered from the record (E08)."""
    session, lines = generated("verified", "open", "decisions", "evidence", "reproduction", "features", "objective")
    session.facts.set_objective("Fix the 403")
    session.facts.set_reproduction("pytest -k invite", scenario="fresh database", rate="3/10")
    session.evidence.record("run", id="run-a", captured=True, command="pytest -k invite")
    session.evidence.record("log", id="log-b", reference="acceptance 17")
    session.findings.state("The row is written late", "verified", evidence=cite(session, "run-a"))
    session.findings.state("The cache is stale")
    session.decide("Keep the middleware", why="it is not the cause")
    session.decide("Test first")
    session.phases.add_feature("login", "A user can log in")
    session.phases.add_feature("logout", "A user can log out")
    session.phases.judge_feature("login", passes=True, evidence=["run-a"])
    assert lines("objective") == ["Fix the 403"]
    assert lines("reproduction") == ["pytest -k invite", "scenario: fresh database", "rate: 3/10"]
    assert lines("verified") == ["- f1: The row is written late [run-a✓]"]
    assert lines("open") == ["- f2: The cache is stale"]
    assert lines("decisions") == ["- Keep the middleware because it is not the cause", "- Test first"]
    assert lines("evidence") == ["- run-a: captured run pytest -k invite", "- log-b: asserted log acceptance 17"]
    assert lines("features") == ["- [x] login: A user can log in [run-a]", "- [ ] logout: A user can log out"]


def test_a_missing_marker_means_nothing_is_guessed():
    """A file with damaged fences is not read at all."""
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
    session.phases.write_section("Design", "first")
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
    """When the log has moved on, a region still needs both its markers from one rendering."""
    session = new_session()
    file = render(session.views)
    session.phases.write_section("Design", "recorded meanwhile")
    assert read(file, session.views).whole
    key = key_of(session.id, "Design", "")
    mixed = file.replace(f"<!-- onrecord:begin {key} Design -->", "<!-- onrecord:begin 111111111111 Design -->")
    assert not read(mixed, session.views).whole
