"""`onrecord export` for people: a report in one HTML file, and Markdown."""

import re

import pytest


def test_a_report_is_one_private_file(working):
    """`export --format html` writes one file for its owner, which verifies the chain and loads nothing from anywhere."""
    file = working.place / "report.html"
    assert "(html)" in working.ok("export", "fix-invite-403", "--format", "html", "--out", str(file))
    html = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert html.startswith("<!doctype html>")
    assert "chain verified" in html
    assert not re.search(r'<(?:script|link|img|iframe)[^>]* (?:src|href)="(?!data:)', html)
    assert working.data("export", "--format", "html", kind="export")["content"].startswith("<!doctype html>")
    assert working.ok("export", "--format", "html").startswith("<!doctype html>")


def test_a_report_is_not_for_a_terminal(working):
    """On a terminal, a report without a file is refused with the command that writes one."""
    done = working.on_terminal("export", "fix-invite-403", "--format", "html")
    assert done.code == 2
    assert "onrecord export fix-invite-403 --format html --out fix-invite-403.html" in " ".join(done.out.split())
    assert "<!doctype" not in done.out


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_part_of_a_session(working, form):
    """`--to` shows the session as it was, `--from` begins later, `--no-tool-output` leaves out what tools returned."""
    whole = working.ok("export", "--format", form)
    assert "3 failed" in whole
    assert "3 failed\n" not in working.ok("export", "--format", form, "--no-tool-output").replace("</", "\n</")
    past = working.ok("export", "--format", form, "--to", "2")
    assert "position 2" in past
    assert "3 failed" not in past
    last = working.data("show", kind="session")["position"]
    late = working.ok("export", "--format", form, "--from", str(last))
    assert f"egins at position {last}" in late
    assert "3 failed" not in late.partition("ranscript")[2].partition('id="events"')[0]


def test_wrong_positions_are_explained(working):
    """A position that is not there, a wrong order, and an option of another format are refused with a reason."""
    export = ("export", "fix-invite-403", "--format", "html")
    assert "has positions 1 to" in working.error(*export, "--to", "999", code=4, kind="event_not_found")["message"]
    assert "has positions 1 to" in working.error(*export, "--from", "999", code=4, kind="event_not_found")["message"]
    assert "is after --to 2" in working.error(*export, "--from", "3", "--to", "2", code=2, kind="usage")["message"]
    working.error(*export, "--from", "soon", code=2, kind="usage")
    for option in (["--from", "1"], ["--to", "1"], ["--no-tool-output"]):
        wrong = working.error("export", "--format", "jsonl", *option, code=2, kind="usage")
        assert wrong["message"] == f"{option[0]} needs --format html or --format markdown"


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_secrets_are_replaced_as_configured_and_the_report_says_what_was(working, tmp_path, form):
    """Those of the log, and those that only the present rules know: in the text, the note and the facts; `keep` shows them."""
    early, late = "ghp_" + "a1B2c3" * 6, "correct-horse-battery"
    working.ok("decide", f"deploy with {early}")
    working.ok("decide", f"the door opens with {late}")
    working.ok("next", f"try {late} again")
    export = ("export", "fix-invite-403", "--format", form)
    before = working.ok(*export)
    assert late in before
    assert "Replaced secrets: 1 github-token when they were recorded." in before
    now = {"DOOR_PASSWORD": late}
    after = working.ok(*export, env=now)
    assert late not in after
    assert "1 github-token when they were recorded; 2 environment-value for this report." in after
    (tmp_path / "config.toml").write_text('[secrets]\npolicy = "keep"\n')
    kept = working.ok(*export, env=now | {"ONRECORD_CONFIG": str(tmp_path / "config.toml")})
    assert late in kept
    assert "Secrets are shown, as the policy “keep” says" in kept
