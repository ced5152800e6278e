"""Logs in one SQLite file: the default store. `store.py` is the store, the others are its parts."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]


def __getattr__(name: str) -> object:
    """The store loads on first use: a gate that only reads needs little of it."""
    if name != "SQLiteStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onrecord.stores.sqlite.store import SQLiteStore

    return SQLiteStore
