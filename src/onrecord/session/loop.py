"""The loop of an agent inside one turn: what to send to the model, what it answered, and when to stop.

A step is a call of a model. The limits of a budget hold inside a turn too: past one of them the turn is aborted and the
session paused, in one durable step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onrecord.errors import BudgetExceeded, InvalidInput, LeaseLost, PayloadErased, TurnConflict
from onrecord.log.codec import encode_payload, open_records
from onrecord.log.head import refuse_work
from onrecord.log.items import is_paused, to_items
from onrecord.session.budget import raised
from onrecord.session.reading import recent_items, speaker
from onrecord.views.progress import stuck
from onrecord.views.spend import LIMITS, Exhausted
from onrecord.views.transcript import COMMITTED, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.events import Draft, Event
    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session
    from onrecord.views.context import Context
    from onrecord.views.dialects import Messages
    from onrecord.views.values import Counter, Json, ToolCall


class Loop:
    """The verbs of an open turn that a loop needs; `Turn` has the others."""

    session: Session
    position: int
    items: list[Item]
    answer: list[Item] | None
    resumed: int
    uses: int
    spoken: int
    _first: int
    _opening: Context | None = None

    @property
    def origin(self) -> int:
        """Where this turn began; if it continues others, where the first of them did."""
        return self._first or self.position

    @property
    def done(self) -> bool:
        """Whether the model has answered and calls no tool: the loop ends here, also if the turn was continued."""
        if self.answer is not None:
            return True  # this request was answered before, and nothing can be added
        return is_finished(self.items)

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls of this turn that have no result yet."""
        from onrecord.session.tools import pending

        return [one.call for one in pending(self.items, self.origin)]

    def messages(
        self, format: str = "neutral", *, tokens: int = 100_000, count: Counter = None,
        system: str = "",
    ) -> Messages:  # fmt: skip
        """Exactly what to send to the model now: what the record says, earlier turns that fit, and this turn.

        `format` is neutral, openai, openai-responses, anthropic or gemini. `system` is your own text for the system.
        `count` counts the tokens of a text: a function, or the name of a model (with `onrecord[tokens]`). Past a limit
        of the budget it raises `BudgetExceeded`: the turn is aborted, and the session is paused.
        """
        self.must_be_open()
        return messages(self.session, format, tokens=tokens, count=count, system=system, turn=self)

    def reply(self, answer: object, /, *, cost: float | None = None) -> list[ToolCall]:
        """Record what the model answered, as its SDK returned it: text, tool calls and usage, in one durable step.

        Returns the tools it calls; an empty list means that the model is done. If it calls tools and a limit of the
        budget is exceeded, `BudgetExceeded` is raised before they run.
        """
        self.must_be_open()
        return reply(self, answer, cost=cost)

    def run_tools(self, /, *tools: Callable[..., Json]) -> int:
        """Run every tool call that has no result yet, and add the results; returns how many there were.

        Each is an effect: after a crash a finished call is not run again, and one that was interrupted is answered
        with "started, outcome unknown", unless its tool is safe to repeat (`session.tool`).
        """
        from onrecord.session.tools import answer, pending, run_all

        self.must_be_open()
        waiting = pending(self.items, self.origin)
        for call, ran in run_all(self.session, waiting, tools):
            answer(self.tool, call, ran)
        return len(waiting)

    def use(
        self, answer: object, /, *, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None,
        **parts: int,
    ) -> Event:  # fmt: skip
        """Record what a call of a model used, from its answer or as numbers with the model's name.

        Raises `BudgetExceeded` if a limit is exceeded now: the turn is aborted, and the session is paused.
        """
        from onrecord.log.partners import read_reply

        self.must_be_open()
        if isinstance(answer, str):
            event = self.record_usage(
                answer, input_tokens=input_tokens, output_tokens=output_tokens, cost=cost, **parts
            )
        else:
            read = read_reply(answer)
            event = self.record_usage(read.model, cost=cost, **(read.usage or {}))
        check(self)
        return event

    # What a turn is, and how it ends: see `Turn`.

    @property
    def is_open(self) -> bool:
        """Whether items can be added."""
        raise NotImplementedError

    def must_be_open(self) -> None:
        """Raise if nothing can be added."""
        raise NotImplementedError

    def must_have_room(self) -> None:
        """Raise if the turn has as many items as a turn may have."""
        raise NotImplementedError

    def tool(self, call: str, content: Json, *, error: bool = False) -> Event:
        """Add the result of a tool call."""
        raise NotImplementedError

    def record_usage(
        self, model: str, *, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None, **parts: int
    ) -> Event:
        """Record what a model call of this turn used."""
        raise NotImplementedError

    def _usage_draft(
        self, model: str, *, input_tokens: int = 0, output_tokens: int = 0, cost: float | None = None, **parts: int
    ) -> Draft:
        raise NotImplementedError

    def _took(self, event: Event, items: list[Item]) -> Event:
        raise NotImplementedError

    def _stop(self, reason: str, limit: str) -> None:
        raise NotImplementedError


