"""Tools: functions whose calls are effects. A call is on record before it runs and its result after.

A call has an idempotency key, so it runs once, ever: in the loop the key is the position of the model's call in the
log; elsewhere it is the name and the arguments, default values included. A call that was interrupted is unknown, and is
run again only if its tool is safe to repeat.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from functools import partial, update_wrapper
from hashlib import sha256
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

from onrecord.errors import EffectUnknown, InvalidInput, OnrecordError, PayloadErased, TooLarge, ToolTimedOut
from onrecord.log.codec import encode_payload
from onrecord.session import effects
from onrecord.session.chapter import told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onrecord.log.item_values import Item
    from onrecord.session.handle import Session
    from onrecord.views.values import Json, ToolCall

TIMEOUT_LIMIT = 7 * 86_400.0
"""The longest timeout of a tool, in seconds."""
_NO_DEFAULT = object()


P = ParamSpec("P")
R = TypeVar("R")


class AnyTool(Generic[P, R]):
    """A function that runs as an effect of a session, called or awaited."""

    __name__: str

    def __init__(
        self, session: Session, fn: Callable[P, R], *, name: str = "", safe_to_repeat: bool = False,
        timeout: float | None = None,
    ) -> None:  # fmt: skip
        _check_function(fn)
        if not isinstance(name, str):
            raise InvalidInput(f"a tool's name is text, not {type(name).__name__}")
        if not name.isprintable():
            raise InvalidInput(f"a tool's name has only printable characters, not {name!r:.80}")
        if not isinstance(safe_to_repeat, bool):
            raise InvalidInput(f"safe_to_repeat is True or False, not {safe_to_repeat!r:.60}")
        if timeout is not None and not _is_timeout(timeout):
            raise InvalidInput(
                f"a timeout is a number of seconds above 0, not {timeout!r}", hint=f"at most {TIMEOUT_LIMIT:,.0f}"
            )
        update_wrapper(self, fn)
        self.session = session
        self.fn = fn
        self.name = name or getattr(fn, "__name__", "tool")
        if not name:
            _refuse_namesake(session, self.name, fn)
        self.safe_to_repeat = safe_to_repeat
        self.timeout = timeout

    def __repr__(self) -> str:
        return f"<Tool {self.name}{', safe to repeat' if self.safe_to_repeat else ''}>"

    def __call__(self, /, *args: P.args, **named: P.kwargs) -> object:
        """Call it like the function."""
        raise NotImplementedError

    def bound(self, /, *args: Any, **named: Any) -> dict[str, Json]:
        """The arguments by name; `TypeError` if the function does not take them."""
        return dict(inspect.signature(self.fn).bind(*args, **named).arguments)

    def key(self, arguments: dict[str, Json]) -> str:
        """The idempotency key of a call outside of the loop: of its arguments, with the values of defaults.

        Older records have keys without default values. A call that is on record under such a key keeps it.
        """
        defaults = self._defaults()
        spelled = self._key(defaults | arguments)
        bare = {name: value for name, value in arguments.items() if not _same(value, defaults.get(name, _NO_DEFAULT))}
        for known in dict.fromkeys((self._key(arguments), self._key(bare))):
            if known != spelled and effects.tries(self.session, known):
                return known
        return spelled

    def _key(self, arguments: dict[str, Json]) -> str:
        return f"tool/{self.name[:64]}/{sha256(encode_payload(arguments)).hexdigest()[:32]}"

    def _defaults(self) -> dict[str, Json]:
        """The default values that can be recorded; any other one cannot be an argument of a call on record either."""
        found = {name: one.default for name, one in inspect.signature(self.fn).parameters.items()}
        return {
            name: value for name, value in found.items() if value is not inspect.Parameter.empty and _is_json(value)
        }


def _refuse_namesake(session: Session, name: str, fn: Callable[..., Any]) -> None:
    """Refuse the same method of another object: calls are known by the name of their tool, so it would not run."""
    owner = getattr(fn, "__self__", None)
    if owner is None or inspect.ismodule(owner) or inspect.isclass(owner):
        return
    known = session._owners.setdefault(name, owner)
    if known is not owner:
        raise InvalidInput(
            f"another object's method {name!r} is a tool of this session: each would return what the other one did",
            hint="give each a name of its own: session.tool(function, name=...)",
        )


def _check_function(fn: object) -> None:
    """Refuse what cannot be called once, with arguments that have names, for one result."""
    if not callable(fn):
        hint = "pass them one by one: turn.run_tools(*tools)" if isinstance(fn, list | tuple) else ""
        raise InvalidInput(f"a tool is a function, not {type(fn).__name__}", hint=hint)
    for one in (fn, getattr(fn, "__call__", None)):  # noqa: B004  # its `__call__` itself
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            raise InvalidInput(
                f"{getattr(fn, '__name__', 'the tool')} is a generator, which does not run when it is called",
                hint="return a list instead of yielding",
            )
    try:
        inspect.signature(fn)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"Python does not know the arguments of {fn!r:.80}", hint="wrap it in a function with named arguments"
        ) from None


def is_awaited(fn: Callable[..., Any]) -> bool:
    """Whether a function, or an object that is called like one, has to be awaited."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004  # its `__call__` itself


