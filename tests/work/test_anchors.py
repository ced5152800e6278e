"""Anchors: what a finding rests on, and when it counts as changed."""

import pytest

from onrecord.errors import InvalidInput
from onrecord.work.anchors import anchored, fingerprint, parse_anchor, reanchored
from onrecord.work.surveying import survey
from tests.proofs import cite


def prepend(place, text):
    place.write_text(text + place.read_text())


@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        ("src/a.py", {"path": "src/a.py"}),
        ("src/a.py:7", {"path": "src/a.py", "lines": [7, 7]}),
        ("src/a.py:10-20", {"path": "src/a.py", "lines": [10, 20]}),
        ("src/a.py::Invite.row", {"path": "src/a.py", "symbol": "Invite.row"}),
        ("odd:name.txt", {"path": "odd:name.txt"}),
    ],
)
def test_an_anchor_is_written_as_people_write_places(text, anchor):
    """A path, a path with lines and a path with a symbol are distinguished."""
    assert parse_anchor(text) == anchor


@pytest.mark.parametrize(
    "text", ["", "../x.py", "/etc/passwd", "a.py:0-3", "a.py:5-2", "a.py::", "a.py::a b", "a.js::f"]
)
def test_places_outside_the_project_and_nonsense_are_refused(text):
    """An anchor never leaves the project and always names something that can be found."""
    with pytest.raises(InvalidInput):
        parse_anchor(text)


@pytest.mark.parametrize("text", ["gone.py", "auth.py:90-99", "auth.py::Nothing", "auth.py::Invite.nothing"])
def test_nothing_can_rest_on_what_is_not_there(root, text):
    """An anchor needs existing code."""
    with pytest.raises(InvalidInput, match="there is no code at"):
        anchored(root, text)


def test_a_path_is_taken_from_where_one_stands(root):
    """In a subdirectory a relative path means the file there, and the anchor keeps it relative to the root."""
    (root / "sub").mkdir()
    (root / "sub" / "b.py").write_text("b = 1\n")
    assert anchored(root, "b.py:1", root / "sub")["path"] == "sub/b.py"
    assert anchored(root, "auth.py", root / "sub")["path"] == "auth.py"
    with pytest.raises(InvalidInput):
        anchored(root, "../../outside.py", root / "sub")


def test_lines_that_only_moved_are_the_same(root):
    """An insertion above does not change the lines; a change within them does, and so does their removal."""
    anchor = anchored(root, "auth.py:4-5")
    prepend(root / "auth.py", "# one more\n# and another\n")
    assert fingerprint(root, anchor, known=anchor["fingerprint"]) == anchor["fingerprint"]
    assert reanchored(root, [anchor]) == [anchor | {"lines": [6, 7]}]
    (root / "auth.py").write_text((root / "auth.py").read_text().replace("invite.row", "invite.line"))
    assert fingerprint(root, anchor, known=anchor["fingerprint"]) != anchor["fingerprint"]
    (root / "auth.py").write_text("x = 1\n")
    assert fingerprint(root, anchor, known=anchor["fingerprint"]) is None
    assert reanchored(root, [anchor]) == []


def test_a_symbol_is_followed_wherever_it_stands(root):
    """A method that moved, got another indentation or is below `if` is the same; its body and its decorators count."""
    anchor = anchored(root, "auth.py::Invite.row")
    here = root / "auth.py"
    here.write_text(
        "import os\nif os.name:\n    class Invite:\n        other = 1\n\n        def row(self):\n            return 1\n"
    )
    assert fingerprint(root, anchor) == anchor["fingerprint"]
    here.write_text("class Invite:\n    @property\n    def row(self):\n        return 1\n")
    assert fingerprint(root, anchor) not in (None, anchor["fingerprint"])
    here.write_text("class Invite:\n    def row(self:\n")
    assert fingerprint(root, anchor) is None


