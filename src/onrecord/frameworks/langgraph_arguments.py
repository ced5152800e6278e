"""What callers pass to LangGraph's checkpointer, judged before anything is made of it.

A graph passes what it should. A program that calls the saver by itself may not: what would be kept and could not be
read again is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput
from onrecord.frameworks.conversation import check_type

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

RUN_KEY = "__onrecord_run"
ONCE_KEY = "__onrecord_once"
"""In the config of an import: the id of the checkpoint, which is refused if another import was quicker."""
FILE_KEY = "__onrecord_file"
"""In the config of an import: the checkpoints of the file, one of which must be the newest of the thread."""
_PREGEL = "__pregel_"
_RUNTIME = "__pregel_runtime"


def asked_for(config: Any, filter_: Any, limit: Any) -> dict[str, Any]:
    """The part of a config that says what to list."""
    check_type(config or {}, dict, "a config that is a dict")
    check_type(filter_ or {}, dict, "a filter that is a dict")
    check_type(limit or 0, int, "a limit that is a number")
    conf: dict[str, Any] = config.get("configurable", {}) if config else {}
    check_type(conf, dict, 'a config whose "configurable" is a dict')
    return conf


def conf_of(config: Any) -> dict[str, Any]:
    """The part of a config that names a thread; its names are text, or they would come back as other values."""
    conf = config.get("configurable") if isinstance(config, dict) else None
    if not isinstance(conf, dict) or conf.get("thread_id") in (None, ""):
        raise InvalidInput(
            "the config names no thread", hint='pass {"configurable": {"thread_id": "any text"}} to the graph'
        )
    for part in ("checkpoint_ns", "checkpoint_id"):
        check_type(conf.get(part, ""), (str, type(None)), f"a {part} that is text")
    return conf


def config_of(thread_id: str, ns: str, id_: str | None, run: str | None = None) -> RunnableConfig:
    """A config that names a checkpoint, and perhaps the run that it is for."""
    conf = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id_}
    return {"configurable": conf | ({RUN_KEY: run} if run else {})}


def is_of_graph(conf: dict[str, Any]) -> bool:
    """Whether a graph made this call while it ran, and not a program that uses the saver by itself."""
    return any(name.startswith(_PREGEL) for name in conf)


def runtime_of(conf: dict[str, Any]) -> Any:
    """What LangGraph passes to every call of one run, and to no other run; None if a graph did not make the call."""
    return conf.get(_RUNTIME)


def name_of(conf: dict[str, Any]) -> str:
    """The name of a run."""
    return conf.get(RUN_KEY) or first_name_of(conf)


def first_name_of(conf: dict[str, Any]) -> str:
    """The name of the first run of a thread, which has read nothing that could have brought it one."""
    runtime = runtime_of(conf)
    return "" if runtime is None else f"first-{id(runtime)}"


def check_checkpoint(checkpoint: Any, metadata: Any, versions: Any) -> None:
    """Refuse what is no checkpoint."""
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("id"), str):
        raise InvalidInput(f"a checkpoint is a dict with an id, not {type(checkpoint).__name__}")
    for part in ("channel_values", "channel_versions", "versions_seen"):
        check_type(checkpoint.get(part, {}), dict, f"a checkpoint whose {part} are a dict")
    check_type(metadata, dict, "metadata that is a dict")
    check_type(versions or {}, dict, "new versions that are a dict")


def check_writes(writes: Any, *names: Any) -> None:
    """Refuse what are no writes of a task; a name that is no text would come back as another value."""
    try:
        channels = [channel for channel, _value in writes]
    except (TypeError, ValueError):
        raise InvalidInput("the writes of a task are pairs of a channel and a value") from None
    for name in (*channels, *names):
        check_type(name, str, "names of channels and tasks that are text")


def ids_in(ids: Any, what: str) -> Iterable[str]:
    """The ids, if they are a list: one text would be taken for the ids that its letters are."""
    if isinstance(ids, str):
        raise InvalidInput(f"this takes a list of ids of {what}, not str", hint=f"pass [{ids!r:.80}]")
    check_type(ids, Iterable, f"a list of ids of {what}")
    found: Iterable[str] = ids
    return found