def _is_timeout(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= TIMEOUT_LIMIT


def _is_json(value: object) -> bool:
    try:
        encode_payload(value)
    except InvalidInput:
        return False
    return True


def _same(value: Json, default: object) -> bool:
    return default is not _NO_DEFAULT and encode_payload(value) == encode_payload(default)


class Tool(AnyTool[P, R]):
    """A function that runs as an effect of a session. Call it like the function."""

    def __init__(
        self, session: Session, fn: Callable[P, R], *, name: str = "", safe_to_repeat: bool = False,
        timeout: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(session, fn, name=name, safe_to_repeat=safe_to_repeat, timeout=timeout)
        _refuse_awaited(self)

    def __call__(self, /, *args: P.args, **named: P.kwargs) -> R:
        """Run it once, ever, with these arguments; the same call again returns the recorded result."""
        arguments = self.bound(*args, **named)
        return self.run(self.key(arguments), arguments)

    def run(self, key: str, arguments: dict[str, Json]) -> R:
        """Run it once, ever, under a key of your own."""
        args, named = _spread(self.fn, arguments)
        call: partial[R] = partial(_called, self.fn, *args, **named)
        if self.timeout is not None:
            call = partial(within, self.session, key, self.name, call, self.timeout)
        update_wrapper(call, self.fn)
        call.__name__ = self.name  # type: ignore[attr-defined]  # a partial takes attributes
        made: R = self.session.once(key, call, rerun_unknown=self.safe_to_repeat, arguments=arguments)
        return made


def _called(fn: Callable[P, R], /, *args: P.args, **named: P.kwargs) -> R:
    """What a function returns; it failed if that is still to run, for no one would run it."""
    made = fn(*args, **named)
    if isinstance(made, Coroutine | Generator):
        made.close()
        raise InvalidInput(
            f"{getattr(fn, '__name__', 'the tool')} returned a {type(made).__name__}, which did not run",
            hint="return a result; coroutines are awaited by the session of onrecord.aio",
        )
    return made


def _spread(fn: Callable[..., Any], arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by name as they are passed: positional ones and the rest in their order."""
    bound = inspect.BoundArguments(inspect.signature(fn), arguments)
    return bound.args, bound.kwargs


def tool(
    session: Session, fn: Callable[..., Any] | None, *, name: str, safe_to_repeat: bool, timeout: float | None
) -> Callable[..., Json]:
    """A tool, or the decorator that makes one."""
    make = partial(Tool, session, name=name, safe_to_repeat=safe_to_repeat, timeout=timeout)
    return make if fn is None else make(fn)


def within(session: Session, key: str, name: str, call: Callable[[], Json], seconds: float) -> Json:
    """What a function returns, if it returns in time. If it returns later, the ledger still learns of it."""
    lock, outcome, late = Lock(), [], []  # type: ignore[var-annotated]  # two short lists that threads share

    def work() -> None:
        made, failure = None, None
        try:
            made = call()
        except BaseException as problem:  # noqa: BLE001  # it is raised, or recorded, on the other side
            failure = problem
        with lock:
            outcome.append((made, failure))
            if not late:
                return
        _settle_late(session, key, made, failure)

    thread = Thread(target=copy_context().run, args=(work,), name=f"onrecord tool {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    with lock:
        if not outcome:
            late.append(True)
            raise ToolTimedOut(f"{name} did not return within {seconds:g} s; it may still finish", key=key)
    made, failure = outcome[0]
    if failure is not None:
        raise failure
    return made


def _settle_late(session: Session, key: str, made: Json, failure: BaseException | None) -> None:
    try:
        if failure is None:
            effects.conclude(session, key, made)
        else:
            effects.settle(session, key, error=told(failure))
    except OnrecordError:
        return  # the effect stays unknown, which is true


class Pending(NamedTuple):
    """A tool call of the open turn that has no result yet."""

    call: ToolCall
    key: str
    """Its idempotency key: the same in every process that continues this turn."""


def pending(items: list[Item], origin: int) -> list[Pending]:
    """The tool calls of a turn that have no result yet, in their order."""
    waiting: dict[str, Pending] = {}
    for place, item in enumerate(items):
        if item["role"] == "tool":
            waiting.pop(item["call"], None)
        for number, call in enumerate(item.get("tool_calls") or (), 1):
            key = f"call/{origin}.{place}.{number}/{_short(call['name'])}"
            waiting[call["id"]] = Pending(call, key)
    return list(waiting.values())


def _short(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:64]


class Ran(NamedTuple):
    """What the model reads about a call."""

    content: str
    error: bool


def by_name(session: Session, tools: Iterable[Any], make: Callable[..., Any] = Tool) -> dict[str, Any]:
    """Tools by their names; a plain function becomes a tool that is not safe to repeat."""
    known: dict[str, Any] = {}
    for one in tools:
        made = one if hasattr(one, "safe_to_repeat") else make(session, one, name=getattr(one, "__name__", "tool"))
        if made.name in known and made is not known[made.name]:
            raise InvalidInput(
                f"two tools have the name {made.name!r}", hint="give one another name: session.tool(function, name=...)"
            )
        known[made.name] = made
    return known


def _refuse_awaited(tool: AnyTool[..., Any]) -> None:
    """Refuse a coroutine function where no one would await it."""
    if is_awaited(tool.fn):
        raise InvalidInput(
            f"{tool.name} is a coroutine function, which this session does not await",
            hint="use the session of onrecord.aio, `await onrecord.aio.over(store).open(...)`; or a plain function",
        )


def run_all(session: Session, waiting: Iterable[Pending], tools: Iterable[Any]) -> Iterator[tuple[str, Ran]]:
    """Run calls one after the other: the id of each, and what the model reads about it."""
    known = by_name(session, tools)
    for tool in known.values():
        _refuse_awaited(tool)
    for one in waiting:
        yield one.call["id"], _run(session, one, known)


def _run(session: Session, one: Pending, known: dict[str, Any]) -> Ran:
    found = chosen(one.call, known)
    if isinstance(found, Ran):
        return found
    function, arguments = found
    failed: list[BaseException] = []

    def guarded(*args: Any, **named: Any) -> Json:
        try:
            return _called(function.fn, *args, **named)
        except Exception as problem:
            failed.append(problem)
            raise

    update_wrapper(guarded, function.fn)
    # The key is a position in the log of this session, also if the tool was made for another one.
    safe = Tool(session, guarded, name=function.name, safe_to_repeat=function.safe_to_repeat, timeout=function.timeout)
    try:
        return Ran(as_text(safe.run(one.key, arguments)), error=False)
    except Exception as problem:  # noqa: BLE001  # what is not for the model is raised again there
        return said_of(problem, one.call["name"], failed)


def chosen(call: ToolCall, known: dict[str, Any]) -> Ran | tuple[Any, dict[str, Any]]:
    """The tool and its arguments; or what the model reads if there is no such tool or the arguments do not fit."""
    found = known.get(call["name"])
    if found is None:
        return Ran(f"there is no tool named {call['name']!r}; the tools are: {', '.join(known) or 'none'}", error=True)
    arguments = call.get("arguments") or {}
    if not isinstance(arguments, dict):
        return Ran(f"the arguments of {found.name} are not a JSON object: {arguments!r:.200}", error=True)
    try:
        return found, found.bound(**arguments)
    except TypeError as problem:
        return Ran(f"wrong arguments for {found.name}: {problem}", error=True)


def said_of(problem: Exception, name: str, failed: list[BaseException]) -> Ran:
    """What the model reads about a call that has no result. Our own errors are not for the model: they are raised."""
    if isinstance(problem, ToolTimedOut):
        return Ran(f"[started, outcome unknown: {problem.message}. {_CHECK}]", error=True)
    if isinstance(problem, EffectUnknown):
        why = f"the process ended while {name} ran; it may or may not have happened"
        if problem.details.get("running"):
            why = f"{name} may still be running"
        return Ran(f"[started, outcome unknown: {why}. {_CHECK}]", error=True)
    if isinstance(problem, PayloadErased):
        return Ran(f"[{name} ran; its result was erased]", error=True)
    if problem in failed:
        return Ran(told(problem), error=True)
    if isinstance(problem, TooLarge):
        return Ran(f"[{name} ran; what it returned is too large to be recorded]", error=True)
    if isinstance(problem, InvalidInput):
        return Ran(f"[{name} ran; {problem.message}]", error=True)
    raise problem


def answer(add: Callable[..., object], call: str, ran: Ran) -> None:
    """Add a result with the verb of a turn. As the text of a message it may be larger than on record: too large."""
    try:
        add(call, ran.content, error=ran.error)
    except TooLarge:
        size = len(ran.content.encode())
        add(call, f"[it ran; what it returned is too large for a message: {size:,} bytes]", error=True)


_CHECK = "Check before you call it again"


def as_text(result: Json) -> str:
    """A result as the model reads it."""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
