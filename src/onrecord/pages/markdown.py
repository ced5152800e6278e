"""Markdown as agents write it, drawn safely: headings, lists, code, links, emphasis, quotes and tables.

The text is escaped before anything is recognised in it, so markup of an agent's own never passes. A link leads to
http, https, mailto or an event of the page; any other stays text. An image is named and never fetched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onrecord.pages.highlight import highlighted
from onrecord.pages.text import plain, shown

if TYPE_CHECKING:
    from collections.abc import Callable

DEPTH_LIMIT = 6
"""How deep quotes, lists and emphasis are nested before the rest is shown as text."""
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)")
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.+?)\s*#*\s*$")
_RULE = re.compile(r"^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$")
_ITEM = re.compile(r"^( {0,9})([-*+]|\d{1,9}[.)])(?: +|$)(.*)$")
_TASK = re.compile(r"^\[([ xX])\] ")
_DASHES = re.compile(r"^ {0,3}\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$")
_BLOCK = re.compile(r"^ {0,9}(?:[#>|`~*+_-]|\d)")
"""How a line begins that may be anything but a paragraph."""
_INLINE = re.compile(
    r"(?P<ticks>`{1,3})(?P<code>[^`\n](?:[^\n]{0,400}?[^`\n])??)(?P=ticks)(?!`)"
    r"|!?\[(?P<label>[^\[\]\n]{0,300})\]\((?P<url>[^()\s\"']{1,2000})(?: +\"[^\"\n]{0,200}\")?\)"
    r"|\*\*(?=\S)(?P<strong>[^\n]{1,400}?)(?<=\S)\*\*"
    r"|(?<![\w*])\*(?=[^\s*])(?P<em>[^*\n]{1,400}?)(?<=\S)\*(?![\w*])"
    r"|(?<!\w)_(?=[^\s_])(?P<low>[^_\n]{1,400}?)(?<=\S)_(?!\w)"
    r"|~~(?=\S)(?P<del>[^~\n]{1,400}?)~~"
    r"|(?P<bare>https?://(?:(?!&[lg]t;)[^\s\"'`<>*|\[\]]){1,2000})"
)
_MAY_BE_INLINE = re.compile(r"[`*_\[~]|://")
_ALLOWED = re.compile(r"(?i)(?:https?://[^/]|mailto:[^/]|#e\d+$)")
_TRAILING = re.compile(r"(?:[.,;:!?)]|&amp;)+$")


def to_html(text: str) -> str:
    """The text as HTML that is safe on any page."""
    return _blocks(plain(text).split("\n"), 0)


def inline(text: str, depth: int = 0) -> str:
    """Emphasis, code and links of one paragraph; the text is not escaped yet."""
    return _marked(shown(text), depth)


def _marked(escaped: str, depth: int) -> str:
    if depth > DEPTH_LIMIT or not _MAY_BE_INLINE.search(escaped):
        return escaped
    return _INLINE.sub(lambda found: _mark(found, depth), escaped)


def _mark(found: re.Match[str], depth: int) -> str:
    kind = found.lastgroup
    if kind == "code":
        return f"<code>{found['code']}</code>"
    if kind == "url":
        label = _marked(found["label"], depth + 1) or found["url"]
        return _anchor(found["url"], label) if _ALLOWED.match(found["url"]) else found[0]
    if kind == "bare":
        end = _TRAILING.search(found["bare"])
        url = found["bare"][: end.start()] if end else found["bare"]
        return _anchor(url, url) + found["bare"][len(url) :]
    tag = {"strong": "strong", "em": "em", "low": "em", "del": "s"}[str(kind)]
    return f"<{tag}>{_marked(found[str(kind)], depth + 1)}</{tag}>"


def _anchor(url: str, label: str) -> str:
    inside = "<a " in label or url.startswith("#")
    return label if "<a " in label else f'<a href="{url}"{"" if inside else _AWAY}>{label}</a>'


_AWAY = " rel=noreferrer"


def _blocks(lines: list[str], depth: int) -> str:
    made: list[str] = []
    index, count = 0, len(lines)
    while index < count:
        line = lines[index]
        if not line.strip():
            index += 1
            continue
        if depth <= DEPTH_LIMIT and _BLOCK.match(line):
            for read in _READERS:
                html, after = read(lines, index, depth)
                if after > index:
                    made.append(html)
                    index = after
                    break
            else:
                html, index = _paragraph(lines, index)
                made.append(html)
        else:
            html, index = _paragraph(lines, index)
            made.append(html)
    return "".join(made)


def _paragraph(lines: list[str], index: int) -> tuple[str, int]:
    end = index + 1
    while end < len(lines) and lines[end].strip() and not _interrupts(lines, end):
        end += 1
    text = "\n".join([line.strip() for line in lines[index:end]])
    return f"<p>{inline(text)}</p>", end


def _interrupts(lines: list[str], index: int) -> bool:
    line = lines[index]
    if not _BLOCK.match(line):
        return False
    if line.lstrip()[0] == ">" or _FENCE.match(line) or _HEADING.match(line) or _RULE.match(line):
        return True
    item = _ITEM.match(line)
    return bool(item and item[3]) or _is_table(lines, index)


def _fence(lines: list[str], index: int, depth: int) -> tuple[str, int]:
    del depth
    opened = _FENCE.match(lines[index])
    if not opened:
        return "", index
    mark, end = opened[1], index + 1
    while end < len(lines) and not (lines[end].strip().startswith(mark) and not lines[end].strip().strip(mark[0])):
        end += 1
    code = "\n".join(lines[index + 1 : end])
    return f'<pre class="code"><code>{highlighted(code, opened[2])}</code></pre>', end + 1


def _heading(lines: list[str], index: int, depth: int) -> tuple[str, int]:
    del depth
    found = _HEADING.match(lines[index])
    if found:
        # A paragraph that looks like a heading: the page has headings of its own.
        return f'<p class="h{len(found[1])}">{inline(found[2])}</p>', index + 1
    return ("<hr>", index + 1) if _RULE.match(lines[index]) else ("", index)


def _quote(lines: list[str], index: int, depth: int) -> tuple[str, int]:
    end = index
    while end < len(lines) and lines[end].lstrip().startswith(">"):
        end += 1
    if end == index:
        return "", index
    inner = [line.lstrip()[1:].removeprefix(" ") for line in lines[index:end]]
    return f"<blockquote>{_blocks(inner, depth + 1)}</blockquote>", end


def _list(lines: list[str], index: int, depth: int) -> tuple[str, int]:
    first = _ITEM.match(lines[index])
    if not first:
        return "", index
    indent, ordered = len(first[1]), first[2][0].isdigit()
    items: list[str] = []
    end = index
    while end < len(lines):
        found = _ITEM.match(lines[end])
        if not found or len(found[1]) != indent or found[2][0].isdigit() != ordered or _RULE.match(lines[end]):
            break
        inner, end = _item_lines(lines, end, indent, found[3])
        items.append(_item(inner, depth))
    tag = "ol" if ordered else "ul"
    start = int(first[2][:-1]) if ordered else 1
    return f"<{tag}{f' start={start}' if start != 1 else ''}>{''.join(items)}</{tag}>", end


def _item_lines(lines: list[str], index: int, indent: int, first: str) -> tuple[list[str], int]:
    """What belongs to an item: its first line, and the lines below it that are indented further."""
    inner, end = [first], index + 1
    while end < len(lines):
        line = lines[end]
        if line.strip():
            room = len(line) - len(line.lstrip(" "))
            lazy = inner[-1].strip() and not _BLOCK.match(line)
            if room <= indent and not lazy:
                break
            inner.append(line[min(room, indent + 2) :])
        elif end + 1 < len(lines) and lines[end + 1].startswith(" " * (indent + 1)):
            inner.append("")
        else:
            break
        end += 1
    if end + 1 < len(lines) and not lines[end].strip() and _ITEM.match(lines[end + 1]):
        end += 1  # items may have a blank line between them
    return inner, end


def _item(inner: list[str], depth: int) -> str:
    task = _TASK.match(inner[0])
    box = ""
    if task:
        box = "☐ " if task[1] == " " else "☑ "
        inner[0] = inner[0][4:]
    if len(inner) == 1:
        return f"<li>{box}{inline(inner[0])}</li>"
    html = _blocks(inner, depth + 1)
    if html.startswith("<p>"):  # a tight item has no paragraph of its own
        html = html[3:].replace("</p>", "", 1)
    return f"<li>{box}{html}</li>"


def _is_table(lines: list[str], index: int) -> bool:
    if index + 1 >= len(lines) or "|" not in lines[index] or "-" not in lines[index + 1]:
        return False
    return bool(_DASHES.match(lines[index + 1])) and len(_cells(lines[index])) == len(_cells(lines[index + 1]))


def _table(lines: list[str], index: int, depth: int) -> tuple[str, int]:
    del depth
    if not _is_table(lines, index):
        return "", index
    head = _cells(lines[index])
    end = index + 2
    rows: list[list[str]] = []
    while end < len(lines) and "|" in lines[end]:
        rows.append((_cells(lines[end]) + [""] * len(head))[: len(head)])
        end += 1
    heading = "".join(f"<th>{inline(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{inline(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>", end


def _cells(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|"))
    if cells and not cells[-1].strip():
        cells.pop()
    return [cell.strip().replace("\\|", "|") for cell in cells]


_READERS: tuple[Callable[[list[str], int, int], tuple[str, int]], ...] = (_fence, _heading, _quote, _list, _table)
