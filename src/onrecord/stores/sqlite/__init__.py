"""Logs in one SQLite file: the default store. `store.py` is the store, the others are its parts."""

from onrecord.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
