"""Conversations from the SQLite files that frameworks keep themselves: LangGraph, ADK and openai-agents.

    for one in take_in(store, "langgraph", "sqlite:///checkpoints.db"): ...

Nothing is imported twice: what is on record already is left out, so an import may be repeated, also while the framework
still writes to its file. Events and items that are new come behind those on record; new checkpoints of a thread that
our runs have continued go to a fork of it. The file is opened for reading only. Values of LangGraph are read as data: a
class that is named in stored bytes is neither imported nor called, and its value arrives as its plain fields.

A conversation that cannot be taken is left out and named, and the others are imported. So is one whose id another
conversation has on record: they are not mixed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, unquote

from onrecord.errors import Conflict, InvalidInput, LogMoved, NameTaken, OnrecordError
from onrecord.frameworks.conversation import FORKS_LIMIT, Conversation, row
from onrecord.frameworks.langgraph_arguments import FILE_KEY, ONCE_KEY
from onrecord.frameworks.openai_items import FRAMEWORK, neutral
from onrecord.frameworks.requiring import required
from onrecord.frameworks.writing import as_line
from onrecord.log.readings import is_unicode

if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.frameworks.google_adk import OnrecordSessionService
    from onrecord.frameworks.langgraph import OnrecordSaver
    from onrecord.frameworks.langgraph_threads import Thread
    from onrecord.log.events import Draft, Event
    from onrecord.session.session_store import SessionStore

SCHEME = "sqlite:///"
BUSY_SECONDS = 5.0
"""How long to wait for the framework that writes to its file."""
TABLES = {
    "langgraph": ("checkpoints", "writes"),
    "google-adk": ("sessions", "events"),
    "openai-agents": ("agent_sessions", "agent_messages"),
}
"""The frameworks whose files can be imported, and the tables by which a file is recognised."""
ROW = "sqlite/"
"""How the keys of items begin that come from a file of openai-agents; the number of the row follows."""
NAMED = 3
"""How many conversations that were left out one error names."""
UNITS = {"langgraph": "checkpoint", "google-adk": "event", "openai-agents": "item"}


class Imported(NamedTuple):
    """What was imported of one conversation."""

    conversation: str
    """Its id in the framework."""
    session: str
    """The name of our session."""
    new: int
    """How many checkpoints, events or items were new."""
    there: int
    """How many were on record already."""
    fork_of: str | None = None
    """The session that the conversation was imported into before, if our own runs continued it there: what is new of
    the file is in a fork of it."""
    gone: int = 0
    """How many items on record are no longer in the file of openai-agents; they stay on record."""
    why_not: str | None = None
    """Why the conversation, or the rest of it, was left out."""


Running = Iterator[tuple[Any, Iterator[Imported]]]
"""The conversations of a file: the id of each, and what is done of it until now, again with every unit."""


def take_in(
    store: SessionStore, framework: str, url: str, *, progress: Callable[[int, int], None] | None = None
) -> Iterator[Imported]:
    """Import every conversation of a framework's own file; one result for each.

    At the end, an error names the conversations that were left out, if there are any.
    """
    if framework not in TABLES:
        raise InvalidInput(
            f"conversations of {framework!r:.40} cannot be imported", hint=f"use one of {', '.join(TABLES)}"
        )
    path = Path(unquote(url.removeprefix(SCHEME))).expanduser()
    if "://" in str(url) and not url.startswith(SCHEME):
        raise InvalidInput(f"{url!r:.80} is no SQLite file", hint=f"use {SCHEME}FILE, or the name of the file")
    if path.is_dir():
        raise InvalidInput(f"{path} is a directory, not a SQLite file", hint=f"name the file of {framework} in it")
    if not path.is_file():
        raise InvalidInput(f"the file {path} does not exist")
    with _opened(path) as database:
        tables = {name for (name,) in database.execute(_statements()["tables"])}
        if missing := [name for name in TABLES[framework] if name not in tables]:
            raise InvalidInput(
                f"{path} is not a store of {framework}: it has no table {missing[0]}", hint="name another file"
            )
        count = {"langgraph": "langgraph_count", "google-adk": "adk_count", "openai-agents": "openai_count"}
        (total,) = database.execute(_statements()[count[framework]]).fetchone()
        tick = _Ticking(total, progress)
        reading = {"langgraph": _langgraph, "google-adk": _google_adk, "openai-agents": _openai_agents}[framework]
        problems: dict[str, OnrecordError] = {}
        for id_, running in reading(store, database, tick):
            id_shown = str(id_).encode("utf-8", "backslashreplace").decode()
            done = Imported(id_shown, "", 0, 0)
            try:
                _check_text(id_)
                for done in running:  # noqa: B007  # the last one counts
                    pass
            except (ValueError, InvalidInput, Conflict) as problem:
                said = _said_of(problem, f"{path}", id_shown, UNITS[framework])
                problems[id_shown] = said
                done = done._replace(why_not=said.message + (f"; {said.hint}" if said.hint else ""))
            yield done
        tick.end()
        if problems:
            raise _summed(problems)


def _said_of(problem: Exception, path: str, id_: str, unit: str) -> OnrecordError:
    """Why a conversation was left out, as an error of ours."""
    if isinstance(problem, OnrecordError):
        return problem
    return InvalidInput(
        f"conversation {id_!r:.60} of {path} has {'an' if unit[0] in 'ei' else 'a'} {unit} that cannot be read: "
        f"{str(problem).partition(chr(10))[0]:.200}",
        hint="what was imported before it is on record; mend or delete it in the file, then import again",
    )


def _summed(problems: dict[str, OnrecordError]) -> OnrecordError:
    """One error for all conversations that were left out."""
    first = next(iter(problems.values()))
    if len(problems) == 1:
        return first
    names = ", ".join(f"{name!r:.60}" for name in list(problems)[:NAMED])
    return InvalidInput(
        f"{len(problems)} conversations were left out ({names}{', ...' if len(problems) > NAMED else ''}): "
        f"the first one, because {first.message}",
        hint="`why_not` of each result says why; what was imported is on record, and may be imported again",
    )


def _check_text(value: Any) -> None:
    """Refuse text of a file that is not UTF-8."""
    if isinstance(value, str) and not is_unicode(value):
        raise ValueError("its text is not UTF-8")


class _Ticking:
    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def __call__(self) -> None:
        self._done += 1
        if self._progress:
            self._progress(self._done, self._total)

    def end(self) -> None:
        """Be done, also if something was left out."""
        if self._progress and self._done < self._total:
            self._progress(self._total, self._total)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        place = f"file:{quote(str(path.resolve()))}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, timeout=BUSY_SECONDS)) as database:
            database.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            yield database
    except sqlite3.Error as problem:
        raise InvalidInput(f"{path} cannot be read as a SQLite file: {problem}") from None


@cache
def _statements() -> dict[str, str]:
    text = (Path(__file__).parent / "sql" / "own_stores.sql").read_text(encoding="utf-8")
    found = (block.partition("\n") for block in text.split("\n\n-- ")[1:])
    return {head.partition(":")[0]: body for head, _, body in found}


# LangGraph


def _langgraph(store: SessionStore, database: sqlite3.Connection, tick: Callable[[], None]) -> Running:
    from onrecord.frameworks.langgraph import OnrecordSaver

    with required("langgraph", "langgraph langchain_core", "1.2"):
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    saver = OnrecordSaver(store)
    read = JsonPlusSerializer(allowed_msgpack_modules=None)  # strict: no class is looked up by a stored name
    for (thread_id,) in database.execute(_statements()["langgraph_threads"]).fetchall():
        yield thread_id, _langgraph_thread(saver, database, read, thread_id, tick)


def _langgraph_thread(
    saver: OnrecordSaver, database: sqlite3.Connection, read: Any, thread_id: str, tick: Callable[[], None]
) -> Iterator[Imported]:
    """Import one thread."""
    into = _Into(saver, thread_id, database.execute(_statements()["langgraph_ids"], (thread_id,)).fetchall())
    cursor = database.execute(_statements()["langgraph_checkpoints"], (thread_id,))
    cursor.arraysize = 1
    for rowid, ns, id_, parent, kind, blob, about in cursor:
        is_new = (ns, id_) not in into.thread.nodes
        if is_new:
            if kind != "msgpack":
                raise InvalidInput(
                    f"checkpoint {rowid} of thread {thread_id!r:.60} is kept as {kind!r:.20}",
                    hint="save the thread once with a newer LangGraph, then import it",
                )
            checkpoint = _with_numbers(_dict(_loaded(read, kind, blob)))
            is_new = into.put((ns, id_), parent, checkpoint, _dict(_json(about or b"{}")))
        _langgraph_writes(database, into, read, (thread_id, ns, id_))
        into.count(is_new)
        tick()
        yield into.imported()


class _Into:
    """Where a thread of a file is imported: into its session, or into a fork of it if that was continued here.

    A checkpoint that is put last is the newest of its thread. So one that does not continue the newest on record would
    hide what our runs have added.
    """

    def __init__(self, saver: OnrecordSaver, thread_id: str, rows: list[tuple[str, str, str | None]]) -> None:
        self.thread_id = thread_id
        self._saver = saver
        self._own = saver.thread(thread_id)
        self._own.catch_up()
        self._new, self._there = 0, 0
        _refuse_other(saver.store, self.imported(self._own), self._own.framework, known=bool(self._own.nodes))
        self._file = {one for ns, id_, parent in rows if not ns for one in (id_, parent) if one}
        known = [self._own, *self._forks()]
        following = next((one for one in known if one.head("") in {None, *self._file}), None)
        self.thread = following or known[-1]
        if following is None and any((ns, id_) not in self.thread.nodes for ns, id_, _parent in rows):
            self.thread = self._fork()

    def _forks(self) -> Iterator[Thread]:
        """The forks that were made before, by earlier imports."""
        for name in map(self._name, range(1, FORKS_LIMIT)):
            if self._saver.store.named(name) is None:
                return
            thread = self._saver.thread(name)
            thread.catch_up()
            if thread.nodes:
                yield thread

    def _name(self, number: int) -> str:
        return f"{self._own.name[: 64 - 12]}-import-{number}"

    def _fork(self) -> Thread:
        """A fork of the thread as of the last checkpoint that the file has as well."""
        base = self.thread
        base.catch_up()
        common = (node.position for (ns, id_), node in base.nodes.items() if not ns and id_ in self._file)
        at = max(common, default=1)
        for name in map(self._name, range(1, FORKS_LIMIT)):
            if self._saver.store.named(name) is None:
                with suppress(NameTaken):  # another import was quicker
                    made = base.session.fork(name, at, agent=base.agent)
                    break
        else:
            raise InvalidInput(f"session {self._own.name!r} has {FORKS_LIMIT:,} forks", hint="rename one of them")
        vendor = {"vendor": base.framework}
        made.log.record("payload.kept", vendor | {"thread": name})
        base.write(lambda: [base.draft("payload.kept", vendor | {"copied_to": name})])
        fork = self._saver.thread(name)
        fork.catch_up()
        return fork

    def put(self, key: tuple[str, str], parent: str | None, checkpoint: dict[str, Any], about: dict[str, Any]) -> bool:
        """Keep a checkpoint; False if it is on record."""
        for is_last in (False, True):
            conf = {"thread_id": self.thread.id, "checkpoint_ns": key[0], "checkpoint_id": parent}
            config: Any = {"configurable": conf | {ONCE_KEY: key[1], FILE_KEY: self._file}}
            kept: Any = checkpoint
            try:
                self._saver.put(config, kept, cast("Any", about), kept["channel_versions"])
            except LogMoved:
                if is_last:
                    raise
                self.thread = self._fork()  # a run has continued the thread meanwhile
            except Conflict:
                return False  # another import was quicker
            else:
                break
        return True

    def put_writes(self, ns: str, id_: str, writes: list[tuple[str, Any]], task: str, path: str) -> None:
        """Keep what a task wrote; what is on record is left out by the saver."""
        conf = {"thread_id": self.thread.id, "checkpoint_ns": ns, "checkpoint_id": id_}
        self._saver.put_writes({"configurable": conf}, writes, task, path)

    def count(self, is_new: bool) -> None:  # noqa: FBT001  # a fact of one checkpoint
        """Count a checkpoint."""
        self._new, self._there = self._new + is_new, self._there + (not is_new)

    def imported(self, thread: Thread | None = None) -> Imported:
        """What was done."""
        name = (thread or self.thread).name
        fork_of = self._own.name if name != self._own.name else None
        return Imported(self.thread_id, name, self._new, self._there, fork_of)


def _langgraph_writes(database: sqlite3.Connection, into: _Into, read: Any, key: tuple[str, str, str]) -> None:
    """The writes of a checkpoint's tasks."""
    cursor = database.execute(_statements()["langgraph_writes"], key)
    names = [column[0] for column in cursor.description]
    tasks: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for values in cursor:
        one = dict(zip(names, values, strict=True))
        of = tasks.setdefault((one["task_id"], one.get("task_path") or ""), [])
        of.append((one["channel"], _loaded(read, one["type"], one["value"])))
    for (task, path), writes in tasks.items():
        into.put_writes(*key[1:], writes, task, path)


