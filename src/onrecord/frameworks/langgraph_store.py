"""LangGraph: its long-term memory, a `BaseStore`, on the durable tier of a session.

    graph = builder.compile(checkpointer=OnrecordSaver(store), store=OnrecordStore(store))

Every value is a fact (`scratch.set`) of one session, so compaction and retention of transcripts do not touch it, and
what was overwritten or deleted stays in the log. A batch is one durable step. `search` filters values and, given a
`query`, ranks them by the words that they share with it: there is no vector index.
"""

from __future__ import annotations

import json
import operator
import re
import time
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from onrecord.aio import settled
from onrecord.errors import InvalidInput
from onrecord.frameworks.conversation import Conversation, check_type
from onrecord.frameworks.langgraph import called
from onrecord.frameworks.langgraph_values import TAG, Pool, Values
from onrecord.frameworks.requiring import required
from onrecord.frameworks.speaking import speaking

with required("langgraph", "langgraph langchain_core", "1.2"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        PutOp,
        SearchItem,
        SearchOp,
        validate_op_namespace,
    )

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from langgraph.store.base import MatchCondition, Op, Result, TTLConfig

    from onrecord.log.events import Draft, Event
    from onrecord.session.session_store import SessionStore

FRAMEWORK = "langgraph-store"
KIND = "scratch.set"
MINUTE = 60_000_000
"""In microseconds."""
_WORD = re.compile(r"\w+")
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "$eq": operator.eq, "$ne": operator.ne,
    "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le,
}  # fmt: skip
_ORDERING = ("$gt", "$gte", "$lt", "$lte")
_ORDERED = ((int, float, Decimal), (str,), (datetime,), (date,), (clock_time,), (timedelta,))
"""What has an order: values of one line are compared with one another; the subclass comes before its class."""
_TAGGED = ("date", "datetime", "decimal", "delta", "float", "time")
"""How such values are tagged that JSON has not."""

_KEY = (str, int)
_NUMBER = (int, float)

Place = tuple[tuple[str, ...], str | int]
"""Namespace and key of a value."""


class Fact(NamedTuple):
    """One value of the store."""

    value: dict[str, Any]
    created: int
    updated: int
    ttl: float | None
    """Minutes after which it expires."""
    expires: float | None


class Memory(Conversation):
    """All values of a store, as a fold of its session."""

    KINDS: ClassVar[tuple[str, ...]] = (KIND,)
    FIELDS = ("key", "read", "ttl", "value")

    def _forget(self) -> None:
        super()._forget()
        self.facts: dict[Place, Fact] = {}

    def _apply(self, event: Event) -> None:
        data: Any = event.data if isinstance(event.data, dict) else {}
        if data.get("vendor") != FRAMEWORK:
            return
        *namespace, key = json.loads(data["key"])
        if not isinstance(key, _KEY):
            return  # before keys were checked, a tuple was kept as a list, and could never be read again
        place: Place = (tuple(namespace), key)
        before = self.facts.get(place)
        if data.get("value") is None:
            self.facts.pop(place, None)
            return
        ttl = data.get("ttl")
        if not isinstance(ttl, _NUMBER):
            ttl = None  # as for keys
        self.facts[place] = Fact(
            data["value"],
            before.created if before else event.at,
            before.updated if before and data.get("read") else event.at,
            ttl,
            None if ttl is None else event.at + ttl * MINUTE,
        )


