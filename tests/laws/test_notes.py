"""Laws of what people and agents read: the brief fits and is complete, and data never acts as formatting."""

import unicodedata
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from onrecord.views.note import BRIEF_LIMIT, brief, note
from onrecord.views.render import clip, one_line, visible
from tests.laws import values
from tests.laws.play import Play, steps
from tests.proofs import cite

TALL = "\U00013000" * 4_000  # four bytes per letter
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
any_text = st.text(max_size=60) | values.hostile_texts

findings = st.lists(
    st.tuples(
        values.long_hostile_texts.filter(str.strip), st.sampled_from(["verified", "rejected", "open", "blocked"])
    ),
    max_size=12,
)


def acts(letter: str) -> bool:
    """Whether a terminal would act on it, or a reader would not see it."""
    return letter in BIDI or unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"}


@given(any_text, st.booleans())
@example("\x1b]0;title\x07\u202egnp.exe\u2028\x9b31m\ud800\U000e0001", False)
def test_visible_text_cannot_act(text, lines):
    """Whatever an agent writes, shown text has no control, bidi or half characters; line breaks only where they are allowed."""
    allowed = {"\n"} if lines else set()
    assert not [letter for letter in visible(text, lines=lines) if acts(letter) and letter not in allowed]


@given(any_text)
def test_plain_words_are_shown_as_they_are(text):
    """Printable text is shown unchanged."""
    printable = "".join(filter(str.isprintable, text))
    assert visible(printable) == printable


@given(any_text, st.integers(1, 80))
def test_one_line_is_one_line(text, width):
    """A line of a list is one line of at most its width, whatever the text."""
    line = one_line(text, width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1


@given(values.hostile_texts, st.integers(3, 200))
def test_a_cut_text_is_whole_characters_within_its_size(text, size):
    """Cutting never leaves half a character, keeps within the size in bytes, and marks the cut."""
    short = clip(text, size)
    assert len(short.encode()) <= size
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


@given(
    values.long_hostile_texts.filter(str.strip),
    values.long_hostile_texts.filter(str.strip),
    st.none() | values.long_hostile_texts,
    findings,
    st.lists(values.long_hostile_texts.filter(str.strip), max_size=12),
)
@example(
    TALL,
    TALL,
    TALL,
    [(TALL, label) for label in ("blocked", "rejected", "verified", "open") * 3],
    [TALL] * 12,
)
def test_the_brief_fits_and_is_complete(objective, action, command, stated, decisions):
    """The brief has at most 2,048 bytes, with objective, next action and the newest rejected finding, however hostile (C13)."""
    play = Play()
    session = play.session
    session.facts.set_objective(objective)
    session.facts.set_next_action(action, command=command)
    for number, (claim, label) in enumerate(stated):
        # One question is one finding, so the claims must differ.
        session.findings.state(f"{number} {claim}"[:4_000], label, evidence=cite(session, "run-2026-05-18-a"))
    for decision in decisions:
        session.decide(decision, why=decision)
    text = brief(session.views)
    assert len(text.encode()) <= BRIEF_LIMIT
    assert not [letter for letter in text if acts(letter) and letter != "\n"]
    lines = text.splitlines()
    assert lines[0] == f"# play (open, position {session.head.position})"
    assert lines[1].startswith("Objective: ")
    assert lines[1].removeprefix("Objective: ")[:15] == one_line(objective, 4_000)[:15]
    assert lines[2].startswith("Next action: ")
    rejected = [finding["id"] for finding in session.views.findings.labelled("rejected")]
    if rejected:
        at = next(number for number, line in enumerate(lines) if line.startswith("Rejected (do not reopen"))
        shown = [line for line in lines[at + 1 :] if line.startswith("- ")]
        assert any(line.startswith(f"- {rejected[-1]}: ") for line in shown)
        hidden = len(rejected) - sum(line.startswith(tuple(f"- {id_}: " for id_ in rejected)) for line in shown)
        assert hidden <= 0 or f"(+{hidden} earlier)" in lines[at] or text.endswith("…")


HEADINGS = ("# ", "## ", "**", "- ", "*")


@given(steps)
def test_the_note_says_only_what_the_record_says(played):
    """A note has exactly the headings of its groups: no text from an agent adds one, or a line of its own (T17)."""
    play = Play().run(played)
    whole = play.session.views
    lines = note(whole).splitlines()
    assert not [letter for line in lines for letter in line if acts(letter)]
    assert all(line.startswith(HEADINGS) for line in lines if line)
    groups: dict[str, int] = {}
    for line in lines:
        if line.startswith("## "):
            groups[line.removeprefix("## ")] = 0
        elif line.startswith("- "):
            groups[list(groups)[-1]] += 1
    labels: dict[str, Any] = {"Blocked": "blocked", "Verified": "verified", "Open": "open"}
    labels["Rejected (do not reopen without new evidence)"] = "rejected"
    labels["Stale (check again before relying on it)"] = "stale"
    labels["Settled (verified, and fixed since)"] = "settled"
    for title, label in labels.items():
        assert groups.pop(title, 0) == len(whole.findings.labelled(label))
    assert groups.pop("Decisions", 0) == len(whole.facts.decisions)
    for title in ("Not settled (provisional turns and unknown effects)", "Working on", "Pointers", "Status"):
        groups.pop(title, 0)
    cited = groups.pop("Evidence (✓ was captured by onrecord, the rest is asserted)", 0)
    assert cited <= len(whole.findings.evidence)
    groups.pop("What happened (no note was written; this is from the events)", 0)
    assert not groups
