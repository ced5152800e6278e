"""The files that changed during the work, and the commits that were made, as far as the record says."""

from __future__ import annotations

from bisect import bisect
from typing import TYPE_CHECKING, NamedTuple

from onrecord.pages.frame import empty
from onrecord.pages.panel import Line, hidden
from onrecord.pages.text import at_minute, attribute, link, short, shown
from onrecord.views.code import SHORT_REVISION
from onrecord.views.happenings import calls_of, changed_by
from onrecord.views.note import changed_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.log.events import Event
    from onrecord.pages.entries import Entry
    from onrecord.views.fold import Whole
    from onrecord.views.values import RecordedCommit

FILES, COMMITS = "Files", "Commits"
FILE_KINDS = ("attempt.started", "code.", "finding.", "hypothesis.", "evidence.", "milestone.")
"""The facts that may name files, or change what is said about them."""
_SUBJECT = 120


class Edit(NamedTuple):
    """The last time that a tool of an agent changed a file, and how often tools did."""

    by: str
    tool: str
    at: int
    position: int
    times: int = 1


def edits_of(entries: Iterable[Entry], whole: Whole) -> Iterator[tuple[str, Edit]]:
    """Each file that a tool changed, in order: as hooks recorded it, or as only a conversation shows it."""
    roots = _roots(whole)
    for entry in entries:
        for tool, paths in _changes(entry):
            for path in paths if isinstance(paths, list) else ():
                yield _from_top(str(path), roots), Edit(entry.by, tool, entry.at, entry.position)


def _changes(entry: Entry) -> Iterator[tuple[str, object]]:
    if entry.turn is None:
        data = entry.event.data if entry.kind == "tool.used" else None
        if isinstance(data, dict) and data.get("act") == "edit":
            yield str(data.get("tool") or "a tool"), data.get("paths")
        return
    answers = {str(item.get("call")): item for item in entry.turn.items if item.get("role") == "tool"}
    for call in calls_of(entry.turn.items):
        id_ = str(call.get("id"))
        used, answer = entry.about["tools"].get(id_), answers.get(id_)
        ran = not answer.get("error") if answer else bool(used)  # without a result, only a hook knows that it ran
        if ran:
            told = used.get("paths") if used and used.get("act") == "edit" else None
            yield str(call.get("name") or "a tool"), told or changed_by(call)


def _roots(whole: Whole) -> list[str]:
    """Where agents worked: what they changed there is named from the top, as hooks and git name it."""
    links = [link for agent in whole.roster.agents.values() for link in agent["links"]]
    found = {str(seen.get(name) or "") for link in links for seen in (link["first"], link["last"])
             for name in ("worktree", "cwd")}  # fmt: skip
    return sorted((root.rstrip("/") for root in found if root.strip("/")), key=len)


def _from_top(path: str, roots: list[str]) -> str:
    top = next((root for root in roots if path.startswith(f"{root}/")), "")
    return path[len(top) + 1 :] if top else path


class Files:
    """The files and commits of a session, drawn while its log is folded: call `draw` in the order of the log."""

    def __init__(self, edits: Iterable[tuple[str, Edit]]) -> None:
        self.edits: dict[int, list[tuple[str, Edit]]] = {}
        """The edits that are not drawn yet, by position."""
        for name, edit in edits:
            self.edits.setdefault(edit.position, []).append((name, edit))
        self.names = {name for found in self.edits.values() for name, _edit in found}
        self._last: dict[str, Edit] = {}

    def draw(self, whole: Whole, event: Event | None) -> dict[str, list[Line]]:
        """A line for each file and each commit that an event may have added; without an event, for all of them."""
        if event is None:
            edited = [self._note(position) for position in list(self.edits)]
            names = [*changed_files(whole), *self._last]
        else:
            edited = [self._note(event.position)]
            names = self._named_by(whole, event)
        names += [name for found in edited for name in found]
        made = {f"file {name}": [_file(whole, name, self._last.get(name))] for name in dict.fromkeys(names)}
        for one in whole.code.commits:
            position = one.get("position", 0)
            if event is None or position == event.position:
                html = f"<li>{_commit(one)} {link(position) if position else ''}</li>"
                made[f"commit {one['revision']}"] = [Line(COMMITS, -position, html)]
        return made

    def _named_by(self, whole: Whole, event: Event) -> list[str]:
        """The files about which an event may have changed what is said."""
        if event.kind.startswith("attempt."):
            last = next(reversed(whole.attempts.attempts.values()), None)
            return [*((last["revision"] or {}).get("changed") or [])] if last else []
        if not event.kind.startswith(FILE_KINDS):
            return []
        rested_on = {anchor["path"] for one in whole.findings.findings.values() for anchor in one["anchors"]}
        changed = (key.partition(":")[0].partition("@")[0] for key in whole.findings.code)
        return [*whole.code.files, *changed, *(rested_on & self._last.keys())]

    def _note(self, position: int) -> list[str]:
        """The files that were changed at a position; from here on their lines say so."""
        found = self.edits.pop(position, [])
        for name, edit in found:
            before = self._last.get(name)
            self._last[name] = edit._replace(times=before.times + 1) if before else edit
        return [name for name, _edit in found]


def files_list(whole: Whole, edits: Iterable[tuple[str, Edit]]) -> str:
    """The files and commits as they are now."""
    return draw_files([line for found in Files(edits).draw(whole, None).values() for line in found])


def _file(whole: Whole, name: str, edit: Edit | None) -> Line:
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