def messages(
    session: Session, format: str, *, tokens: int, count: Counter, system: str, turn: Loop | None = None
) -> Messages:  # fmt: skip
    """What to send to a model now, in a format; refused if the budget has nothing left for another call."""
    from onrecord.session import moment

    counter, turn = counter_of(count), turn or session._open_turn
    said = counter(_checked_system(system)) if system else 0
    room = _room(tokens, said)
    if turn is None or not turn.is_open:
        session.budget.check()
        context = moment.context(speaker(session), tokens=room, count=counter, bare=None, dialect=format)
    else:
        check(turn, before_call=True)
        _refuse_ended(turn)
        turn.must_have_room()
        context = moment.context(
            session, tokens=room, count=counter, bare=None, kept=turn._opening, resumed=turn.resumed > 0, dialect=format
        )
        turn._opening = turn._opening or context  # the same beginning in every call: vendors cache it
    made = context.messages(format, system=system)
    made.tokens += said
    return made


def _refuse_ended(turn: Loop) -> None:
    """Refuse before the model is called what its answer would be refused for: another process ended the turn."""
    session = turn.session
    refuse_work(session.views.head)
    begun = session.agents.lane()["open"]
    if begun is None or begun["position"] != turn.position:
        raise LeaseLost(
            f"another process has taken lane {session.agent!r}, which ended this turn",
            hint="session.leave(), then session.turn(resume=True) continues it when that process has left",
        )


def _checked_system(system: str) -> str:
    """The system's text, if it is text that can be sent."""
    if not isinstance(system, str):
        raise InvalidInput(
            f"system is your text for the system, not {type(system).__name__}", hint='like system="You pay invoices."'
        )
    encode_payload(system)
    return system


def checked_tokens(tokens: int) -> int:
    """The limit, if it is one."""
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise InvalidInput(f"tokens is a whole number above 0, not {tokens!r}", hint="like tokens=100_000")
    return tokens


def _room(tokens: int, said: int) -> int:
    """How many tokens are left for the messages beside the system's text."""
    checked_tokens(tokens)
    if said >= tokens:
        raise InvalidInput(
            f"the system's text alone has {said:,} tokens, and {tokens:,} are allowed in all",
            hint="allow more with tokens=..., or shorten the text",
        )
    return tokens - said


def counter_of(count: Counter) -> Callable[[str], int]:
    """The counter itself; the one of a model, if tiktoken is installed; our estimate, if nothing is given."""
    if count is None:
        from onrecord.views.context import count_tokens

        return count_tokens
    if callable(count):
        return _checked_counter(count)
    if not isinstance(count, str):
        raise InvalidInput(
            f"count is a function or the name of a model, not {type(count).__name__}", hint='like count="gpt-5"'
        )
    try:
        import tiktoken
    except ImportError:
        raise InvalidInput(
            f"counting the tokens of {count!r} needs tiktoken, which is not installed",
            hint='pip install "onrecord[tokens]"; or pass a function that counts',
        ) from None
    try:
        encoding = tiktoken.encoding_for_model(count)
    except KeyError:
        raise InvalidInput(
            f"tiktoken does not know the model {count!r}", hint="pass a function that counts, or leave count out"
        ) from None
    except OSError as problem:
        raise InvalidInput(
            f"tiktoken could not fetch the vocabulary of {count!r}: {type(problem).__name__}",
            hint="it is downloaded once; without a network, pass a function that counts",
        ) from problem
    return lambda text: len(encoding.encode_ordinary(text))


def _checked_counter(count: Callable[[str], int]) -> Callable[[str], int]:
    """A caller's counter; it is refused if what it returns is no number, such as the tokens themselves."""

    def counted(text: str) -> int:
        found = count(text)
        if isinstance(found, bool) or not isinstance(found, int | float) or found < 0:
            raise InvalidInput(
                f"the function in count returned {found!r:.60}, which is no number of tokens",
                hint="like count=lambda text: len(tokenizer.encode(text))",
            )
        return found  # a fraction can be added and compared, too

    return counted


def reply(turn: Loop, answer: object, *, cost: float | None) -> list[ToolCall]:
    """Record a model's whole answer and what it used, in one durable step; return the tools it calls."""
    from onrecord.log.partners import read_reply

    read = read_reply(answer)
    items = to_items(read.message, read.format)
    session = turn.session
    drafts = [session._draft("item.added", {"item": item}) for item in items]
    drafts.append(turn._usage_draft(read.model, cost=cost, **(read.usage or {})))
    turn._took(session._append_drafts(*drafts, fenced=True)[-2], items)
    turn.uses += 1
    if turn.calls:
        check(turn)
    return [call for item in items for call in item.get("tool_calls") or ()]


