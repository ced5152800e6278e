"""A session as Markdown that reads well as plain text: the note, then the conversation with commands and diffs.

Text of agents keeps its own Markdown, except that its headings become bold and its tags inert: the outline of the file
is ours, and nothing in it takes effect.
"""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

from onrecord.log.readings import MEDIA
from onrecord.pages.entries import TURN, entries_of
from onrecord.pages.facts import fact_of
from onrecord.pages.text import clock, day, money, plain, tokens
from onrecord.pages.tools import Shown, shown_call
from onrecord.views.conversations import SUBLANE
from onrecord.views.parts import media_line
from onrecord.views.render import iso
from onrecord.views.transcript import RUNNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.item_values import Item
    from onrecord.pages.entries import Entry
    from onrecord.pages.options import Options
    from onrecord.pages.report import Contents

FIRST_LINES, LAST_LINES = 30, 20
"""How many lines of a tool's output are shown at its beginning and end; the HTML report has all of them, folded."""
_TICKS = re.compile(r"`{3,}|~{3,}")
_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_TAGS = re.compile(r"<[^>]*>")


def as_markdown(contents: Contents) -> Iterator[str]:
    """The file, piece by piece."""
    head, entries = contents.whole.head, entries_of(contents.events, contents.whole, {})
    yield _inert(plain(contents.note).rstrip(), outline=True)
    yield f"\n\n## Transcript\n\n*generated from position {head.position} of session {_said(head.session)}"
    yield {True: ", hash chain verified*\n", False: ", HASH CHAIN BROKEN*\n", None: "*\n"}[contents.verified]
    if contents.first > 1:
        yield f"\n*It begins at position {contents.first}; the log has everything before it.*\n"
    today, in_list = "", False
    for entry in entries:
        if entry.position < contents.first:
            continue
        if day(entry.at) != today:
            today = day(entry.at)
            yield f"\n### {today}\n"
            in_list = False
        is_turn = entry.kind == TURN
        yield _turn(entry, contents.options) if is_turn else _fact(entry, first=not in_list)
        in_list = not is_turn
    yield f"\nLast activity {iso(contents.whole.active_at)}.{f' {_said(contents.remark)}' if contents.remark else ''}\n"


def _fact(entry: Entry, *, first: bool) -> str:
    fact = fact_of(entry)
    text = _flat(f"{fact.mark} {fact.text}")
    about = (_flat(fact.small), plain(entry.by), clock(entry.at), f"position {entry.position}")
    source = ", ".join(dict.fromkeys(filter(None, about)))
    return ("\n" if first else "") + f"- {_inert(text)} ({_inert(source)})\n"


def _flat(html: str) -> str:
    """What a line of HTML says, without its tags."""
    return " ".join(unescape(_TAGS.sub("", html)).split())


def _turn(entry: Entry, options: Options) -> str:
    items = entry.turn.items if entry.turn else []
    answers = {str(item.get("call")): item for item in items if item.get("role") == "tool"}
    made = [f"\n#### {clock(entry.at)} {_said(entry.by)}{_about(entry)}\n"]
    made += [_item(item, entry, answers, options) for item in items if item.get("role") != "tool"]
    if entry.turn and entry.turn.erased:
        made.append("\n*(partly erased)*\n")
    return "".join(made)


def _about(entry: Entry) -> str:
    parts = [f"turn {entry.number}"] if entry.number else []
    used = entry.about.get("usage") or {}
    parts += [f"{tokens(used['tokens'])} tokens"] if used.get("tokens") else []
    parts += [money(used["cost"])] if used.get("cost") is not None else []
    parts.append(f"position {entry.position}")
    if entry.is_provisional and entry.turn:
        why = f": {_said(entry.turn.reason)}" if entry.turn.reason else ""
        later = f"superseded by position {entry.superseded_by}" if entry.superseded_by else "provisional"
        parts.append(f"**{entry.state}{why}**, {later}")
    return "".join(f" · {part}" for part in parts)


def _item(item: Item, entry: Entry, answers: dict[str, Item], options: Options) -> str:
    role, text = item.get("role"), _words(item)
    person = entry.by.rpartition(SUBLANE)[0] or options.person
    made = "".join(_quoted(f"*thinking:* {thought}") for thought in _thoughts(item))
    if item.get("thinking"):
        made = _quoted(f"*thinking:* {text}") if text else ""
    elif item.get("summary"):
        made = _quoted(f"*summary of the conversation so far:* {text}")
    elif role == "user":
        made += _quoted(f"**{plain(person)}:** {text}") if text else ""
    elif role == "system":
        made = _quoted(f"*instructions:* {text}") if text else ""
    elif text:
        made += f"\n{_inert(text)}\n"
    used = entry.about.get("tools") or {}
    for call in item.get("tool_calls") or ():
        id_ = str(call.get("id"))
        made += _call(shown_call(call, answers.get(id_), used.get(id_), options, ended=entry.state != RUNNING))
    return made


def _words(item: Item) -> str:
    content = item.get("content")
    if not isinstance(content, list):
        return plain(content or "").strip("\n")
    return "\n\n".join([plain(text) for part in content if (text := _part(part))])


def _thoughts(item: Item) -> list[str]:
    """What an agent thought, if that is part of its message."""
    content = item.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return [plain(part["thinking"]).strip() for part in parts if isinstance(part.get("thinking"), str)]


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return str(part)
    if part.get("type") == MEDIA:
        return media_line(part)
    return "" if part.get("thinking") else str(part.get("text") or f"[{part.get('type', 'part')}]")


def _call(made: Shown) -> str:
    """A tool call: its title, how it ended, and what it printed or changed."""
    ended = f" ({unescape(made.badge)})" if made.badge else ""
    title = unescape(made.title)
    lines = "\n".join(made.diff) if made.diff else _middle(made.output)
    if made.command:
        return _fenced("console", "\n".join(filter(None, (f"$ {made.command}", lines, ended.strip()))))
    return f"\n`{title.replace('`', chr(39))}`{ended}\n" + (
        _fenced("diff" if made.diff else "", lines) if lines else ""
    )


def _middle(output: str) -> str:
    """Long output without its middle: the first lines say what it is, the last ones how it ended."""
    lines = output.split("\n")
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    if left_out <= 1:
        return output
    return "\n".join([*lines[:FIRST_LINES], f"... ({left_out:,} lines; the log has them)", *lines[-LAST_LINES:]])


def _fenced(language: str, text: str) -> str:
    """Text in a fence that nothing inside of it can close."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"\n{fence}{language}\n{plain(text).rstrip()}\n{fence}\n"


def _quoted(text: str) -> str:
    return "\n" + "".join(f"> {line}".rstrip() + "\n" for line in _inert(text).split("\n"))


def _said(text: str) -> str:
    """A name or a reason, on one line."""
    return _inert(" ".join(plain(text).split()))


def _inert(text: str, *, outline: bool = False) -> str:
    """Text whose tags and, unless `outline` is ours, headings take no effect; code is left as it is."""
    made, fence = [], ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            fence = "" if found and found[1].startswith(fence) and not line.strip().strip(fence[0]) else fence
        elif found:
            fence = found[1]
        else:
            heading = None if outline else _HEADING.match(line)
            line = _TAG.sub(r"\\<", f"**{heading[1]}**" if heading and heading[1] else line)  # noqa: PLW2901  # the line as it is shown
        made.append(line)
    return "\n".join(made) + (f"\n{fence}" if fence else "")
