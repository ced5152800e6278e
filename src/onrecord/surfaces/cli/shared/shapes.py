"""How things look from outside: sessions, events and turns as JSON data, and events in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onrecord.log.readings import MEDIA, rows_of
from onrecord.log.shapes import UNREADABLE
from onrecord.surfaces.cli.shared.output import counted
from onrecord.views.render import iso
from onrecord.views.spend import ROW

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Event
    from onrecord.log.head import Head
    from onrecord.log.item_values import Item
    from onrecord.log.store import Lease

_LONG_ENOUGH = 2_000
"""A summary is cut to the window anyway; reading more text than this would be wasted."""

NEEDS_YOU = "needs-you"
"""How a line for scripts marks a session that needs a person."""


def session_data(head: Head) -> dict[str, Any]:
    """The status of a session."""
    return {
        "id": head.session, "name": head.name, "project": head.project, "status": head.status, "title": head.title,
        "position": head.position, "run": head.run, "opened_at": iso(head.opened_at), "last_activity_at": iso(head.at),
        "held": head.held, "parent": head.parent, "forked_at": head.forked_at,
    }  # fmt: skip


def event_data(event: Event) -> dict[str, Any]:
    """One event, complete."""
    return {
        "session": event.session, "position": event.position, "id": event.id, "kind": event.kind, "v": event.v,
        "at": event.at, "time": iso(event.at), "by": event.by, "run": event.run, "because": event.because,
        "data": event.data, "payload_hash": event.payload_hash.hex(), "hash": event.hash.hex(),
    }  # fmt: skip


def receipt_data(head: Head, event: Event, state: str) -> dict[str, Any]:
    """What a verb that appended one event answers."""
    return {
        "state": state, "session": head.session, "name": head.name, "position": event.position, "id": event.id,
        "kind": event.kind,
    }  # fmt: skip


def lease_data(lease: Lease, *, gone: bool, now: int) -> dict[str, Any]:
    """Who has the lease on a lane."""
    return {
        "agent": lease.lane, "epoch": lease.epoch, "pid": lease.holder.get("pid"), "host": lease.holder.get("host"),
        "since": iso(lease.since), "until": iso(lease.until), "process_is_gone": gone, "expired": lease.until <= now,
    }  # fmt: skip


def describe(event: Event) -> str:
    """What an event says, short."""
    data = event.data
    if data is None:
        return "(erased)"
    if not isinstance(data, dict):
        return str(data)[:_LONG_ENOUGH]
    try:
        return _MAKERS.get(event.kind, _generic)(data)[:_LONG_ENOUGH]
    except UNREADABLE:  # a log from elsewhere may have an invalid payload under a known kind
        return _generic(data)[:_LONG_ENOUGH]


def item_line(item: Item) -> str:
    """One item of a turn: who said what, which tools were called."""
    calls = ", ".join(
        f"{call.get('name')}({_arguments(call.get('arguments'))})" for call in item.get("tool_calls") or ()
    )
    said = _content(item.get("content"))
    if item.get("thinking") or item.get("summary"):
        said = f"({'thinking' if item.get('thinking') else 'summary of the conversation so far'}) {said}"
    if item.get("role") == "tool":
        return f"tool {item.get('call')}{' failed' if item.get('error') else ''}: {said}"
    return f"{item.get('role')}: {said}" + (f"{' ' if said else ''}-> {calls}" if calls else "")


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return " ".join(_part(part) if isinstance(part, dict) else str(part) for part in parts)


def _part(part: dict[str, Any]) -> str:
    if part.get("type") == MEDIA:
        from onrecord.views.parts import media_line

        return media_line(part)
    return str(part.get("text") or f"[{part.get('type', 'part')}]")


def _arguments(arguments: Any) -> str:
    if isinstance(arguments, dict):
        return ", ".join(f"{name}={value}" for name, value in arguments.items())
    return "" if arguments is None else str(arguments)


def _turn(data: dict[str, Any]) -> str:
    items = data.get("items") or []
    lines = " | ".join(item_line(item) for item in items[:3])
    return f"{counted(len(items), 'item')}: {lines}"


def _located(data: dict[str, Any]) -> str:
    told = ", was given the brief" if (data.get("briefed") or {}).get("lines") else ""
    return (
        f"{data.get('vendor')} {data.get('vendor_id')}" + (f", {data['reason']}" if data.get("reason") else "") + told
    )


def _used(data: dict[str, Any]) -> str:
    code = data.get("exit_code")
    what = data.get("command") or ", ".join(map(str, data.get("paths") or ()))
    return f"{data.get('tool')}: {what}" + (f" (exit {code})" if code is not None else "")


def _gate(data: dict[str, Any]) -> str:
    """The verdict, on what, and why; or the advice that came with a yes."""
    why = data.get("reason") or data.get("advice")
    return f"{data.get('decision')} {data.get('act') or ''}".strip() + (f": {why}" if why else "")


def _begun(data: dict[str, Any]) -> str:
    return f"turn {data.get('turn', '?')}, based on {data.get('base', 0)}"


def _finding(data: dict[str, Any]) -> str:
    proof = f" [{', '.join(map(str, data.get('evidence') or ()))}]" if data.get("evidence") else ""
    return f"{data.get('label')}: {data.get('claim')}{proof}"


def _relabelled(data: dict[str, Any]) -> str:
    return f"{data.get('finding')} is now {data.get('label')}" + (f": {data['why']}" if data.get("why") else "")


def _usage(data: dict[str, Any]) -> str:
    if "counted" in data:
        rows = [dict(zip(ROW, values, strict=False)) for values in data["counted"]]
        said = [f"{counted(row['calls'], 'call')} of {_usage(row)}" for row in rows]
        return f"{data.get('vendor')}: " + ("; ".join(said) or "what its calls cost")
    cost = "unknown cost" if data.get("cost") is None else f"cost {data['cost']:g}"
    tokens = f"{data.get('input_tokens', 0):,} in, {data.get('output_tokens', 0):,} out"
    return f"{data.get('model') or 'unknown model'}: {tokens}, {cost}"


def _joined(data: dict[str, Any]) -> str:
    process = data.get("process") or {}
    return f"process {process.get('pid', '?')} on {process.get('host', '?')}"


def _erased(data: dict[str, Any]) -> str:
    return f"{counted(data.get('count', 0), 'payload')} ({data.get('scope')}): {data.get('reason')}"


def _opened(data: dict[str, Any]) -> str:
    return f"{data.get('name')}" + (f": {data['objective']}" if data.get("objective") else "")


def _effect(data: dict[str, Any]) -> str:
    outcome = f": {data['error']}" if data.get("error") else f" = {data['result']}" if data.get("result") else ""
    return f"{data.get('key')}{outcome}"


def _decision(data: dict[str, Any]) -> str:
    return f"{data.get('text')}" + (f" (because {data['why']})" if data.get("why") else "")


def _next(data: dict[str, Any]) -> str:
    return f"{data.get('text')}" + (f"  $ {data['command']}" if data.get("command") else "")


def _settled(data: dict[str, Any]) -> str:
    about = data.get("error") or data.get("reason") or _arguments(data.get("metrics"))
    return f"attempt {data.get('attempt')} {data.get('outcome')}" + (f": {about}" if about else "")


def _evidence(data: dict[str, Any]) -> str:
    how = "captured" if data.get("captured") else "asserted"
    what = data.get("command") or data.get("reference") or (data.get("anchor") or {}).get("path") or ""
    return f"{how} {data.get('kind')} {data.get('id')}: {what}"


def _kept(data: dict[str, Any]) -> str:
    """A part of a mirrored conversation is only named and counted, because it is too long."""
    if isinstance(data.get("lines"), list):
        told = counted(len(data["lines"]), "record")
        told += f" of {data.get('vendor')} {data['vendor_id']}" if "vendor_id" in data else ""
        said = next((item_line(item) for row in rows_of(data) for item in row.items), "")
        return f"{told}: {said}" if said else told
    return f"prompt: {data['prompt']}" if "prompt" in data else _generic(data)


def _team(data: dict[str, Any]) -> str:
    """The members; a whole team with its prompts is too long."""
    team = data["team"] if isinstance(data.get("team"), dict) else {}
    agents = [str(one.get("id")) for one in team.get("agents") or () if isinstance(one, dict)]
    groups = [f"{one.get('size')} {one.get('id')}" for one in team.get("groups") or () if isinstance(one, dict)]
    return f"{team.get('name')}: {', '.join(agents + groups)}"


def _tokens(data: dict[str, Any]) -> str:
    from onrecord.log.packed import count_packed

    after = f" after {data['keep']}" if data.get("keep") else ""
    ended = f", {data['finish']}" if data.get("finish") else ""
    return f"{data.get('part')}: {count_packed(data.get('ids'))} ids{after}{ended}"


def _generic(data: dict[str, Any]) -> str:
    for name in ("text", "reason", "cause", "steps", "name", "key", "summary"):
        if isinstance(data.get(name), str) and data[name]:
            return str(data[name])
    from onrecord.log.text import text_of

    return text_of(data).replace("\n", " ")


def _code(data: dict[str, Any]) -> str:
    """Anchors that changed; or where the code is, and how many commits are new."""
    anchors = ", ".join(key.partition("@")[0] for key in data.get("anchors") or ())
    revision = data.get("revision") or {}
    commits = data.get("commits") or ()
    said = f"{revision.get('branch') or 'revision'} at {str(revision.get('revision') or '')[:10]}" if revision else ""
    more = f", {len(commits)} new commit{'' if len(commits) == 1 else 's'}" if commits else ""
    return anchors or f"{said}{more}"


_MAKERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "session.opened": _opened,
    "session.forked": lambda data: f"{data.get('name')}, from position {(data.get('parent') or {}).get('position')}",
    "session.renamed": lambda data: f"{data.get('was')} -> {data.get('name')}",
    "agent.joined": _joined,
    "agent.located": _located,
    "agent.spawned": lambda data: f"{data.get('agent')} ({data.get('mode')}) {data.get('refused') or data.get('why')}",
    "agent.recalled": lambda data: str(data.get("agent")),
    "team.formed": _team,
    "team.scaled": lambda data: f"{data.get('group')}: {data.get('size')}",
    "tool.used": _used,
    "gate.decided": _gate,
    "payload.kept": _kept,
    "attention.needed": lambda data: str(data.get("message")),
    "turn.begun": _begun,
    "turn.recorded": _turn,
    "item.added": lambda data: item_line(data["item"]) if data.get("item") else "",
    "effect.started": _effect,
    "effect.finished": _effect,
    "attempt.started": lambda data: str(data.get("command")),
    "attempt.settled": _settled,
    "attempt.corrected": lambda data: f"attempt {data.get('attempt')}: {data.get('fix') or data.get('remark')}",
    "decision.made": _decision,
    "evidence.recorded": _evidence,
    "finding.challenged": lambda data: f"{data.get('finding')}: {data.get('argument')}",
    "code.changed": _code,
    "next_action.set": _next,
    "finding.stated": _finding,
    "finding.relabelled": _relabelled,
    "usage.recorded": _usage,
    "tokens.recorded": _tokens,
    "budget.set": lambda data: _arguments(data.get("limits")),
    "payload.erased": _erased,
    "scratch.set": lambda data: f"{data.get('key')} = {data.get('value')}",
}
