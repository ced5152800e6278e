"""Text of agents on a page is data: in every field of every event kind, it is shown and never acts."""

import re
from typing import Any

import pytest

from onrecord.log.head import Head
from onrecord.pages.entries import entries_of
from onrecord.pages.inspector import changes_table, inspector
from onrecord.pages.lanes import Picture, draw_lanes
from onrecord.pages.media import data_url
from onrecord.pages.options import Options
from onrecord.pages.plain import as_markdown
from onrecord.pages.report import Contents, report
from onrecord.pages.spans import start_of
from onrecord.pages.timeline import draw_timeline
from tests.pages.safe import Page
from tests.pages.samples import event, hostile, sample

SCRIPT = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'</style></title>"
SVG = "<svg onload=alert(1)><a xlink:href='javascript:alert(1)'>x</a></svg>"
LINK = "[x](javascript:alert(1)) <a href=javascript:alert(1)>y</a>"
HIDDEN = "\x1b[31mred\x1b]0;t\x07 \u202eexe.txt\u202c \x00 \u2028"
VALUES: list[Any] = [SCRIPT, SVG, LINK, HIDDEN, 7, -1.5, None, True, [SCRIPT], {SCRIPT: SCRIPT}, [{SCRIPT: [SVG]}], ""]
HEAD = Head("s<script>", SCRIPT, SCRIPT, 1, bytes(32), 1, "active", SCRIPT, 1, 1, held=False, parent=None, forked_at=0)


def contents(events: list[Any]) -> Contents:
    whole = start_of(HEAD).fold(events)
    return Contents(whole, events, SCRIPT, 1, needs=[SCRIPT], command=SCRIPT, remark=SCRIPT)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value)[:12])
def test_every_field_of_every_kind_is_inert(value: Any):
    """A report of events whose every field is hostile has our one script, allowed elements and safe links only."""
    html = "".join(report(contents(hostile(value))))
    page = Page(html)
    assert page.problems == []
    assert page.scripts == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028]", html)
    "".join(as_markdown(contents(hostile(value))))


KEPT = frozenset({"label", "outcome", "role", "kind", "type", "call", "id", "finding", "decision", "thinking", "by"})


def poisoned(value: Any, text: str, name: str = "") -> Any:
    """The value with hostile text instead of every text that people or agents write."""
    if isinstance(value, str):
        return value if name in KEPT else text
    if isinstance(value, dict):
        return {key: poisoned(one, text, key) for key, one in value.items()}
    return [poisoned(one, text, name) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("text", [SCRIPT, SVG, LINK, HIDDEN])
def test_a_real_session_full_of_hostile_text_is_inert(text: str):
    """The same with the events of a real session: claims, evidence, commands, errors, metrics, prompts and results."""
    events = [one._replace(data=poisoned(one.data, text), by=text) for one in sample().events()]
    made = contents(events)
    page = Page("".join(report(made)))
    assert page.problems == []
    assert page.scripts == 1
    assert made.whole.findings.findings
    assert made.whole.attempts.count == 3
    markdown = "".join(as_markdown(made))
    outside = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", markdown)
    assert not re.search(r"(?<!\\)<(?:script|svg|img|a )", re.sub("`[^`\n]*`", "", outside))


def items(text: str) -> list[dict[str, Any]]:
    arguments = ({text: text}, text, [text], {"command": text}, {"command": [text]}, {"file_path": text, "content": text},
                 {"path": text, "old_str": text, "new_str": "x"}, {"patch": f"*** Begin Patch\n{text}"},
                 {"file_path": text, "edits": [{"old_string": text, "new_string": "y"}]})  # fmt: skip
    calls = [{"id": f"{text}{number}", "name": f"edit{text}", "arguments": one} for number, one in enumerate(arguments)]
    parts = [{"type": "text", "text": text}, {"type": text, text: text}, {"type": "thinking", "thinking": text}, text,
             {"type": "media", "media_type": text, "bytes": 1, "at": [1, 0, text], "url": text},
             {"type": "image", "source": {"type": "base64", "media_type": text, "data": text}},
             {"type": "image_url", "image_url": {"url": text}}]  # fmt: skip
    return [
        {"role": "system", "content": text}, {"role": "user", "content": parts}, {"role": "user", "content": text, "summary": True},
        {"role": "assistant", "content": parts, "tool_calls": calls}, {"role": "assistant", "content": text, "thinking": True},
        *({"role": "tool", "call": one["id"], "content": parts if number % 2 else text, "error": bool(number % 3)}
          for number, one in enumerate(calls)),
    ]  # fmt: skip


@pytest.mark.parametrize("text", [SCRIPT, SVG, LINK, HIDDEN])
def test_conversations_are_inert(text: str):
    """Prompts, answers, thoughts, names and arguments of tools, results and parts are shown and never act."""
    events = [
        event("turn.recorded", {"items": items(text)}, 1, by=text),
        event("turn.begun", {"turn": 1}, 2, by=text), event("item.added", {"item": items(text)[1]}, 3, by=text),
        event("turn.aborted", {"reason": text}, 4, by=text), event("tool.used", {"tool": text, "paths": [text]}, 5, by=text),
    ]  # fmt: skip
    made = Options(media=data_url, person=text)
    page = Page("".join(draw_timeline(entries_of(events, turns_before={}), made)) + draw_lanes(Picture().fold(events)))
    assert page.problems == []
    assert page.scripts == 0
    assert "alert(1)" in page.text or text == HIDDEN


@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value)[:12])
def test_the_inspector_is_inert(value: Any):
    """The payload of an event, and what it changed, are shown as text."""
    changes: Any = [{"what": str(value), "before": value, "after": value, "about": str(value), "position": 3}]
    made = inspector(event(str(value), value, by=str(value)), verified=True, changes=changes, conversation=str(value))
    assert Page(made + changes_table(changes)).problems == []


def test_only_harmless_images_are_shown():
    """An image is shown from the record, in four formats; SVG, remote addresses and broken data are only named."""
    good = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk=\n"}}
    assert data_url(good) == "data:image/png;base64,aGk="
    assert (
        data_url({"type": "image_url", "image_url": {"url": "data:image/gif;base64,aGk="}})
        == "data:image/gif;base64,aGk="
    )
    named = {"type": "media", "media_type": "image/webp", "at": [4, 0, "/a/0"]}
    assert data_url(named, ['{"a": ["aGk="]}']) == "data:image/webp;base64,aGk="
    assert data_url(named, ['{"a": []}']) is None
    for kind, data in (
        ("image/svg+xml", "aGk="),
        ("text/html", "aGk="),
        ("image/png", '"><script>'),
        ("image/png", ""),
    ):
        assert data_url({"type": "image", "source": {"media_type": kind, "data": data}}) is None
    assert data_url({"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}) is None