class OnrecordStore(BaseStore):
    """The long-term memory of graphs, in one session of ours; synchronous and asynchronous.

    `types` names classes that values may contain, as for `OnrecordSaver`. `ttl` is LangGraph's own setting: values
    expire by it (a read makes them last longer if it says `refresh_on_read`), and `sweep_ttl` retracts expired ones.
    """

    supports_ttl = True

    @speaking(ValueError)
    def __init__(
        self, store: SessionStore, *, name: str = "langgraph-store", types: Collection[type] = (),
        ttl: TTLConfig | None = None,
    ) -> None:  # fmt: skip
        check_type(ttl or {}, dict, "a ttl that is LangGraph's TTLConfig, a dict")
        self.ttl_config = ttl
        self._refreshes = bool(ttl and ttl.get("refresh_on_read"))
        self._values = Values(types)
        self._memory = Memory(store, FRAMEWORK, name)

    # The interface of LangGraph

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer the reads as of now, then write all values in one durable step."""
        return called(partial(self._batch, list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same on a thread, so that the event loop is never blocked."""
        return await settled(partial(self.batch, list(ops)))

    def sweep_ttl(self) -> int:
        """Retract the values that have expired, and return how many there were."""
        return called(self._sweep)

    # How it is done

    def _batch(self, ops: list[Op]) -> list[Result]:
        for op in ops:
            if not isinstance(op, GetOp | SearchOp | PutOp | ListNamespacesOp):
                raise InvalidInput(f"{type(op).__name__} is no operation of a store")
            _check(op)
        memory = self._memory
        with memory.lock:
            memory.catch_up()
            read: dict[Place, Fact] = {}
            results = [self._answer(op, read) for op in ops]
            puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
            written = [self._written(place, op) for place, op in puts.items()]
            self._write([one for one in written if one is not None])
            self._write_over({place: fact for place, fact in read.items() if place not in puts}, _refreshed)
            return results

    def _write(self, payloads: list[dict[str, Any]]) -> None:
        if payloads:
            session = self._memory.open()
            session.log.append(*(self._memory.draft(KIND, one) for one in payloads))
            self._memory.catch_up()

    def _write_over(self, read: dict[Place, Fact], payload: Callable[[Place, Fact], dict[str, Any]]) -> int:
        """Write over the values that were read, but for those that someone has put again since; how many there were."""
        memory = self._memory

        def make() -> list[Draft]:
            same = [(place, fact) for place, fact in read.items() if memory.facts.get(place) is fact]
            return [memory.draft(KIND, payload(place, fact)) for place, fact in same]

        return len(memory.write(make)) if read else 0

    def _written(self, place: Place, op: PutOp) -> dict[str, Any] | None:
        if op.value is None:
            return _payload(place, None) if place in self._memory.facts else None
        if not isinstance(op.value, dict):
            raise InvalidInput(f"a value of the store must be a dict, not {type(op.value).__name__}")
        value = self._values.encode(op.value, None)
        return _payload(place, value) | ({} if op.ttl is None else {"ttl": op.ttl})

    def _answer(self, op: Op, read: dict[Place, Fact]) -> Result:
        if isinstance(op, GetOp):
            place = (op.namespace, op.key)
            fact = self._alive().get(place)
            if fact is None:
                return None
            if op.refresh_ttl and self._refreshes and fact.ttl is not None:
                read[place] = fact
            return Item(**self._shown(place, fact))
        if isinstance(op, SearchOp):
            return self._found(op, read)
        return self._namespaces(op) if isinstance(op, ListNamespacesOp) else None

    def _alive(self) -> dict[Place, Fact]:
        now = time.time() * 1e6
        facts = self._memory.facts
        return {place: fact for place, fact in facts.items() if fact.expires is None or fact.expires > now}

    def _shown(self, place: Place, fact: Fact) -> dict[str, Any]:
        return {
            "namespace": place[0], "key": place[1], "value": self._values.decode(fact.value, _NOTHING),
            "created_at": _moment(fact.created), "updated_at": _moment(fact.updated),
        }  # fmt: skip

    def _found(self, op: SearchOp, read: dict[Place, Fact]) -> list[SearchItem]:
        prefix = tuple(op.namespace_prefix)
        found: list[tuple[float | None, Place, Fact]] = []
        wanted = _words(op.query) if op.query else None
        for place, fact in self._alive().items():
            if place[0][: len(prefix)] != prefix or not _fits(fact.value, op.filter or {}):
                continue
            found.append((_score(wanted, fact.value) if wanted else None, place, fact))
        if wanted:
            found.sort(key=lambda one: -(one[0] or 0.0))
        page = found[op.offset : op.offset + op.limit]
        if op.refresh_ttl and self._refreshes:
            read.update({place: fact for _score_of, place, fact in page if fact.ttl is not None})
        return [SearchItem(**self._shown(place, fact), score=score) for score, place, fact in page]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        found = {namespace for namespace, _key in self._alive()}
        for condition in op.match_conditions or ():
            found = {one for one in found if _matches(one, condition)}
        if op.max_depth is not None:
            found = {one[: op.max_depth] for one in found}
        return sorted(found)[op.offset : op.offset + op.limit]

    def _sweep(self) -> int:
        memory = self._memory
        with memory.lock:
            memory.catch_up()
            alive = self._alive()
            expired = {place: fact for place, fact in memory.facts.items() if place not in alive}
            return self._write_over(expired, lambda place, _fact: _payload(place, None))


