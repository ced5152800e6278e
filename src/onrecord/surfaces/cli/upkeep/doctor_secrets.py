"""What `onrecord doctor` says about secrets: the policy here, what was found in recent sessions, and what stayed."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import TYPE_CHECKING

from onrecord.connection import secret_rules
from onrecord.errors import OnrecordError
from onrecord.session.funnel import FOUND_KIND, KEEP
from onrecord.session.redacting import found_by
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.upkeep.checks import Check

if TYPE_CHECKING:
    from onrecord.session.session_store import SessionStore

SEARCHED = 200
"""How many of the newest sessions are searched for what was found in them."""
NAMED = 5
"""How many rules are named, the most frequent first."""


def secrets(records: SessionStore) -> list[Check]:
    """The checks about secrets; never a value."""
    try:
        policy = secret_rules().policy_of(records.project)
    except OnrecordError as problem:
        return [Check("secrets", "wrong", problem.message, problem.hint)]
    way = "" if find_spec("ahocorasick_rs") else "; `pip install onrecord[secrets]` makes the search faster"
    replaced, kept, sessions = Counter[str](), Counter[str](), set[str]()
    leaky = ""
    for head in records.sessions(project="", limit=SEARCHED):
        for event in records.handle(head.session).events(kinds=(FOUND_KIND,)):
            if not event.data:
                continue
            counts = kept if event.data.get("policy") == KEEP else replaced
            counts.update(found_by(event))
            sessions.add(head.session)
            leaky = leaky or (head.name if counts is kept else "")
    said = f"policy {policy}{way}"
    if replaced:
        where = counted(len(sessions), "session")
        said += f"; {counted(replaced.total(), 'secret')} replaced in {where}: {_named(replaced)}"
    checks = [Check("secrets", "info", said)]
    if kept:
        advice = f"`onrecord redact {leaky} --dry-run` shows them"
        checks.append(Check("secrets", "info", f"{counted(kept.total(), 'secret')} kept: {_named(kept)}", advice))
    return checks


def _named(counts: Counter[str]) -> str:
    rest = len(counts) - NAMED
    return ", ".join(f"{rule} {count}" for rule, count in counts.most_common(NAMED)) + (
        f", {rest} more" if rest > 0 else ""
    )
