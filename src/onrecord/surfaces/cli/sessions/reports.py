"""A session for people, in one file: a report in HTML, or Markdown. Everything is folded from the log."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from onrecord.agents import pricing
from onrecord.errors import EventNotFound
from onrecord.machine import is_gone
from onrecord.pages.costs import UsageRow
from onrecord.pages.media import data_url
from onrecord.pages.options import Options
from onrecord.pages.report import Contents, report
from onrecord.pages.spans import start_of
from onrecord.session.funnel import KEEP
from onrecord.session.reading import recent_of
from onrecord.session.redacting import Shared, shared
from onrecord.session.standing import standing_of
from onrecord.surfaces.cli.shared.call import whole_number
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.upkeep.prove import Progress
from onrecord.views.note import is_unwritten
from onrecord.views.render import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onrecord.log.events import Event
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.views.fold import Whole
    from onrecord.views.needs import Need

_IMAGES_KEPT = 8


def pieces(call: Call, session: Session, form: str) -> Iterator[bytes]:
    """The file, piece by piece."""
    contents = _contents(call, session)
    if form == "html":
        made = report(contents)
    else:
        from onrecord.pages.plain import as_markdown

        made = as_markdown(contents)
    progress, total = Progress(call, "entries drawn"), len(contents.events)
    for number, piece in enumerate(made):
        progress(min(number, total), total)
        yield piece.encode(errors="replace")
    progress.finish()


def _read(call: Call, session: Session, upto: int) -> tuple[list[Event], bool]:
    """The events up to a position, and whether the hash chain is sound."""
    progress = Progress(call, "events verified")
    sound = session.verify(progress=lambda done: progress(done, session.head.position)).ok
    progress.what = "events read"
    events = []
    for event in session.events(upto=upto):
        events.append(event)
        progress(len(events), upto)
    progress.finish()
    return events, sound


def _contents(call: Call, session: Session) -> Contents:
    last = session.head.position
    first = whole_number(call.get("from") or "1", "--from") or 1
    upto = whole_number(call.get("to") or str(last), "--to")
    if not 1 <= upto <= last or first > last:
        wrong = first if 1 <= upto <= last else upto
        raise EventNotFound(f"session {session.name!r} has positions 1 to {last}, not {wrong}", name=session.name)
    if first > upto:
        raise UsageError(f"--from {first} is after --to {upto}", hint="give the earlier position to --from")
    is_whole = upto == last
    moment = session.at(upto)
    whole = moment.views
    events, sound = _read(call, session, upto)
    given = shared(session, events)
    if given.found and given.policy != KEEP:
        whole = start_of(whole.head)
        for event in given.events:
            whole.apply(event)
    return Contents(
        whole, given.events, given.text(session.note() if is_whole else moment.note()), call.now(), first,
        recent=recent_of(given.events) if is_unwritten(whole) else None,
        gone=is_gone if is_whole else None,
        needs=[given.text(_need(need)) for need in standing_of(session).needs] if is_whole else [],
        verified=sound, usage=_usage(whole), command=_command(session),
        options=Options(output="no-tool-output" not in call, media=_images(session), person="user"),
        remark=_remark(given),
    )  # fmt: skip


def _need(need: Need) -> str:
    """A need in one line, with its end as a reader elsewhere can understand it."""
    return need.why + (f", until {iso(need.until)[:16].replace('T', ' ')} UTC" if need.until else "")


def _remark(given: Shared) -> str:
    """What became of secrets, in one sentence."""
    before, now = (
        ", ".join(f"{count} {rule}" for rule, count in sorted(found.items())) for found in (given.recorded, given.found)
    )
    said = [f"{before} when they were recorded"] if before else []
    if given.policy == KEEP:
        kept = f"Secrets are shown, as the policy “keep” says: {now}." if now else ""
        return " ".join(filter(None, (f"Replaced secrets: {said[0]}." if said else "", kept)))
    said += [f"{now} for this report"] if now else []
    return f"Replaced secrets: {'; '.join(said)}." if said else "The rules for secrets found none in it."


def _command(session: Session) -> str:
    verb = "show" if session.status in ("closed", "archived", "erased") else "continue"
    return f"onrecord {verb} {session.name}"


def _usage(whole: Whole) -> list[UsageRow]:
    """What each model used; a cost that was not reported is taken from the price list, if there is one."""
    rows: Mapping[str, Mapping[str, Any]] = pricing.priced_by_model(whole.spend)
    return [
        UsageRow(
            name, used["calls"], used["input_tokens"], used["cache_read_tokens"], used["output_tokens"],
            used["cost"] + used.get("estimated_cost", 0), used["unknown_cost_calls"],
        )
        for name, used in rows.items()
    ]  # fmt: skip


def _images(session: Session) -> Callable[[Mapping[str, Any]], str | None]:
    """Finds the data of an image: in the part itself, or in the record that the part names."""

    @lru_cache(maxsize=_IMAGES_KEPT)
    def event_at(position: int) -> Event | None:
        try:
            return session.log.event(position)
        except EventNotFound:
            return None

    def source(part: Mapping[str, Any]) -> str | None:
        at = part.get("at")
        event = event_at(at[0]) if isinstance(at, list) and at and isinstance(at[0], int) else None
        lines = event.data.get("lines") if event is not None and isinstance(event.data, dict) else None
        return data_url(part, lines)

    return source