_NOTHING = Pool()
_PLAIN = Values(())


def _check(op: Op) -> None:
    """Refuse names and times that would not come back as they are."""
    if isinstance(op, GetOp | PutOp):
        check_type(op.namespace, tuple, "a namespace that is a tuple of texts")
        check_type(op.key, _KEY, "a key that is text")
    if isinstance(op, SearchOp) and op.filter:
        check_type(op.filter, dict, "a filter that is a dict")
        for wanted in op.filter.values():
            _check_wanted(wanted)
    validate_op_namespace(op)
    if isinstance(op, PutOp) and op.ttl is not None:
        check_type(op.ttl, _NUMBER, "a ttl that is a number of minutes")


def _check_wanted(wanted: Any) -> None:
    """Refuse operators that there are not, and operands that nothing is greater or less than."""
    if not isinstance(wanted, dict):
        return
    has_operators = _has_operators(wanted)
    for name, one in wanted.items():
        if not has_operators:
            _check_wanted(one)
        elif name not in _COMPARED:
            raise InvalidInput(f"a filter cannot use {name!r:.40}", hint=f"there are {', '.join(_COMPARED)}")
        elif name in _ORDERING and _line_of(one) is None:
            raise InvalidInput(
                f"a filter cannot compare by {name} with {type(one).__name__}",
                hint="compare with a number, a text or a time",
            )


def _payload(place: Place, value: Any) -> dict[str, Any]:
    return {"vendor": FRAMEWORK, "key": json.dumps([*place[0], place[1]], ensure_ascii=False), "value": value}


def _refreshed(place: Place, fact: Fact) -> dict[str, Any]:
    """A value that was read, and expires later for it."""
    return _payload(place, fact.value) | {"ttl": fact.ttl, "read": True}


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def _words(value: Any) -> set[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return set(_WORD.findall(text.casefold()))


def _score(wanted: set[str], value: Any) -> float:
    """The part of the wanted words that a value has."""
    return len(wanted & _words(value)) / len(wanted)


def _fits(value: Any, wanted: dict[str, Any]) -> bool:
    return all(_equals(_at(value, name), one) for name, one in wanted.items())


def _at(value: Any, name: str) -> Any:
    """A field; of fields inside of fields, the names are joined by dots."""
    if not isinstance(value, dict) or name in value:
        return value.get(name) if isinstance(value, dict) else None
    first, _, rest = name.partition(".")
    return _at(value.get(first), rest) if rest else None


def _equals(value: Any, wanted: Any) -> bool:
    """Whether a value is what a filter wants: equal, in every part that the filter names; or by an operator."""
    if isinstance(wanted, dict):
        if _has_operators(wanted):
            return all(_compared(name, _plain(value), one) for name, one in wanted.items())
        return isinstance(value, dict) and all(_equals(value.get(name), one) for name, one in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_equals(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(_plain(value) == wanted)


def _has_operators(wanted: dict[Any, Any]) -> bool:
    return any(isinstance(name, str) and name.startswith("$") for name in wanted)


def _plain(value: Any) -> Any:
    """A number or a time as it was put, if it is kept as something else."""
    return _PLAIN.decode(value, _NOTHING) if isinstance(value, dict) and value.get(TAG) in _TAGGED else value


def _compared(name: str, value: Any, wanted: Any) -> bool:
    if name in _ORDERING and _line_of(value) != _line_of(wanted):
        return False  # one of them is a text, for instance, and the other one a number
    try:
        return bool(_COMPARED[name](value, wanted))
    except (TypeError, ArithmeticError):  # a time with and one without a zone; what is not a number
        return False


def _line_of(value: Any) -> int | None:
    """Among which values this one has an order; None if it has none."""
    return next((number for number, types in enumerate(_ORDERED) if isinstance(value, types)), None)


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", one) for one, wanted in zip(part, path, strict=True))
