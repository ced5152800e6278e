"""The files that changed during the work, and the commits that were made, as far as the record says."""

from __future__ import annotations

from bisect import bisect
from typing import TYPE_CHECKING, NamedTuple

from onrecord.pages.frame import empty
from onrecord.pages.panel import Line, hidden
from onrecord.pages.text import at_minute, attribute, link, short, shown
from onrecord.views.code import SHORT_REVISION
from onrecord.views.note import changed_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onrecord.log.events import Event
    from onrecord.views.fold import Whole
    from onrecord.views.values import RecordedCommit

FILES, COMMITS = "Files", "Commits"
_SUBJECT = 120


class Edit(NamedTuple):
    """The last time that a tool of an agent changed a file, and how often tools did."""

    by: str
    tool: str
    at: int
    position: int
    times: int


def edits_of(events: Iterable[Event]) -> dict[str, Edit]:
    """The edits of each file that hooks recorded (`tool.used`); the newest event comes first."""
    found: dict[str, Edit] = {}
    for event in events:
        data = event.data if isinstance(event.data, dict) else {}
        paths = data.get("paths") if data.get("act") == "edit" else ()
        for path in paths if isinstance(paths, list) else ():
            last = found.get(path) or Edit(event.by, str(data.get("tool") or "a tool"), event.at, event.position, 0)
            found[str(path)] = last._replace(times=last.times + 1)
    return found


def files_list(whole: Whole, edits: Mapping[str, Edit]) -> str:
    """The files and commits as they are now."""
    lines = file_lines(whole, None) | {f"file {name}": [_file(whole, name, edit)] for name, edit in edits.items()}
    return draw_files([line for found in lines.values() for line in found])


def file_lines(whole: Whole, event: Event | None) -> dict[str, list[Line]]:
    """A line for each file and each commit that an event may have added; without an event, for all of them."""
    if event is None:
        names = changed_files(whole)
    elif event.kind.startswith("attempt."):
        last = next(reversed(whole.attempts.attempts.values()), None)
        names = ((last["revision"] or {}).get("changed") or []) if last else []
    else:
        names = [*whole.code.files, *(key.partition(":")[0].partition("@")[0] for key in whole.findings.code)]
    made = {f"file {name}": [_file(whole, name)] for name in names}
    for one in whole.code.commits:
        position = one.get("position", 0)
        if event is None or position == event.position:
            html = f"<li>{_commit(one)} {link(position) if position else ''}</li>"
            made[f"commit {one['revision']}"] = [Line(COMMITS, -position, html)]
    return made


def _file(whole: Whole, name: str, edit: Edit | None = None) -> Line:
    """A file, and what is on record about it: its last edit, the run that saw it changed, its commit, its findings."""
    about = list(_about(whole, name))
    if edit is not None:
        often = f" ({edit.times:,} times so far)" if edit.times > 1 else ""
        when = f"{at_minute(edit.at)} · {link(edit.position)}"
        about.insert(0, f"changed by {shown(edit.by)} with {short(edit.tool, 40)}{often} · {when}")
    drawn = "".join(f'<div class="ev">{html}</div>' for html in about)
    return Line(FILES, 0, f"<li><code>{attribute(name)}</code>{drawn}</li>")


def _about(whole: Whole, name: str) -> Iterator[str]:
    commit = next((one for one in reversed(whole.code.commits) if name in (one.get("files") or ())), None)
    committed = commit.get("position", 0) if commit else 0
    attempts = whole.attempts.all()
    for attempt in attempts[bisect([one["position"] for one in attempts], committed) :]:
        if name in ((attempt["revision"] or {}).get("changed") or ()):
            when = f"{at_minute(attempt['at'])} · {link(attempt['position'])}"
            yield f"changed, not committed, when attempt {attempt['number']} of {shown(attempt['by'])} began · {when}"
            break
    if commit:
        yield f"in commit {_commit(commit)} {link(committed) if committed else ''}"
    for finding in whole.findings.findings.values():
        if any(anchor["path"] == name for anchor in finding["anchors"]):
            label = shown(whole.findings.label_of(finding))
            claim = f"{shown(finding['id'])}, {label}: {short(finding['claim'], _SUBJECT)}"
            yield f"finding {claim} · {link(finding['history'][-1]['position'])}"


def _commit(one: RecordedCommit) -> str:
    return f"<code>{short(one['revision'], SHORT_REVISION)}</code> {short(one['subject'], _SUBJECT)}"


def draw_files(lines: Iterable[Line]) -> str:
    """Lines as two lists: files by their names, the newest commits first."""
    found = sorted(lines, key=lambda line: (line.order, line.html.partition("<code>")[2]))
    made = []
    for section in (FILES, COMMITS):
        own = [line for line in found if line.section == section]
        if own:
            heading = "" if section == FILES else f"<h2>{section}</h2>"
            made.append(
                f'<div class="sect"{hidden(own)}>{heading}<ul class="plain">{"".join(x.html for x in own)}</ul></div>'
            )
    return "".join(made) or empty("No changed file is on record.")
