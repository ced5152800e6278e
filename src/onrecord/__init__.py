"""onrecord: durable sessions for AI agents. If it isn't on record, it didn't happen."""

from __future__ import annotations

__version__ = "0.1.0"

_PLACES = {
    "connect": "connect",
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

__all__ = [*_PLACES, "__version__"]


def __getattr__(name: str) -> object:
    """Public names load on first use, so that a hook pays only for what it touches."""
    if name not in _PLACES:
        raise AttributeError(f"module 'onrecord' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"onrecord.{_PLACES[name]}")
    value = globals()[name] = getattr(module, name)
    return value
