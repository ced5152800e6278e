"""`onrecord use`: choose the session that commands in this terminal mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.log.head import LIVE, refuse_ended
from onrecord.surfaces.cli.shared import terminals
from onrecord.surfaces.cli.shared.chooser import can_choose
from onrecord.surfaces.cli.shared.choosing import chosen_head
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.shapes import session_data

if TYPE_CHECKING:
    from onrecord.log.head import Head
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call

NONE = "no session is chosen for this terminal"


def use(call: Call) -> int:
    """Choose the session of this terminal; without a name, choose from a list or show the choice."""
    if terminals.terminal() is None:
        raise UsageError(
            "there is no terminal to choose a session for",
            hint="name the session in each command: `onrecord show --session NAME`",
        )
    if "clear" in call:
        state = "cleared" if terminals.forget() else "already_cleared"
        return call.output.done("use", {"state": state}, NONE)
    records = call.records(make=False)
    name = call.positional.get("NAME")
    head = records.find(name) if name else _asked(call, records)
    if head is None:
        return call.output.done("use", {"state": "none"}, NONE)
    refuse_ended(head)
    terminals.remember(records, head)
    if head.project not in (records.project, *records.also):
        call.output.note(f"it belongs to the project {head.project}")
    sentence = f"commands in this terminal now mean {head.name}; `onrecord use --clear` undoes this"
    return call.output.done("use", session_data(head) | {"state": "chosen"}, sentence)


def _asked(call: Call, records: SessionStore) -> Head | None:
    """The person's choice from the list; without a terminal to ask on, the present choice."""
    if can_choose(call):
        return chosen_head(call, records, "use")
    head = terminals.used(records)
    return head if head is not None and head.status in LIVE else None
