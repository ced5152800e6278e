"""Logs in one SQLite file: the default store. `store.py` is the store; the others are its parts, each explained at its top."""

from onrecord.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
