"""The entries of the note: parts that share a line, fixes that did not help, and the code the work was left on."""

from hypothesis import given
from hypothesis import strategies as st

from onrecord.views.code import COMMITS_KEPT, code_line
from onrecord.views.note_lines import failed_entries, fitted
from tests.laws import values


@given(st.lists(values.long_hostile_texts.filter(str.strip), min_size=1, max_size=5), st.integers(60, 400))
def test_parts_share_a_line_and_none_is_hidden(parts, size):
    """Whatever the parts are, the line has at most its bytes, and each part begins on it."""
    line = fitted(tuple(parts), size)
    assert len(line.encode()) <= size
    assert "\n" not in line
    assert line.count("; ") >= len(parts) - 1
    short = [part for part in parts if part.isascii() and part.isalnum() and len(part) <= size // len(parts) - 4]
    assert all(part in line for part in short), "what fits into its share is whole"


def fail(session, command, error="403", fix=None):
    session.attempts.start(command)
    session.attempts.settle(None, "failed", error=error, fix=fix)


def test_a_fix_failed_if_the_next_run_failed_too(session):
    """A fix counts as failed once the next run of the same command failed; the one before a success helped."""
    fail(session, "make check", fix="raise the timeout")
    assert failed_entries(session.views) == [], "it is the last attempt, and its fix was not tried yet"
    fail(session, "make check", fix="write the row first")
    session.attempts.start("make check")
    session.attempts.settle(None, "succeeded")
    assert failed_entries(session.views) == [
        "did not help: raise the timeout (attempt 2 failed with it: 403; make check)"
    ]


def test_a_fix_was_not_tried_by_a_run_before_it(session):
    """A fix that is said after two failures is not blamed for the second one; the next failure is with it."""
    fail(session, "make check")
    fail(session, "make check")
    session.attempts.correct(1, fix="write the row first")
    assert failed_entries(session.views, last_too=True) == [
        ("attempts 1, 2 failed: make check", "error: 403", "fix: write the row first")
    ]
    fail(session, "make check")
    assert failed_entries(session.views)[-1] == (
        "did not help: write the row first (attempt 3 failed with it: 403; make check)"
    )


def test_failures_are_listed_once_per_command_and_error(session):
    """The same error of the same command is one entry with all its attempts; one that succeeded since is none."""
    for command in ("make a", "make a", "make b", "make c"):
        fail(session, command)
    session.attempts.start("make b")
    session.attempts.settle(None, "succeeded")
    assert [entry[0] for entry in failed_entries(session.views)] == [
        "attempts 1, 2 failed: make a", "attempt 4 failed: make c",
    ]  # fmt: skip


def seen(session, revision, **about):
    session.log.record("code.changed", {"anchors": {}, "revision": {"revision": revision, **about}, "commits": []})


def test_the_code_is_where_it_was_seen_last(session):
    """Every event with a revision moves it; files stay known after they were committed or left on another machine."""
    assert code_line(session.views.code) == ""
    seen(session, "a" * 40, branch="main", dirty="d1", changed=["app.py"])
    assert (
        code_line(session.views.code)
        == f"branch main at {'a' * 10} (position {session.head.position}); not committed: app.py"
    )
    session.attempts.start("make", revision={"revision": "b" * 40, "branch": "try", "dirty": None, "changed": []})
    assert code_line(session.views.code).startswith(f"branch try at {'b' * 10} ")
    assert session.views.code.files == ["app.py"]
    assert "files changed so far: app.py" in session.note()


def test_a_location_says_nothing_of_the_files(session):
    """An agent's hook records its revision alone: files that differed when last looked at still do, until the revision moves."""
    seen(session, "a" * 40, branch="main", dirty="d1", changed=["app.py"])
    session.agents.locate("claude", "c1", via="hook", revision="a" * 40, branch="main")
    assert code_line(session.views.code).endswith("; not committed: app.py")
    session.agents.locate("claude", "c2", via="hook", revision="b" * 40, branch="main")
    assert "not committed" not in code_line(session.views.code)


def test_only_the_newest_commits_are_kept_in_the_view(session):
    """A long history does not make the views grow; a commit that is recorded twice counts once."""
    commits = [{"revision": f"{number:040x}", "subject": f"commit {number}", "files": []} for number in range(60)]
    for part in (commits[:30], commits[20:]):
        session.log.record(
            "code.changed", {"anchors": {}, "revision": None, "commits": part, "upto": part[-1]["revision"]}
        )
    code = session.views.code
    assert (len(code.commits), code.count, code.noted) == (COMMITS_KEPT, 60, commits[-1]["revision"])
    assert "commit 59" in session.note()
