"""The report: one file that is complete, true at every position, and allows nothing but its own script and style."""

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from onrecord.pages.attempts import attempt_row, attempt_rows, metric_plot
from onrecord.pages.board import board_cards
from onrecord.pages.entries import TURN, entries_of
from onrecord.pages.files import Files, edits_of
from onrecord.pages.lanes import LEGEND, Picture, draw_lanes
from onrecord.pages.options import Options
from onrecord.pages.panel import Line, panel_lines
from onrecord.pages.plain import as_markdown
from onrecord.pages.report import COLOURED_ENTRIES, Contents, _chapters, report
from onrecord.pages.spans import spans_of
from onrecord.pages.tools import shown_call
from onrecord.session.handle import Session
from onrecord.views.fold import Whole
from tests.pages.safe import Page
from tests.pages.samples import call, event, sample


@pytest.fixture(scope="module")
def session() -> Session:
    return sample()


@pytest.fixture(scope="module")
def contents(session: Session) -> Contents:
    return Contents(session.views, list(session.events()), session.note(), 1_794_820_320_000_000, verified=True)


@pytest.fixture(scope="module")
def html(contents: Contents) -> str:
    return "".join(report(contents))


def test_a_report_shows_everything(html: str):
    """Prompts, answers, thoughts, commands with exit codes, diffs, findings, decisions, limits and forks are in it."""
    text = Page(html).text
    for said in ("Find out why, then fix it.", "Reproduced.", "The replica lags.", "exit 1", "3 failed", "3 lines",
                 "+2 \u22120", "return self.primary", "trace-7 ✓ captured", "decided", "Read from the primary for five seconds",
                 "aborted: RuntimeError: engine stopped answering", "superseded by", "usage limit: usage window", "compacted",
                 "attempt 1 failed", "attempt 3 is running", "$ git diff", "chain verified", "14.2k tokens · $0.09", "replica +268 ms",
                 "do not reopen without new evidence", "challenged"):  # fmt: skip
        assert said in text, said
    assert "\x1b" not in html
    assert "[31m" not in text


def test_a_report_is_well_formed(html: str):
    """Every element is closed, every id is there once, and every link inside of the file leads somewhere."""
    page = Page(html)
    assert page.problems == []
    assert sorted(page.ids) == sorted(set(page.ids))
    inside = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert inside - set(page.ids) == set()
    assert len(inside) > 20


