"""onrecord: durable sessions for AI agents. If it isn't on record, it didn't happen."""

from __future__ import annotations

TYPE_CHECKING = False

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onrecord import aio as aio
    from onrecord import errors as errors
    from onrecord.connection import connect, instructions
    from onrecord.errors import OnrecordError
    from onrecord.log.events import Event
    from onrecord.log.head import Head
    from onrecord.log.verify import Report
    from onrecord.rules import ToolRequest, Verdict
    from onrecord.session.handle import Session
    from onrecord.session.moment import Moment
    from onrecord.session.replay import replay
    from onrecord.session.retention import Policy
    from onrecord.session.session_store import SessionStore
    from onrecord.session.turns import Turn
    from onrecord.views.context import Context
    from onrecord.views.transcript import Transcript
    from onrecord.views.values import (
        Agent,
        Anchor,
        Attempt,
        Budget,
        Change,
        Checkpoint,
        Decision,
        Effect,
        Evidence,
        Feature,
        Finding,
        Interruption,
        Item,
        Json,
        Lane,
        Link,
        Message,
        NextAction,
        Objective,
        Phase,
        Profile,
        Reproduction,
        Section,
        ToolCall,
        Usage,
    )

_HOMES = {
    "connect": "connection",
    "instructions": "connection",
    "Session": "session.handle",
    "SessionStore": "session.session_store",
    "Turn": "session.turns",
    "Moment": "session.moment",
    "Policy": "session.retention",
    "replay": "session.replay",
    "Event": "log.events",
    "Head": "log.head",
    "Report": "log.verify",
    "Transcript": "views.transcript",
    "Context": "views.context",
    "OnrecordError": "errors",
    "ToolRequest": "rules",
    "Verdict": "rules",
    "Agent": "views.values",
    "Anchor": "views.values",
    "Attempt": "views.values",
    "Budget": "views.values",
    "Change": "views.values",
    "Checkpoint": "views.values",
    "Decision": "views.values",
    "Effect": "views.values",
    "Evidence": "views.values",
    "Feature": "views.values",
    "Finding": "views.values",
    "Interruption": "views.values",
    "Item": "views.values",
    "Json": "views.values",
    "Lane": "views.values",
    "Link": "views.values",
    "Message": "views.values",
    "NextAction": "views.values",
    "Objective": "views.values",
    "Phase": "views.values",
    "Profile": "views.values",
    "Reproduction": "views.values",
    "Section": "views.values",
    "ToolCall": "views.values",
    "Usage": "views.values",
}

_MODULES = frozenset({"aio", "errors"})
"""Public modules: `onrecord.errors.SessionNotFound` needs no import of its own."""

__all__ = [
    "Agent",
    "Anchor",
    "Attempt",
    "Budget",
    "Change",
    "Checkpoint",
    "Context",
    "Decision",
    "Effect",
    "Event",
    "Evidence",
    "Feature",
    "Finding",
    "Head",
    "Interruption",
    "Item",
    "Json",
    "Lane",
    "Link",
    "Message",
    "Moment",
    "NextAction",
    "Objective",
    "OnrecordError",
    "Phase",
    "Policy",
    "Profile",
    "Report",
    "Reproduction",
    "Section",
    "Session",
    "SessionStore",
    "ToolCall",
    "ToolRequest",
    "Transcript",
    "Turn",
    "Usage",
    "Verdict",
    "__version__",
    "connect",
    "instructions",
    "replay",
]


def __getattr__(name: str) -> object:
    """Public names load on first use, so that a hook pays only for what it touches."""
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module 'onrecord' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"onrecord.{name}")
    module = import_module(f"onrecord.{_HOMES[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not. Other modules are left out, although they appear here once they are loaded."""
    return sorted({*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))})
