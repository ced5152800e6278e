"""An attacker, or a mistake, wants a session that no one can read again: one value, and note and list raise for ever."""

from types import SimpleNamespace

import pytest

import onrecord
from onrecord.errors import InvalidInput
from onrecord.log import codec
from onrecord.log.events import DURABLE_KINDS, KINDS, RESERVED_KINDS
from onrecord.log.shapes import SHAPES
from onrecord.pages import report as pages
from onrecord.pages.plain import as_markdown
from onrecord.pages.report import Contents
from onrecord.pages.spans import start_of
from onrecord.session import bundle
from onrecord.session.profiles import check
from onrecord.session.redacting import shared
from onrecord.surfaces.cli.shared.shapes import describe
from onrecord.surfaces.cli.upkeep.doctor_secrets import secrets
from onrecord.views import state_md
from onrecord.views.diff import changes
from onrecord.views.phases import Phases
from onrecord.views.present import Present
from onrecord.views.render import iso

JUNK = (5, -1, 1e300, True, "x", {"a": 1}, [1], [{"a": [1]}], 1_794_000_000_000, [["x"]], {"host": 5, "pid": "x"})
FREE = {
    "agent.joined": "process vendor arguments spawn", "interruption.recorded": "cause message resets_at vendor until",
    "next_action.set": "command", "decision.made": "why", "attempt.started": "process keeper cwd worktree revision",
    "attempt.settled": "error fix metrics outputs", "finding.stated": "evidence anchors", "evidence.recorded": "kind",
    "agent.located": "cwd branch process revision", "usage.recorded": "model cost input_tokens output_tokens agent",
    "reproduction.recorded": "scenario rate", "gate.decided": "call tool ground", "session.paused": "reason",
    "session.closed": "reason", "turn.begun": "turn base", "turn.aborted": "reason", "tool.used": "command exit_code files",
    "payload.erased": "ranges count scope", "session.opened": "objective metadata budget parent",
}  # fmt: skip
"""Fields that are optional; those that a kind needs are tried for every kind."""


def whole_payload(kind: str) -> dict[str, object]:
    known = {"attempt": 1, "profile": {"name": "x", "phases": []}, "team": {}, "limits": {"steps": 5}, "size": 1}
    known |= {"anchors": {}, "ids": [], "evidence": [], "passes": True, "label": "open", "outcome": "failed", "upto": 1}
    return {name: known.get(name, "x") for name in KINDS[kind].needs.split()}


def read_all(session: onrecord.Session, records: onrecord.session.session_store.SessionStore) -> None:
    """Everything that readers show of a session."""
    session = records.get(session.id)
    views = session.views
    assert session.note()
    assert session.brief()
    assert records.entries(records.sessions())
    assert state_md.render(views)
    Present.of(views).dump()
    views.spend.remaining(0)
    session.context(tokens=1_000, count=len)
    list(records.usage())


@pytest.mark.parametrize("kind", [kind for kind in DURABLE_KINDS if KINDS[kind].needs or kind in FREE])
def test_no_value_in_a_log_makes_it_unreadable(kind, monkeypatch):
    """A log of another version or from a bundle may have any JSON in any field: every reader still works."""
    monkeypatch.setattr(codec, "SHAPES", {})
    for field in dict.fromkeys([*KINDS[kind].needs.split(), *FREE.get(kind, "").split()]):
        for junk in JUNK:
            with onrecord.connect("memory:") as records:
                session = records.create("work")
                session.findings.state("a claim")
                try:
                    session._record(kind, whole_payload(kind) | {field: junk})
                except onrecord.OnrecordError:
                    continue  # the head refused it
                read_all(session, records)


@pytest.mark.parametrize("kind", sorted(set(SHAPES) - RESERVED_KINDS))
def test_a_value_of_another_type_is_refused_at_the_door(kind):
    """Each field that views rely on is checked before anything is written; the same event with its types is recorded."""
    with onrecord.connect("memory:") as records:
        session = records.create("work")
        for field, test, _wanted in SHAPES[kind]:
            for junk in JUNK:
                if not test(junk):
                    with pytest.raises(InvalidInput, match=field):
                        session.log.record(kind, whole_payload(kind) | {field: junk})
        session.log.record(kind, whole_payload(kind))
        read_all(session, records)


