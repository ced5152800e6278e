"""Sturdy: a log from elsewhere may have an invalid payload under a known kind. One such event must not hide a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.log.shapes import UNREADABLE
from onrecord.pages.text import link

if TYPE_CHECKING:
    from collections.abc import Callable


def sturdy(make: Callable[[], str], position: int = 0) -> str:
    """What `make` renders; if it cannot read the record, a sentence that says so."""
    try:
        return make()
    except UNREADABLE:
        where = f"the event at {link(position)}" if position else "an event"
        return f'<p class="empty">This part cannot be shown: {where} has an unexpected form. The raw log has it.</p>'
