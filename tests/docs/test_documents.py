"""The documents are run: every Python block in order, its output compared with the block that follows."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXECUTED = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "guide").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#]+)\)")


@pytest.mark.parametrize("name", EXECUTED)
def test_examples_do_what_the_document_says(name, request, tmp_path, monkeypatch):
    """Every example runs, in order, and prints exactly what is shown below it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("ONRECORD_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text()
    if "DATABASE_URL" in text:
        monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("postgres").fresh_database())
    blocks = FENCE.findall(text)
    namespace: dict[str, object] = {"__name__": "document"}
    for number, (language, body) in enumerate(blocks):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, f"{name}, block {number + 1}", "exec"), namespace)  # the point of this test
        following = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        if following[0] == "output":
            assert printed.getvalue().rstrip() == following[1].rstrip()


def test_links_lead_somewhere():
    """Every relative link in the documents leads to a file that exists."""
    dead = [
        f"{path.relative_to(ROOT)} -> {target}"
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for target in LINK.findall(path.read_text())
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert not dead


def test_the_readme_says_it_on_one_screen_and_has_both_commands():
    """The two commands are among the first lines, and CI runs exactly the second one."""
    first_screen = (ROOT / "README.md").read_text().splitlines()[:30]
    assert "$ ./dev demo" in first_screen
    assert "$ ./dev test" in first_screen
    assert "./dev test" in (ROOT / ".ci" / "run").read_text()
