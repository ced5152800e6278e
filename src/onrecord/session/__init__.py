"""THE CONDUCTOR: the handle callers hold. It joins log, views and a store, and does I/O only through that store."""
