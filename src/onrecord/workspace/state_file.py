"""STATE.md: the one rendered file that is read back, and of it only the text inside the fences.

What an agent wrote anywhere else is copied to a file of its own before the file is rendered again: nothing is lost, and
none of it becomes part of the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord import machine
from onrecord.errors import Conflict, OnrecordError
from onrecord.log.head import LIVE
from onrecord.views import state_md
from onrecord.workspace.files import archive, content_of, refuse_link, write
from onrecord.workspace.ignoring import ignore_state

if TYPE_CHECKING:
    from pathlib import Path

    from onrecord.session.handle import Session
    from onrecord.workspace.files import Paths

_TRIES = 5
"""How often the file is rendered again because another process wrote it in the meantime."""


class Synced(NamedTuple):
    """What one sync did."""

    path: Path
    taken: list[str]
    """Sections with text that was recorded."""
    aside: Path | None
    """A copy of the file as it was found, if it had text outside its fences or was replaced."""
    seen_by_git: str
    """Why git does not ignore the file; "" when it does, or there is no repository."""

    @property
    def notice(self) -> str:
        """What the user should know; "" when there is nothing."""
        told = [f"git does not ignore {self.path}: {self.seen_by_git}"] if self.seen_by_git else []
        if self.aside is not None:
            copied = f"{self.aside.name} is a copy of it as it was"
            told.append(f"{self.path} had text outside its fences, or was replaced; {copied}")
        return "; ".join(told)


def sync(session: Session, paths: Paths, *, fresh: bool = False) -> Synced:
    """Record the text inside the fences and render the file again; once more if it was written in the meantime."""
    path = paths.state
    refuse_link(path)
    seen_by_git = _told_git(paths.git)
    taken: list[str] = []
    aside: Path | None = None
    for _try in range(_TRIES):
        found = content_of(path)
        if found is not None:
            names, kept = _take_in(session, path, found, fresh=fresh)
            taken += names
            aside = kept or aside
        fresh = False
        if not path.exists() or content_of(path) == found:
            write(path, state_md.render(session.views, machine.is_gone).encode())
            break
    return Synced(path, taken, aside, seen_by_git)


def _told_git(git: Path | None) -> str:
    """Have git ignore the file before it is written; why it could not, if it could not."""
    try:
        if git is not None:
            ignore_state(git)
    except (OSError, Conflict) as problem:
        return str(problem)
    return ""


def _take_in(session: Session, path: Path, content: bytes, *, fresh: bool) -> tuple[list[str], Path | None]:
    read = state_md.read(content.decode(errors="surrogateescape"), session.views)
    if fresh:
        return [], archive(path, "")
    if read.session != session.id:
        owner = f"belongs to session {read.session}" if read.session else "is not onrecord's"
        raise Conflict(
            f"{path} {owner}; it was not changed",
            hint="rename it and start a new one",
            step="fresh_state_file",
        )
    aside = None if read.whole and read.untouched_outside else archive(path, "kept-", copy=True)
    taken = []
    for region in read.regions if session.head.status in LIVE else ():
        if region.changed:
            try:
                taken += [region.section] if _take_region(session, region, read.position) else []
            except OnrecordError:
                aside = aside or archive(path, "kept-", copy=True)
    return taken, aside


def _take_region(session: Session, region: state_md.Region, position: int) -> bool:
    views = session.views
    section = next(one for one in views.phases.described() if one["name"] == region.section)
    shown = state_md.shown_text(views, section)
    if region.text == shown:
        return False
    if not region.text:
        session.phases.empty_section(region.section)
        return True
    # If the log moved since the file was rendered, both texts are kept; the id makes a repeated sync harmless.
    moved = region.base != state_md.key_of(session.id, region.section, shown)
    digest = state_md.key_of(session.id, region.section, region.text)
    session.phases.write_section(
        region.section, region.text, append=moved or section["rule"] == "append",
        id=f"state-file/{position}/{digest}/{region.base}",
    )  # fmt: skip
    return True
