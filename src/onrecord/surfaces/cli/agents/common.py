"""What the verbs of coding agents share: the prompt, consent, and how its end is reported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from onrecord.agents.surroundings import environment_for
from onrecord.agents.wrapping import Ask, Wrapped
from onrecord.surfaces import notifying
from onrecord.surfaces.cli.shared.exits import FAILED, UsageError
from onrecord.surfaces.cli.shared.output import counted
from onrecord.vendors.port import BUDGET, CRASH, ENDS_WITH_TIME, KILLED, REFUSED, TOKENS, USER, VENDORS, vendor
from onrecord.views.needs import LIMITS

if TYPE_CHECKING:
    from onrecord.agents.wrapping import Outcome
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.vendors.port import Hazard, Vendor


def vendor_named(word: str) -> Vendor:
    """The vendor with this name."""
    if word not in VENDORS:
        from onrecord.surfaces.cli.catalogue import nearest

        guess = nearest(word, list(VENDORS))
        hint = f"did you mean {guess}?" if guess else f"use one of {', '.join(VENDORS)}"
        raise UsageError(f"unknown coding agent {word!r:.60}", hint=hint)
    return vendor(word)


def wrapped(call: Call, session: Session, of: Vendor, cwd: str) -> Wrapped:
    """What a run of an agent needs."""
    env = environment_for(session, cwd)
    return Wrapped(
        session, of, env, show=not call.output.json, raw="jsonl" in call, waits="wait" in call, person=call.person(),
        notify=lambda: notifying.tell_needs(session),
    )  # fmt: skip


def asked(call: Call, extra: list[str]) -> Ask:
    """The agent's prompt: --prompt, or standard input with --headless; on a terminal the user types it."""
    prompt, opening = call.get("prompt") or "", call.get("opening") or ""
    headless = bool(prompt) or "headless" in call
    if "say" in call and not headless:
        return Ask(
            call.get("say") or "", headless=False, extra=[*call.many("argument"), *extra], anew=opening, now=True
        )
    if headless and not prompt and not sys.stdin.isatty():
        prompt = sys.stdin.read().strip()
    words = [*call.many("argument"), *extra]
    return Ask(prompt, headless, words, only_extra="fresh-arguments" in call, anew=opening)


def has_terminal() -> bool:
    """Whether a person can see and type."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def need_terminal(ask: Ask) -> None:
    """An agent that is not headless needs a terminal."""
    if not ask.headless and not has_terminal():
        raise UsageError("an interactive agent needs a terminal", hint="run it without one: `--prompt TEXT`")


def consenting(call: Call) -> Any:
    """Asks before a user's file is changed. Without a terminal to ask on, the answer is no."""

    def consent(hazard: Hazard) -> bool:
        files = ", ".join(hazard.touches)
        if "yes" in call:
            call.output.note(f"{hazard.message}: {hazard.fix}{f' ({files})' if files else ''}")
            return True
        try:
            call.confirm(f"{hazard.message}. {hazard.fix}?{f' This changes {files}.' if files else ''}")
        except Exception as refusal:  # noqa: BLE001  # declined, or no terminal to ask on: both mean no
            call.output.note(f"{hazard.message}; not changed: {refusal}")
            return False
        return True

    return consent


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """How a run ended, as data."""
    why = outcome.why
    return {
        "exit_status": outcome.status, "finished": outcome.finished, "cause": why.cause, "message": why.message,
        "resets_at": why.resets_at, "vendor_id": outcome.vendor_id, "orphans": outcome.orphans,
        "interruption": outcome.interruption.position if outcome.interruption else None,
        "problems": outcome.problems,
    }  # fmt: skip


_STOPPED = {cause: f"was stopped by {words}" for cause, words in LIMITS.items()} | {
    BUDGET: "was stopped by the budget",
    TOKENS: "was stopped by the token limit of its model",
    CRASH: "crashed",
    KILLED: "was killed",
    USER: "was stopped by a person",
    REFUSED: "was refused by its vendor",
}
"""What happened to an agent that did not finish its work, by cause."""


def tell_outcome(call: Call, session: Session, outcome: Outcome) -> None:
    """What a person should know after an agent has ended; they are notified too, if they want that."""
    if not outcome.finished:
        notifying.tell_needs(session)
    elif {"prompt", "headless", "wait"} & {name for name, _value in call.given}:
        notifying.tell_end(session, f"{session.agent} finished its work")
    for problem in outcome.problems:
        call.output.note(f"not everything could be recorded: {problem}")
    if outcome.orphans:
        call.output.note(f"stopped {counted(len(outcome.orphans), 'process', 'processes')} that it left running")
    if outcome.vendor_id is None:
        call.output.note("the id of its conversation is unknown; `onrecord setup` installs the hook that reports it")
    if not outcome.finished:
        why = outcome.why
        moment = int(why.resets_at * 1e6) if why.resets_at else 0
        until = f", until {call.when(moment)}" if moment else ""
        told = why.message and why.cause not in (KILLED, USER)  # its last output is not the reason
        about = f": {why.message.splitlines()[-1][:200]}" if told else ""
        call.output.note(f"{session.agent} {_STOPPED.get(why.cause, 'stopped, and it is not known why')}{until}{about}")
        if why.cause == BUDGET:
            from onrecord.rules import raising

            call.output.note(f"`{raising(session.name, session.views.spend, call.now())}` raises it")
        wait = " --wait" if why.cause in ENDS_WITH_TIME else ""
        if not (wait and "wait" in call):  # then this command waits
            later = "waits for that and resumes it" if wait else "resumes it"
            several = sum(bool(agent["links"]) for agent in session.views.roster.agents.values()) > 1
            whose = f" --agent {session.agent}" if several else ""
            call.output.note(f"`onrecord resume {session.name}{whose}{wait}` {later}")


def tell_budget(call: Call, session: Session) -> None:
    """That most of the budget is used, and what a limit of spend needs."""
    from onrecord.agents.pricing import EXTRA, is_installed
    from onrecord.rules import scarcity
    from onrecord.setup.commands import installing_with

    spend = session.views.spend
    near = spend.nearly(call.now())
    if near is not None and near.used < near.allowed:
        call.output.note(scarcity(near))
    if "spend" in spend.budget and not is_installed():
        add = installing_with(EXTRA)
        call.output.note(f"the price of most calls is not known, so spend is not limited; `{add}` adds a price list")


def exit_status(outcome: Outcome) -> int:
    """The agent's own exit status; a run that was interrupted is never a success."""
    if outcome.finished:
        return 0
    if outcome.status < 0:
        return 128 - outcome.status
    return outcome.status or FAILED