def test_exactly_the_dependent_findings_turn_stale(session, root):
    """A change marks the findings that rest on it, no other; the survey is one event, and the second none (T22, H28)."""
    session.findings.state(
        "accept loses the row", "verified", evidence=cite(session, "e1"), anchors=[anchored(root, "auth.py::accept")]
    )
    session.findings.state(
        "row is fine", "rejected", evidence=cite(session, "e2"), anchors=[anchored(root, "auth.py::Invite.row")]
    )
    session.findings.state(
        "the cache is not it", "rejected", evidence=cite(session, "e3"), anchors=[anchored(root, "cache.py")]
    )
    session.findings.state("a guess", "open", anchors=[anchored(root, "auth.py")])
    session.findings.state("without code", "verified", evidence=cite(session, "e4"))
    assert survey(session, root).position is None
    original = (root / "auth.py").read_text()
    (root / "auth.py").write_text(original.replace("invite.row", "invite.line"))
    found = survey(session, root)
    assert (found.turned_stale, found.stale) == (["f1"], {"f1": 1})
    view = session.views.findings
    assert [view.label_of(one) for one in view.findings.values()] == [
        "stale",
        "rejected",
        "rejected",
        "open",
        "verified",
    ]
    assert session.log.event(found.position).kind == "code.changed"
    assert survey(session, root).position is None


def test_a_revert_makes_findings_fresh_again(session, root):
    """When code is reverted the finding is fresh again, without another judgement; a deleted file is a change (H28)."""
    session.findings.state(
        "it is in both",
        "verified",
        evidence=cite(session, "e"),
        anchors=[anchored(root, name) for name in ("auth.py", "cache.py")],
    )
    kept = {name: (root / name).read_text() for name in ("auth.py", "cache.py")}
    (root / "auth.py").unlink()
    (root / "cache.py").write_text("TTL = 61\n")
    assert survey(session, root).stale == {"f1": 2}
    (root / "auth.py").write_text(kept["auth.py"])
    assert survey(session, root).stale == {"f1": 1}
    (root / "cache.py").write_text(kept["cache.py"])
    found = survey(session, root)
    assert (found.turned_fresh, found.stale) == (["f1"], {})
    assert session.views.findings.label_of(session.views.findings.findings["f1"]) == "verified"


def test_a_finding_on_new_code_is_not_stale_for_the_old(session, root):
    """A finding stated on changed code before a survey is fresh, and it makes the older one on the same file stale."""
    session.findings.state("as it was", "verified", evidence=cite(session, "e1"), anchors=[anchored(root, "cache.py")])
    (root / "cache.py").write_text("TTL = 61\n")
    session.findings.state("as it is", "verified", evidence=cite(session, "e2"), anchors=[anchored(root, "cache.py")])
    view = session.views.findings
    assert [view.label_of(one) for one in view.findings.values()] == ["stale", "verified"]


def test_two_findings_on_the_same_lines_are_told_apart(session, root):
    """Lines that moved are known by what stood there: one finding may be stale and the other fresh at the same place."""
    session.findings.state("first", "verified", evidence=cite(session, "e1"), anchors=[anchored(root, "auth.py:4-5")])
    prepend(root / "auth.py", "# a\n# b\n# c\n")
    session.findings.state("second", "verified", evidence=cite(session, "e2"), anchors=[anchored(root, "auth.py:4-5")])
    assert survey(session, root).stale == {}
    (root / "auth.py").write_text(
        (root / "auth.py").read_text().replace("# c\n", "# d\n").replace("import os", "import io")
    )
    assert survey(session, root).stale == {"f2": 1}


def test_a_stale_finding_is_verified_anew_with_new_evidence_only(session, root):
    """The evidence from before the change does not verify a stale finding again (H29)."""
    session.findings.state("it", "verified", evidence=cite(session, "e1"), anchors=[anchored(root, "cache.py")])
    (root / "cache.py").write_text("TTL = 61\n")
    survey(session, root)
    with pytest.raises(InvalidInput, match="stale"):
        session.findings.relabel("f1", "verified", evidence=cite(session, "e1"))
    anchors = reanchored(root, session.views.findings.findings["f1"]["anchors"])
    session.findings.relabel("f1", "verified", evidence=cite(session, "e2"), anchors=anchors)
    assert session.views.findings.label_of(session.views.findings.findings["f1"]) == "verified"


def test_an_ended_session_is_only_looked_at(session, root):
    """A survey records nothing in a session that has ended."""
    session.findings.state("it", "verified", evidence=cite(session, "e1"), anchors=[anchored(root, "cache.py")])
    session.close("done")
    (root / "cache.py").write_text("TTL = 61\n")
    found = survey(session, root)
    assert (found.position, found.differing) == (None, ["cache.py"])
