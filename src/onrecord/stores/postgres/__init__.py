"""Logs in PostgreSQL: many machines, many tenants. `store.py` is the store, the others are its parts."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]


def __getattr__(name: str) -> object:
    """The store and its driver load on first use."""
    if name != "PostgresStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onrecord.stores.postgres.store import PostgresStore

    return PostgresStore