TRIED = {"command": "make", "signature": "make"}
GIFTS = [
    ("evidence.recorded", {"id": "e1"}), ("milestone.reached", {"what": "root_cause"}), ("milestone.reached", {"what": "fix"}),
    ("finding.stated", {"claim": None, "label": "open"}), ("attempt.started", TRIED | {"revision": "main"}),
    ("attempt.started", TRIED | {"revision": {"revision": "4f2c", "changed": 5}}), ("code.changed", {"anchors": {}, "commits": [7]}),
    ("usage.recorded", {"model": "m", "input_tokens": {"a": 1}}), ("usage.recorded", {"model": "m", "counted": 5}),
    ("secret.found", {"found": 5}), ("secret.found", {"found": ["x"]}), ("secret.found", {"found": [{"rule": 1}]}),
    ("agent.joined", {"process": ["x"]}), ("tool.used", {"tool": "Edit", "act": "edit", "paths": True}),
]  # fmt: skip
"""Payloads that once made a command fail for good, after an import that succeeded."""


@pytest.mark.parametrize(("kind", "data"), GIFTS, ids=str)
def test_no_payload_of_a_bundle_stops_a_reader(kind, data, elsewhere, monkeypatch):
    """Whatever an imported event has in its fields: note, brief, log, diff, page and doctor work."""
    with monkeypatch.context() as attacker:
        attacker.setattr(codec, "SHAPES", {})
        gift = elsewhere.create("gift")
        gift.record_turn([{"role": "user", "content": "hello"}])
        gift.findings.state("the cache is stale", "open")
        gift._record("evidence.recorded", {"id": "e0", "kind": "log"})
        gift._record("finding.relabelled", {"finding": "f1", "label": "verified", "evidence": ["e0"]})
        gift._record("milestone.reached", {"what": "root_cause", "finding": "f1", "evidence": ["e0"]})
        gift._record("milestone.reached", {"what": "fix", "finding": "f1", "evidence": ["e1"]})
        gift._record(kind, data)
    with onrecord.connect("memory:") as records:
        session = bundle.take_in(records, bundle.lines_of(gift))
        read_all(session, records)
        views, events = session.views, list(session.events())
        assert [describe(event) for event in events]
        assert changes(session.at(1).views, views, [])
        given = shared(session, events).events
        contents = Contents(start_of(session.log.head()).fold(given), given, "", 1, needs=[], command="", remark="")
        assert all("the cache is stale" in "".join(make(contents)) for make in (pages.report, as_markdown))
        assert secrets(records)


def test_the_note_says_what_it_left_out(monkeypatch):
    """An event that no view can read is left out, and the note names its position."""
    with onrecord.connect("memory:") as records:
        session = records.create("work", objective="the first")
        with monkeypatch.context() as older:
            older.setattr(codec, "SHAPES", {})
            session._record("objective.set", {"text": {"a": 1}})
        assert session.views.facts.purpose == "the first"
        assert "payloads at positions 2 do not have the form" in session.note()


def test_a_moment_that_no_calendar_has_is_shown_as_it_is():
    """A reader does not die of a time in a log: it shows the number."""
    assert iso(10**18) == "1000000000000000000 µs"
    assert iso(0) == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "profile",
    [5, "x", None, [], {}, {"name": 3, "phases": 4}, {"phases": [1, {"name": 2}, {}], "sections": {"a": 1}}],
    ids=str,
)
def test_a_profile_that_is_none_has_no_phases(profile):
    """The phases of a session whose log has anything in place of a profile are empty; a sound profile stays as it is."""

    def chosen(profile: object) -> Phases:
        view = Phases()
        view.apply(SimpleNamespace(kind="profile.chosen", data={"profile": profile}, position=1, at=1, by="x"))  # type: ignore[arg-type]  # what is read
        return view

    one = chosen(profile)
    assert (one.names, one.described(), one.current(), one.number("x"), one.rule("x")) == ([], [], None, 0, "free")
    whole = check(
        {"name": "n", "phases": [{"name": "a"}, {"name": "b"}], "sections": [{"name": "s", "rule": "append"}]}
    )
    good = chosen(whole)
    assert (good.names, good.number("b"), good.rule("s"), good.profile) == (["a", "b"], 1, "append", whole)
