"""STATE.md and NOTE.md in the workspace: rendered from the log, written whole or not at all, never over foreign files.

STATE.md is the one rendered file that is read back, and of it only the text inside the fences. What an agent wrote
anywhere else is put aside in a file of its own before the rendering comes back: nothing is lost, nothing is believed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import Conflict, OnrecordError
from onrecord.log.head import LIVE
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.views import state_md
from onrecord.views.note_forms import headed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call

STATE_BYTES = 8 * 1024 * 1024
"""The largest STATE.md that is read back."""
ARCHIVES_LIMIT = 10_000
"""How many numbered copies may stand beside one file."""
STEALTH_KEY = "stealth"
_TRIES = 5
_NOTE_HEAD = "<!-- onrecord:note session="


class Synced(NamedTuple):
    """What a look at STATE.md did."""

    path: Path
    taken: list[str]
    """Sections whose text was taken into the log."""
    aside: Path | None
    """Where the file was put as it was found, if it said something outside of its fences."""


def state_file(call: Call) -> int:
    """Take in what was written between the fences of STATE.md and render it anew; or show it, or say where it is."""
    session, action = call.session(), call.positional.get("ACTION", "sync")
    if action == "path":
        path = places(call, session)[0]
        return call.output.done("state_file", {"path": str(path), "position": session.head.position}, str(path))
    if action == "show":
        text = state_md.render(session.views)
        if call.output.json:
            call.output.envelope("state_file", {"position": session.head.position, "text": text})
        else:
            call.output.write(text)
        return 0
    if action != "sync":
        raise UsageError(
            f"unknown action {action!r}; use sync, show or path", hint=f"for example: `{call.verb.example}`"
        )
    if session.views.phases.profile is None:
        raise Conflict("this session has no profile, so it has no STATE.md", step="choose_profile")
    synced = sync(call, session, fresh="fresh" in call)
    data = {
        "path": str(synced.path), "taken": synced.taken, "aside": synced.aside and str(synced.aside),
        "session": session.id, "position": session.head.position,
    }  # fmt: skip
    said = f"read {', '.join(synced.taken)}; " if synced.taken else ""
    return call.output.done("state_file", data, f"{said}wrote {synced.path}, position {session.head.position}")


def places(call: Call, session: Session) -> tuple[Path, Path]:
    """Where STATE.md and NOTE.md of a session are: in the worktree, or beside the store where stealth is wanted."""
    from onrecord.connect import data_directory, settings
    from onrecord.work.project import worktree_for

    stealth = session.views.facts.scratch.get(STEALTH_KEY)
    if stealth or (stealth is None and settings().get("stealth")):
        folder = Path(data_directory(call.get("store"))) / "sessions" / session.id
        return folder / "STATE.md", folder / "NOTE.md"
    root = Path(worktree_for(session.views.head.project, os.curdir))
    return root / "STATE.md", root / ".onrecord" / "NOTE.md"


def before(call: Call, session: Session) -> None:
    """Take in what an agent wrote, so that the verb that follows sees it. A file that is not ours is left alone."""
    if session.views.phases.profile is None or session.head.status not in LIVE:
        return
    forgiving(call, lambda: sync(call, session))


def after(call: Call, session: Session) -> None:
    """Bring the renderings up to date. What was recorded is recorded, whether or not a file can be written."""
    if session.views.phases.profile is not None:
        forgiving(call, lambda: sync(call, session))
    forgiving(call, lambda: refresh_note(call, session))


def forgiving(call: Call, step: Callable[[], Any]) -> None:
    """Do something that matters less than what was just recorded; a failure is a note."""
    try:
        step()
    except (OnrecordError, OSError) as problem:
        hint = getattr(problem, "hint", "")
        call.output.note(f"{problem}" + (f"; {hint}" if hint else ""))


def sync(call: Call, session: Session, *, fresh: bool = False) -> Synced:
    """Take in the text between the fences and render the file anew; again if somebody wrote it meanwhile."""
    path = places(call, session)[0]
    if path.is_symlink():
        raise Conflict(f"{path} is a symbolic link", hint="remove the link; onrecord writes a regular file")
    taken: list[str] = []
    aside: Path | None = None
    for _try in range(_TRIES):
        found = _content(path)
        if found is not None:
            names, kept = _take_in(session, path, found, fresh=fresh)
            taken += names
            aside = kept or aside
        fresh = False
        if not path.exists() or _content(path) == found:
            write_atomically(path, state_md.render(session.views).encode())
            break
    if aside is not None:
        call.output.note(f"{path} had text outside its markers, or was renamed; the old file is {aside.name}")
    return Synced(path, taken, aside)


def _take_in(session: Session, path: Path, content: bytes, *, fresh: bool) -> tuple[list[str], Path | None]:
    read = state_md.read(content.decode(errors="surrogateescape"), session.views)
    if fresh:
        return [], archive(path, "")
    if read.session != session.id:
        whose = f"belongs to session {read.session}" if read.session else "is not onrecord's"
        raise Conflict(
            f"{path} {whose}; it was not changed",
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
    sections = (views.phases.profile or {}).get("sections", [])
    section = next(one for one in sections if one["name"] == region.section)
    shown = state_md.shown_text(views, section)
    if region.text == shown:
        return False
    if not region.text:
        session.empty_section(region.section)
        return True
    # Where the log moved on since the file was rendered, both texts stand; the id makes a repeated look harmless.
    moved = region.base != state_md.key_of(session.id, region.section, shown)
    digest = state_md.key_of(session.id, region.section, region.text)
    session.write_section(
        region.section, region.text, append=moved or section["rule"] == "append",
        id=f"state-file/{position}/{digest}/{region.base}",
    )  # fmt: skip
    return True


def _content(path: Path) -> bytes | None:
    try:
        if path.stat().st_size > STATE_BYTES:
            raise Conflict(
                f"{path} is larger than {STATE_BYTES:,} bytes; it was not changed",
                hint="rename it and start a new one",
                step="fresh_state_file",
            )
        return path.read_bytes()
    except FileNotFoundError:
        return None


def archive(path: Path, mark: str, *, copy: bool = False) -> Path:
    """Put a file away under the first free number: STATE.1.md, or STATE.kept-1.md for a copy."""
    for number in range(1, ARCHIVES_LIMIT):
        target = path.with_name(f"{path.stem}.{mark}{number}{path.suffix}")
        try:
            if copy:
                with target.open("xb") as made, path.open("rb") as source:
                    shutil.copyfileobj(source, made)
                    made.flush()
                    os.fsync(made.fileno())
            else:
                # The same file under another name: what somebody writes to it in this moment is not lost either.
                os.link(path, target)
                path.unlink()
        except FileExistsError:
            continue
        return target
    raise Conflict(f"there are {ARCHIVES_LIMIT:,} copies of {path.name}", hint="delete or move some of them")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file by its side, bring it to the disk, then give it its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        with part.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def refresh_note(call: Call, session: Session, *, ask: bool = False) -> Path | None:
    """Bring NOTE.md up to date where it is this session's; with `ask`, make it."""
    path = places(call, session)[1]
    if path.is_symlink():
        raise Conflict(f"{path} is a symbolic link", hint="remove the link; onrecord writes a regular file")
    there = _content(path)
    ours = there is not None and there.startswith(f"{_NOTE_HEAD}{session.id} ".encode())
    if there is not None and not there.startswith(_NOTE_HEAD.encode()):
        if not ask:
            return None
        raise Conflict(
            f"{path} is not a file of onrecord; it was not changed", hint="write another file", step="note_out"
        )
    if not ask and not ours and (there is not None or session.views.phases.profile is None):
        return None
    write_atomically(path, headed(session.views, session.note()).encode())
    return path
