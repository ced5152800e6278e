"""The planted facts: one bug in three sessions. Each fact has a phrase that appears only where the fact does."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

REJECTED, FAILED, VERIFIED = "rejected theory", "failed fix", "verified cause"
DECISION, NEXT, REPRODUCTION, EDITED = "decision", "next action", "reproduction", "edited file"
NEEDED = (REJECTED, FAILED, VERIFIED, NEXT)
"""The kinds without which an agent repeats work or goes the wrong way."""
OBJECTIVE = "Invited users can open the project at once"


class Fact(NamedTuple):
    """One fact, and the session that it is planted in."""

    session: int
    kind: str
    phrase: str
    step: str = ""
    """The command that found it out; an agent that does not know the fact runs it again."""


FACTS = (
    Fact(1, REPRODUCTION, "accept ten invitations in a row", "sh reproduce.sh"),
    Fact(1, REJECTED, "the middleware drops the auth header", "sh check-middleware.sh"),
    Fact(1, REJECTED, "the session cookie expires early", "sh check-cookie.sh"),
    Fact(1, FAILED, "raise the session timeout to an hour", "sh try-timeout.sh"),
    Fact(1, DECISION, "leave the public API as it is"),
    Fact(1, EDITED, "app/accept_invite.py"),
    Fact(2, REJECTED, "the load balancer loses sticky sessions", "sh check-balancer.sh"),
    Fact(2, FAILED, "retry the redirect three times", "sh try-retry.sh"),
    Fact(2, VERIFIED, "the membership row is written after the redirect", "sh trace-order.sh"),
    Fact(2, DECISION, "no new queue for one insert"),
    Fact(2, EDITED, "app/membership.py"),
    Fact(3, REJECTED, "the replica lags behind the primary", "sh check-replica.sh"),
    Fact(3, FAILED, "clear the permission cache on login", "sh try-cache.sh"),
    Fact(3, NEXT, "sh focused-test.sh --count 30"),
)
SESSIONS = (1, 2, 3)


def upto(session: int) -> list[Fact]:
    """The facts that are planted by the end of a session; the next action is only in the last one."""
    return [fact for fact in FACTS if fact.session <= session]


def known(text: str, facts: Iterable[Fact]) -> list[Fact]:
    """The facts whose phrase is in a text."""
    flat = " ".join(text.replace("\\n", " ").split())
    return [fact for fact in facts if fact.phrase in flat]


def repeated(text: str, facts: Iterable[Fact]) -> list[str]:
    """What a reader that acts only on this text would do again: the step of every finding that is not in it."""
    facts = list(facts)
    there = known(text, facts)
    return [fact.step for fact in facts if fact.step and fact not in there]


def on_record(session: int, probe: Path) -> str:
    """A shell script that an agent runs: it records the facts of one session with onrecord, and prints nothing."""
    lines = [f"onrecord evidence run --id proof-{session} -- true"]
    failing = f"-- sh {shlex.quote(str(probe))} || true"
    for fact in FACTS:
        if fact.session != session:
            continue
        text, proof = shlex.quote(fact.phrase), f"--evidence proof-{session}"
        lines.append({
            REPRODUCTION: f"onrecord reproduction {text} --rate 3/10\nonrecord run {failing}",
            REJECTED: f"onrecord finding state {text} --label rejected {proof}",
            FAILED: f"onrecord run --fix {text} {failing}",
            VERIFIED: f"onrecord finding state {text} --label verified {proof}",
            DECISION: f"onrecord decide {text}",
            NEXT: f"onrecord next 'Run the focused test' --command {text}",
            EDITED: _edit(fact.phrase, commit=session == 1),
        }[fact.kind])  # fmt: skip
    return "exec >/dev/null 2>&1\n" + "\n".join(lines) + "\n"


def told(session: int) -> str:
    """The same session without onrecord: the script does the edits and prints the facts into the conversation."""
    lines = []
    for fact in FACTS:
        if fact.session == session:
            lines += [_edit(fact.phrase, commit=session == 1)] if fact.kind == EDITED else []
            lines.append(f"echo {shlex.quote(f'{fact.kind}: {fact.phrase}')}")
    return "\n".join(lines) + "\n"


def progress_file(session: int) -> str:
    """What a person or agent writes at the clean end of a session: what this session did, and what is next."""
    lines = [f"# Progress\n\nGoal: {OBJECTIVE}\n"]
    lines += [f"- {fact.kind}: {fact.phrase}" for fact in FACTS if fact.session == session]
    return "\n".join(lines) + "\n"


def _edit(path: str, *, commit: bool) -> str:
    made = f"mkdir -p $(dirname {path}) && echo '# edited' >> {path}"
    git = "git -c user.name=lab -c user.email=lab@example.org"
    return f"{made} && git add {path} && {git} commit -q -m 'Log each accepted invitation'" if commit else made
