"""Which frameworks `bench/frameworks.py` measures, and what it has to know of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bench.framework_stores import (
    adk_ours,
    adk_theirs,
    claude_ours,
    history_ours,
    history_theirs,
    langgraph_at_once,
    langgraph_ours,
    langgraph_ours_going_on,
    langgraph_theirs,
    langgraph_theirs_going_on,
    mcp_ours,
    openai_ours,
    openai_theirs,
    pydantic_ours,
    run_ours,
    run_theirs,
    steps_ours,
    steps_theirs,
    strands_ours,
    strands_theirs,
)
from bench.framework_turns import (
    adk_decoding,
    adk_events,
    as_it_is,
    claude_entries,
    history_decoding,
    history_encoding,
    history_messages,
    history_text,
    langgraph_decoding,
    mcp_message,
    pydantic_decoding,
    pydantic_encoding,
    pydantic_messages,
    pydantic_text,
    responses_items,
    steps_encoding,
    strands_messages,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from bench.framework_stores import Pair, Turn, Write


class Measured(NamedTuple):
    """A framework: our adapter, its own store, what it has instead of a turn, and the durable calls of a turn."""

    ours: Callable[[Path], Awaitable[Pair]]
    theirs: Callable[[Path], Awaitable[Pair]] | None
    """None if the framework has no store that survives its process."""
    module: str
    """What must be installed."""
    environment: str
    made: Callable[[Turn], Any]
    calls: int
    durable: bool = True
    """Whether its own store syncs what it writes, in a database: only then is it a yardstick."""
    decoding: Callable[[list[Turn]], Callable[[], object]] | None = None
    """What the framework itself does to have the objects of these turns, if it makes any."""
    encoding: Callable[[], Write] | None = None
    """What the framework itself does to save a turn, with any store, if that is more than to hand over what it has."""
    text: Callable[[Any], str] = str
    """The JSON that it makes of a turn then."""
    appends: int = 100
    """How many turns are written one by one. Where a framework hands over the whole conversation each time (LangGraph,
    the harness), each turn costs more than the one before it, with any store."""
    aims: str = "calls and turns"
    """What has a target here: single calls, or whole turns as the framework makes them."""
    at_once: Callable[[Path, list[Turn]], None] | None = None
    """Puts many turns into its own store, where one by one would take too long: all but the last ones of a resume."""
    going_on: dict[str, Callable[[Path, Turn], Awaitable[int]]] | None = None
    """Resumes and makes a turn, in either store: where the first turn of a process costs more than others."""


MEASURED = {
    "openai-agents": Measured(
        openai_ours, openai_theirs, "agents", "core", responses_items, 1, appends=600, aims="calls"
    ),
    "openai-agents-run": Measured(
        run_ours, run_theirs, "agents", "core", responses_items, 2, appends=300, aims="turns"
    ),
    "langgraph": Measured(
        langgraph_ours, langgraph_theirs, "langgraph.checkpoint.sqlite", "core", as_it_is, 5,
        decoding=langgraph_decoding, at_once=langgraph_at_once,
        going_on={"ours": langgraph_ours_going_on, "theirs": langgraph_theirs_going_on},
    ),
    "google-adk": Measured(
        adk_ours, adk_theirs, "google.adk", "google-adk", adk_events, 3, decoding=adk_decoding
    ),
    "pydantic-steps": Measured(
        steps_ours, steps_theirs, "pydantic_ai_harness", "pydantic-steps", pydantic_messages, 1,
        appends=60, decoding=pydantic_decoding, encoding=steps_encoding, text=pydantic_text,
    ),
    "pydantic-ai": Measured(
        pydantic_ours, None, "pydantic_ai.conversation", "pydantic-ai", pydantic_messages, 1,
        appends=200, decoding=pydantic_decoding, encoding=pydantic_encoding, text=pydantic_text,
    ),
    "strands": Measured(
        strands_ours, strands_theirs, "strands", "strands", strands_messages, 3, appends=200, durable=False
    ),
    "agent-framework": Measured(
        history_ours, history_theirs, "agent_framework", "agent-framework", history_messages, 1, durable=False,
        decoding=history_decoding, encoding=history_encoding, text=history_text,
    ),
    "claude-agent-sdk": Measured(claude_ours, None, "claude_agent_sdk", "claude", claude_entries, 1, appends=300),
    "mcp": Measured(mcp_ours, None, "mcp.server.streamable_http", "core", mcp_message, 1, appends=300),
}  # fmt: skip
