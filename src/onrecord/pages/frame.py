"""What surrounds a page: the stylesheet, the script of the report, the header, tabs and empty states."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from onrecord.pages.text import attribute, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

STYLE = files(__package__ or "onrecord.pages").joinpath("page.css").read_text("utf-8")
"""The one stylesheet: light, dark and print."""


def script() -> str:
    """The script of a report. A report works without it."""
    return files(__package__ or "onrecord.pages").joinpath("report.js").read_text("utf-8")


def header(title: str, *, crumb: str = "", chips: Sequence[tuple[str, str]] = (), command: str = "") -> str:
    """The top of a page: where it belongs, its name, what matters at a glance, the command to continue."""
    made = "".join(f'<span class="chip {css}">{shown(text)}</span>' for text, css in chips if text)
    where = f'<span class="crumb">{shown(crumb)} /</span>' if crumb else ""
    copied = f'<code class="cmd">{shown(command)}</code>' if command else ""
    return f'<header>{where}<h1>{shown(title)}</h1>{made}<span class="sp"></span>{copied}</header>'


def skip_link(target: str, label: str) -> str:
    """A link for the keyboard, seen only when it has the focus: the lanes may have hundreds of places to stop at."""
    return f'<a class="skip" href="#{target}">{label}</a>'


def sign_button(sign: str, says: str, attributes: str) -> str:
    """A button that is only a sign: its words are in the title, and for screen readers."""
    return f'<button type="button" {attributes} title="{says}" aria-label="{says}">{sign}</button>'


def tabs(names: Sequence[tuple[str, str, int | None]], current: str = "") -> str:
    """Links to the parts of a page: id, label and how many things are there."""
    made = "".join(
        f'<a href="#{attribute(id_)}"{" aria-current=page" if id_ == current else ""}>{shown(label)}'
        f"{f' <span class=ev>{count:,}</span>' if count is not None else ''}</a>"
        for id_, label, count in names
    )
    return f'<nav class="tabs">{made}</nav>'


def empty(sentence: str, command: str = "") -> str:
    """A sentence for a part that has nothing yet, and the command that changes that."""
    typed = f" <code>{shown(command)}</code>" if command else ""
    return f'<p class="empty">{shown(sentence)}{typed}</p>'