def is_finished(items: list[Item]) -> bool:
    """Whether the last word is an answer of the model that calls no tool and is not paused."""
    last: Item = items[-1] if items else {"role": ""}
    return last["role"] == "assistant" and not last.get("tool_calls") and not is_paused(last)


class Earlier(NamedTuple):
    """What earlier turns said that a new one continues."""

    items: list[Item]
    first: int
    """Where the first of them began; 0 if there is none."""
    committed: bool = False
    """Whether the last of them was committed: then there is nothing to continue."""


def unfinished(session: Session) -> Earlier:
    """The lane's last turn, if it was aborted or its process died."""
    provisional = session._end_of_lane()["provisional"]
    if not provisional:
        return Earlier([], 0)
    last = provisional[-1]
    events = _events_of_turns(session, last["position"], last["end"])
    turns = Transcript(session.agent).fold(events).provisional
    turn = next((turn for turn in turns if turn.begun == last["position"]), None)
    if turn is None or not turn.items:
        return Earlier([], 0)
    return Earlier(turn.items, _resumes(events[0]) or turn.begun)


def named(session: Session, id: str) -> Earlier | None:
    """The turn that was begun under this id, as far as it and the turns that continued it came; None: there is none."""
    found = session.store.find(session.id, id)
    if found is None or found.kind not in ("turn.begun", "turn.recorded"):
        return None  # if it is the id of another event, the append refuses it
    if found.by != session.agent:
        raise TurnConflict(f"{id!r} is the id of a turn of agent {found.by!r}", hint="use another id")
    first = found.position
    events = _events_of_turns(session, first)
    begun = {event.position for event in events if event.kind == "turn.begun" and _resumes(event) == first} | {first}
    transcript = Transcript(session.agent).fold(events)
    turns = [*transcript.committed, *transcript.superseded, *transcript.provisional]
    last = max((turn for turn in turns if turn.begun in begun), key=lambda turn: turn.begun)
    if last.status == COMMITTED and last not in transcript.committed:
        raise TurnConflict(f"the turn {id!r} was committed and then rolled back", hint="use another id")
    if last.status == COMMITTED and last.erased:
        raise PayloadErased(f"the answer of turn {id!r}, at position {last.ended}, was erased", hint="use another id")
    return Earlier(last.items, first, last.status == COMMITTED)


def _resumes(event: Event) -> int:
    return int((event.data or {}).get("resumes") or 0)


def _events_of_turns(session: Session, first: int, upto: int | None = None) -> list[Event]:
    """What this handle's agent did in turns, from a position on."""
    kinds = (
        "turn.begun", "item.added", "turn.committed", "turn.aborted", "turn.recorded", "agent.joined", "agent.left",
    )  # fmt: skip
    records = session.store.read(session.id, after=first - 1, upto=upto, kinds=kinds)
    return list(open_records(record for record in records if record.by == session.agent))


def check(turn: Loop, *, before_call: bool = False) -> None:
    """Abort the turn and pause the session if a limit is exceeded, or if nothing is left for another call."""
    session = turn.session
    spend = session.views.spend
    if not spend.budget:
        return
    now = int(session.clock() * 1e6)
    out = _exceeded(turn, now, before_call=before_call)
    if out is not None:
        reason, limit = f"budget: {out.used:g} of {out.allowed:g} {out.limit} used", out.limit
    elif (
        before_call
        and (repeats := spend.budget.get("repeats"))
        and (found := stuck([*recent_items(session), *turn.items], int(repeats)))
    ):
        reason, limit = f"no progress: {found}", "repeats"
    else:
        return
    spent = _used(turn, now)
    turn._stop(reason, limit)
    raise BudgetExceeded(
        f"the turn is aborted and session {session.name!r} is paused: {reason}",
        hint=f"{raised(session, spent, limit)} raises it; then session.resume() and session.turn(resume=True)",
        limit=limit,
        spent=spent,
        name=session.name,
    )


def _used(turn: Loop, now: int) -> dict[str, float]:
    """What is used of each limit: of the steps, those whose model call was made."""
    spend = turn.session.views.spend
    used = spend.spent(now)
    used["steps"] += max(turn.uses, turn.spoken) - max(1, turn.uses)
    return used


def _exceeded(turn: Loop, now: int, *, before_call: bool) -> Exhausted | None:
    budget, used = turn.session.views.spend.budget, _used(turn, now)
    for limit in LIMITS:
        allowed = budget.get(limit)
        if isinstance(allowed, int | float) and limit in used:
            amount = used[limit]
            if amount > allowed or (before_call and amount >= allowed):
                return Exhausted(limit, amount, allowed)
    return None
