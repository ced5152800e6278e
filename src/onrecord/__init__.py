"""onrecord: durable sessions for AI agents. If it isn't on record, it didn't happen."""

from __future__ import annotations

TYPE_CHECKING = False

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onrecord.connection import connect, instructions
    from onrecord.errors import OnrecordError
    from onrecord.log.events import Event
    from onrecord.log.head import Head
    from onrecord.log.verify import Report
    from onrecord.session.handle import Session
    from onrecord.session.moment import Moment
    from onrecord.session.records import Records
    from onrecord.session.replay import replay
    from onrecord.session.retention import Policy
    from onrecord.session.turns import Turn
    from onrecord.views.context import Context
    from onrecord.views.transcript import Transcript

_PLACES = {
    "connect": "connection",
    "instructions": "connection",
    "Records": "session.records",
    "Session": "session.handle",
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
}

__all__ = [
    "Context",
    "Event",
    "Head",
    "Moment",
    "OnrecordError",
    "Policy",
    "Records",
    "Report",
    "Session",
    "Transcript",
    "Turn",
    "__version__",
    "connect",
    "instructions",
    "replay",
]


def __getattr__(name: str) -> object:
    """Public names load on first use, so that a hook pays only for what it touches."""
    if name not in _PLACES:
        raise AttributeError(f"module 'onrecord' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"onrecord.{_PLACES[name]}")
    value = globals()[name] = getattr(module, name)
    return value
