"""The entries of the note: attempts, failures, evidence, metrics, sections.

An entry is a text, or a tuple of parts. Parts share the room of a line: the longest one is cut first, so that a long
command hides neither the error nor the fix.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING
from onrecord.views.attempts import FAILED, RUNNING, SUCCEEDED, status_of
from onrecord.views.findings import anchor_key
from onrecord.views.render import clip, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onrecord.views.fold import Whole
    from onrecord.views.values import Attempt, Evidence, Process, Reproduction

    Gone = Callable[[Process], bool]
    Entry = str | tuple[str, ...]

PART_LIMIT = 1_000
"""The most characters of one part of an entry."""
SECTION_SHOWN = 400
"""How many characters of a section of STATE.md the note shows."""
METRICS_SHOWN = 12
"""How many of the newest attempts with metrics the note lists."""
_SHORT = 100
_SEPARATOR = "; "
_CUT = 8
"""The most bytes that a part loses beyond its share: a mark, a letter that does not fit, and rounding."""
_SETTLED = (FAILED, SUCCEEDED)


def fitted(entry: Entry, size: int) -> str:
    """An entry on one line of at most `size` bytes; all parts are shortened to the same length at most."""
    return shared(flattened(entry), size)


def flattened(entry: Entry) -> list[str]:
    """The parts of an entry, each on one line."""
    return [one_line(part, PART_LIMIT) for part in ((entry,) if isinstance(entry, str) else entry) if part]


def shared(parts: list[str], size: int) -> str:
    """The parts of an entry on one line of at most `size` bytes, which they share."""
    if len(parts) == 1:
        return clip(parts[0], size)
    room = size - len(_SEPARATOR) * (len(parts) - 1)
    sizes = sorted(len(part.encode()) for part in parts)
    cap, left = room, room
    for number, length in enumerate(sizes):
        cap = left // (len(sizes) - number)
        if length > cap:
            break
        left -= length
    else:
        cap = room
    return clip(_SEPARATOR.join(clip(part, max(1, cap)) for part in parts), size)


def least(parts: list[str], lengths: int, size: int) -> int:
    """At least so many bytes has what `shared` makes of the parts, which have `lengths` bytes together."""
    joined = lengths + len(_SEPARATOR) * (len(parts) - 1)
    return joined if joined <= size else size - _CUT * len(parts)


def attempt_entries(whole: Whole, gone: Gone | None) -> list[Entry]:
    """The last attempt, then every one that is unresolved: those must be settled first."""
    attempts = whole.attempts.all()
    unresolved = [attempt for attempt in attempts if attempt["status"] == RUNNING]
    last = [attempt for attempt in attempts[-1:] if attempt not in unresolved]
    return [attempt_entry(attempt, gone) for attempt in (*last, *unresolved)]


def attempt_entry(attempt: Attempt, gone: Gone | None) -> Entry:
    """One attempt: its number, status and command, then metrics, error, fix and reason."""
    status = status_of(attempt, gone) if gone else attempt["status"]
    unresolved = "; unresolved, settle it first" if attempt["status"] == RUNNING else ""
    return (
        f"attempt {attempt['number']} {status}{unresolved}: {attempt['command']}",
        metrics_of(attempt),
        *(f"{name}: {attempt[name]}" for name in ("error", "fix", "reason") if attempt.get(name)),
    )


def metrics_of(attempt: Attempt) -> str:
    """The metrics of an attempt, as `name=value`."""
    return ", ".join(f"{name}={value}" for name, value in (attempt.get("metrics") or {}).items())


def failed_entries(whole: Whole, *, last_too: bool = False) -> list[Entry]:
    """What failed and has not succeeded since: one entry per command and error; then every fix that did not help.

    The last attempt has an entry of its own in a note; `last_too` is for texts without one.
    """
    attempts = whole.attempts.all()
    newest: dict[str, Attempt] = {}
    groups: dict[tuple[str, str], list[Attempt]] = {}
    fixes: list[tuple[str, Attempt]] = []
    later: dict[str, list[Attempt]] = {}
    """The settled runs of each command, the newest first."""
    for one in reversed(attempts):
        if one["status"] not in _SETTLED:
            continue
        signature = one["signature"]
        newest.setdefault(signature, one)
        if one["status"] == FAILED:
            if newest[signature]["status"] == FAILED:  # if not, it succeeded since
                groups.setdefault((signature, one.get("error_signature") or ""), []).append(one)
            for fix in reversed(one.get("fixes") or ()):
                # The first run that started after the fix was said ran with it.
                after = next(
                    (run for run in reversed(later.get(signature, [])) if run["position"] > fix["position"]), None
                )
                if after is not None and after["status"] == FAILED:
                    fixes.append((str(fix["text"]), after))
        later.setdefault(signature, []).append(one)
    entries: list[Entry] = []
    tried = {fix for fix, _after in fixes}
    for failures in sorted(groups.values(), key=lambda failures: failures[-1]["number"]):
        last = failures[0]
        if last_too or last is not attempts[-1]:
            numbers = ", ".join(str(one["number"]) for one in reversed(failures))
            said = f"attempt{'s' if len(failures) > 1 else ''} {numbers} failed: {last['command']}"
            proposed = next((one["fix"] for one in failures if one.get("fix")), None)
            untried = [f"fix: {proposed}"] if proposed and proposed not in tried else []
            entries.append((said, f"error: {last.get('error')}", *untried))
    return entries + [
        # In one part: when the line is short, the fix is what must stay.
        f"did not help: {fix} (attempt {after['number']} failed with it: {after.get('error')}; {after['command']})"
        for fix, after in dict(reversed(fixes)).items()
    ]


def cited(whole: Whole) -> list[str]:
    """The evidence that findings, challenges, milestones and features name, in the order it was recorded."""
    named: set[str] = set()
    for finding in whole.findings.findings.values():
        named.update(finding["evidence"])
        for challenge in finding["challenges"]:
            named.update(challenge["evidence"])
    for milestone in whole.phases.milestones.values():
        named.update(milestone.get("evidence") or ())
    for feature in whole.phases.features.values():
        named.update(feature["evidence"])
    return [name for name in whole.findings.evidence if name in named]


def evidence_lines(whole: Whole) -> list[str]:
    """Every cited evidence: what it is, where to look, and whether onrecord captured it."""
    known = whole.findings.evidence
    return [
        f"{name}{'✓' if known[name].get('captured') else ''}: {evidence_text(known[name])}" for name in cited(whole)
    ]


def evidence_text(evidence: Evidence) -> str:
    """One evidence: its kind, what it points at, how a command ended, and on which revision."""
    anchor = evidence.get("anchor")
    where = anchor_key(anchor) if anchor else ""
    pointed = (where, *(evidence.get(name) for name in ("command", "reference", "url", "path", "ref")))
    text = f"{evidence.get('kind', '')} {next((str(one) for one in pointed if one), '')}".strip()
    if evidence.get("exit_code") is not None:
        text += f", exit code {evidence['exit_code']}"
    code = evidence.get("revision") or {}
    dirty = "+" if code.get("dirty") else ""
    text += f", at {str(code['revision'])[:10]}{dirty}" if code.get("revision") else ""
    return f"{text}: {evidence['text']}" if evidence.get("text") else text


def metric_entries(whole: Whole) -> list[Entry]:
    """The metrics of the newest attempts that have some."""
    found = [one for one in whole.attempts.all() if one.get("metrics")]
    return [
        (f"attempt {one['number']} ({one['status']}): {metrics_of(one)}", str(one["command"]))
        for one in found[-METRICS_SHOWN:]
    ]


def section_lines(whole: Whole) -> list[str]:
    """The written sections of STATE.md, shortened; the file has the whole text."""
    return [
        f"{one['name']}: {one_line(text, SECTION_SHOWN)}"
        for one in whole.phases.described()
        if one.get("rule") != "generated" and (text := whole.phases.text_of(one["name"]).strip())
    ]


def reproduction_line(reproduction: Reproduction, width: int = PART_LIMIT) -> str:
    """How to reproduce the problem, where, and how often it happens."""
    text = one_line(str(reproduction.get("steps", "")), width)
    if reproduction.get("rate"):
        text += f" (rate {one_line(str(reproduction['rate']), _SHORT)})"
    return text + (f" (in {one_line(str(reproduction['scenario']), 200)})" if reproduction.get("scenario") else "")


def flat(entries: Iterable[Entry], size: int) -> list[str]:
    """Entries as lines of at most `size` bytes."""
    return [fitted(entry, size) for entry in entries]
