"""`onrecord usage`: tokens and cost of model calls, grouped, summed, and quick over many sessions."""

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from onrecord import connect
from onrecord.session.usage import KINDS, spend_of
from onrecord.surfaces.cli import main
from onrecord.views.fold import VIEWS_VERSION
from onrecord.views.spend import ROW as SPEND_ROW

DAY = 20_772  # 15 November 2026, a Sunday
ROW = {"model": "claude-opus-5-5", "calls": 2, "input_tokens": 20, "output_tokens": 10}


def count(session, key, *rows, agent=None):
    about = {"agent": agent} if agent else {}
    counted = [[row.get(name, 0) for name in SPEND_ROW[: len(SPEND_ROW) if "cost" in row else -1]] for row in rows]
    return session.log.record(
        "usage.recorded", {"vendor": "claude", "of": "v", "calls": [key], "counted": counted} | about
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A store with two projects, three sessions and three days."""
    url = str(tmp_path / "store.db")
    monkeypatch.setenv("ONRECORD_STORE", url)
    monkeypatch.setenv("ONRECORD_PROJECT", "/src/one")
    monkeypatch.delenv("ONRECORD_SESSION", raising=False)
    with connect(url, project="/src/one") as records:
        first, second = records.create("first", agent="claude"), records.create("second", agent="main")
        count(first, "a", ROW | {"day": DAY}, ROW | {"day": DAY + 1, "cache_read_tokens": 15})
        count(first, "b", ROW | {"day": DAY + 1, "model": "unheard-of"}, agent="helper")
        second.budget.record_usage(
            "gpt-5.5", input_tokens=1_000_000, output_tokens=5, cost=0.5, reasoning_tokens=3, cache_write_tokens=7
        )
    with connect(url, project="/src/two") as records:
        count(records.create("other", agent="codex"), "c", ROW | {"day": DAY, "cost": 2.0})
    return url


def rows(capsys, *words):
    assert main.main(["usage", *words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    return {row["key"]: row for row in data["rows"]}, data["total"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--by", "model"], {"gpt-5.5": 1, "claude-opus-5-5": 4, "unheard-of": 2}),
        (["--by", "session"], {"second": 1, "first": 6}),
        (["--by", "agent"], {"main": 1, "claude": 4, "helper": 2}),
        (["--by", "agent", "--all"], {"codex": 2, "main": 1, "claude": 4, "helper": 2}),
        (["--by", "project"], {"/src/two": 2, "/src/one": 7}),
        (["--by", "project", "--project", "/src/one"], {"/src/one": 7}),
        (["--by", "day", "--session", "first"], {"2026-11-15": 2, "2026-11-16": 4}),
        (["--by", "week", "--session", "first"], {"2026-W46": 2, "2026-W47": 4}),
        (["--session", "first", "--since", "2026-11-16"], {"2026-11-16": 4}),
        (["--session", "first", "--since", "2099-01-01"], {}),
    ],
)  # fmt: skip
def test_calls_are_grouped(here, capsys, words, expected):
    """Every grouping has all calls once: days in their order, other rows by their cost; and a total."""
    found, total = rows(capsys, *words)
    assert {key: row["calls"] for key, row in found.items()} == expected
    assert list(found) == list(expected)
    assert total["calls"] == sum(expected.values())


def test_costs_are_told_estimated_or_unknown(here, capsys):
    """A cost that was recorded counts; one that was not is estimated from the price list; the rest is unknown."""
    found, total = rows(capsys, "--by", "model")
    assert (found["gpt-5.5"]["cost"], found["gpt-5.5"]["estimated_cost"]) == (0.5, 0.0)
    opus = found["claude-opus-5-5"]
    assert opus["cost"] == opus["estimated_cost"] == pytest.approx(4 * 0.00014, rel=0.2)
    assert (found["unheard-of"]["cost"], found["unheard-of"]["unknown_cost_calls"]) == (0.0, 2)
    assert (total["unknown_cost_calls"], total["reasoning_tokens"], total["cache_write_tokens"]) == (2, 3, 7)
    assert main.main(["usage"]) == 0
    assert "the cost of 2 calls is not known: the price list does not have the model" in capsys.readouterr().err


def test_show_and_usage_state_one_cost(here, capsys):
    """What a session cost is the same number in `onrecord show` and in `onrecord usage`, estimates included."""
    with connect(here, project="/src/one") as records:
        count(records.open("second"), "z", ROW | {"day": DAY, "calls": 1}, ROW | {"day": DAY, "model": "unheard-of"})
    for name, by_hand in (("first", 0.0), ("second", 0.5)):
        models, total = rows(capsys, "--session", name, "--by", "model")
        assert main.main(["show", name, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)["data"]
        assert data["usage"] == total
        assert {key: {"key": key, **used} for key, used in data["usage_by_model"].items()} == models
        assert total["cost"] - total["estimated_cost"] == pytest.approx(by_hand)
        assert main.main(["show", name]) == 0
        shown = capsys.readouterr().out
        assert f" ${total['cost']:.4f} " in shown, shown
        assert "2 calls of unknown cost" in shown, shown


def test_comma_separated_values_are_exact(here, capsys):
    """--csv has a heading and plain numbers, and a name that looks like a formula is none in a spreadsheet."""
    with connect(here, project="/src/one") as records:
        count(records.create("x", agent="main"), "z", ROW | {"day": DAY, "model": "=cmd"})
    capsys.readouterr()
    assert main.main(["usage", "--by", "model", "--csv"]) == 0
    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["model"], row["input_tokens"]) for row in found] == [
        ("gpt-5.5", "1000000"), ("claude-opus-5-5", "40"), ("'=cmd", "20"), ("unheard-of", "20"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words", [["--since", "soon"], ["--since", "2026-13-01"], ["--by", "hour"], ["--csv", "--json"]]
)
def test_a_mistyped_option_is_one_sentence(here, capsys, words):
    """A wrong day, grouping or pair of forms is a usage error with a hint."""
    assert main.main(["usage", *words]) == 2
    assert "hint" in capsys.readouterr().err


def test_since_counts_back_from_today(here, capsys):
    """`today` is this day; `7d` are seven days with this one; weeks are seven days each."""
    today = datetime.now(UTC).astimezone().date()
    with connect(here, project="/src/one") as records:
        session = records.create("late", agent="late")
        for back in (0, 6, 7, 13, 14):
            day = (today - timedelta(days=back)).toordinal() - 719_163
            count(session, f"k{back}", {"day": day, "model": "m", "calls": 1})
    for since, expected in (("today", 1), ("1d", 1), ("7d", 2), ("8d", 3), ("2w", 4), ("15d", 5)):
        assert rows(capsys, "--session", "late", "--since", since)[1]["calls"] == expected, since


def test_nothing_on_record_is_said(tmp_path, monkeypatch, capsys):
    """A store without calls, and one that does not exist, give an empty answer and a note."""
    monkeypatch.setenv("ONRECORD_STORE", str(tmp_path / "none.db"))
    assert main.main(["usage"]) == 0
    told = capsys.readouterr()
    assert (told.out, "nothing is on record yet" in told.err) == ("", True)
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("verb", [["usage"], ["list"], ["search", "words"], []])
def test_a_mistyped_project_is_an_error(here, monkeypatch, capsys, verb):
    """A project that no session belongs to is an error with the likely name; a directory without sessions is not."""
    assert main.main([*verb, "--project", "/src/onne"]) == 4
    assert "did you mean `--project /src/one`?" in capsys.readouterr().err
    monkeypatch.setenv("ONRECORD_PROJECT", "nothing-like-it")
    assert main.main(verb) == 4
    assert "`onrecord list --all` lists those of all projects" in capsys.readouterr().err
    assert main.main([*verb, "--project", "/tmp"]) == 0
    assert main.main([*verb, "--all"]) == 0


def test_a_fork_pays_only_for_itself_and_snapshots_change_nothing(here):
    """What a session used is the same from its log, from a snapshot, and from a damaged snapshot."""
    with connect(here, project="/src/one") as records:
        first = records.get("first", agent="claude")
        child = first.fork("child")
        count(child, "f", ROW | {"day": DAY})
        assert [used.usage["calls"] for used in records.usage(session="child")] == [2]
        for _number in range(300):
            first.facts.set_scratch("n", value=1)
        assert records.store.snapshot(first.id, VIEWS_VERSION) is not None
        count(first, "z", ROW | {"day": DAY})
        whole = first.refresh().views.spend
        assert spend_of(records.store, records.find("first")).days == whole.days
        kept = records.store.snapshot(first.id, VIEWS_VERSION)
        assert kept is not None
        records.store.save(first.id, kept._replace(body=kept.body[:-9] + b"123456789"))
        assert spend_of(records.store, records.find("first")).days == whole.days


def test_bars_fit_the_window(working):
    """On a terminal each row has a bar and a number, and no line is wider than the window."""
    for number, tokens in enumerate((10, 1_000, 2_500_000)):
        working.ok("record", "--user", "x", "--model", f"model-{number}", "--input-tokens", str(tokens), "--cost", "1")
    for columns in (60, 80, 120):
        shown = working.on_terminal("usage", "--by", "model", env={"COLUMNS": str(columns), "NO_COLOR": "1"}).out
        lines = shown.splitlines()
        assert all(len(line) <= columns for line in lines), shown
        assert sum("█" in line for line in lines) == 3, shown
        assert re.search(r"total +3 +2\.5M", shown)


def test_no_log_is_read_whole(here, monkeypatch):
    """The usage of many sessions reads usage events only, and of a session with a snapshot only those after it."""
    with connect(here, project="/src/one") as records:
        session = records.get("first", agent="claude")
        for _number in range(300):
            session.facts.set_scratch("n", value=1)
        asked, read = [], records.store.read

        def watched(session, **options):
            found = read(session, **options)
            asked.append((options.get("kinds"), options.get("bodies"), len(found)))
            return found

        monkeypatch.setattr(records.store, "read", watched)
        assert sum(used.usage["calls"] for used in records.usage(project="")) == 9
        assert all(kinds == KINDS or bodies == () for kinds, bodies, _count in asked)
        assert sum(count for _kinds, _bodies, count in asked) == 3, "two usage events, and the header of a snapshot"