def test_only_its_own_script_and_style_are_allowed(html: str):
    """The policy of the file names the hashes of the one script and the one stylesheet, and allows nothing else."""
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    for name in ("script", "style"):
        (body,) = re.findall(rf"<{name}>(.*?)</{name}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert not re.search(r'(?:src|href)="(?:https?:)?//', html.partition("<body>")[0])


def test_a_report_is_true_at_every_position(session: Session, contents: Contents):
    """The lines that hold at a position are those that a fold up to there draws: panel, findings, attempts, files."""
    names = ["failures"]
    edits = Files(edits_of(entries_of(contents.events), contents.whole))
    spans = spans_of(contents.whole.head, contents.events, _chapters(contents, edits))

    def files(whole: Whole) -> list[Line]:
        entries = entries_of(one for one in contents.events if one.position <= whole.position)
        return [line for lines in Files(edits_of(entries, whole)).draw(whole, None).values() for line in lines]

    draws: dict[str, Callable[[Whole], list[Line]]] = {
        "panel": panel_lines, "board": board_cards, "attempts": lambda whole: attempt_rows(whole, None, names),
        "files": files,
    }  # fmt: skip
    turns = {one.position for one in contents.events if one.kind in ("turn.begun", "item.added")}
    for position in range(1, contents.whole.position + 1):
        then = session.at(position).views
        for name, draw in draws.items():
            held = [
                one.line for one in spans[name] if one.begun <= position and (one.ended is None or position < one.ended)
            ]
            if position not in turns:  # the panel does not follow a turn while it is open
                assert sorted(held) == sorted(draw(then)), (name, position)
    assert any(one.ended for one in spans["panel"])
    assert any("changed by claude with Edit" in one.line.html for one in spans["files"] if one.ended)


def test_the_timeline_has_turns_of_every_state(contents: Contents):
    """Turns have their number, state, usage and the turn that supersedes them; facts refer to what they are about."""
    entries = entries_of(contents.events, contents.whole, {})
    turns = [(one.by, one.number, one.state) for one in entries if one.kind == TURN]
    assert turns == [
        ("claude", 1, "committed"),
        ("claude", 2, "aborted"),
        ("claude", 3, "committed"),
        ("codex", 1, "committed"),
    ]
    aborted, after = [one for one in entries if one.by == "claude" and one.kind == TURN][1:]
    assert aborted.superseded_by == after.position
    assert [one.position for one in entries] == sorted(one.position for one in entries)
    (relabelled,) = [one for one in entries if one.kind == "finding.relabelled"]
    assert relabelled.about["claim"] == "The client retries too early"
    middle = contents.events[contents.events.index(after.event) :]
    assert [one.number for one in entries_of(middle) if one.kind == TURN] == [0, 0]


def test_a_long_report_has_no_colours_in_code():
    """Code is coloured, except in a report that would open late because of it; the code is the same."""
    said = event("turn.recorded", {"items": [{"role": "assistant", "content": "```py\nreturn 'x' # <b class=k>\n```"}]})
    whole = sample().views
    short, long = (
        "".join(report(Contents(whole, [said._replace(position=n + 1) for n in range(count)], "", 1)))
        for count in (3, COLOURED_ENTRIES + 1)
    )
    assert short.count("<b class=k>return</b>") == 3
    assert "<b class=" not in long
    assert long.count("return 'x' # &lt;b class=k&gt;") == COLOURED_ENTRIES + 1


def test_a_part_and_without_output(contents: Contents):
    """A report may begin later, and leave out what tools returned; it says so, and keeps how they ended."""
    first = next(one.position for one in contents.events if one.kind == "decision.made")
    text = Page("".join(report(contents._replace(first=first)))).text
    assert f"begins at position {first}" in text
    assert "Take over." in text
    assert "Reproduced." not in text
    quiet = Page("".join(report(contents._replace(options=Options(output=False))))).text
    assert "3 lines of output left out" in quiet
    assert "exit 1" in quiet
    assert "\n3 failed" not in quiet


def test_markdown_reads_like_a_conversation(contents: Contents):
    """Prompts are quoted, commands and diffs are in fences that nothing can close, and facts are a list."""
    text = "".join(as_markdown(contents))
    assert "> **user:** Find out **why**, then fix it." in text
    assert "```console\n$ pytest -k invite\nExit code 1\n3 failed\n(exit 1)\n```" in text
    assert "`edit db/router.py` (+2 \u22120)\n\n```diff\n" in text
    assert "> *thinking:* The replica lags." in text
    assert "\n- ✓ verified The row is not visible yet (f1 · trace-7 ✓ captured, claude, " in text
    assert "**aborted: RuntimeError: engine stopped answering**, superseded by position " in text
    fence = {"role": "assistant", "content": "# Title\n```\ncode <b>", "tool_calls": [
        {"id": "x", "name": "Bash", "arguments": {"command": "cat x"}}]}  # fmt: skip
    answer = {"role": "tool", "call": "x", "content": "````\n" + "line\n" * 99}
    made = "".join(as_markdown(contents._replace(events=[event("turn.recorded", {"items": [fence, answer]})])))
    assert "**Title**\n```\ncode <b>\n```\n" in made
    assert "`````console\n$ cat x\n````\n" in made
    assert "... (51 lines; the log has them)" in made


def test_lanes_stay_small(contents: Contents):
    """Lanes show agents, turns of every state, attempts, limits and the hand-over; 20,000 turns are not 20,000 bars."""
    picture = draw_lanes(Picture().fold(contents.events))
    for part in (
        ">claude<",
        ">codex<",
        'class="bar lane-0"',
        'class="bar prov"',
        'class="hand"',
        "●",
        "‖",
        "attempt 1 failed",
        "attempt 3 without an outcome make deploy",
    ):
        assert part in picture, part
    assert picture.count("○") == 1, "the attempts that were settled have their outcome only"
    signs = {shape for shape, _css, _what in LEGEND}
    assert set(re.findall(r'class="mark [^>]*>(.)', picture)) <= signs
    assert Page(picture).problems == []
    many = [event("turn.recorded", None, number)._replace(at=number * 1_000_000) for number in range(1, 20_001)]
    assert len(draw_lanes(Picture().fold(many))) < 40_000
    assert draw_lanes(Picture()) == ""


def test_metrics_are_plotted():
    """A metric of several attempts is a line with a dot for each attempt; one value, or text, is no plot."""
    attempts = [
        {"number": n, "status": "succeeded", "position": n, "metrics": {"x": n, "t": "a", "inf": float("inf")}}
        for n in (1, 2, 3)
    ]
    assert metric_plot(attempts, "x").count("<circle") == 3
    assert metric_plot(attempts[:1], "x") == metric_plot(attempts, "t") == metric_plot(attempts, "inf") == ""


def test_a_tool_call_says_what_it_was_given():
    """The path and what else there is; a list of tasks, as vendors' planning tools have it, with what is done."""
    given = {
        "Grep": {"path": "src", "pattern": "SyntaxError"},
        "TodoWrite": {"todos": [{"content": "Fix it", "status": "completed"}, {"content": "Test <b>", "status": "pending"}]},
        "update_plan": {"plan": [{"step": "Read", "status": "in_progress"}, "no task"]},
    }  # fmt: skip
    calls = {name: shown_call(call("c", name, one), {"role": "tool", "content": "ok"}, None, Options(), ended=True)
             for name, one in given.items()}  # fmt: skip
    assert calls["Grep"].title == "Grep src pattern=SyntaxError"
    assert calls["TodoWrite"].title == "TodoWrite 1 of 2 done"
    assert "☑ Fix it\n☐ Test &lt;b&gt;" in calls["TodoWrite"].body
    assert calls["update_plan"].title.startswith("update_plan plan=[")


def test_an_attempt_says_how_long_it_took():
    """As it was measured; settled by hand, from its start to its outcome; both at once says nothing."""
    made: Any = {"number": 1, "status": "failed", "command": "make --check", "at": 0, "by": "claude", "position": 3}
    rows = [attempt_row(made | more, None, []).html for more in (
        {"seconds": 4.1, "ended_at": 90_000_000}, {"ended_at": 90_000_000}, {"ended_at": 5}, {"status": "running"},
        {"status": "abandoned", "ended_at": 90_000_000})]  # fmt: skip
    assert [re.findall(r"<td class=n>([^<]*)", row)[0] for row in rows] == ["4.1 s", "1 min 30 s", "", "", ""]
    assert all('<span class="w">--check</span>' in row for row in rows), "a command breaks between its words only"


def test_a_long_objective_is_folded(session: Session):
    """What comes after it stays in sight; the whole text is one click away."""
    whole = session.at(1).views
    whole.facts.objective = {"text": "word " * 200, "position": 1, "at": 1, "by": "claude"}
    folded = next(line.html for line in panel_lines(whole) if not line.section)
    assert folded.startswith("<details")
    assert folded.count("word") > 200


@pytest.mark.parametrize("count", [0, 1])
def test_a_session_with_nothing_says_so(session: Session, count: int):
    """A session with one event, and a log that is empty, are drawn, with a sentence where something would be."""
    made = session.at(1).views
    text = Page("".join(report(Contents(made, list(session.events(upto=1))[:count], "", 1)))).text
    assert "No agent has said anything yet." in text
    assert "No findings yet." in text
    assert "No attempts yet." in text
    assert "No usage was recorded." in text