def _loaded(read: Any, kind: Any, blob: Any) -> Any:
    """A value as LangGraph's reader makes it of stored bytes; whatever it says of damaged ones is a `ValueError`."""
    try:
        return read.loads_typed((kind, blob))
    except Exception as problem:
        raise ValueError(f"{problem}") from problem


def _json(text: Any) -> Any:
    """What a JSON text says; that it is none is a `ValueError`."""
    _check_text(text)
    try:
        return json.loads(text)
    except (TypeError, RecursionError) as problem:
        raise ValueError(f"{problem}") from problem


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a value of type {type(value).__name__} where a dict should be")  # noqa: TRY004  # for `take_in`
    return value


def _with_numbers(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint with versions that are numbers, as our saver counts them; LangGraph's SQLite has texts."""
    seen = {node: _numbers(_dict(of)) for node, of in _dict(checkpoint.get("versions_seen") or {}).items()}
    versions = _numbers(_dict(checkpoint.get("channel_versions") or {}))
    return checkpoint | {"channel_versions": versions, "versions_seen": seen}


def _numbers(versions: dict[str, Any]) -> dict[str, Any]:
    return {
        name: int(one.partition(".")[0]) if isinstance(one, str) and one.partition(".")[0].isdigit() else one
        for name, one in versions.items()
    }


# Google ADK


def _google_adk(store: SessionStore, database: sqlite3.Connection, tick: Callable[[], None]) -> Running:
    from onrecord.frameworks.google_adk import OnrecordSessionService

    service = OnrecordSessionService(store)
    for app, state in database.execute(_statements()["adk_app_states"]):
        service.import_shared(app, None, _json(state))
    for app, user, state in database.execute(_statements()["adk_user_states"]):
        service.import_shared(app, user, _json(state))
    for *key, state in database.execute(_statements()["adk_sessions"]).fetchall():
        yield key[-1], _adk_session(service, database, key, state, tick)


def _adk_session(
    service: OnrecordSessionService, database: sqlite3.Connection, key: list[str], state: Any, tick: Callable[[], None]
) -> Iterator[Imported]:
    """Import one session; `key` has its app, its user and its id."""
    kept = service.kept(*key)
    kept.catch_up()
    done = Imported(key[-1], kept.name, 0, 0)
    _refuse_other(service.store, done, kept.framework, known=kept.is_there)
    ids = {id_ for (id_,) in database.execute(_statements()["adk_ids"], key)}
    if ids and kept.entries and ids.isdisjoint(kept.entries):
        raise _other(done)
    service.import_session(kept, _json(state))
    yield done
    for (line,) in database.execute(_statements()["adk_events"], key):
        _check_text(line)
        new = service.import_event(kept, line)
        done = done._replace(new=done.new + new, there=done.there + (not new))
        tick()
        yield done


# openai-agents


class _Items(Conversation):
    """The items of a conversation, also those that were retracted: what was imported once is not imported again."""

    FIELDS = ("all", "keys", "lines")

    def _forget(self) -> None:
        super()._forget()
        self.imported: dict[str, str] = {}
        """The text of every item that came from a file."""

    def fold(self, event: Event, data: dict[str, Any]) -> None:
        """Fold one event of this conversation."""
        super().fold(event, data)
        if event.kind == "payload.kept":
            both = zip(data.get("keys") or (), data.get("lines") or (), strict=False)
            self.imported.update((key, line) for key, line in both if key.startswith(ROW))


def _openai_agents(store: SessionStore, database: sqlite3.Connection, tick: Callable[[], None]) -> Running:
    for (id_,) in database.execute(_statements()["openai_sessions"]).fetchall():
        yield id_, _openai_conversation(store, database, id_, tick)


def _openai_conversation(
    store: SessionStore, database: sqlite3.Connection, id_: str, tick: Callable[[], None]
) -> Iterator[Imported]:
    """Import one conversation."""
    kept = _Items(store, FRAMEWORK, id_)
    kept.catch_up()
    done = Imported(id_, kept.name, 0, 0)
    _refuse_other(store, done, FRAMEWORK, known=bool(kept.imported))
    texts = database.execute(_statements()["openai_items"], (id_,))
    items = {f"{ROW}{number}": _dict(_json(text)) for number, text in texts}
    new = _unknown(kept, items, done)

    def make() -> list[Draft]:
        nonlocal new
        new = _unknown(kept, items, done)  # another import may have been quicker
        rows = [
            row(number, key, item, said) for number, (key, item) in enumerate(new.items()) if (said := neutral(item))
        ]
        data = kept.kept([as_line(item) for item in new.values()], [*new], rows)
        return [kept.draft("payload.kept", data)] if new else []

    if new:
        kept.write(make)
    for _item in items:
        tick()
    gone = sum(key in kept.entries for key in kept.imported if key not in items)
    yield done._replace(new=len(new), there=len(items) - len(new), gone=gone)


def _unknown(kept: _Items, items: dict[str, Any], done: Imported) -> dict[str, Any]:
    """The items that are not on record; refused if those on record are not of this conversation.

    The number of a row says nothing by itself: another file has it, too.
    """
    both = kept.imported.keys() & items.keys()
    is_same = all(kept.is_recorded(kept.imported[key], as_line(items[key])) for key in both)
    if items and (kept.entries or kept.imported) and not (both and is_same):
        raise _other(done)
    return {key: item for key, item in items.items() if key not in kept.imported}


def _other(one: Imported) -> Conflict:
    return Conflict(
        f"session {one.session!r} has another conversation with the id {one.conversation!r:.60}: "
        "what is on record is not what the file has",
        hint="rename that session, then import again",
    )


def _refuse_other(store: SessionStore, one: Imported, framework: str, *, known: bool) -> None:
    """Refuse to mix a conversation into a session of the same name that something else began."""
    if known:
        return
    found = store.named(one.session)
    if found is None:
        return
    first = next(store.get(found.session).events(upto=1), None)
    about = (first.data or {}).get("metadata") or {} if first else {}
    if not isinstance(about, dict) or about.get("framework") != framework:
        raise Conflict(
            f"there is a session {one.session!r} already, which is not the conversation {one.conversation!r:.60}",
            hint="rename it, then import again",
        )
